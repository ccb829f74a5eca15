//! Demangles linkage names, with bounded time and size.

use std::fmt::{self, Write};
use std::sync::Arc;

/// Longer linkage names are not demangled: substitutions can make a name grow exponentially.
const MAX_MANGLED: usize = 16 << 10;
/// The most bytes of a demangled name for each byte of the linkage name, and for any name.
const MAX_GROWTH: usize = 32;
const MAX_DEMANGLED: usize = 64 << 10;

/// The demangled name and the linkage name of a function.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// The demangled name.
    pub readable: Arc<str>,
    /// The linkage name.
    pub linkage: Arc<str>,
}

/// Returns the demangled form of a linkage name of Rust or C++. Other names stay as they are. The
/// suffix `@plt` of a linkage stub stays too.
#[must_use]
pub fn demangled(linkage: &str) -> Arc<str> {
    match linkage.strip_suffix("@plt") {
        Some(target) => format!("{}@plt", Name::of(target.as_bytes()).readable).into(),
        None => Name::of(linkage.as_bytes()).readable,
    }
}

impl Name {
    /// Demangles a linkage name of Rust (legacy and v0) or C++ (Itanium). Other names stay as they
    /// are.
    pub fn of(linkage: &[u8]) -> Self {
        let linkage: Arc<str> = String::from_utf8_lossy(linkage).into();
        let readable = demangle(&linkage).map_or_else(|| linkage.clone(), Arc::from);
        // Names are untrusted, so control characters are escaped: they could control a terminal.
        let readable = match readable.contains(char::is_control) {
            true => readable.replace(char::is_control, "\u{fffd}").into(),
            false => readable,
        };
        Self { readable, linkage }
    }
}

fn demangle(linkage: &str) -> Option<String> {
    if linkage.len() > MAX_MANGLED {
        return None;
    }
    let limit = (256 + MAX_GROWTH * linkage.len()).min(MAX_DEMANGLED);
    let mut out = Bounded {
        text: String::new(),
        limit,
    };
    if let Ok(rust) = rustc_demangle::try_demangle(linkage) {
        // The alternate form omits the hash.
        write!(out, "{rust:#}").ok()?;
        return Some(out.text);
    }
    if !linkage.starts_with("_Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(linkage).ok()?;
    // Only instances of templates have a return type in their linkage name. Debuggers omit it.
    let options = cpp_demangle::DemangleOptions::default().no_return_type();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.text)
}

/// A string that refuses to grow beyond `limit` bytes.
struct Bounded {
    text: String,
    limit: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language_are_demangled() {
        for (linkage, readable) in [
            ("main", "main"),
            ("_ZN2ns1fEi", "ns::f(int)"),
            ("_Z7largestIiET_PKS0_i", "largest<int>(int const*, int)"),
            ("_ZN12_GLOBAL__N_15localEv", "(anonymous namespace)::local()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Znot_mangled", "_Znot_mangled"),
        ] {
            assert_eq!(&*Name::of(linkage.as_bytes()).readable, readable);
            assert_eq!(&*demangled(linkage), readable);
            assert_eq!(*demangled(&format!("{linkage}@plt")), *format!("{readable}@plt"));
        }
    }

    #[test]
    fn exponentially_growing_names_are_bounded() {
        // Each S_ type mentions the previous one twice.
        let mut linkage = String::from("_Z1fI1aE");
        for _ in 0..40 {
            linkage.push_str("1bIS_S_E");
        }
        assert!(Name::of(linkage.as_bytes()).readable.len() <= MAX_DEMANGLED);
    }
}
