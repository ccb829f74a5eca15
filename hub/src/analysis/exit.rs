//! The exit status of child processes: whether the file or this machine is at fault.

use std::error::Error;
use std::io;

/// The exit status for a refused file. The reason is on standard error.
pub const EXIT_REFUSED: u8 = 3;
/// The exit status for a failure of this machine, such as a full disk. The hub tries again later.
pub const EXIT_MACHINE: u8 = 75;

/// Returns the exit status for an error: `status`, unless this machine is at fault.
#[must_use]
pub fn status_of(error: &(dyn Error + 'static), status: u8) -> u8 {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>();
        if inner.is_some_and(is_of_machine) {
            return EXIT_MACHINE;
        }
        // The error in an I/O error is not its source.
        next = match inner.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    status
}

/// Returns whether an error has nothing to do with the content of a file.
fn is_of_machine(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let is_kind = matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem);
    is_kind
        || matches!(
            error.raw_os_error(),
            Some(libc::EIO | libc::EMFILE | libc::ENFILE)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_no_fault_of_a_file() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(status_of(&full(), EXIT_REFUSED), EXIT_MACHINE);
        let wrapped = io::Error::other(io::Error::other(full()));
        assert_eq!(status_of(&wrapped, EXIT_REFUSED), EXIT_MACHINE);
        let absent = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(status_of(&absent, EXIT_REFUSED), EXIT_REFUSED);
        let text = io::Error::other("No space left on device (os error 28)");
        assert_eq!(status_of(&text, EXIT_REFUSED), EXIT_REFUSED);
    }
}
