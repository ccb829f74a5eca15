//! A bundle that a recorder handed in: unpacked, checked, and marked as the user's own report.

use super::task::BUNDLE;
use crate::error::Result;
use backtrail_bundle::{Error, unpack_revised};
use std::fs::File;
use std::path::Path;

/// The trusted facts about a deposit.
pub(super) struct Origin<'a> {
    /// The process that the recorder claimed.
    pub(super) pid: u32,
    /// The recorder's user.
    pub(super) user: u32,
    /// The program of the process.
    pub(super) program: Option<&'a str>,
    /// The service of the process.
    pub(super) service: Option<&'a str>,
}

/// Unpacks a bundle into the draft directory, if it is of a crash of that process. Its content is
/// not trusted: the origin and the program are overwritten.
///
/// # Errors
/// When it is not such a bundle, or unpacks to more than `limit` bytes.
pub(super) fn take(packed: &File, origin: &Origin<'_>, limit: u64) -> Result<()> {
    let target = Path::new("/").join(BUNDLE);
    let revised = unpack_revised(packed, &target, limit, |bundle| {
        let mut meta = bundle.manifest().meta.clone();
        if meta.crash.is_none_or(|crash| crash.pid.0 != origin.pid) {
            let problem = "it is not a bundle of a crash of this process";
            return Err(Error::Usage(problem.to_owned()));
        }
        let collected = meta.collected.get_or_insert_default();
        collected.user = Some(origin.user);
        collected.deposited_by = Some(origin.user);
        collected.service = origin.service.map(str::to_owned);
        if origin.program.is_some() {
            meta.program = origin.program.map(str::to_owned);
        }
        Ok(meta)
    });
    Ok(revised?)
}
