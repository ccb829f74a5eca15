//! Cancels long work before it is finished.

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes between two checks for cancellation.
const CHECK_INTERVAL: usize = 16 << 20;

/// A flag that cancels long work. Another thread or a signal handler may set it at any time. The
/// partial output is removed. The default token is never set.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is canceled when `flag` is set.
    #[must_use]
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error if the work is to end.
    ///
    /// # Errors
    /// [`Error::Canceled`] if the flag is set.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_canceled() {
            true => Err(Error::Canceled),
            false => Ok(()),
        }
    }

    /// Turns any error into [`Error::Canceled`] if the flag is set.
    pub(crate) fn or_canceled<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(_) if self.is_canceled() => Err(Error::Canceled),
            result => result,
        }
    }

    /// Wraps `inner` in a reader that fails once the flag is set.
    pub(crate) fn reader<R>(&self, inner: R) -> CancelableReader<'_, R> {
        CancelableReader { inner, cancel: self }
    }

    /// Copies a file's contents, by the file system itself where it can.
    pub(crate) fn copy(&self, from: &File, to: &mut File) -> io::Result<()> {
        loop {
            self.check_io()?;
            if io::copy(&mut from.take(CHECK_INTERVAL as u64), to)? == 0 {
                return Ok(());
            }
        }
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&self, bytes: &[u8], to: &mut File) -> io::Result<()> {
        bytes.chunks(CHECK_INTERVAL).try_for_each(|piece| {
            self.check_io()?;
            to.write_all(piece)
        })
    }

    /// Checks as [`Self::check`] does, with an I/O error.
    pub(crate) fn check_io(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }
}

/// The reader of [`CancelToken::reader`].
pub(crate) struct CancelableReader<'s, R> {
    inner: R,
    cancel: &'s CancelToken,
}

impl<R: Read> Read for CancelableReader<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.cancel.check_io()?;
        self.inner.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canceled_reads_and_copies_fail() {
        let flag = Arc::new(AtomicBool::new(false));
        let cancel = CancelToken::new(Arc::clone(&flag));
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, b"abc").unwrap();
        let from = File::open(&from).unwrap();
        cancel.copy(&from, &mut File::create(&to).unwrap()).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"abc");
        flag.store(true, Ordering::Relaxed);
        let mut out = File::create(&to).unwrap();
        assert!(cancel.copy(&from, &mut out).is_err());
        assert!(cancel.write(b"abc", &mut out).is_err());
        assert!(cancel.reader(&b"abc"[..]).read(&mut [0; 3]).is_err());
        let failed: Result<()> = Err(Error::Usage("x".to_owned()));
        assert!(matches!(cancel.or_canceled(failed), Err(Error::Canceled)));
        assert_eq!(std::fs::read(&to).unwrap(), b"");
    }
}
