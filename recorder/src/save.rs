//! Writes a finished session as a bundle.

use crate::Golden;
use crate::crash_sink::SavedCrash;
use crate::destination::PendingCrash;
use crate::error::Result;
use crate::ptrace::RawTid;
use crate::recorded::{Packets, RecordedProcess, Recording, SaveTotals};
use crate::unique_names::UniqueNames;
use backtrail_bundle::Writer;
use backtrail_bundle::heap;
use backtrail_bundle::manifest::{self, Collected, Manifest, Meta, Overhead, Source};
use backtrail_bundle::versions::CodeVersions;
use backtrail_process::machine;
use backtrail_pt::{Pid, Tid, TimingParams, TscConversion};
use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// Adds everything except the core, which is already there, and finishes the bundle.
pub(crate) fn save(
    recording: Recording,
    writer: Writer,
    timing: TimingParams,
    tsc: Option<TscConversion>,
    overhead: Overhead,
) -> Result<SaveTotals> {
    let mut saved = SaveTotals::default();
    let mut meta = Meta {
        source: Source::Software,
        created_by: Some(format!("record --engine {}", recording.engine)),
        created_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .map(|time| time.as_secs()),
        crash: recording.crash,
        context: recording.context,
        ending: recording.ending.of_program(),
        host: machine::kernel_setting("hostname"),
        kernel: machine::kernel_setting("osrelease"),
        overhead: Some(overhead),
        heap_events: recording.heap.then_some(heap::VERSION),
        notes: recording.notes,
        ..Meta::default()
    };
    if let Some(root) = recording.processes.get(&recording.root) {
        meta.program.clone_from(&root.program);
        meta.command_line.clone_from(&root.command_line);
    }
    let crashed = recording
        .crash
        .map_or(recording.root, |crash| crash.pid.0 as RawTid);
    let crashed = recording.processes.get(&crashed);
    meta.standard_error = crashed.and_then(|process| process.standard_error.text());
    note_gaps(recording.gaps, &mut meta.notes);
    note_left_out(recording.left_out, &mut meta.notes);
    let mut names = recording.names;
    let mut processes = Vec::new();
    for (pid, process) in recording.processes {
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
    // The modules of processes that are left out were copied when these ended.
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
        core: recording.core,
        meta,
    };
    writer.finish(&manifest)?;
    Ok(saved)
}

/// Builds the bundle of one process, without the core and the manifest.
pub(crate) fn save_process(
    pid: Pid,
    draft: PendingCrash,
    process: RecordedProcess,
    timing: TimingParams,
    tsc: Option<TscConversion>,
    has_heap_events: bool,
    mut notes: Vec<String>,
) -> Result<(SavedCrash, SaveTotals)> {
    let PendingCrash {
        writer,
        crash,
        ending,
        core,
        context,
        service,
        missing,
        at,
    } = draft;
    let mut saved = SaveTotals::default();
    let (program, command_line) = (process.program.clone(), process.command_line.clone());
    let standard_error = process.standard_error.text();
    note_left_out(process.left_out, &mut notes);
    note_gaps(
        process.recorded.iter().map(|thread| thread.gaps).sum(),
        &mut notes,
    );
    // Trace names come from the session, and no other file name begins with the same folder.
    let mut names = UniqueNames::default();
    let process = add_process(pid, process, &writer, &mut names, &mut notes, &mut saved)?;
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
            crash,
            ending,
            context,
            heap_events: has_heap_events.then_some(heap::VERSION),
            standard_error,
            host: machine::kernel_setting("hostname"),
            kernel: machine::kernel_setting("osrelease"),
            collected: crash.map(|_| Collected {
                trigger: "crash".to_owned(),
                time: at
                    .duration_since(UNIX_EPOCH)
                    .ok()
                    .and_then(|time| u64::try_from(time.as_nanos()).ok()),
                history: saved.bytes,
                service,
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
            "{gaps} control transfers do not match the code; each is an overflow (OVF) in the trace"
        ));
    }
}

fn note_left_out(threads: u64, notes: &mut Vec<String>) {
    if threads != 0 {
        notes.push(format!(
            "the packets of {threads} ended threads were dropped to bound memory use (--ring)"
        ));
    }
}

fn note_dropped(bytes: u64, notes: &mut Vec<String>) {
    if bytes != 0 {
        notes.push(format!("the ring dropped {bytes} bytes of older packets"));
    }
}

fn add_process(
    pid: Pid,
    process: RecordedProcess,
    writer: &Writer,
    names: &mut UniqueNames,
    notes: &mut Vec<String>,
    saved: &mut SaveTotals,
) -> Result<manifest::Process> {
    let mut out = manifest::Process {
        pid,
        shared_memory: process.shared_memory.into_manifest(process.left_out > 0),
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
                "process {pid} could rewrite its code at {}; the bundle has the last version",
                raw.start
            )
        }));
    }
    let image = process.image.save(writer, |start, code| {
        saved.images.store(writer, names, pid, start, code)
    })?;
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
        if let Packets::InMemory(packets) = &thread.packets {
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
        let mut values = None;
        if let Some(log) = &thread.values {
            let file = names.take(&format!("values/{tid}"))?;
            writer.add_bytes(&file, log)?;
            values = Some(file);
        }
        out.threads.push(manifest::Thread {
            tid,
            name: thread.name,
            trace: Some(file),
            values,
        });
    }
    if !versions.fragments.is_empty() || !versions.boundaries.is_empty() {
        let file = names.take(&format!("code/{pid}"))?;
        writer.add_code_versions(&file, &versions)?;
        out.versions = Some(file);
    }
    Ok(out)
}
