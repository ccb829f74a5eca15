//! Sealed memory files that are passed between processes.

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A memory file that can no longer be changed (memfd_create(2), `F_ADD_SEALS` of fcntl(2)).
#[derive(Debug)]
pub struct Sealed {
    file: File,
    size: u64,
}

/// A memory file that is being written.
#[derive(Debug)]
pub(crate) struct Unsealed(File);

impl std::ops::Deref for Unsealed {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl std::ops::DerefMut for Unsealed {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Unsealed {
    /// Seals the file against further changes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn seal(self) -> io::Result<Sealed> {
        let mut file = self.0;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let seals =
            SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Sealed { file, size })
    }
}

impl Sealed {
    /// Creates an empty file for writing.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub(crate) fn begin() -> io::Result<Unsealed> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        Ok(Unsealed(File::from(memfd_create(c"backtrail", flags)?)))
    }

    /// Creates a file from these parts.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub(crate) fn of(parts: &[&[u8]]) -> io::Result<Self> {
        let mut file = Self::begin()?;
        for part in parts {
            file.write_all(part)?;
        }
        file.seal()
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns another descriptor of the file. All descriptors share one position.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

impl AsFd for Sealed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Sealed> for OwnedFd {
    fn from(sealed: Sealed) -> Self {
        sealed.file.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    #[test]
    fn sealed_file_cannot_be_changed() {
        let sealed = Sealed::of(&[b"one ", b"two"]).unwrap();
        assert_eq!(sealed.size(), 7);
        let mut other = File::from(sealed.share().unwrap());
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        assert!(other.write_all_at(b"x", 0).is_err() && other.set_len(0).is_err());
        assert!(other.set_len(100).is_err());
    }
}
