//! Writes the bundle inside the sandbox.

use super::context;
use super::core_file::{
    CORE, CoreLimits, crash, save_as_sent, save_memory, save_sample, save_without_memory, use_outer_ids,
};
use super::memory::{PAGE, ProcessMemory};
use super::open::{OpenFile, OpenProcess, OpenedFiles};
use super::task::{BUNDLE, NEW_MODULES, Task};
use crate::clock;
use crate::error::{Error, Result};
use crate::hardware::{FoundModule, RecordedHistory, RecordedMapping, WrittenHistory};
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::core::{Core, CoreContents, Memory};
use backtrail_bundle::heap;
use backtrail_bundle::heap_records::{self, HeapRecords};
use backtrail_bundle::manifest::{
    self, Collected, Crash, Manifest, Meta, Module, Process, RawImage, Source, Thread,
};
use backtrail_bundle::module_file::Allowance;
use backtrail_bundle::{BundlePath, Overwrite, SharedBytes, Writer};
use backtrail_process::beneath::FileId;
use backtrail_process::load_segments::LoadSegments;
use backtrail_process::maps::Map;
use backtrail_pt::{Avma, FileOffset, Pid, Tid, TimingParams};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Maximum number of modules of one process in a bundle.
const MAX_MODULES: usize = 4096;
/// Maximum number of code images without a file for one process, and their total bytes.
const MAX_IMAGES: usize = 4096;
const MAX_IMAGE_BYTES: u64 = 256 << 20;
/// Maximum bytes of a command line.
const MAX_COMMAND_LINE: u64 = 1 << 20;
/// How long reading all files of remote file systems may take.
const REMOTE: Duration = Duration::from_secs(3);

/// A bundle that is being written.
pub(super) struct BundleBuilder<'a> {
    pub(super) task: &'a Task,
    pub(super) opened: &'a mut OpenedFiles,
    pub(super) history: Option<(RecordedHistory, Vec<u8>)>,
    allowance: Allowance,
    writer: Writer,
    collected: Collected,
    crash: Option<Crash>,
    context: Option<PublishedContext>,
    /// The version of the heap records.
    heap_events: Option<u64>,
    notes: Vec<String>,
    threads: Vec<Tid>,
    command_line: Vec<String>,
    core: Option<BundlePath>,
    /// Remaining time for reading remote files.
    remote: Duration,
}

/// The kernel's core: its head, and the source of the rest on request.
pub(super) struct KernelCore<'a> {
    pub(super) head: SharedBytes,
    pub(super) rest: Option<File>,
    pub(super) want_rest: &'a mut dyn FnMut(),
}

