//! Names of code that programs generate while they run, by perf maps and jitdumps.
//!
//! The addresses of samples are noted when a sample is written. About once a second, the lists of
//! their processes are read, and the functions at these addresses go into the next block. A
//! program may write its list late, so that a function may follow its samples by any time.

mod code_file;
mod code_list;

use crate::Result;
use backtrail_profile::UnixNanos;
use backtrail_profile::format::recording::{GeneratedFunction, GeneratedLine, SegmentEncoder};
use backtrail_pt::Pid;
use code_file::ProcessFiles;
use code_list::{CodeList, ListKind, ListedCode};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::rc::Rc;

/// The most functions of all lists.
const MAX_CODE: usize = 400_000;
/// The most addresses of samples.
const MAX_HITS: usize = 200_000;
/// The most processes whose lists are read.
const MAX_PROCESSES: usize = 256;
/// The bytes of names and lines that go into one block, apart from one function.
const MAX_BLOCK: usize = 1 << 20;
/// The same for the last block.
const MAX_LAST_BLOCK: usize = 1 << 22;
/// The most readings of a list for the last block.
const MAX_LAST_UPDATES: usize = 16;

/// Returns the path of a mapped jitdump, which marks its process.
pub(crate) fn jitdump_path(path: &str) -> Option<Rc<str>> {
    let name = path.rsplit('/').next()?;
    let pid = name.strip_prefix("jit-")?.strip_suffix(".dump")?;
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    (path.starts_with('/') && is_number).then(|| path.into())
}

/// The generated code of one process.
#[derive(Debug)]
struct GeneratingProcess {
    files: Option<ProcessFiles>,
    /// The path of its jitdump.
    dump: Option<Rc<str>>,
    list: Option<CodeList>,
    /// The time at which its program started, if it was recorded.
    floor: u64,
    /// The addresses of all samples.
    hits: BTreeSet<u64>,
    /// Those of the samples in the current segment.
    segment_hits: HashSet<u64>,
    /// Those of `segment_hits` that no reading of the list has seen.
    new_hits: BTreeSet<u64>,
    /// The functions that go into a block.
    pending: VecDeque<usize>,
    /// The functions that the current segment has, or that are pending.
    emitted: HashSet<usize>,
    has_ended: bool,
}

impl GeneratingProcess {
    fn new(files: Option<ProcessFiles>, floor: u64) -> Self {
        Self {
            files,
            dump: None,
            list: None,
            floor,
            hits: BTreeSet::new(),
            segment_hits: HashSet::new(),
            new_hits: BTreeSet::new(),
            pending: VecDeque::new(),
            emitted: HashSet::new(),
            has_ended: false,
        }
    }

    /// Opens the list, or another one if the program has begun one.
    fn open_list(&mut self) {
        let Some(files) = &self.files else { return };
        if self
            .list
            .as_ref()
            .is_some_and(|list| list.kind() == ListKind::Jitdump)
        {
            return;
        }
        let dump = self.dump.as_ref().and_then(|path| files.file(path));
        let found = match dump {
            Some(file) => Some((file, ListKind::Jitdump)),
            None => files.perf_map().map(|file| (file, ListKind::PerfMap)),
        };
        let Some((file, kind)) = found else { return };
        let is_known = self
            .list
            .as_ref()
            .is_some_and(|list| list.kind() == kind && list.file().is_same(&file) && !list.is_replaced());
        if !is_known {
            self.list = Some(CodeList::new(file, kind, self.floor));
            self.emitted.clear();
            self.pending.clear();
            self.new_hits.extend(&self.hits);
        }
    }

    /// Reads the list, and finds the functions at the addresses of samples. Returns whether more
    /// may be left.
    fn update(&mut self, max_code: usize, now: &impl Fn() -> u64) -> bool {
        self.open_list();
        let Some(list) = &mut self.list else {
            return false;
        };
        let new_hits = std::mem::take(&mut self.new_hits);
        let known = list.code().len();
        let has_more = list.update(max_code.saturating_add(known), now);
        let first = if new_hits.is_empty() { known } else { 0 };
        for (index, code) in list.code().iter().enumerate().skip(first) {
            let hits = if index < known { &new_hits } else { &self.hits };
            let is_hit = hits.range(code.start..code.start + code.size).next().is_some();
            if is_hit && self.emitted.insert(index) {
                self.pending.push_back(index);
            }
        }
        has_more
    }
}

/// The generated code of all processes.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCode {
    processes: HashMap<Pid, GeneratingProcess>,
    /// The times at which processes have started other programs.
    executed: HashMap<Pid, u64>,
    /// Processes whose code is not known any more since a time.
    replaced: Vec<(Pid, u64)>,
    hits: usize,
    is_full: bool,
}

impl GeneratedCode {
    /// Begins to watch a process that may end soon.
    pub fn watch(&mut self, pid: Pid) {
        let files = i32::try_from(pid.0).ok().and_then(ProcessFiles::open);
        self.processes.insert(pid, GeneratingProcess::new(files, 0));
    }

