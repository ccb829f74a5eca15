//! Imports a core, and reads the crash from it.

use crate::core::{Core, UnpackLimits, open_core_file};
use crate::manifest::{Crash, Meta};
use crate::module_file::{self, Allowance};
use crate::{BundlePath, Error, Result, Writer};
use backtrail_pt::Pid;
use std::path::Path;

/// The name of the core in a bundle.
const CORE: &str = "core";

/// Returns the crash of a core whose first thread received a signal.
fn crash_of(core: &Core) -> Option<Crash> {
    let thread = core.crashed_thread()?;
    Some(Crash {
        pid: Pid(core.contents().process.pid),
        tid: thread.tid,
        signal: thread.siginfo.map_or(thread.signal, |info| info.signal()),
        code: thread.siginfo.map_or(0, |info| info.code()),
        fault_address: thread.siginfo.and_then(|info| info.address()),
        pc: thread.registers.pc(),
    })
}

/// Copies the core, if there is one, into the bundle, unpacked. Stores the program and crash that
/// it describes in `meta`. Returns its path in the bundle and the core.
pub(super) fn add_core(
    writer: &Writer,
    source: Option<&Path>,
    meta: &mut Meta,
) -> Result<(Option<BundlePath>, Option<Core>)> {
    let Some(source) = source else {
        return Ok((None, None));
    };
    let cancel = writer.cancel_token();
    let file = open_core_file(source, &UnpackLimits::default(), |_, _| !cancel.is_canceled())?;
    let core = Core::parse(file.bytes.clone(), source.display())?;
    let path = BundlePath::new(CORE)?;
    match &file.unpacked {
        Some(unpacked) => {
            let out = writer.create_file(&path)?;
            let mut unlimited = Allowance::UNLIMITED;
            let copied = module_file::copy(unpacked, &out, &mut unlimited, || cancel.check_io());
            cancel.or_canceled(copied.map_err(Error::io("copy", source)))?;
        }
        None => writer.add_file(&path, source)?,
    }
    meta.notes.extend(file.note);
    meta.crash = crash_of(&core);
    if meta.crash.is_none() {
        meta.notes
            .push("the core contains no signal: the process was dumped while it ran".to_owned());
    }
    let process = &core.contents().process;
    if meta.program.is_none() && !process.name.is_empty() {
        meta.program = Some(process.name.clone());
    }
    if meta.command_line.is_empty() {
        meta.command_line = process.arguments.split_whitespace().map(str::to_owned).collect();
    }
    Ok((Some(path), Some(core)))
}
