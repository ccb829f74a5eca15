//! Suffixes that compilers and linkers append to the names of functions.

/// Suffixes of copies and parts of a function. A number may follow each.
const SUFFIXES: &[&str] = &[
    "cold",
    "part",
    "isra",
    "constprop",
    "lto_priv",
    "llvm",
    "localalias",
    "local",
    "clone",
    "hot",
    "warm",
    "unlikely",
    "specialized",
    "resume",
    "destroy",
    "cleanup",
    "actor",
    "outlined",
    "extracted",
    "__uniq",
    "cfi",
    "cfi_jt",
    "kcfi",
    "simd",
    "default",
    "ifunc",
    "resolver",
    "stub",
];

/// Returns the name without the demangler's note of a copy: ` [clone .cold]` or ` (.cold)`.
pub fn without_clone(name: &str) -> &str {
    let end = [" [clone ", " (."]
        .iter()
        .filter_map(|note| name.find(note))
        .min();
    name[..end.unwrap_or(name.len())].trim_end()
}

/// Returns the name without symbol versions, suffixes of copies, and the hash of Rust.
pub fn without_suffixes(name: &str) -> &str {
    let mut name = without_version(name);
    let shorter = |name| {
        without_suffix(name)
            .or_else(|| without_hash(name))
            .or_else(|| without_shim(name))
    };
    while let Some(shorter) = shorter(name) {
        name = shorter;
    }
    name
}

/// Returns the name without `@plt` or `@@GLIBC_2.2.5`.
fn without_version(name: &str) -> &str {
    match name.rfind('@') {
        Some(at) if !name[at..].contains(['(', ')', '<', '>', ':', ' ']) => {
            let short = name[..at].trim_end_matches('@');
            if short.is_empty() { name } else { short }
        }
        _ => name,
    }
}

/// Returns the name without its last suffix, such as `.constprop.0` or `.1234`.
fn without_suffix(name: &str) -> Option<&str> {
    let (rest, last) = name.rsplit_once('.')?;
    if rest.is_empty() {
        return None;
    }
    if !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(rest);
    }
    let word = last.trim_end_matches(|letter: char| letter.is_ascii_digit());
    SUFFIXES.contains(&word).then_some(rest)
}

/// Returns the name without Rust's mark of a call through a table of methods.
fn without_shim(name: &str) -> Option<&str> {
    name.strip_suffix("{{vtable.shim}}")
}

/// Returns the name without the hash of Rust's legacy names: `::h` and 16 hexadecimal digits.
fn without_hash(name: &str) -> Option<&str> {
    let (rest, last) = name.rsplit_once("::")?;
    let digits = last.strip_prefix('h')?;
    let is_hash = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && !rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_compilers_are_removed() {
        for (name, expected) in [
            ("post.cold", "post"),
            ("post.isra.0.part.3.cold.1", "post"),
            ("post.lto_priv.17", "post"),
            ("post.llvm.14881573112049527403", "post"),
            ("post.1234", "post"),
            ("post.__uniq.12345.llvm.99", "post"),
            ("ledger::post::h0123456789abcdef", "ledger::post"),
            ("ledger::post::h0123456789abcdef.llvm.77", "ledger::post"),
            ("ledger::h0123", "ledger::h0123"),
            ("malloc@plt", "malloc"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("fopen@GLIBC_2.2.5", "fopen"),
            ("operator@", "operator"),
            (".cold", ".cold"),
            ("@", "@"),
        ] {
            assert_eq!(without_suffixes(name), expected, "{name}");
        }
    }

    #[test]
    fn notes_of_demanglers_are_removed() {
        assert_eq!(without_clone("f(int) [clone .isra.0] [clone .cold]"), "f(int)");
        assert_eq!(without_clone("f(int) (.cold.3)"), "f(int)");
    }
}
