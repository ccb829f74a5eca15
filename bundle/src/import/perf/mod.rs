//! `perf.data` with Intel PT in it, as `perf record -e intel_pt//` writes it.

mod aux;
mod filter;
mod modules;
mod sideband;

use super::crash::add_core;
use crate::core::Core;
use crate::manifest::{CpuTrace, Manifest, Meta, Process, Source, Thread};
use crate::{BundlePath, Error, Overwrite, Result, SharedBytes, Stop, Writer};
use aux::{AuxBuffer, Owner};
use backtrail_perf::auxtrace::IntelPtInfo;
use backtrail_perf::data::DataItem;
use backtrail_perf::{ContextSwitch, PerfData};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{CpuModel, Tid, TimingParams, TscConversion};
use modules::{BinaryFinder, add_modules};
use sideband::{Sideband, Traced};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// No file has the traces of more threads or processors: as many files of a bundle can be packed.
const MAX_TRACES: usize = 1 << 15;

/// What an import of `perf.data` is made of.
#[derive(Clone, Debug)]
pub struct PerfImport {
    /// The `perf.data` file.
    pub data: PathBuf,
    /// The core of the crash that ended the trace.
    pub core: Option<PathBuf>,
    /// Where the traced machine's files are to be found.
    pub symfs: Option<PathBuf>,
}

/// Imports a `perf.data` file.
///
/// Binaries are looked for in `symfs` (by full path, then by name), beside the file, and at the path they
/// were recorded under. One with another build id than the recorded one, or that does not fit what was
/// mapped, is none. What is not found is noted in [`Meta::notes`] and is no error.
///
/// # Errors
/// Malformed, when the file or the core is; unsupported, when it holds no Intel PT, or in a form that is not
/// read; when `stop` came.
pub fn perf(import: &PerfImport, target: &Path, overwrite: Overwrite, stop: &Stop) -> Result<Manifest> {
    stop.told(import_until(import, target, overwrite, stop))
}

fn import_until(import: &PerfImport, target: &Path, overwrite: Overwrite, stop: &Stop) -> Result<Manifest> {
    let bytes = SharedBytes::map_file(&import.data)?;
    let refuse = |error| Error::perf(&import.data)(error);
    let data = PerfData::parse(&bytes).map_err(refuse)?;
    let recording = Recording::read(&data).map_err(refuse)?;
    let Some(info) = recording.info else {
        return Err(Error::unsupported(
            import.data.display(),
            "it holds no Intel PT; record with -e intel_pt//",
        ));
    };
    let writer = Writer::create(target, overwrite)?.until(stop);
    let mut meta = Meta {
        source: Source::Hardware,
        created_by: Some("import perf".to_owned()),
        host: data.host(),
        kernel: data.kernel(),
        notes: recording.sideband.notes(),
        ..Meta::default()
    };
    if trace_event(&data, &info).is_some_and(|config| !config.exclude_kernel) {
        meta.notes
            .push("the kernel was traced too: its code is not in the bundle and shows as gaps".to_owned());
    }
    let (core_path, core) = match &import.core {
        Some(path) => Some(add_core(&writer, path, &mut meta)?).unzip(),
        None => (None, None),
    };
    let buffers = AuxBuffer::assemble(&recording.aux, info.snapshot, &mut meta.notes);
    if buffers.len() > MAX_TRACES {
        let problem = format!("it holds the traces of more than {MAX_TRACES} threads or processors");
        return Err(Error::malformed(import.data.display(), problem));
    }
    let tsc = info.tsc.or(recording.tsc);
    if tsc.is_none() && buffers.iter().any(|buffer| matches!(buffer.owner, Owner::Cpu(_))) {
        let problem = "it has no conversion between TSC and time, so its threads cannot be told apart";
        return Err(Error::unsupported(import.data.display(), problem));
    }
    let traced = recording.sideband.traced(&buffers);
    let finder = BinaryFinder::new(import, &data);
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
    if let Some(crash) = meta.crash
        && processes.iter().all(|process| process.pid != crash.pid)
    {
        meta.notes.push(format!(
            "the core is of process {}, of which there is no trace",
            crash.pid
        ));
    }
    if meta.program.is_none() {
        meta.program = processes
            .iter()
            .flat_map(|process| &process.modules)
            .map(|module| module.path.clone())
            .next();
    }
    let manifest = Manifest {
        cpu: data.cpu_model().unwrap_or_else(|| {
            meta.notes
                .push("the file does not say which processor was traced: no errata are assumed".to_owned());
            CpuModel {
                vendor: Vendor::Other,
                family: 0,
                model: 0,
                stepping: 0,
            }
        }),
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

/// All that stands in the file's data.
struct Recording<'a> {
    info: Option<IntelPtInfo>,
    tsc: Option<TscConversion>,
    aux: Vec<backtrail_perf::auxtrace::AuxData<'a>>,
    sideband: Sideband,
}

impl<'a> Recording<'a> {
    fn read(data: &PerfData<'a>) -> std::result::Result<Self, backtrail_perf::Error> {
        let (mut info, mut tsc, mut aux, mut records) = (None, None, Vec::new(), Vec::new());
        for item in data.items() {
            match item? {
                DataItem::Record(record) => records.push(record),
                DataItem::Info(found) => info = Some(found),
                DataItem::Aux(piece) => aux.push(piece),
                DataItem::Time(conversion) => tsc = Some(conversion),
            }
        }
        Ok(Self {
            info,
            tsc,
            aux,
            sideband: Sideband::new(records),
        })
    }
}

/// The event that traced.
fn trace_event<'d>(
    data: &'d PerfData<'_>,
    info: &IntelPtInfo,
) -> Option<&'d backtrail_perf::data::EventAttr> {
    data.events.iter().find(|event| event.kind == info.pmu_type)
}

/// The clocks' parameters: the MTC frequency stands among the bits of the event's `config`.
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
    traced: &Traced<'_>,
    finder: &BinaryFinder<'_>,
    core: Option<&Core>,
    notes: &mut Vec<String>,
) -> Result<Process> {
    let thread = |(tid, name): (Tid, Option<&str>)| Thread {
        tid,
        name: name.map(str::to_owned),
        trace: None,
    };
    let mut process = Process {
        pid: traced.pid,
        threads: traced.threads.iter().copied().map(thread).collect(),
        ..Process::default()
    };
    add_modules(writer, &mut process, traced, finder, core, notes)?;
    Ok(process)
}

/// Writes the packets, and the switches of each processor that has some.
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
                let records: Vec<u8> = sideband
                    .switches(cpu, notes)
                    .iter()
                    .flat_map(ContextSwitch::to_bytes)
                    .collect();
                writer.add_bytes(&switches, &records)?;
                cpus.push(CpuTrace { cpu, trace, switches });
            }
            Owner::Thread(tid) => {
                let Some(thread) = threads.get_mut(&tid) else {
                    notes.push(format!(
                        "thread {tid} has a trace, but no record says its process: left out"
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
