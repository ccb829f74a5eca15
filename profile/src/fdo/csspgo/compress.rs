//! Shortens contexts of recursive calls.

/// Removes repetitions of sequences that follow each other: `a b a b c` becomes `a b c`. Short
/// sequences are removed first.
///
/// Source: LLVM, `CSProfileGenerator::compressRecursionContext`.
pub(super) fn compress<T: PartialEq + Clone>(context: &mut Vec<T>) {
    let mut len = 1;
    let mut longest = context.len() / 2;
    while len <= longest {
        if !has_repetition(context, len) {
            len += 1;
            continue;
        }
        // The last element of the window's first half, and where nothing is to be compared again.
        let mut right = len - 1;
        let mut boundary = 0;
        let mut kept: Vec<T> = context.iter().take(len).cloned().collect();
        while right + len < context.len() {
            let is_same = |at: usize| context.get(at) == context.get(at + len);
            // The first place from the right where the halves differ.
            let differs = (boundary..=right).rev().find(|at| !is_same(*at));
            boundary = right + 1;
            match differs {
                None => right += len,
                Some(at) => {
                    kept.extend(context.iter().take(at + len + 1).skip(right + 1).cloned());
                    right = at + len;
                }
            }
        }
        kept.extend(context.iter().skip(right + 1).cloned());
        *context = kept;
        len += 1;
        longest = longest.min(context.len() / 2);
    }
}

/// Returns whether a sequence of this length is followed by the same one.
fn has_repetition<T: PartialEq>(context: &[T], len: usize) -> bool {
    let mut same = 0;
    context.iter().zip(context.iter().skip(len)).any(|(one, other)| {
        same = if one == other { same + 1 } else { 0 };
        same >= len
    })
}

/// Keeps the innermost elements.
pub(super) fn trim<T>(context: &mut Vec<T>, depth: usize) {
    context.drain(..context.len().saturating_sub(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_removed() {
        for (context, expected) in [
            ("", ""),
            ("a", "a"),
            ("aabb", "ab"),
            ("ababc", "abc"),
            ("abcabc", "abc"),
            ("xababab", "xab"),
            ("aabaab", "ab"),
            ("abcbcbd", "abcbd"),
            ("abacabad", "abacabad"),
        ] {
            let mut found: Vec<char> = context.chars().collect();
            compress(&mut found);
            assert_eq!(found.iter().collect::<String>(), expected, "{context}");
        }
    }

    #[test]
    fn innermost_elements_are_kept() {
        let mut context = vec![1, 2, 3];
        trim(&mut context, 2);
        assert_eq!(context, [2, 3]);
        trim(&mut context, 3);
        assert_eq!(context, [2, 3]);
    }

    proptest::proptest! {
        /// Elements that are equal do not follow each other, and the order of the others is kept.
        #[test]
        fn no_element_is_repeated(context in proptest::collection::vec(0_u8..3, 0..24)) {
            let mut found = context.clone();
            compress(&mut found);
            let mut rest = context.iter();
            proptest::prop_assert!(found.iter().all(|kept| rest.any(|element| element == kept)));
            proptest::prop_assert_eq!(found.first(), context.first());
            proptest::prop_assert_eq!(found.last(), context.last());
        }
    }
}
