//! Opening a core alone: the state of a process without a history.

use super::core_modules::{CoreModules, MappedCore};
use super::process::CodeMode;
use super::{OpenOptions, Process, Session, Threads, threads};
use crate::error::{Error, Result};
use crate::time::Timebase;
use backtrail_bundle::core::{Core, UnpackLimits, open_core_file};
use backtrail_bundle::manifest::Crash;
use backtrail_decoder::{Image, Section, Stage, Watch};
use backtrail_pt::Pid;
use backtrail_symbolizer::DebugSearch;
use std::path::Path;
use std::sync::Arc;

/// Opens a core file, and the binaries that it names where they are of the same build.
pub(super) fn open_core(path: &Path, options: &OpenOptions, watch: &Watch<'_>) -> Result<Session> {
    let proceed = |done, total| watch.report(Stage::Unpack, done, total).is_ok();
    let file = open_core_file(path, &UnpackLimits::default(), proceed).map_err(|error| match error {
        backtrail_bundle::Error::Canceled => Error::Canceled,
        error => error.into(),
    })?;
    watch.end(Stage::Unpack);
    let core = Core::parse(file.bytes, path.display())?;
    let crash = crash_of_core(&core);
    let state = match crash {
        Some(_) => "only the state at the crash",
        None => "only the state when the process was saved, which no signal ended",
    };
    let mut notes = vec![format!(
        "this is a core without a trace: there is no history, {state}"
    )];
    notes.extend(file.note);
    let mut image = Image::new();
    let search = search(options);
    let mapped = CoreModules::new(&core, &search).map(&mut image);
    let MappedCore {
        symbols,
        warnings,
        notes: of_modules,
    } = mapped;
    notes.extend(of_modules);
    notes.extend(warnings.iter().cloned());
    for (segment, bytes) in core.saved().filter(|(segment, _)| segment.executable) {
        image.add(Section {
            start: segment.start,
            bytes: Arc::new(bytes.clone()),
        });
    }
    let pid = Pid(core.contents().process.pid);
    let listed = core.contents().threads.iter();
    let listed = listed
        .map(|thread| threads::without_history(thread.tid))
        .collect();
    let mut session = Session {
        name: path.display().to_string(),
        program: program_of_core(&core),
        root: directory_of(path),
        processes: vec![Process::new(
            pid,
            symbols.into(),
            Arc::new(image),
            CodeMode::default(),
        )],
        threads: Threads::new(listed),
        cpus: Vec::new(),
        crash,
        core: Some(core),
        times: Timebase::default(),
        source_paths: Vec::new(),
        notes,
        warnings,
        main: None,
        earlier: None,
        bundle: None,
    };
    session.main = session.find_main();
    Ok(session)
}

/// Returns the directory of a file.
fn directory_of(path: &Path) -> std::path::PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Returns where binaries and debug files are searched: below the user's directories first.
pub(super) fn search(options: &OpenOptions) -> DebugSearch {
    let mut search = DebugSearch::default();
    search.roots.splice(..0, options.debug_roots.iter().cloned());
    search
}

/// Returns the name of the program in a core.
pub(super) fn program_of_core(core: &Core) -> Option<String> {
    Some(core.contents().process.name.clone()).filter(|name| !name.is_empty())
}

/// Returns the crash that a core describes.
pub(super) fn crash_of_core(core: &Core) -> Option<Crash> {
    let thread = core.crashed_thread()?;
    Some(Crash {
        pid: Pid(core.contents().process.pid),
        tid: thread.tid,
        signal: thread.signal,
        code: thread.siginfo.map_or(0, |info| info.code()),
        fault_address: thread.siginfo.and_then(|info| info.address()),
        pc: thread.registers.pc(),
    })
}
