//! The wish that long work end before it is done.

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// After so many bytes it is looked whether work is to end.
const PIECE: usize = 16 << 20;

/// A wish that may come at any time, from another thread or a signal handler: what is being written is given up then, and
/// leaves nothing behind. The default is one that never comes.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// It comes when the flag is raised.
    #[must_use]
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether it has come.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends what is at work.
    ///
    /// # Errors
    /// [`Error::Canceled`], when the wish has come.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_wanted() {
            true => Err(Error::Canceled),
            false => Ok(()),
        }
    }

    /// What failed once the wish had come was canceled, whatever the failure says.
    pub(crate) fn told<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(_) if self.is_wanted() => Err(Error::Canceled),
            result => result,
        }
    }

    /// What `inner` reads, until the wish comes.
    pub(crate) fn reader<R>(&self, inner: R) -> Stoppable<'_, R> {
        Stoppable { inner, stop: self }
    }

    /// Copies a file's contents, within the file system where that can be.
    pub(crate) fn copy(&self, from: &File, to: &mut File) -> io::Result<()> {
        loop {
            self.look()?;
            if io::copy(&mut from.take(PIECE as u64), to)? == 0 {
                return Ok(());
            }
        }
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&self, bytes: &[u8], to: &mut File) -> io::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| {
            self.look()?;
            to.write_all(piece)
        })
    }

    /// As [`Self::check`], for what copies.
    pub(crate) fn look(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }
}

/// See [`Stop::reader`].
pub(crate) struct Stoppable<'s, R> {
    inner: R,
    stop: &'s Stop,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stop.look()?;
        self.inner.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_or_copied_ends_when_it_is_to() {
        let flag = Arc::new(AtomicBool::new(false));
        let stop = Stop::new(Arc::clone(&flag));
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, b"abc").unwrap();
        let from = File::open(&from).unwrap();
        stop.copy(&from, &mut File::create(&to).unwrap()).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"abc");
        flag.store(true, Ordering::Relaxed);
        let mut out = File::create(&to).unwrap();
        assert!(stop.copy(&from, &mut out).is_err());
        assert!(stop.write(b"abc", &mut out).is_err());
        assert!(stop.reader(&b"abc"[..]).read(&mut [0; 3]).is_err());
        let failed: Result<()> = Err(Error::Usage("x".to_owned()));
        assert!(matches!(stop.told(failed), Err(Error::Canceled)));
        assert_eq!(std::fs::read(&to).unwrap(), b"");
    }
}
