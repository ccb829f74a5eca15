//! A finished session as a bundle.

use crate::Golden;
use crate::crash_sink::SavedCrash;
use crate::error::Result;
use crate::names::Names;
use crate::recorded::{Packets, Process};
use crate::session::{Destination, Draft, Session};
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{self, Collected, Manifest, Meta, Overhead, Source};
use backtrail_bundle::versions::CodeVersions;
use backtrail_process::machine;
use backtrail_pt::{Pid, Tid, TimingParams, TscConversion};
use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// What saving adds up.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    /// Threads whose packets are kept.
    pub(crate) threads: usize,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) golden: Vec<Golden>,
}

/// Adds everything to the bundle but the core, which is there already, and finishes it. Crashes have been saved
/// one by one: nothing is left to do.
pub(crate) fn save(
    session: Session<'_>,
    timing: TimingParams,
    tsc: Option<TscConversion>,
    overhead: Overhead,
) -> Result<Saved> {
    let writer = match session.destination {
        Destination::Bundle(writer) => writer,
        Destination::Crashes(crashes) => return Ok(crashes.saved),
    };
    let mut saved = Saved::default();
    let mut meta = Meta {
        source: Source::Software,
        created_by: Some(format!("record --engine {}", session.settings.engine)),
        created_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .map(|time| time.as_secs()),
        crash: session.crash,
        ending: session.ending.of_program(),
        host: machine::says("hostname"),
        kernel: machine::says("osrelease"),
        overhead: Some(overhead),
        notes: session.notes,
        ..Meta::default()
    };
    if let Some(root) = session.processes.get(&session.root) {
        meta.program.clone_from(&root.program);
        meta.command_line.clone_from(&root.command_line);
    }
    note_gaps(session.gaps, &mut meta.notes);
    note_left_out(session.left_out, &mut meta.notes);
    let mut names = session.names;
    let mut processes = Vec::new();
    for (pid, process) in session.processes {
        let pid = Pid(pid as u32);
        processes.push(add_process(
            pid,
            process,
            &writer,
            &mut names,
            &mut meta.notes,
            &mut saved,
        )?);
    }
    note_dropped(saved.dropped, &mut meta.notes);
    // Of processes that are left out, modules were copied when they ended.
    let modules = processes.iter().flat_map(|process| &process.modules);
    let wanted: HashSet<_> = modules.filter_map(|module| module.file.clone()).collect();
    writer.retain_modules(&wanted);
    let manifest = Manifest {
        cpu: machine::cpu_model(),
        timing,
        tsc,
        filters: Vec::new(),
        processes,
        cpus: Vec::new(),
        core: session.core,
        meta,
    };
    writer.finish(&manifest)?;
    Ok(saved)
}

/// The bundle of one process, which has crashed: everything but the core, and the descriptions.
pub(crate) fn save_crash(
    draft: Draft,
    process: Process,
    timing: TimingParams,
    tsc: Option<TscConversion>,
    mut notes: Vec<String>,
) -> Result<(SavedCrash, Saved)> {
    let Draft {
        writer,
        crash,
        core,
        missing,
        at,
    } = draft;
    let mut saved = Saved::default();
    let (program, command_line) = (process.program.clone(), process.command_line.clone());
    note_left_out(process.left_out, &mut notes);
    note_gaps(
        process.recorded.iter().map(|thread| thread.gaps).sum(),
        &mut notes,
    );
    // The names of traces are the session's; none of the others begins so.
    let mut names = Names::default();
    let process = add_process(crash.pid, process, &writer, &mut names, &mut notes, &mut saved)?;
    note_dropped(saved.dropped, &mut notes);
    let manifest = Manifest {
        cpu: machine::cpu_model(),
        timing,
        tsc,
        filters: Vec::new(),
        processes: vec![process],
        cpus: Vec::new(),
        core,
        meta: Meta {
            source: Source::Software,
            created_by: Some("record".to_owned()),
            created_at: at.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs()),
            program,
            command_line,
            crash: Some(crash),
            host: machine::says("hostname"),
            kernel: machine::says("osrelease"),
            collected: Some(Collected {
                trigger: "crash".to_owned(),
                time: at
                    .duration_since(UNIX_EPOCH)
                    .ok()
                    .and_then(|time| u64::try_from(time.as_nanos()).ok()),
                history: saved.bytes,
                missing,
                ..Collected::default()
            }),
            notes,
            ..Meta::default()
        },
    };
    Ok((SavedCrash { writer, manifest }, saved))
}

fn note_gaps(gaps: u64, notes: &mut Vec<String>) {
    if gaps != 0 {
        notes.push(format!(
            "control went where no instruction leads in {gaps} places; each is an overflow in the trace"
        ));
    }
}

fn note_left_out(threads: u64, notes: &mut Vec<String>) {
    if threads != 0 {
        notes.push(format!(
            "{threads} threads that ended early are left out, for more would not have fitted in memory (--ring)"
        ));
    }
}

fn note_dropped(bytes: u64, notes: &mut Vec<String>) {
    if bytes != 0 {
        notes.push(format!(
            "the ring kept the newest packets; {bytes} bytes of older ones were dropped"
        ));
    }
}

fn add_process(
    pid: Pid,
    process: Process,
    writer: &Writer,
    names: &mut Names,
    notes: &mut Vec<String>,
    saved: &mut Saved,
) -> Result<manifest::Process> {
    let mut out = manifest::Process {
        pid,
        ..manifest::Process::default()
    };
    if process.replaced {
        notes.push(format!(
            "process {pid} executed another program; its history begins there"
        ));
    }
    notes.extend(
        process
            .image
            .notes
            .iter()
            .map(|note| format!("process {pid}: {note}")),
    );
    if process.fragments.is_empty() {
        let rewritable = process.image.raw.iter().filter(|raw| raw.writable);
        notes.extend(rewritable.map(|raw| {
            format!(
                "process {pid} could rewrite its code at {}; it is kept as it was last",
                raw.start
            )
        }));
    }
    let image = process.image.save(writer, pid.0, |path| names.take(path))?;
    (out.modules, out.images) = (image.modules, image.images);
    notes.extend(image.missing);
    let mut versions = CodeVersions {
        fragments: process.fragments,
        ..CodeVersions::default()
    };
    for thread in process.recorded {
        let tid = Tid(thread.tid as u32);
        let file = thread.file;
        saved.threads += 1;
        saved.bytes += thread.packets.len();
        if let Packets::Kept(packets) = &thread.packets {
            writer.add_bytes(&file, packets)?;
        }
        saved.dropped += thread.dropped;
        if !thread.golden.is_empty() {
            saved.golden.push(Golden {
                tid,
                pid,
                instructions: thread.golden,
            });
        }
        if !thread.boundaries.is_empty() {
            versions.boundaries.insert(tid, thread.boundaries);
        }
        out.threads.push(manifest::Thread {
            tid,
            name: thread.name,
            trace: Some(file),
        });
    }
    if !versions.fragments.is_empty() {
        let file = names.take(&format!("code/{pid}"))?;
        writer.add_code_versions(&file, &versions)?;
        out.versions = Some(file);
    }
    Ok(out)
}
