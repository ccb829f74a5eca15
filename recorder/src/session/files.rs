//! Files that a session needs: those of packets, and the open ones of modules.

use super::{Destination, Session};
use crate::error::{Error, Result};
use crate::ptrace::RawTid;
use crate::translate::Keep;

impl Session<'_> {
    /// Returns where a thread's packets go.
    pub(super) fn keep(&mut self, tid: RawTid) -> Result<Keep> {
        let writer = match (&self.destination, self.settings.ring) {
            (_, Some(limit)) => return Ok(Keep::Newest(limit)),
            (Destination::Crashes(_), None) => return Err(Error::NoRing),
            (Destination::Bundle(writer), None) => writer,
        };
        let path = self.names.take(&format!("traces/{tid}.pt"))?;
        // It is opened for each write, so that threads do not use up the descriptors.
        drop(writer.create_file(&path)?);
        let place = writer.temporary_path(&path);
        self.kindred.files.insert(tid, path);
        Ok(Keep::All(place))
    }

    /// Removes the file of a thread whose packets go elsewhere.
    pub(super) fn remove_file(&mut self, tid: RawTid) {
        if let Some(path) = self.kindred.files.remove(&tid) {
            if let Destination::Bundle(writer) = &self.destination {
                writer.remove_file(&path);
            }
            self.names.release(&path);
        }
    }

    /// Copies the modules of a process that has ended, so that no descriptor is kept for it.
    pub(super) fn copy_modules(&self, pid: RawTid) {
        if let (Destination::Bundle(writer), Some(process)) = (&self.destination, self.processes.get(&pid)) {
            process.image.copy_modules(writer);
        }
    }

    /// Copies the modules of all processes when too many files are open.
    pub(super) fn limit_open_files(&self) {
        /// Files of modules that are open in general.
        const MOST: u64 = 256;
        /// Of all descriptors, modules have one in so many.
        const SHARE: u64 = 4;
        let most = (self.limit.now() / SHARE).min(MOST);
        if let Destination::Bundle(writer) = &self.destination
            && self.files.open() as u64 > most
        {
            for process in self.processes.values() {
                process.image.copy_modules(writer);
            }
        }
    }
}
