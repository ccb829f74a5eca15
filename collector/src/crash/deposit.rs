//! A bundle that a recorder hands in: it goes into the spool as its user's word.

use super::SaveOutcome;
use super::save::{SaveRequest, Saver};
use crate::clock;
use crate::error::Result;
use crate::users::User;
use crate::worker::{TaskInput, Work};
use backtrail_pt::Pid;
use std::fs::File;

/// What was handed in.
#[derive(Debug)]
pub struct Deposit {
    /// The process that it must be of.
    pub pid: u32,
    /// The short name of its program, as its recorder says.
    pub name: String,
    /// What the process ran when it was claimed, by the kernel's word.
    pub program: Option<String>,
    /// The recorder's user id.
    pub uid: u32,
    /// Who answers for that user.
    pub user: User,
    /// The packed bundle.
    pub packed: File,
}

impl Saver {
    /// Has a worker unpack and check a bundle, and puts it into the spool.
    ///
    /// # Errors
    /// When it is no bundle of that process, or there is no room for it.
    pub fn save_deposit(&self, deposit: Deposit) -> Result<SaveOutcome> {
        let mut description = self.describe("crash", None, deposit.user);
        description.name = deposit.name;
        let saved = self.save(
            SaveRequest {
                work: Work::Deposit {
                    pid: deposit.pid,
                    user: deposit.uid,
                    program: deposit.program,
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
