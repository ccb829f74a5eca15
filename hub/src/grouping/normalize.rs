//! Names of functions in one form for all builds and compilers.
//!
//! The input is the demangled name of a function in C, C++, Rust or Go. The result has no arguments
//! and no return type, `<T>` in place of template arguments, and no number that a compiler chose.
//! Each name is read once from start to end, with a stack of open brackets. So the time is linear
//! in the length of the name.

mod brackets;
mod go;
mod libc;
mod paths;
mod suffixes;

use super::printable::{limited, printable};

pub(super) use libc::VARIED;

/// The most bytes of a name that are read.
const MAX_READ: usize = 64 << 10;
/// The longest normalized name, in bytes. A longer one ends with a hash.
const MAX_NAME: usize = 200;

/// Returns the normalized name of a function.
///
/// ```
/// use backtrail_hub::grouping::normalize;
///
/// assert_eq!(normalize("int ns::Map<int>::at<3>(int) const [clone .cold]"), "ns::Map<T>::at<T>");
/// assert_eq!(normalize("<Vec<T,A> as Index<I>>::index"), "<Vec<T> as Index<T>>::index");
/// assert_eq!(normalize("main.(*Server).handle.func2"), "main.(*Server).handle.func");
/// assert_eq!(normalize("__memcpy_avx_unaligned_erms"), "memcpy");
/// ```
#[must_use]
pub fn normalize(function: &str) -> String {
    let function = function.trim();
    let function = &function[..function.floor_char_boundary(MAX_READ)];
    // Methods of Objective-C have spaces and brackets of their own.
    if function.starts_with("-[") || function.starts_with("+[") {
        return limited(&printable(function), MAX_NAME);
    }
    let function = suffixes::without_clone(function);
    let name = if go::is_go(function) {
        go::normalize(function)
    } else {
        let function = suffixes::without_suffixes(function);
        let name = paths::normalize(function);
        // A name that has no path is better kept whole than lost.
        let name = if name.is_empty() {
            function.to_owned()
        } else {
            name
        };
        match libc::folded(&name) {
            Some(folded) => folded.to_owned(),
            None => name,
        }
    };
    limited(&printable(&name), MAX_NAME)
}

#[cfg(test)]
mod tests;
