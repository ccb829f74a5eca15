//! Opening a bundle.

use super::decoding::{DecodeInput, UndecodedHistory};
use super::modules;
use super::open_core::{self, crash_of_core, program_of_core, search};
use super::threads::{self, Threads};
use super::{OpenOptions, Process, Session, SymbolFunctions};
use crate::error::{Error, Result};
use crate::time::Timebase;
use backtrail_bundle::Bundle;
use backtrail_bundle::core::is_core_file;
use backtrail_bundle::manifest::{self, Manifest, is_crash};
use backtrail_bundle::switch::Direction;
use backtrail_bundle::versions::CodeVersions;
use backtrail_bundle::versions::{self, Fragment};
use backtrail_decoder::engine::native::has_errata_table;
use backtrail_decoder::{
    AddressFilter, Boundary, Change, Config, DecodeCachePool, FilterKind, Image, Input, Section, Switch,
    Version, Watch,
};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, Pid, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

impl Session {
    /// Opens and decodes a bundle, given as a directory or a packed file, or opens an ELF core
    /// alone, which may be compressed.
    ///
    /// A core has the state at the crash and no history.
    ///
    /// # Errors
    ///
    /// If the input cannot be read, is malformed, or has no thread; when canceled.
    pub fn open(path: &Path, options: &OpenOptions, watch: &Watch<'_>) -> Result<Self> {
        open(path, options, watch)
    }
}

fn open(path: &Path, options: &OpenOptions, watch: &Watch<'_>) -> Result<Session> {
    let mut session = if is_core_file(path) {
        open_core::open_core(path, options, watch)?
    } else {
        open_bundle(Bundle::open(path)?, path, options, watch)?
    };
    session.source_paths = options.source_paths.clone();
    if session.threads().is_empty() {
        return Err(Error::NoThreads(path.display().to_string()));
    }
    Ok(session)
}

/// A bundle made ready to decode: what [`Session::open`] hands to the decoder.
pub struct Prepared {
    /// The traced processes.
    pub processes: Vec<Process>,
    /// Their code.
    pub images: BTreeMap<Pid, Arc<Image>>,
    /// The packets.
    pub inputs: Vec<Input>,
    /// The command that recorded the trace.
    pub config: Config,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
    /// Notes about files that are not used, or that may be wrong.
    pub warnings: Vec<String>,
}

impl Prepared {
    /// Maps the packets and the code, and finds the symbols' files.
    ///
    /// # Errors
    /// When a part of the bundle is malformed.
    pub fn new(bundle: &Bundle, options: &OpenOptions) -> Result<Self> {
        let manifest = bundle.manifest();
        let mut notes = manifest.meta.notes.clone();
        let cpu = Some(manifest.cpu).filter(|cpu| cpu.vendor == Vendor::Intel);
        if let Some(cpu) = cpu.filter(|cpu| !has_errata_table(*cpu)) {
            notes.push(format!(
                "no errata known for CPU {}/{}/{}; decoding without workarounds",
                cpu.family, cpu.model, cpu.stepping
            ));
        }
        let mut images = BTreeMap::new();
        let mut processes = Vec::new();
        let mut search = search(options);
        search.confined = Some(bundle.debug_root());
        let mut files = modules::BundleFiles::new(bundle, &search);
        for process in &manifest.processes {
            let core = bundle.core_of(process.pid)?;
            let modules::Mapped { symbols, code } = files.map(&process.modules, core.as_ref());
            let image = Arc::new(image_of(bundle, process, code)?);
            images.insert(process.pid, Arc::clone(&image));
            processes.push(Process::new(process.pid, symbols, image));
        }
        notes.append(&mut files.notes);
        let warnings = std::mem::take(&mut files.warnings);
        notes.extend(warnings.iter().cloned());
        Ok(Self {
            processes,
            inputs: inputs(bundle, &images)?,
            images,
            config: config(manifest),
            notes,
            warnings,
        })
    }
}

fn open_bundle(bundle: Bundle, path: &Path, options: &OpenOptions, watch: &Watch<'_>) -> Result<Session> {
    let manifest = bundle.manifest();
    let Prepared {
        processes,
        images,
        inputs,
        config,
        mut notes,
        warnings,
    } = Prepared::new(&bundle, options)?;
    if let Some(last) = options.last
        && inputs.iter().any(|input| input.trace_len() > last)
    {
        notes.push(format!(
            "only the last {} MiB or so of each trace are decoded (--last)",
            last >> 20
        ));
    }
    let core = bundle.core()?;
    let crash = manifest.meta.crash.or_else(|| {
        core.as_ref()
            .and_then(crash_of_core)
            .filter(|end| is_crash(end.signal))
    });
    let main = main_input(&inputs, threads::ended_thread(crash.as_ref(), core.as_ref()));
    let calls_of = main.filter(|_| options.main_calls).and_then(|(tid, image)| {
        let process = processes
            .iter()
            .find(|process| Arc::ptr_eq(&process.image, image))?;
        // The decoder does not know in which versions modules were replaced.
        let functions = || SymbolFunctions::over_time(&process.modules);
        process.has_one_epoch().then(|| (tid, functions()))
    });
    let main = main.map(|(tid, _)| tid);
    let source = Arc::new(DecodeInput {
        inputs,
        images,
        config,
        engine: options.engine,
        jobs: options.jobs,
        knowledge: DecodeCachePool::default(),
        calls_of,
    });
    let first = options.first.filter(|&first| pays(&source, first, options.last));
    let mut decoded = source.decode(first.or(options.last), watch)?;
    let cpus = std::mem::take(&mut decoded.cpus);
    let mut threads = threads::decoded_threads(manifest, decoded, core.as_ref());
    let shortened: BTreeSet<Tid> = first
        .or(options.last)
        .map(|last| source.shortened(last).collect())
        .unwrap_or_default();
    for thread in &mut threads {
        thread.from_end = shortened.contains(&thread.tid);
        thread.is_partial = thread.from_end && first.is_some();
    }
    let mut session = Session {
        name: path.display().to_string(),
        program: manifest
            .meta
            .program
            .clone()
            .or_else(|| core.as_ref().and_then(program_of_core)),
        root: bundle.root().to_owned(),
        processes,
        threads: Threads::new(threads),
        cpus,
        core,
        crash,
        times: Timebase {
            conversion: manifest.tsc,
            zero: None,
        },
        source_paths: Vec::new(),
        notes,
        warnings,
        main: None,
        earlier: first.map(|_| UndecodedHistory::new(source, options.last)),
        bundle: None,
    };
    // The length of a partly decoded history is unknown.
    session.main = main.filter(|_| first.is_some()).or_else(|| session.find_main());
    session.times.zero = session.main_thread().and_then(|thread| {
        let end = thread.history.len().saturating_sub(1);
        thread
            .history
            .time(end)
            .map(|time| time.latest().unwrap_or(time.tsc))
    });
    session.bundle = Some(bundle);
    Ok(session)
}

