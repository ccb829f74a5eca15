//! Pairs the allocations and frees of one address.
//!
//! The events of several threads are ordered by time stamps, which can leave two orders open. A
//! block is freed before its address is allocated again, so allocations and frees take turns. Where
//! stamps leave the order open, the one that takes turns is used.

/// An allocation or a free of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEvent<P> {
    /// Where it happened.
    pub place: P,
    /// The earliest time; `None`: before all stamps.
    pub earliest: Option<u64>,
    /// The latest time; `None`: no stamp bounds it.
    pub latest: Option<u64>,
}

impl<P> TimedEvent<P> {
    /// Returns whether it can have happened before another event.
    fn can_precede<Q>(&self, other: &TimedEvent<Q>) -> bool {
        other
            .latest
            .is_none_or(|latest| self.earliest.is_none_or(|earliest| earliest <= latest))
    }
}

/// A block, from its allocation to its free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life<A, F> {
    /// The allocation; `None`: it is not in the history.
    pub allocated: Option<TimedEvent<A>>,
    /// The free.
    pub freed: Option<TimedEvent<F>>,
    /// Whether the address was allocated again. Without a free, that is not in the history then.
    pub is_replaced: bool,
}

/// Returns the lives of the blocks at one address, in order.
///
/// A free without an allocation is a life of its own: of an older block, or it is a second free.
#[must_use]
pub fn lives<A, F>(mut allocations: Vec<TimedEvent<A>>, mut frees: Vec<TimedEvent<F>>) -> Vec<Life<A, F>> {
    allocations.sort_by_key(|event| event.earliest);
    frees.sort_by_key(|event| event.earliest);
    let mut allocations = allocations.into_iter().peekable();
    let mut frees = frees.into_iter().peekable();
    let mut lives: Vec<Life<A, F>> = Vec::new();
    loop {
        let is_live = lives.last().is_some_and(|life| life.freed.is_none());
        let takes_free = match (allocations.peek(), frees.peek()) {
            (None, None) => return lives,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(allocation), Some(free)) if is_live => free.can_precede(allocation),
            (Some(allocation), Some(free)) => !allocation.can_precede(free),
        };
        if takes_free {
            let freed = frees.next();
            match lives.last_mut().filter(|_| is_live) {
                Some(life) => life.freed = freed,
                None => lives.push(Life {
                    allocated: None,
                    freed,
                    is_replaced: false,
                }),
            }
            continue;
        }
        if let Some(life) = lives.last_mut() {
            life.is_replaced = true;
        }
        lives.push(Life {
            allocated: allocations.next(),
            freed: None,
            is_replaced: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(place: usize, earliest: u64, latest: u64) -> TimedEvent<usize> {
        TimedEvent {
            place,
            earliest: Some(earliest),
            latest: Some(latest),
        }
    }

    fn places(lives: &[Life<usize, usize>]) -> Vec<(Option<usize>, Option<usize>)> {
        let place = |event: &Option<TimedEvent<usize>>| event.map(|event| event.place);
        lives
            .iter()
            .map(|life| (place(&life.allocated), place(&life.freed)))
            .collect()
    }

    #[test]
    fn overlapping_times_take_turns() {
        // The free of the first block and the next allocation happened between 20 and 30.
        let found = lives(
            vec![event(0, 1, 5), event(2, 20, 30)],
            vec![event(1, 22, 30), event(3, 40, 41)],
        );
        assert_eq!(places(&found), [(Some(0), Some(1)), (Some(2), Some(3))]);
    }

    #[test]
    fn second_free_and_unknown_allocation_are_alone() {
        let found = lives(
            vec![event(1, 10, 11)],
            vec![event(0, 1, 2), event(2, 20, 21), event(3, 30, 31)],
        );
        assert_eq!(
            places(&found),
            [(None, Some(0)), (Some(1), Some(2)), (None, Some(3))]
        );
    }

    #[test]
    fn missing_free_ends_with_the_next_allocation() {
        let found = lives(vec![event(0, 1, 2), event(1, 10, 11)], vec![event(2, 20, 21)]);
        assert_eq!(places(&found), [(Some(0), None), (Some(1), Some(2))]);
        assert!(found[0].is_replaced && !found[1].is_replaced);
    }

    proptest! {
        /// Events are ten ticks apart, and blurred so that neighbors overlap. The model is the
        /// order in which they happened.
        #[test]
        fn blurred_times_reproduce_turns(blur in prop::collection::vec((0..9_u64, 0..9_u64), 0..60)) {
            let (mut allocations, mut frees, mut model) = (Vec::new(), Vec::new(), Vec::new());
            for (place, (early, late)) in blur.into_iter().enumerate() {
                let at = 1000 + 10 * place as u64;
                let timed = event(place, at - early, at + late);
                match (place % 2, model.last_mut()) {
                    (1, Some((_, end))) => {
                        *end = Some(place);
                        frees.push(timed);
                    }
                    _ => {
                        model.push((Some(place), None));
                        allocations.push(timed);
                    }
                }
            }
            prop_assert_eq!(places(&lives(allocations, frees)), model);
        }

        /// With exact times, every event is where it happened.
        #[test]
        fn exact_times_reproduce_the_model(kinds in prop::collection::vec(any::<bool>(), 0..60)) {
            let (mut allocations, mut frees, mut model) = (Vec::new(), Vec::new(), Vec::new());
            let mut is_live = false;
            for (place, free) in kinds.into_iter().enumerate() {
                let at = place as u64;
                match (free, is_live) {
                    (true, true) => {
                        if let Some((_, end)) = model.last_mut() {
                            *end = Some(place);
                        }
                    }
                    (true, false) => model.push((None, Some(place))),
                    (false, _) => model.push((Some(place), None)),
                }
                match free {
                    true => frees.push(event(place, at, at)),
                    false => allocations.push(event(place, at, at)),
                }
                is_live = !free;
            }
            prop_assert_eq!(places(&lives(allocations, frees)), model);
        }
    }
}