    /// Notes an address of a sample, and the jitdump of its process.
    pub fn hit(&mut self, pid: Pid, address: u64, dump: Option<&Rc<str>>) {
        let is_full = self.processes.len() >= MAX_PROCESSES;
        if is_full && !self.processes.contains_key(&pid) {
            self.is_full = true;
            return;
        }
        let floor = self.executed.get(&pid).copied().unwrap_or(0);
        let process = self.processes.entry(pid).or_insert_with(|| {
            let files = i32::try_from(pid.0).ok().and_then(ProcessFiles::open);
            GeneratingProcess::new(files, floor)
        });
        if process.dump.is_none() {
            process.dump = dump.cloned();
        }
        if process.segment_hits.contains(&address) {
            return;
        }
        if self.hits >= MAX_HITS && !process.hits.contains(&address) {
            self.is_full = true;
            return;
        }
        process.segment_hits.insert(address);
        process.new_hits.insert(address);
        self.hits += usize::from(process.hits.insert(address));
    }

    /// Begins a segment, which needs the functions of its samples again.
    pub fn begin_segment(&mut self) {
        for process in self.processes.values_mut() {
            process.segment_hits.clear();
            process.new_hits.clear();
            process.emitted = process.pending.iter().copied().collect();
        }
    }

    /// Notes that a process has started another program.
    pub fn execute(&mut self, pid: Pid, time: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        // The program that is watched has no code before.
        if process.hits.is_empty() {
            process.floor = time;
            return;
        }
        self.hits = self.hits.saturating_sub(process.hits.len());
        self.processes.remove(&pid);
        self.executed.insert(pid, time);
        self.replaced.push((pid, time));
    }

    /// Adds functions to the next block. `unix` returns the time of day of a time.
    ///
    /// # Errors
    ///
    /// Those of adding to a table.
    pub fn add_to_block(
        &mut self,
        segment: &mut SegmentEncoder,
        is_last: bool,
        now: impl Fn() -> u64,
        unix: impl Fn(u64) -> UnixNanos,
    ) -> Result<()> {
        for (pid, time) in self.replaced.drain(..) {
            segment.generated.push(GeneratedFunction {
                pid,
                order: u64::MAX,
                range: 0..u64::MAX,
                earliest: unix(time),
                latest: unix(time),
                name: None,
                lines: Vec::new(),
            });
        }
        let used = |process: &GeneratingProcess| process.list.as_ref().map_or(0, |list| list.code().len());
        let mut left = if is_last { MAX_LAST_BLOCK } else { MAX_BLOCK };
        let mut code: usize = self.processes.values().map(used).sum();
        for (pid, process) in &mut self.processes {
            if process.hits.is_empty() {
                continue;
            }
            let before = used(process);
            let updates = if is_last { MAX_LAST_UPDATES } else { 1 };
            for _ in 0..updates {
                let added = used(process).saturating_sub(before);
                if !process.update(MAX_CODE.saturating_sub(code + added), &now) {
                    break;
                }
            }
            code = (code + used(process)).saturating_sub(before);
            self.is_full |= code >= MAX_CODE;
            while left > 0 {
                let Some(index) = process.pending.pop_front() else {
                    break;
                };
                let Some(list) = &process.list else { break };
                let Some(listed) = list.code().get(index) else {
                    continue;
                };
                let function = function(segment, list, *pid, (index, listed), &unix)?;
                let lines = function.lines.len();
                left = left.saturating_sub(lines * 8 + 64);
                segment.generated.push(function);
            }
        }
        self.forget_ended();
        Ok(())
    }

    /// Forgets processes that had ended before the last call, so that all their samples are known.
    fn forget_ended(&mut self) {
        let (hits, executed) = (&mut self.hits, &mut self.executed);
        self.processes.retain(|pid, process| {
            let is_over = process.has_ended && process.pending.is_empty() && process.new_hits.is_empty();
            process.has_ended = !Path::new(&format!("/proc/{pid}")).exists();
            if is_over {
                executed.remove(pid);
                *hits = hits.saturating_sub(process.hits.len());
            }
            !is_over
        });
    }

    /// Returns a sentence if some code has no names because there is too much.
    pub fn note(&self) -> Option<String> {
        let note = "some generated code has no names, because there is too much of it";
        self.is_full.then(|| note.to_owned())
    }
}

/// Returns a function with its texts in a segment.
fn function(
    segment: &mut SegmentEncoder,
    list: &CodeList,
    pid: Pid,
    (index, listed): (usize, &ListedCode),
    unix: &impl Fn(u64) -> UnixNanos,
) -> Result<GeneratedFunction> {
    let named = list.name(listed);
    let profile = &mut segment.profile;
    let mut lines = Vec::new();
    for (offset, file, line) in named.iter().flat_map(|named| &named.lines) {
        lines.push(GeneratedLine {
            offset: *offset,
            file: profile.string(file)?,
            line: *line,
        });
    }
    Ok(GeneratedFunction {
        pid,
        order: index as u64,
        range: listed.start..listed.start.saturating_add(listed.size),
        // Nothing was there before the clock began.
        earliest: if listed.earliest == 0 {
            UnixNanos(0)
        } else {
            unix(listed.earliest)
        },
        latest: unix(listed.latest),
        name: match named {
            None => None,
            Some(named) => Some(profile.string(&named.name)?),
        },
        lines,
    })
}

#[cfg(test)]
mod tests;
