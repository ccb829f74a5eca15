//! The characters that a terminal shows.

/// Returns whether a character is printable. Control characters, direction marks and unassigned
/// characters are not.
pub fn is_visible(found: char) -> bool {
    if found.is_whitespace() {
        return !found.is_control() && !matches!(found, '\u{2028}' | '\u{2029}');
    }
    // A combining mark after a letter is printable.
    let following = ['a', found].iter().collect::<String>();
    following.escape_debug().eq(following.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_unassigned_characters_are_not_printable() {
        assert!(['a', 'é', ' ', '\u{301}', '漢'].into_iter().all(is_visible));
        assert!(
            ['\n', '\u{7f}', '\u{2028}', '\u{162df}']
                .into_iter()
                .all(|found| !is_visible(found))
        );
    }
}
