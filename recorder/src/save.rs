//! A finished session as a bundle.

use crate::Golden;
use crate::error::Result;
use crate::names::Names;
use crate::recorded::{Packets, Process};
use crate::session::Session;
use backtrail_bundle::manifest::{self, Manifest, Meta, Overhead, RawImage, Source};
use backtrail_bundle::{CodeVersions, Writer};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{CpuModel, FileOffset, Pid, Tid, TimingParams, TscConversion};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What saving adds up.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub(crate) threads: usize,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) golden: Vec<Golden>,
}

/// Adds everything to the bundle but the core, which is there already.
pub(crate) fn save(
    session: Session<'_>,
    writer: &Writer,
    timing: TimingParams,
    tsc: Option<TscConversion>,
    overhead: Overhead,
) -> Result<(Manifest, Saved)> {
    let mut saved = Saved::default();
    let mut meta = Meta {
        source: Source::Software,
        created_by: Some(format!("record --engine {}", session.engine())),
        created_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .map(|time| time.as_secs()),
        crash: session.crash,
        host: kernel_says("hostname"),
        kernel: kernel_says("osrelease"),
        overhead: Some(overhead),
        notes: session.notes,
        ..Meta::default()
    };
    if let Some(root) = session.processes.get(&session.root) {
        meta.program.clone_from(&root.program);
        meta.command_line.clone_from(&root.command_line);
    }
    if session.gaps != 0 {
        meta.notes.push(format!(
            "control went where no instruction leads in {} places; each is an overflow in the trace",
            session.gaps
        ));
    }
    if session.left_out != 0 {
        meta.notes.push(format!(
            "{} threads that ended early are left out, for more would not have fitted in memory (--ring)",
            session.left_out
        ));
    }
    let mut names = session.names;
    let mut processes = Vec::new();
    for (pid, process) in session.processes {
        let pid = Pid(pid as u32);
        processes.push(add_process(
            pid,
            process,
            writer,
            &mut names,
            &mut meta.notes,
            &mut saved,
        )?);
    }
    if saved.dropped != 0 {
        meta.notes.push(format!(
            "the ring kept the newest packets; {} bytes of older ones were dropped",
            saved.dropped
        ));
    }
    let manifest = Manifest {
        cpu: cpu_model(),
        timing,
        tsc,
        filters: Vec::new(),
        processes,
        cpus: Vec::new(),
        core: session.core,
        meta,
    };
    Ok((manifest, saved))
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
    for module in process.image.modules {
        // Through the open file: its path may name another by now.
        let source = PathBuf::from(format!("/proc/self/fd/{}", module.file.as_raw_fd()));
        let added = writer.add_module(&source, &module.path);
        let (file, build_id) = match added {
            Ok((file, build_id)) => (Some(file), build_id),
            Err(error) => {
                notes.push(format!("{} is not in the bundle ({error})", module.path));
                (None, None)
            }
        };
        out.modules.push(manifest::Module {
            path: module.path,
            file,
            build_id,
            base: module.base,
            mappings: Vec::new(),
        });
    }
    for raw in process.image.raw {
        if raw.writable && process.fragments.is_empty() {
            notes.push(format!(
                "process {pid} could rewrite its code at {}; it is kept as it was last",
                raw.start
            ));
        }
        let file = names.take(&format!("images/{pid}-{:x}.bin", raw.start))?;
        writer.add_bytes(&file, &raw.bytes)?;
        let size = raw.bytes.len() as u64;
        out.images.push(RawImage {
            start: raw.start,
            file,
            offset: FileOffset(0),
            size,
        });
    }
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

fn kernel_says(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// This machine's processor. Its errata are none of our stream's.
fn cpu_model() -> CpuModel {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let number = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        line.split(':').nth(1)?.trim().parse::<u16>().ok()
    };
    CpuModel {
        vendor: Vendor::Other,
        family: number("cpu family").unwrap_or(0),
        model: number("model")
            .and_then(|model| u8::try_from(model).ok())
            .unwrap_or(0),
        stepping: number("stepping").map_or(0, |stepping| stepping.min(15) as u8),
    }
}
