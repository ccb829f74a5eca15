//! Generated files are not edited.

use super::{Problem, Source};
use crate::protocol;

/// Generates the file again and compares.
pub fn check(source: &Source) -> Vec<Problem> {
    if source.path != protocol::TYPES {
        return Vec::new();
    }
    let difference = protocol::difference(&source.text);
    difference
        .map(|message| Problem::new(source, 0, message))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_hand_is_found() {
        let text = std::fs::read_to_string(format!("../{}", protocol::TYPES)).unwrap();
        assert_eq!(check(&Source::sample(protocol::TYPES, &text)), []);
        let changed = text.replacen("pub struct", "struct", 1);
        assert_eq!(check(&Source::sample(protocol::TYPES, &changed)).len(), 1);
        assert_eq!(check(&Source::sample("dap-adapter/src/lib.rs", &changed)), []);
    }
}
