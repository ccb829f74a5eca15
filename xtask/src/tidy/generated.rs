//! Generated files are not edited.

use super::{Problem, Source};
use crate::{protocol, web};

/// Generates the file again and compares, or compares the fingerprint of its sources.
pub fn check(source: &Source) -> Vec<Problem> {
    let difference = match source.path.as_str() {
        protocol::TYPES => protocol::difference(&source.text),
        web::PAGE | web::TIMELINE => web::difference(&source.text),
        _ => None,
    };
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

    #[test]
    fn a_page_of_other_sources_is_found() {
        let text = std::fs::read_to_string(format!("../{}", web::PAGE)).unwrap();
        assert_eq!(check(&Source::sample(web::PAGE, &text)), []);
        let at = text.find("fingerprint ").unwrap() + "fingerprint ".len();
        let other = format!("{}0123456789abcdef{}", &text[..at], &text[at + 16..]);
        let problems = check(&Source::sample(web::PAGE, &other));
        assert!(problems[0].message.contains("cargo xtask web"), "{problems:?}");
    }
}
