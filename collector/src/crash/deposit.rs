//! A bundle that a recorder hands in. It enters the spool as the user's own report.

use super::SaveOutcome;
use super::save::{SaveRequest, Saver};
use crate::clock;
use crate::error::Result;
use crate::users::User;
use crate::worker::{TaskInput, Work};
use backtrail_pt::Pid;
use std::fs::File;

/// A bundle that a recorder hands in.
#[derive(Debug)]
pub struct Deposit {
    /// The process that the bundle must describe.
    pub pid: u32,
    /// The short name of its program, as the recorder reports it.
    pub name: String,
    /// The program of the process when the recorder claimed it, as the kernel reports it.
    pub program: Option<String>,
    /// The systemd service of the process when the recorder claimed it.
    pub service: Option<String>,
    /// The recorder's user id.
    pub uid: u32,
    /// The user who owns that user id.
    pub user: User,
    /// The packed bundle.
    pub packed: File,
}

impl Saver {
    /// Makes a worker unpack and check a bundle, and publishes it in the spool.
    ///
    /// # Errors
    /// When the file is not a bundle of that process, or the disk has no room for it.
    pub fn save_deposit(&self, deposit: Deposit) -> Result<SaveOutcome> {
        let mut description = self.describe("crash", None, deposit.user);
        description.name = deposit.name;
        let saved = self.save(
            SaveRequest {
                work: Work::Deposit {
                    pid: deposit.pid,
                    user: deposit.uid,
                    program: deposit.program,
                    service: deposit.service,
                },
                pid: Pid(deposit.pid),
                user: deposit.user,
                description,
                sample: None,
                frozen: None,
                history_of: None,
                deadline: clock::monotonic(),
                inputs: vec![(TaskInput::Packed, deposit.packed.into())],
            },
            &mut || {},
            &mut || {},
        );
        self.counted(saved)
    }
}
