//! Files of a session: packet files, and open module files.

use super::Session;
use crate::destination::Destination;
use crate::error::{Error, Result};
use crate::ptrace::RawTid;
use crate::translate::PacketStorage;
use std::ops::Range;

impl Session<'_> {
    /// Returns the packet storage of a thread, and creates its file if it needs one.
    pub(super) fn packet_storage(&mut self, tid: RawTid) -> Result<PacketStorage> {
        let writer = match (&self.destination, self.settings.ring) {
            (_, Some(limit)) => return Ok(PacketStorage::Newest(limit)),
            (Destination::Crashes(_), None) => return Err(Error::NoRing),
            (Destination::Bundle(writer), None) => writer,
        };
        let path = self.names.take(&format!("traces/{tid}.pt"))?;
        // The file is reopened for each write, so that many threads do not use up the descriptors.
        drop(writer.create_file(&path)?);
        let place = writer.temporary_path(&path);
        self.pending_clones.files.insert(tid, path);
        Ok(PacketStorage::File(place))
    }

    /// Removes the packet file of a thread that does not use it.
    pub(super) fn remove_file(&mut self, tid: RawTid) {
        if let Some(path) = self.pending_clones.files.remove(&tid) {
            if let Destination::Bundle(writer) = &self.destination {
                writer.remove_file(&path);
            }
            self.names.release(&path);
        }
    }

    /// Copies the modules of an ended process into the bundle, so that their descriptors can be
    /// closed.
    pub(super) fn copy_modules(&self, pid: RawTid) {
        if let (Destination::Bundle(writer), Some(process)) = (&self.destination, self.processes.get(&pid)) {
            process.image.copy_modules(writer);
        }
    }

    /// Copies the modules that a process has unmapped into the bundle, because the program may
    /// overwrite their files now.
    pub(super) fn copy_unmapped(&self, pid: RawTid, unmapped: &Range<u64>) {
        if let (Destination::Bundle(writer), Some(process)) = (&self.destination, self.processes.get(&pid)) {
            process.image.copy_unmapped(unmapped, writer);
        }
    }

    /// Copies the modules of all processes when too many files are open.
    pub(super) fn limit_open_files(&self) {
        /// The maximum number of open module files.
        const MOST: u64 = 256;
        /// Modules may use one out of this many descriptors.
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