impl<'a> BundleBuilder<'a> {
    /// Starts a bundle in the draft directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn begin(
        task: &'a Task,
        opened: &'a mut OpenedFiles,
        history: Option<(RecordedHistory, Vec<u8>)>,
    ) -> Result<Self> {
        let description = &task.description;
        Ok(Self {
            writer: Writer::create(&Path::new("/").join(BUNDLE), Overwrite::Never)?,
            allowance: Allowance {
                bytes: task.allowance,
            },
            collected: Collected {
                trigger: description.trigger.clone(),
                time: description.time,
                probe: description.probe.clone(),
                crash_to_reader: description.crash_to_reader,
                user: description.user,
                service: description.service.clone(),
                missing: description.missing.clone(),
                ..Collected::default()
            },
            notes: description.notes.clone(),
            crash: None,
            context: None,
            heap_events: None,
            threads: Vec::new(),
            command_line: Vec::new(),
            core: None,
            remote: REMOTE,
            task,
            opened,
            history,
        })
    }

    /// Saves the core of a held process, from the head of the kernel's core.
    ///
    /// # Errors
    /// When the bundle cannot be written.
    pub(super) fn save_held(&mut self, core: KernelCore<'_>) -> Result<()> {
        let contents = match Core::head_size(&core.head) {
            None => Err("the core is not that of a 64-bit process".to_owned()),
            Some(_) => Core::parse_head(core.head.clone(), "the core").map_err(|error| error.to_string()),
        };
        match (contents, &self.task.sample) {
            (Ok(contents), _) => self.save_core(contents, Some(core)),
            (Err(why), sample) => {
                self.collected.missing.push(why);
                match sample {
                    Some(_) => self.save_sample(),
                    None => Ok(()),
                }
            }
        }
    }

    /// Saves a core with these contents, and with memory by the policy.
    ///
    /// # Errors
    /// When its file cannot be created.
    pub(super) fn save_core(
        &mut self,
        mut contents: CoreContents,
        core: Option<KernelCore<'_>>,
    ) -> Result<()> {
        let Some(process) = &self.opened.process else {
            return Ok(());
        };
        use_outer_ids(&mut contents, process);
        self.threads = contents.threads.iter().map(|thread| thread.tid).collect();
        self.context = context::read(process, &contents);
        if core.is_some() {
            self.crash = contents.threads.first().map(|thread| crash(process.pid, thread));
        }
        let path = BundlePath::new(CORE)?;
        let mut file = self.writer.create_file(&path)?;
        let bounds = CoreLimits {
            policy: &self.task.policy,
            deadline: self.task.deadline,
            allowance: &mut self.allowance,
        };
        let missing = &mut self.collected.missing;
        let written = match (ProcessMemory::of(process), core) {
            (Some(memory), _) => save_memory(&mut file, process, contents, memory, bounds, missing),
            // Even root may not read the memory (Yama, scope 3), but the kernel sends the core.
            (None, Some(mut core)) if core.rest.is_some() => {
                (core.want_rest)();
                let promised = contents.segments.iter().map(|segment| segment.saved).sum();
                let rest = core.rest.as_mut();
                rest.map_or(Ok(()), |rest| {
                    save_as_sent(&mut file, &core.head, rest, promised, bounds, missing)
                })
            }
            (None, _) => {
                let why = process
                    .memory
                    .as_ref()
                    .err()
                    .map_or_else(String::new, ToString::to_string);
                missing.push(format!("the process's memory cannot be read ({why})"));
                save_without_memory(&mut file, contents)
            }
        };
        if let Err(error) = written {
            // The most likely cause is a full disk. The bundle may still fit without a core.
            missing.push(format!("the core could not be written ({error})"));
            file.set_len(0).map_err(Error::system("cut the core"))?;
            return Ok(());
        }
        self.core = Some(path);
        Ok(())
    }

    /// Saves the probe's data.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn save_sample(&mut self) -> Result<()> {
        if let Some(sample) = &self.task.sample {
            self.crash = Some(save_sample(&self.writer, sample)?);
            self.threads = vec![sample.tid()];
            self.core = Some(BundlePath::new(CORE)?);
        }
        Ok(())
    }

    /// Saves code without a file, while the process is held.
    ///
    /// # Errors
    /// When the bundle cannot be written.
    pub(super) fn save_code(&mut self) -> Result<Vec<RawImage>> {
        let Some(process) = &self.opened.process else {
            return Ok(Vec::new());
        };
        let Some(mut memory) = ProcessMemory::of(process) else {
            return Ok(Vec::new());
        };
        let in_file = |map: &Map| {
            let id = FileId {
                device: map.device,
                inode: map.inode,
            };
            // Files of remote file systems are also saved as they are in memory.
            let file = process.files.get(&id).filter(|file| !file.is_remote);
            let file = file.and_then(|file| file.file.as_ref().ok());
            map.is_file() && !map.writable && file.is_some_and(starts_as_elf)
        };
        let code = |map: &&Map| map.executable && map.path != "[vsyscall]";
        let mut images = Vec::new();
        let mut left = MAX_IMAGE_BYTES.min(self.allowance.bytes);
        let mut skipped = 0;
        let mut known: HashMap<(FileId, bool), bool> = HashMap::new();
        for map in process.maps.iter().filter(code) {
            let id = FileId {
                device: map.device,
                inode: map.inode,
            };
            if *known.entry((id, map.writable)).or_insert_with(|| in_file(map)) {
                continue;
            }
            let runs = match map.path == "[vdso]" {
                true => std::iter::once(map.start..map.end).collect(),
                false => memory.present_runs(map.start..map.end),
            };
            for run in runs {
                let size = run.end - run.start;
                let is_late = clock::monotonic() >= self.task.deadline;
                if images.len() >= MAX_IMAGES || size > left || is_late {
                    skipped += size;
                    continue;
                }
                let bytes = read(&mut memory, &run);
                if bytes.is_empty() {
                    continue;
                }
                left -= size;
                self.allowance.bytes -= size.min(self.allowance.bytes);
                let file = BundlePath::new(&format!("images/{}-{:x}.bin", process.pid, run.start))?;
                self.writer.add_bytes(&file, &bytes)?;
                images.push(RawImage {
                    start: Avma(run.start),
                    file,
                    offset: FileOffset(0),
                    size: bytes.len() as u64,
                });
            }
        }
        if skipped != 0 {
            let missing = format!(
                "{} KiB of executable memory without a file are not saved",
                skipped / 1024
            );
            self.collected.missing.push(missing);
        }
        Ok(images)
    }

    /// Reads the rest of the process's data, and records how long it was held.
    pub(super) fn read_rest(&mut self, since: u64) {
        let process = self.opened.process.as_mut();
        let file = process.and_then(|process| process.command_line.take());
        self.command_line = file.map_or_else(Vec::new, words);
        let now = clock::monotonic();
        self.collected.held = Some(now.saturating_sub(since));
    }

    /// Records when reading of the process started.
    pub(super) fn reading_begins(&mut self) {
        let crashed = self.task.description.crashed_at;
        self.collected.crash_to_held = crashed.map(|at| clock::monotonic().saturating_sub(at));
    }

    /// Adds the heap records of the process.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn add_heap_records(&mut self, bytes: Vec<u8>) -> Result<()> {
        let bytes = SharedBytes::from(bytes);
        HeapRecords::parse(&bytes)?;
        if self.allowance.bytes < bytes.len() as u64 {
            self.note_missing("the heap records are left out, because the spool is full".to_owned());
            return Ok(());
        }
        self.allowance.bytes -= bytes.len() as u64;
        self.writer
            .add_bytes(&BundlePath::new(heap_records::FILE)?, &bytes)?;
        self.heap_events = Some(heap::RECORDS);
        Ok(())
    }

    /// Adds a sentence about missing data.
    pub(super) fn note_missing(&mut self, what: String) {
        self.collected.missing.push(what);
    }

    /// Copies binaries and traces, and finishes the bundle. Returns whether it is complete.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self, images: Vec<RawImage>) -> Result<bool> {
        fs::create_dir(Path::new("/").join(NEW_MODULES)).map_err(Error::system("write the bundle"))?;
        let mut process = self.process(images)?;
        let written = self.write_history()?;
        if self.collected.history == 0 {
            let note = "this machine records no history: only the state at the crash is saved";
            self.notes.push(note.to_owned());
        }
        let (mut cpus, mut filters, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut cpu, mut timing, mut tsc) = (self.opened.machine.cpu, TimingParams::default(), None);
        if let Some(written) = written {
            (cpus, filters, processes) = (written.cpus, written.filters, written.processes);
            let machine = written.machine;
            (cpu, timing, tsc) = (machine.cpu, machine.timing, Some(machine.tsc));
        }
        if let Some(mut process) = process.take() {
            if let Some(index) = processes.iter().position(|other| other.pid == process.pid) {
                join(&mut process, processes.remove(index));
            }
            processes.insert(0, process);
        }
        let is_complete = self.collected.missing.is_empty();
        let manifest = Manifest {
            cpu,
            timing,
            tsc,
            filters,
            processes,
            cpus,
            core: self.core,
            meta: Meta {
                source: if self.task.description.records_history {
                    Source::Hardware
                } else {
                    Source::Unknown
                },
                created_by: Some("collect".to_owned()),
                created_at: self.collected.time.map(|time| time / 1_000_000_000),
                program: self
                    .opened
                    .process
                    .as_ref()
                    .and_then(|process| process.program.clone()),
                command_line: self.command_line,
                crash: self.crash,
                context: self.context,
                heap_events: self.heap_events,
                host: self.opened.machine.host.clone(),
                kernel: self.opened.machine.kernel.clone(),
                collected: Some(self.collected),
                notes: self.notes,
                ..Meta::default()
            },
        };
        self.writer.finish_durably(&manifest)?;
        Ok(is_complete)
    }

    /// Returns the process with its threads and modules. Without a held process, returns the thread
    /// that the probe reported.
    fn process(&mut self, images: Vec<RawImage>) -> Result<Option<Process>> {
        let Some(mut process) = self.opened.process.take() else {
            return Ok(self.task.sample.as_ref().map(|sample| Process {
                pid: sample.pid(),
                threads: vec![Thread {
                    tid: sample.tid(),
                    name: Some(sample.name().to_owned()).filter(|name| !name.is_empty()),
                    trace: None,
                    values: None,
                }],
                ..Process::default()
            }));
        };
        let mut files = std::mem::take(&mut process.files);
        let modules = self.modules(&process, &mut files)?;
        if modules.is_empty() && images.is_empty() {
            self.collected
                .missing
                .push("the process's binaries could not be read".to_owned());
        }
        let names: HashMap<Tid, Option<String>> = process
            .threads
            .iter()
            .map(|thread| (thread.tid, thread.name.clone()))
            .collect();
        let threads = self.threads.iter().map(|tid| Thread {
            tid: *tid,
            name: names.get(tid).cloned().flatten(),
            trace: None,
            values: None,
        });
        let found = Process {
            pid: process.pid,
            threads: threads.collect(),
            modules,
            images,
            versions: None,
            shared_memory: None,
        };
        process.files = files;
        self.opened.process = Some(process);
        Ok(Some(found))
    }

    fn modules(
        &mut self,
        process: &OpenProcess,
        files: &mut HashMap<FileId, OpenFile>,
    ) -> Result<Vec<Module>> {
        let mut modules = Vec::new();
        let mut loaded: HashMap<FileId, Option<(LoadSegments, manifest::Module)>> = HashMap::new();
        let mut known = HashSet::new();
        let mut left_out = 0usize;
        for map in process.maps.iter().filter(|map| map.executable && map.is_file()) {
            let id = FileId {
                device: map.device,
                inode: map.inode,
            };
            if modules.len() >= MAX_MODULES {
                left_out += 1;
                continue;
            }
            if let std::collections::hash_map::Entry::Vacant(entry) = loaded.entry(id) {
                let module = files.get_mut(&id).and_then(|file| self.module(file, &map.path));
                entry.insert(module);
            }
            let Some(Some((segments, module))) = loaded.get(&id) else {
                continue;
            };
            let Some(base) = segments.base(map.start, map.offset) else {
                continue;
            };
            if known.insert((id, base)) {
                modules.push(Module {
                    path: map.path.clone(),
                    base,
                    ..module.clone()
                });
            }
        }
        if process.unopened != 0 || left_out != 0 {
            let count = process.unopened + left_out;
            let missing =
                format!("{count} mappings of binaries are left out, because a bundle cannot hold more");
            self.collected.missing.push(missing);
        }
        Ok(modules)
    }

    /// Copies a binary. Records what is missing. `None`: it is not a binary.
    fn module(&mut self, file: &mut OpenFile, path: &str) -> Option<(LoadSegments, Module)> {
        let found = match std::mem::replace(&mut file.file, Err("it is already copied".to_owned())) {
            Ok(found) if file.is_remote => self.fetch(found),
            found => found,
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.collected
                    .missing
                    .push(format!("{path} is not in the bundle ({why})"));
                return None;
            }
        };
        let segments = LoadSegments::read(&found);
        let mut module = Module {
            path: path.to_owned(),
            ..Module::default()
        };
        // Files that are not ELF are saved as they are in memory.
        if !starts_as_elf(&found) {
            return None;
        }
        let ready = file.ready.as_ref().map(|name| Path::new("/").join(name));
        let added = self
            .writer
            .add_module_file(&found, path, ready.as_deref(), &mut self.allowance);
        match added {
            Ok((bundle_path, build_id)) => {
                let copy = self.writer.temporary_path(&bundle_path);
                let is_new = copy.metadata().is_ok_and(|copy| copy.nlink() == 1);
                if let (Some(key), true) = (&file.key, is_new && file.ready.is_none()) {
                    let shared = Path::new("/").join(NEW_MODULES).join(key);
                    let _ = fs::hard_link(copy, shared);
                }
                (module.file, module.build_id) = (Some(bundle_path), build_id);
            }
            Err(error) => self
                .collected
                .missing
                .push(format!("{path} is not in the bundle ({error})")),
        }
        file.file = Ok(found);
        Some((segments?, module))
    }

    /// Copies a file of a remote file system, within the remaining time.
    fn fetch(&mut self, from: File) -> std::result::Result<File, String> {
        const SILENT: &str = "its file system does not answer";
        if self.remote.is_zero() {
            return Err(SILENT.to_owned());
        }
        let begun = clock::monotonic();
        let (sender, answer) = mpsc::channel();
        let limit = self.allowance.bytes.min(MAX_IMAGE_BYTES);
        std::thread::Builder::new()
            .name("fetch".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                let copy = || {
                    let mut copy = tempfile::tempfile_in("/")?;
                    if std::io::copy(&mut (&from).take(limit), &mut copy)? == limit {
                        return Err(std::io::Error::other("it is too large"));
                    }
                    copy.seek(SeekFrom::Start(0))?;
                    Ok(copy)
                };
                // The receiver may have given up.
                let _ = sender.send(copy().map_err(|error| error.to_string()));
            })
            .map_err(|error| error.to_string())?;
        let answer = answer.recv_timeout(self.remote);
        let took = Duration::from_nanos(clock::monotonic().saturating_sub(begun));
        self.remote = self.remote.saturating_sub(took);
        answer.unwrap_or_else(|_| {
            self.remote = Duration::ZERO;
            Err(SILENT.to_owned())
        })
    }

    fn write_history(&mut self) -> Result<Option<WrittenHistory>> {
        let Some((recorded, bytes)) = self.history.take() else {
            return Ok(None);
        };
        let opened = &*self.opened;
        let mut by_path: HashMap<String, FileId> = HashMap::new();
        let crashed = opened.process.as_ref().map(|process| process.pid.0);
        for map in opened.process.iter().flat_map(|process| &process.maps) {
            if map.executable && map.is_file() {
                by_path.insert(
                    map.path.clone(),
                    FileId {
                        device: map.device,
                        inode: map.inode,
                    },
                );
            }
        }
        let mut find = |pid: Pid, mapped: &RecordedMapping, _: &mut Allowance| {
            let of_process = (crashed == Some(pid.0))
                .then(|| by_path.get(&mapped.path))
                .flatten()
                .filter(|id| mapped.id().is_none_or(|reported| reported == **id));
            let file = match of_process {
                Some(id) => {
                    let file = opened.process.as_ref()?.files.get(id)?;
                    file.file.as_ref().ok().filter(|_| !file.is_remote)?
                }
                None => {
                    let candidates = opened.history.get(&(pid.0, mapped.path.clone()))?;
                    candidates.iter().find(|file| mapped.may_be(file))?
                }
            };
            let file = file.try_clone().ok()?;
            Some(FoundModule { file, ready: None })
        };
        let written = recorded.write(&bytes, &self.writer, &mut find)?;
        self.collected.history = written.costs.iter().map(|cost| cost.bytes as u64).sum();
        let crashed = written.costs.first();
        self.collected.crash_to_stop = crashed.and_then(|cost| cost.crash_to_pause);
        self.collected.overwritten = crashed
            .and_then(|cost| cost.written_since_crash)
            .map(|bytes| bytes as u64);
        self.notes.extend(written.notes.iter().cloned());
        Ok(Some(written))
    }
}

