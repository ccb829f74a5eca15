//! Imports `perf.data` with Intel PT, as `perf record -e intel_pt//` writes it.

mod aux;
mod code_map;
mod filter;
mod modules;
mod sideband;

use super::crash::add_core;
use crate::core::Core;
use crate::manifest::{CpuTrace, Manifest, Meta, Process, Source, Thread};
use crate::{BundlePath, CancelToken, Error, Overwrite, Result, SharedBytes, Writer};
use aux::{AuxBuffer, Owner};
use backtrail_perf::auxtrace::IntelPtInfo;
use backtrail_perf::data::DataItem;
use backtrail_perf::id_index::IdEntry;
use backtrail_perf::switch::AuxEnd;
use backtrail_perf::{ContextSwitch, PerfData};
use backtrail_pt::{CpuModel, Tid, TimingParams, TscConversion};
use modules::{BinaryFinder, add_modules};
use sideband::{Sideband, TracedProcess};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The most threads or processors with a trace. A packed bundle may hold that many files.
const MAX_TRACES: usize = 1 << 15;

/// The inputs of a `perf.data` import.
#[derive(Clone, Debug)]
pub struct PerfImport {
    /// The `perf.data` file.
    pub data: PathBuf,
    /// The core of the crash that ended the trace.
    pub core: Option<PathBuf>,
    /// Directories with the traced machine's files.
    pub symfs: Vec<PathBuf>,
}

/// Imports a `perf.data` file.
///
/// Binaries are searched in `symfs` (by full path, by name, then by build id), beside the file, and
/// at their recorded path. A file with another build id or none, or one that does not fit the
/// mapping, is not used. [`Meta::notes`] lists missing binaries; they are not an error.
///
/// # Errors
/// Fails if the file or the core is malformed, if the file holds no supported Intel PT trace, or if
/// `cancel` was set.
pub fn perf(
    import: &PerfImport,
    target: &Path,
    overwrite: Overwrite,
    cancel: &CancelToken,
) -> Result<Manifest> {
    cancel.or_canceled(import_cancelable(import, target, overwrite, cancel))
}

fn import_cancelable(
    import: &PerfImport,
    target: &Path,
    overwrite: Overwrite,
    cancel: &CancelToken,
) -> Result<Manifest> {
    let bytes = SharedBytes::map_file(&import.data)?;
    let refuse = |error| Error::perf(&import.data)(error);
    let data = PerfData::parse(&bytes).map_err(refuse)?;
    let recording = Recording::read(&data).map_err(refuse)?;
    let Some(info) = recording.info else {
        return Err(Error::unsupported(
            import.data.display(),
            "it contains no Intel PT trace; record with -e intel_pt//",
        ));
    };
    let writer = Writer::create(target, overwrite)?.canceled_by(cancel);
    let mut meta = Meta {
        source: Source::Hardware,
        created_by: Some("import perf".to_owned()),
        host: data.host(),
        kernel: data.kernel(),
        notes: recording.sideband.notes(),
        ..Meta::default()
    };
    if trace_event(&data, &info).is_some_and(|config| !config.exclude_kernel) {
        meta.notes.push(
            "the kernel was traced too; its code is not in the bundle, so it appears as gaps".to_owned(),
        );
    }
    let (core_path, core) = add_core(&writer, import.core.as_deref(), &mut meta)?;
    let buffers = AuxBuffer::assemble(&recording.aux, info.snapshot, &mut meta.notes);
    if buffers.len() > MAX_TRACES {
        let problem = format!("it holds the traces of more than {MAX_TRACES} threads or processors");
        return Err(Error::malformed(import.data.display(), problem));
    }
    let tsc = info.tsc.or(recording.tsc);
    if tsc.is_none() && buffers.iter().any(|buffer| matches!(buffer.owner, Owner::Cpu(_))) {
        let problem = "it has no TSC conversion, so its packets cannot be assigned to threads";
        return Err(Error::unsupported(import.data.display(), problem));
    }
    let traced = recording.sideband.traced(&buffers);
    let finder = BinaryFinder::new(
        &import.symfs,
        import.data.parent().unwrap_or(Path::new("")),
        &data,
    );
    let mut processes = Vec::new();
    for process in &traced {
        processes.push(import_process(
            &writer,
            process,
            &finder,
            core.as_ref(),
            &mut meta.notes,
        )?);
    }
    let cpus = add_traces(
        &writer,
        &buffers,
        &recording.sideband,
        &mut processes,
        &mut meta.notes,
    )?;
    complete_meta(&mut meta, &processes, &traced);
    let manifest = Manifest {
        cpu: cpu_model(&data, &mut meta.notes),
        timing: timing(&data, &info),
        tsc,
        filters: filter::resolve(&info.filter, &processes, &mut meta.notes),
        processes,
        cpus,
        core: core_path,
        meta,
    };
    writer.finish_checked(&manifest)?;
    Ok(manifest)
}

/// Adds a note if the core's process has no trace, and the program if it is unknown.
fn complete_meta(meta: &mut Meta, processes: &[Process], traced: &[TracedProcess<'_>]) {
    if let Some(crash) = meta.crash
        && processes.iter().all(|process| process.pid != crash.pid)
    {
        meta.notes.push(format!(
            "the core belongs to process {}, which has no trace",
            crash.pid
        ));
    }
    if meta.program.is_none() {
        let program = traced.iter().find_map(|process| process.code.program());
        meta.program = program.map(str::to_owned);
    }
}

/// Returns the traced processor, or an unknown one with a note.
fn cpu_model(data: &PerfData<'_>, notes: &mut Vec<String>) -> CpuModel {
    data.cpu_model().unwrap_or_else(|| {
        notes.push(
            "the file does not state the traced processor; decoding without errata workarounds".to_owned(),
        );
        CpuModel::UNKNOWN
    })
}

/// The parsed data of the file.
struct Recording<'a> {
    info: Option<IntelPtInfo>,
    tsc: Option<TscConversion>,
    aux: Vec<backtrail_perf::auxtrace::AuxData<'a>>,
    sideband: Sideband,
}

