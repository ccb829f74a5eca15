//! The panic of a Rust program that ended by exiting.

use super::Navigator;
use crate::breakpoint::Scan;
use crate::error::Result;
use crate::session::Thread;
use backtrail_bundle::manifest::Ending;
use backtrail_decoder::{PcSet, Position, Watch};

/// The exit status of a Rust program whose main thread panicked (the documentation of
/// `std::process::ExitCode` and of `panic!`).
const PANIC_STATUS: i32 = 101;

/// The functions that every panic calls: the panic handler of `std`, and the one of panics with a
/// value (`library/std/src/panicking.rs`).
const HANDLERS: [&str; 2] = ["rust_begin_unwind", "std::panicking::begin_panic"];

impl Navigator {
    /// Returns whether the program exited as it does after a panic.
    #[must_use]
    pub fn exited_as_after_panic(&self) -> bool {
        let session = self.session();
        session.crash().is_none() && session.ending() == Some(Ending::Exited(PANIC_STATUS))
    }

    /// Returns where the newest panic began: before the first instruction of its handler. The
    /// thread that ended the program is searched first.
    ///
    /// The panic may have been caught. Without symbols of `std` there is no result.
    ///
    /// # Errors
    /// If it may be in history that is not decoded yet; when canceled.
    pub fn last_panic(&self, watch: &Watch<'_>) -> Result<Option<Position>> {
        let main = self.session().main_thread().map(|thread| thread.tid);
        let mut threads: Vec<&Thread> = self.session().threads().iter().collect();
        threads.sort_by_key(|thread| Some(thread.tid) != main);
        for thread in threads.into_iter().filter(|thread| !thread.history.is_empty()) {
            if let Some(position) = self.last_panic_of(thread, watch)? {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    fn last_panic_of(&self, thread: &Thread, watch: &Watch<'_>) -> Result<Option<Position>> {
        let process = self.process_of(thread)?;
        let handlers = HANDLERS.iter().flat_map(|name| {
            process.functions_in_all(|symbols| {
                let mut found = symbols.functions_named(name);
                // Nothing but the whole name: a program may have functions with such an ending.
                found.retain(|function| is_handler(&function.name, name));
                found
            })
        });
        let entries = PcSet::from_ranges(handlers.map(|function| function.entry..function.entry + 1));
        if entries.is_empty() {
            return Ok(None);
        }
        self.with_steps_of(thread, watch, |steps| {
            let end = thread.history.len();
            let found = Scan::new(&steps.lines, &entries, end).previous(0)?;
            if found.is_none() {
                thread.needs_beginning()?;
            }
            Ok(found.map(|index| thread.position(index)))
        })
    }
}

/// Returns whether a function is a handler: `__rustc::rust_begin_unwind` in new versions, and
/// `begin_panic` with type arguments.
fn is_handler(function: &str, handler: &str) -> bool {
    let function = function.strip_prefix("__rustc::").unwrap_or(function);
    let rest = function.strip_prefix(handler);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::<") || rest.starts_with('<'))
}

#[cfg(test)]
mod tests {
    use super::is_handler;

    #[test]
    fn handlers_are_known_by_their_whole_names() {
        assert!(is_handler("__rustc::rust_begin_unwind", "rust_begin_unwind"));
        assert!(is_handler("rust_begin_unwind", "rust_begin_unwind"));
        assert!(is_handler(
            "std::panicking::begin_panic::<&str>",
            "std::panicking::begin_panic"
        ));
        assert!(!is_handler("app::rust_begin_unwind", "rust_begin_unwind"));
        assert!(!is_handler(
            "std::panicking::begin_panic_handler",
            "std::panicking::begin_panic"
        ));
    }
}
