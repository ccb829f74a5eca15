//! The packet stream to decode: the first part of a bundle's largest.

use crate::Failure;
use backtrail_bundle::Bundle;
use backtrail_debugger::OpenOptions;
use backtrail_debugger::session::{Prepared, Process};
use backtrail_decoder::{Bytes, Image, Input};
use backtrail_pt::Tid;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The 16 bytes of a PSB packet.
const PSB: [u8; 16] = [
    0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
];

/// A thread's packets, with everything needed to decode them.
pub struct Stream {
    /// The rest of the bundle.
    pub prepared: Prepared,
    /// The thread.
    pub tid: Tid,
    /// The packets.
    pub trace: Bytes,
    /// The code of its process.
    pub image: Arc<Image>,
}

/// The first bytes of a stream.
struct Prefix {
    all: Bytes,
    len: usize,
}

impl AsRef<[u8]> for Prefix {
    fn as_ref(&self) -> &[u8] {
        let all = (*self.all).as_ref();
        all.get(..self.len).unwrap_or(all)
    }
}

impl Stream {
    /// Opens a bundle after dropping its files from the page cache, as far as the kernel allows.
    pub fn open_cold(path: &Path, bytes: Option<u64>) -> Result<Self, Failure> {
        forget(path).map_err(|error| format!("cannot drop {} from memory: {error}", path.display()))?;
        Self::open(path, bytes)
    }

    /// Opens a bundle, and takes the first bytes of its largest stream.
    pub fn open(path: &Path, bytes: Option<u64>) -> Result<Self, Failure> {
        let bundle = Bundle::open(path).map_err(|error| error.to_string())?;
        let prepared = Prepared::new(&bundle, &OpenOptions::default()).map_err(|error| error.to_string())?;
        let threads = prepared.inputs.iter().filter_map(|input| match input {
            Input::Thread { tid, trace, image } => Some((*tid, trace, image)),
            Input::Cpu { .. } => None,
        });
        let (tid, trace, image) = threads
            .max_by_key(|(_, trace, _)| (***trace).as_ref().len())
            .ok_or("the bundle has no thread with packets")?;
        let (trace, image) = (Arc::clone(trace), Arc::clone(image));
        let trace: Bytes = match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(len) => Arc::new(Prefix { all: trace, len }),
            None => trace,
        };
        Ok(Self {
            prepared,
            tid,
            trace,
            image,
        })
    }

    /// Returns the packets.
    pub fn bytes(&self) -> &[u8] {
        (*self.trace).as_ref()
    }

    /// Returns the input of `decode`.
    pub fn input(&self) -> Input {
        Input::Thread {
            tid: self.tid,
            trace: Arc::clone(&self.trace),
            image: Arc::clone(&self.image),
        }
    }

    /// Returns the process of the thread.
    pub fn process(&self) -> Option<&Process> {
        let processes = &mut self.prepared.processes.iter();
        processes.find(|process| Arc::ptr_eq(&process.image, &self.image))
    }
}

/// Returns the start of the last PSB before `end`, unless it is the first one.
pub fn last_psb(trace: &[u8], end: u64) -> Option<u64> {
    let end = usize::try_from(end).unwrap_or(usize::MAX).min(trace.len());
    let before = trace.get(..end)?;
    let at = before.windows(PSB.len()).rposition(|window| window == PSB)?;
    Some(at as u64).filter(|&at| at > 0)
}

/// Writes the files of a directory to disk, and asks the kernel to drop them from the page cache.
fn forget(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else {
            let file = File::open(entry.path())?;
            file.sync_all()?;
            nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_complete_psb_is_found() {
        let mut trace = PSB.to_vec();
        trace.extend([0; 9]);
        trace.extend(PSB);
        trace.extend([0; 3]);
        assert_eq!(last_psb(&trace, 1000), Some(25));
        assert_eq!(last_psb(&trace, 40), None);
        assert_eq!(last_psb(&[], 0), None);
    }
}
