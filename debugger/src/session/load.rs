//! Opening a bundle.

use super::code_mode;
use super::decoding::{DecodeInput, UndecodedHistory};
use super::modules;
use super::open_core::{self, crash_of_core, program_of_core, search};
use super::threads::{self, Threads};
use super::{OpenOptions, Process, Session, SymbolFunctions};
use crate::error::{Error, Result};
use crate::time::Timebase;
use backtrail_bundle::core::is_core_file;
use backtrail_bundle::manifest::{self, Manifest, is_crash};
use backtrail_bundle::switch::Direction;
use backtrail_bundle::versions::CodeVersions;
use backtrail_bundle::versions::{self, Fragment};
use backtrail_bundle::{Bundle, CodeSection};
use backtrail_decoder::engine::native::has_errata_table;
use backtrail_decoder::{
    AddressFilter, AuxEnd, Boundary, Change, Config, DecodeCachePool, FilterKind, Image, Input, NewCode,
    Section, Switch, TimedChange, Version, Watch,
};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, Nanos, Pid, Tid, TscConversion};
use backtrail_symbolizer::DebugSearch;
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
            let opened = open_process(bundle, process, &mut files)?;
            images.insert(process.pid, Arc::clone(&opened.image));
            notes.extend(code_mode::note(process, opened.mode));
            processes.push(opened);
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

/// Maps the code of a process, and finds the symbols' files.
fn open_process(
    bundle: &Bundle,
    process: &manifest::Process,
    files: &mut modules::BundleFiles<'_>,
) -> Result<Process> {
    let tsc = bundle.manifest().tsc;
    let core = bundle.core_of(process.pid)?;
    let (mapped, code) = files.map(&process.modules, core.as_ref());
    let image = Arc::new(image_of(bundle, process, tsc, code)?);
    let since = |time| image.version_since(tsc.map(|tsc| tsc.tsc(time)));
    let symbols = mapped.over_time(since, &mut files.notes);
    let mode = code_mode::of_bundle(bundle, process)?;
    Ok(Process::new(process.pid, symbols, image, mode))
}

/// Returns a process of a bundle by the bundle's own files. Its packets are not read.
pub(crate) fn process_of(bundle: &Bundle, process: &manifest::Process) -> Result<Process> {
    let search = DebugSearch::none();
    open_process(bundle, process, &mut modules::BundleFiles::new(bundle, &search))
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

/// Returns the code of a process, and its versions. `outside` is that of modules whose files are
/// not in the bundle.
fn image_of(
    bundle: &Bundle,
    process: &manifest::Process,
    tsc: Option<TscConversion>,
    outside: Vec<Section>,
) -> Result<Image> {
    let code = bundle.code(process.pid)?;
    if code.iter().any(|code| code.from.or(code.until).is_some()) {
        return Ok(timed_image(code, outside, tsc));
    }
    let mut image = Image::new();
    // Modules that were mapped in place of others. Fragments cover their executed code.
    let mut changes = Vec::new();
    for code in code {
        let module = code.module.and_then(|module| process.modules.get(module));
        let never = module.is_some_and(|module| module.mapped_until == Some(module.mapped_from));
        match Version(module.map_or(0, |module| module.mapped_from)) {
            _ if never => {}
            Version(0) => image.add(section(code)),
            since => changes.push(Change {
                since,
                section: section(code),
            }),
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

fn section(code: CodeSection) -> Section {
    Section {
        start: code.start,
        bytes: Arc::new(code.bytes),
    }
}

/// Returns code of which some was replaced. No other code replaced that in `outside`.
fn timed_image(code: Vec<CodeSection>, outside: Vec<Section>, tsc: Option<TscConversion>) -> Image {
    let mut image = Image::new();
    let mut changes = Vec::new();
    // Within one time, the new code covers what is unmapped.
    let mut new_code = Vec::new();
    let at = |time: Nanos| tsc.map(|conversion| conversion.tsc(time));
    let last_of = |code: &CodeSection| {
        let size = code.bytes.len() as u64;
        Avma(code.start.0.saturating_add(size.saturating_sub(1)))
    };
    // A core has the code of the end: it says nothing about code that was replaced.
    let end = code.iter().position(|code| code.module.is_some()).unwrap_or(0);
    let mut code = code.into_iter();
    for code in code.by_ref().take(end) {
        image.add(section(code));
    }
    for section in outside {
        image.add(section);
    }
    let lasts = |code: &CodeSection| code.from.is_none() || code.from != code.until;
    let code: Vec<CodeSection> = code.filter(lasts).collect();
    for code in code.iter().filter(|code| code.from.is_some()) {
        image.remove(code.start, last_of(code));
    }
    for code in code {
        if let Some(until) = code.until {
            changes.push(TimedChange {
                at: at(until),
                code: NewCode::Unknown(code.start, last_of(&code)),
            });
        }
        match code.from {
            None => image.add(section(code)),
            Some(from) => new_code.push(TimedChange {
                at: at(from),
                code: NewCode::Known(section(code)),
            }),
        }
    }
    changes.extend(new_code);
    image.set_timed_versions(changes);
    image
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
        let aux_ends = bundle.aux_ends(cpu)?.into_iter().map(|end| AuxEnd {
            offset: end.offset,
            at: conversion.tsc(end.time),
        });
        inputs.push(Input::Cpu {
            cpu: cpu.cpu,
            trace: Arc::new(bundle.bytes(&cpu.trace)?),
            switches: switches.collect(),
            aux_ends: aux_ends.collect(),
        });
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module's code of two bytes, from one time until another.
    fn code(start: u64, bytes: &[u8], from: Option<u64>, until: Option<u64>) -> CodeSection {
        CodeSection {
            start: Avma(start),
            bytes: bytes.to_vec().into(),
            module: Some(0),
            from: from.map(Nanos),
            until: until.map(Nanos),
        }
    }

    fn read(image: &Image, version: u32, at: u64) -> Vec<u8> {
        let mut out = vec![0; 8];
        let got = image.read_version(Version(version), Avma(at), &mut out);
        out.truncate(got);
        out
    }

    #[test]
    fn code_of_a_core_is_not_taken_for_replaced_code() {
        let of_core = |start, bytes| CodeSection {
            module: None,
            ..code(start, bytes, None, None)
        };
        let tsc = TscConversion::new(0, 1, 0);
        // Anonymous code was replaced by a file, which the core has.
        let sections = vec![
            of_core(0x1000, &[7, 7]),
            of_core(0x2000, &[8, 8]),
            code(0x1000, &[5, 6], Some(100), None),
        ];
        let image = timed_image(sections, Vec::new(), tsc);
        assert_eq!(read(&image, 0, 0x1000), [0; 0]);
        assert_eq!(read(&image, 1, 0x1000), [5, 6]);
        assert_eq!(read(&image, 0, 0x2000), [8, 8]);
        // A file was replaced by another, and that one by anonymous code.
        let sections = vec![
            of_core(0x1000, &[7, 7]),
            code(0x1000, &[3, 4], Some(100), Some(200)),
            code(0x1000, &[1, 2], None, Some(100)),
            code(0x1000, &[9, 9], Some(100), Some(100)),
        ];
        let image = timed_image(sections, Vec::new(), tsc);
        let versions = [0, 1, 2].map(|version| read(&image, version, 0x1000));
        assert_eq!(versions, [vec![1, 2], vec![3, 4], vec![]]);
    }
}
