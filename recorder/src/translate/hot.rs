//! What is executed often, as samples of the log show it.
//!
//! A sample needs to be no more than that: what is not executed often is found seldom, and to translate
//! it again does no harm.

use super::event::Event;

/// Blocks that an indirect branch led to and that were left by a side: their outcomes are an event by
/// themselves, which a wide block would tell together with the next.
///
/// The log begins with a whole event.
pub(super) fn left_by_sides(log: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = log;
    let events = std::iter::from_fn(move || {
        let (event, len) = Event::read(rest)?;
        rest = rest.get(len..)?;
        Some(event)
    });
    let mut entered = None;
    events.filter_map(move |event| {
        let before = entered.take();
        match event {
            Event::Outcomes(_) => return before,
            Event::Target { target, .. }
            | Event::Return { target, .. }
            | Event::IndirectCall { target, .. } => entered = Some(target),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::event::NO_OUTCOMES;
    use super::*;

    #[test]
    fn only_what_was_entered_last_was_left() {
        let outcomes = NO_OUTCOMES;
        let events = [
            Event::Outcomes(0b11),
            Event::Target { outcomes, target: 1 },
            Event::Return { outcomes, target: 2 },
            Event::Outcomes(0b10),
            Event::Outcomes(0b10),
            Event::Return { outcomes, target: 3 },
            Event::Call { outcomes, next: 4 },
            Event::Outcomes(0b10),
        ];
        let mut log = Vec::new();
        for event in events {
            let (bytes, len) = event.write();
            log.extend_from_slice(&bytes[..len]);
        }
        // The last event may be cut short.
        log.push(super::super::event::TARGET);
        assert_eq!(left_by_sides(&log).collect::<Vec<_>>(), [2]);
    }
}