/// Returns the thread with which the debugger starts and its code, if the thread has its own trace.
///
/// This is the thread that a signal ended, or the one with the longest trace.
fn main_input(inputs: &[Input], ended: Option<Tid>) -> Option<(Tid, &Arc<Image>)> {
    let threads = inputs.iter().filter_map(|input| match input {
        Input::Thread { tid, image, .. } => Some((input.trace_len(), *tid, image)),
        Input::Cpu { .. } => None,
    });
    let wanted = threads.filter(|&(_, tid, _)| ended.is_none_or(|ended| ended == tid));
    let (_, tid, image) = wanted.max_by_key(|&(len, ..)| len)?;
    Some((tid, image))
}

/// Decoding the end first pays: what follows takes several times as long, and what is decoded at
/// first is the end of all of it.
fn pays(source: &DecodeInput, first: u64, last: Option<u64>) -> bool {
    const TIMES: u64 = 4;
    let wanted = |input: &Input| input.trace_len().min(last.unwrap_or(u64::MAX));
    let much = first.saturating_mul(TIMES);
    source.inputs.iter().any(|input| wanted(input) > much) && source.shortens_cleanly(first)
}

/// Returns the code of a process. `outside` is that of modules whose files are not in the bundle.
fn image_of(bundle: &Bundle, process: &manifest::Process, outside: Vec<Section>) -> Result<Image> {
    let mut image = Image::new();
    // Modules that were mapped in place of others. Fragments cover their executed code.
    let mut changes = Vec::new();
    for section in bundle.code(process.pid)? {
        let module = section.module.and_then(|module| process.modules.get(module));
        let never = module.is_some_and(|module| module.mapped_until == Some(module.mapped_from));
        let since = Version(module.map_or(0, |module| module.mapped_from));
        let section = Section {
            start: section.start,
            bytes: Arc::new(section.bytes),
        };
        match since {
            _ if never => {}
            Version(0) => image.add(section),
            since => changes.push(Change { since, section }),
        }
    }
    for section in outside {
        image.add(section);
    }
    let CodeVersions {
        fragments,
        boundaries,
    } = bundle.code_versions(process.pid)?;
    let change = |fragment: Fragment| Change {
        since: Version(fragment.boundary),
        section: Section {
            start: fragment.address,
            bytes: Arc::new(fragment.bytes),
        },
    };
    let boundary = |boundary: versions::Boundary| Boundary {
        offset: boundary.offset,
        version: Version(boundary.number),
    };
    let boundaries = boundaries
        .into_iter()
        .map(|(tid, list)| (tid, list.into_iter().map(boundary).collect()));
    changes.extend(fragments.into_iter().map(change));
    image.set_versions(changes, boundaries.collect());
    Ok(image)
}

fn config(manifest: &Manifest) -> Config {
    Config {
        cpu: Some(manifest.cpu).filter(|cpu| cpu.vendor == Vendor::Intel),
        timing: manifest.timing,
        filters: manifest
            .filters
            .iter()
            .map(|filter| AddressFilter {
                range: filter.from..Avma(filter.to.0.saturating_add(1)),
                kind: FilterKind::Filter,
            })
            .collect(),
        ..Config::default()
    }
}

fn inputs(bundle: &Bundle, images: &BTreeMap<Pid, Arc<Image>>) -> Result<Vec<Input>> {
    let manifest = bundle.manifest();
    let mut inputs = Vec::new();
    for process in &manifest.processes {
        let Some(image) = images.get(&process.pid) else {
            continue;
        };
        for thread in &process.threads {
            let Some(trace) = &thread.trace else { continue };
            let trace = Arc::new(bundle.bytes(trace)?);
            inputs.push(Input::Thread {
                tid: thread.tid,
                trace,
                image: Arc::clone(image),
            });
        }
    }
    for cpu in &manifest.cpus {
        let conversion = manifest.tsc.ok_or_else(|| {
            Error::Cannot(
                "the trace is per CPU and has no TSC conversion, so it cannot be split into threads"
                    .to_owned(),
            )
        })?;
        let switches = bundle.switches(cpu)?.into_iter().map(|switch| Switch {
            at: conversion.tsc(switch.time),
            pid: switch.pid,
            tid: switch.tid,
            out: switch.direction != Direction::In,
        });
        let (switches, trace) = (switches.collect(), Arc::new(bundle.bytes(&cpu.trace)?));
        inputs.push(Input::Cpu {
            cpu: cpu.cpu,
            trace,
            switches,
        });
    }
    Ok(inputs)
}
