//! Cycles of calls within a stack.

/// The longest cycle that is recognized, in frames.
const MAX_PERIOD: usize = 32;
/// The most frames that may be within the innermost call of a cycle.
const MAX_LEAF: usize = 32;
/// The repetitions that make a sequence of frames a cycle.
const REPETITIONS: usize = 3;

/// A sequence of frames that repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The first frame.
    pub start: usize,
    /// The number of frames of one repetition.
    pub period: usize,
}

/// Returns for each frame whether it stays after repetitions of the frames before are removed.
///
/// The result has the same frames, however often a cycle repeats.
pub fn collapsed<T: PartialEq>(frames: &[T]) -> Vec<bool> {
    let mut kept: Vec<usize> = Vec::with_capacity(frames.len());
    for at in 0..frames.len() {
        kept.push(at);
        let repeated = (1..=MAX_PERIOD.min(kept.len() / 2)).find(|&period| {
            let (rest, last) = kept.split_at(kept.len() - period);
            let before = &rest[rest.len() - period..];
            before
                .iter()
                .zip(last)
                .all(|(&one, &two)| frames[one] == frames[two])
        });
        kept.truncate(kept.len() - repeated.unwrap_or(0));
    }
    let mut stays = vec![false; frames.len()];
    for at in kept {
        stays[at] = true;
    }
    stays
}

/// Returns the innermost cycle of a stack, with the shortest period.
///
/// The cycle repeats three times or more, and makes half of the frames from its start. Else a few
/// equal calls by chance would name an irregular recursion.
pub fn cycle<T: PartialEq>(frames: &[T]) -> Option<Cycle> {
    let starts = 0..MAX_LEAF.min(frames.len());
    starts
        .flat_map(|start| (1..=MAX_PERIOD).map(move |period| Cycle { start, period }))
        .find(|&Cycle { start, period }| {
            let rest = &frames[start..];
            let later = rest.get(period..).unwrap_or_default();
            let equal = rest.iter().zip(later).take_while(|(one, two)| one == two).count();
            let length = equal + period;
            length >= period * REPETITIONS && length * 2 >= rest.len()
        })
}

/// Returns the frames of a cycle from the one that makes the sequence least. The result does not
/// depend on the frame of the cycle in which the stack ended.
pub fn rotated<T: Ord + Clone>(cycle: &[T]) -> Vec<T> {
    let rotations = (0..cycle.len()).map(|first| {
        let (before, after) = cycle.split_at(first);
        [after, before].concat()
    });
    rotations.min().unwrap_or_default()
}

/// Returns the frame that occurs most often, and its count. Of equal counts, the least counts.
pub fn most_frequent<T: Ord>(frames: &[T]) -> Option<(&T, usize)> {
    let mut sorted: Vec<&T> = frames.iter().collect();
    sorted.sort();
    let mut best: Option<(&T, usize)> = None;
    for same in sorted.chunk_by(|one, two| one == two) {
        if best.is_none_or(|(_, count)| same.len() > count) {
            best = same.first().map(|first| (*first, same.len()));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collapse(text: &str) -> String {
        let frames: Vec<char> = text.chars().collect();
        let stays = collapsed(&frames);
        frames
            .iter()
            .zip(stays)
            .filter(|(_, stays)| *stays)
            .map(|(frame, _)| frame)
            .collect()
    }

    #[test]
    fn depth_of_a_recursion_does_not_matter() {
        for (cycle, leaf) in [("f", ""), ("fg", ""), ("fgh", "x"), ("fgg", "m"), ("abcd", "ab")] {
            let stack = |times: usize| format!("{leaf}{}main", cycle.repeat(times));
            let collapsed = collapse(&stack(3));
            for times in 4..40 {
                assert_eq!(collapse(&stack(times)), collapsed, "{cycle}");
            }
        }
        assert_eq!(collapse("fgfgfgmain"), "fgmain");
        assert_eq!(collapse("main"), "main");
    }

    #[test]
    fn cycle_is_found_within_its_leaf_calls() {
        let find = |text: &str| cycle(&text.chars().collect::<Vec<_>>());
        assert_eq!(find("mabababab"), Some(Cycle { start: 1, period: 2 }));
        assert_eq!(find("aaaa"), Some(Cycle { start: 0, period: 1 }));
        assert_eq!(find("abab"), None);
        assert_eq!(find("ababab and a long rest"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn rotation_does_not_depend_on_the_phase() {
        for cycle in ["bca", "cab", "abc"] {
            let frames: Vec<char> = cycle.chars().collect();
            assert_eq!(rotated(&frames), ['a', 'b', 'c']);
        }
    }

    #[test]
    fn most_frequent_frame_is_the_least_of_equals() {
        assert_eq!(most_frequent(&["b", "a", "b", "a", "c"]), Some((&"a", 2)));
        assert_eq!(most_frequent::<u8>(&[]), None);
    }
}