fn starts_as_elf(file: &File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

fn read(memory: &mut ProcessMemory<'_>, run: &Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from((run.end - run.start).next_multiple_of(PAGE)).unwrap_or(0)];
    let got = memory.read(Avma(run.start), &mut bytes);
    bytes.truncate(got);
    bytes
}

/// Parses the words of `/proc/PID/cmdline`.
fn words(file: File) -> Vec<String> {
    let mut text = Vec::new();
    let _ = file.take(MAX_COMMAND_LINE).read_to_end(&mut text);
    let words = text.strip_suffix(&[0]).unwrap_or(&text).split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|_| !text.is_empty())
        .collect()
}

/// Adds threads and modules from the history that the process no longer has at its end.
fn join(process: &mut Process, recorded: Process) {
    let mut threads: HashSet<Tid> = process.threads.iter().map(|thread| thread.tid).collect();
    for thread in recorded.threads {
        if threads.insert(thread.tid) {
            process.threads.push(thread);
        }
    }
    let known: HashSet<(Avma, Option<_>)> = process
        .modules
        .iter()
        .map(|known| (known.base, known.build_id.clone()))
        .collect();
    let more = recorded
        .modules
        .into_iter()
        .filter(|module| !known.contains(&(module.base, module.build_id.clone())));
    // Of two overlapping modules, the later one counts, which is mapped at the end.
    process.modules = more.rev().chain(std::mem::take(&mut process.modules)).collect();
}