impl<'a> Recording<'a> {
    fn read(data: &PerfData<'a>) -> std::result::Result<Self, backtrail_perf::Error> {
        let (mut info, mut tsc, mut aux, mut records) = (None, None, Vec::new(), Vec::new());
        let mut ids = Vec::new();
        for item in data.items() {
            match item? {
                DataItem::Record(record) => records.push(record),
                DataItem::Info(found) => info = Some(found),
                DataItem::Aux(piece) => aux.push(piece),
                DataItem::Time(conversion) => tsc = Some(conversion),
                DataItem::Ids(entries) => ids.extend(entries),
                DataItem::Sample(_) => {}
            }
        }
        let task_bound = info.as_ref().is_some_and(|info| is_task_bound(data, info, &ids));
        Ok(Self {
            info,
            tsc,
            aux,
            sideband: Sideband::new(records, task_bound),
        })
    }
}

/// Returns whether the trace is certainly bound to threads: the kernel traced a processor only
/// while one of them ran.
fn is_task_bound(data: &PerfData<'_>, info: &IntelPtInfo, ids: &[IdEntry]) -> bool {
    let traces = |entry: &&IdEntry| {
        let event = data.event_of(entry.id);
        event.is_some_and(|event| event.kind == info.pmu_type)
    };
    let mut opened = ids.iter().filter(traces).peekable();
    match opened.peek() {
        Some(_) => opened.all(|entry| entry.tid.is_some()),
        None => info.switches_of_threads || trace_event(data, info).is_some_and(|event| event.enable_on_exec),
    }
}

/// Returns the event that traced.
fn trace_event<'d>(
    data: &'d PerfData<'_>,
    info: &IntelPtInfo,
) -> Option<&'d backtrail_perf::data::EventAttr> {
    data.events.iter().find(|event| event.kind == info.pmu_type)
}

/// Returns the timing parameters. The MTC frequency is a bit field of the event's `config`.
fn timing(data: &PerfData<'_>, info: &IntelPtInfo) -> TimingParams {
    let config = trace_event(data, info).map_or(0, |event| event.config);
    let mtc_freq = if config & info.mtc_bit != 0 && info.mtc_freq_bits != 0 {
        (config & info.mtc_freq_bits) >> info.mtc_freq_bits.trailing_zeros() & 15
    } else {
        0
    };
    TimingParams {
        mtc_freq: mtc_freq as u8,
        nom_freq: info.max_nonturbo_ratio,
        cpuid_15h_eax: info.tsc_ctc_denominator,
        cpuid_15h_ebx: info.tsc_ctc_numerator,
    }
}

fn import_process(
    writer: &Writer,
    traced: &TracedProcess<'_>,
    finder: &BinaryFinder<'_>,
    core: Option<&Core>,
    notes: &mut Vec<String>,
) -> Result<Process> {
    let thread = |(tid, name): (Tid, Option<&str>)| Thread {
        tid,
        name: name.map(str::to_owned),
        trace: None,
        values: None,
    };
    let mut process = Process {
        pid: traced.pid,
        threads: traced.threads.iter().copied().map(thread).collect(),
        ..Process::default()
    };
    add_modules(writer, &mut process, traced, finder, core, notes)?;
    Ok(process)
}

/// Returns the file of the context switches and the ends of parts of the trace, in order of time.
fn switch_trace(switches: &[ContextSwitch], ends: &[AuxEnd]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut ends = ends.iter().peekable();
    for switch in switches {
        while let Some(end) = ends.next_if(|end| end.time < switch.time) {
            bytes.extend(end.to_bytes());
        }
        bytes.extend(switch.to_bytes());
    }
    ends.for_each(|end| bytes.extend(end.to_bytes()));
    bytes
}

/// Writes the packets, and the context switches of each processor that has some.
fn add_traces(
    writer: &Writer,
    buffers: &[AuxBuffer<'_>],
    sideband: &Sideband,
    processes: &mut [Process],
    notes: &mut Vec<String>,
) -> Result<Vec<CpuTrace>> {
    let mut cpus = Vec::new();
    let threads = processes.iter_mut().flat_map(|process| &mut process.threads);
    let mut threads: HashMap<Tid, &mut Thread> = threads.map(|thread| (thread.tid, thread)).collect();
    for buffer in buffers {
        match buffer.owner {
            Owner::Cpu(cpu) => {
                let trace = BundlePath::new(&format!("traces/cpu{cpu}.pt"))?;
                buffer.write(writer, &trace)?;
                let switches = BundlePath::new(&format!("sideband/cpu{cpu}.switches"))?;
                let records = switch_trace(
                    &sideband.switches(cpu, notes),
                    &buffer.ends(sideband.aux_ends(cpu)),
                );
                writer.add_bytes(&switches, &records)?;
                cpus.push(CpuTrace { cpu, trace, switches });
            }
            Owner::Thread(tid) => {
                let Some(thread) = threads.get_mut(&tid) else {
                    notes.push(format!(
                        "thread {tid} has a trace, but no record names its process; it is left out"
                    ));
                    continue;
                };
                let trace = BundlePath::new(&format!("traces/{tid}.pt"))?;
                buffer.write(writer, &trace)?;
                thread.trace = Some(trace);
            }
        }
    }
    Ok(cpus)
}
