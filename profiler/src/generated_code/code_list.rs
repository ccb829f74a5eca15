//! The functions that a process has generated, in the order of its list.
//!
//! Only addresses, times and positions in the file are kept. The names of functions that samples
//! hit are read again.

use super::code_file::CodeFile;
use crate::{jitdump, perf_map};
use jitdump::RecordKind;
use std::collections::HashMap;
use std::io;

/// The bytes that are read at once.
const CHUNK: usize = 1 << 18;
/// The bytes that are read of one list in a second.
const MAX_READ: usize = 1 << 22;
/// The most bytes of the lines of one function.
const MAX_DEBUG_INFO: u32 = 1 << 17;
/// The most lines of a function.
const MAX_LINES: usize = 1 << 12;

/// A function, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedCode {
    pub start: u64,
    pub size: u64,
    /// The code was not there before this time.
    pub earliest: u64,
    /// The code was there since this time at the latest.
    pub latest: u64,
    /// The position of its line or record. `None`: the code there is no longer known.
    entry: Option<u64>,
    /// The position of its lines.
    debug_info: Option<u64>,
}

/// The name and lines of a function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeName {
    pub name: String,
    /// Offsets, files and lines in the order of offsets.
    pub lines: Vec<(u64, String, u32)>,
}

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// A perf map, which has no times.
    PerfMap,
    /// A jitdump.
    Jitdump,
}

/// A list that is read as it grows.
#[derive(Debug)]
pub(crate) struct CodeList {
    file: CodeFile,
    kind: ListKind,
    position: u64,
    code: Vec<ListedCode>,
    /// The last function at each start, and the lines of the next one. Only of jitdumps.
    last_at: HashMap<u64, usize>,
    debug_at: HashMap<u64, u64>,
    has_counter_times: bool,
    line_shift: u64,
    is_malformed: bool,
    /// The time of the last reading to the end.
    last_read: u64,
    /// Whether the file has grown since that reading.
    has_grown: bool,
    /// The time before which a new function of a perf map was not there.
    floor: u64,
}

impl CodeList {
    /// Returns a list of which nothing is read. Its functions were not there before `floor`.
    pub fn new(file: CodeFile, kind: ListKind, floor: u64) -> Self {
        Self {
            file,
            kind,
            position: 0,
            code: Vec::new(),
            last_at: HashMap::new(),
            debug_at: HashMap::new(),
            has_counter_times: false,
            line_shift: 0,
            is_malformed: false,
            last_read: floor,
            has_grown: false,
            floor,
        }
    }

    pub fn file(&self) -> &CodeFile {
        &self.file
    }

    pub fn kind(&self) -> ListKind {
        self.kind
    }

    /// Returns all code so far.
    pub fn code(&self) -> &[ListedCode] {
        &self.code
    }

    /// Returns whether the file is shorter than what was read of it, because the process has
    /// written it again.
    pub fn is_replaced(&self) -> bool {
        self.file.size() < self.position
    }

    /// Reads what was added to the file, up to a limit of functions. Returns whether more may be
    /// left. `now` is the time on the clock of samples.
    pub fn update(&mut self, max_code: usize, now: impl Fn() -> u64) -> bool {
        let started = now();
        let before = self.position;
        let first = self.code.len();
        let mut left = MAX_READ;
        while left > 0 && self.code.len() < max_code && !self.is_malformed {
            match self.read_chunk(max_code) {
                Ok(0) | Err(_) => break,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
        let ended = now();
        for code in self.code.iter_mut().skip(first) {
            // Times of jitdumps are exact.
            if self.kind == ListKind::PerfMap || self.has_counter_times {
                (code.earliest, code.latest) = (self.floor, ended);
            }
        }
        self.has_grown |= self.position > before;
        if left == 0 {
            return true;
        }
        if std::mem::take(&mut self.has_grown) {
            // A program may write through a buffer. It has held the functions of the next addition
            // since this one at the earliest, which came after the last reading.
            self.floor = self.last_read;
        }
        self.last_read = started;
        false
    }

    /// Reads and parses a part, and returns the bytes that were read.
    fn read_chunk(&mut self, max_code: usize) -> io::Result<usize> {
        let bytes = self.file.read(self.position, CHUNK)?;
        let used = match self.kind {
            ListKind::PerfMap => self.parse_lines(&bytes, max_code),
            ListKind::Jitdump if self.position == 0 => self.parse_header(&bytes),
            ListKind::Jitdump => self.parse_records(&bytes, max_code),
        };
        self.position = self.position.saturating_add(used);
        Ok(if used == 0 { 0 } else { bytes.len() })
    }

    /// Parses whole lines, and returns their size.
    fn parse_lines(&mut self, bytes: &[u8], max_code: usize) -> u64 {
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line that fills a whole part is not one.
            let is_whole = line.ends_with(b"\n") || line.len() == CHUNK;
            if !is_whole || self.code.len() >= max_code {
                break;
            }
            if let Some(found) = perf_map::parse(line) {
                self.code.push(ListedCode {
                    start: found.start,
                    size: found.size,
                    earliest: 0,
                    latest: 0,
                    entry: Some(self.position + used),
                    debug_info: None,
                });
            }
            used += line.len() as u64;
        }
        used
    }

    fn parse_header(&mut self, bytes: &[u8]) -> u64 {
        match jitdump::header(bytes) {
            None => {
                self.is_malformed = bytes.len() >= jitdump::HEADER;
                0
            }
            Some(header) => {
                self.has_counter_times = header.has_counter_times;
                self.line_shift = header.line_shift;
                header.size.into()
            }
        }
    }

    /// Parses whole records, and returns their size. The code of functions is not read.
    fn parse_records(&mut self, bytes: &[u8], max_code: usize) -> u64 {
        let mut used = 0_u64;
        let size = self.file.size();
        while self.code.len() < max_code {
            let rest = usize::try_from(used).ok().and_then(|used| bytes.get(used..));
            let Some(rest) = rest.filter(|rest| rest.len() >= jitdump::PREFIX) else {
                break;
            };
            let Some(prefix) = jitdump::prefix(rest) else {
                self.is_malformed = true;
                break;
            };
            let (at, length) = (self.position + used, u64::from(prefix.size));
            let needed = (prefix.size as usize).min(jitdump::PREFIX + jitdump::BODY);
            let is_written = at.saturating_add(length) <= size;
            let Some(body) = rest.get(jitdump::PREFIX..needed).filter(|_| is_written) else {
                break;
            };
            self.apply(prefix, body, at);
            used += length;
        }
        used
    }

    fn apply(&mut self, prefix: jitdump::RecordPrefix, body: &[u8], at: u64) {
        let code = |start, size, entry| ListedCode {
            start,
            size,
            earliest: prefix.time,
            latest: prefix.time,
            entry,
            debug_info: None,
        };
        match prefix.kind {
            RecordKind::Load => {
                let Some(load) = jitdump::load(body) else { return };
                let debug_info = self.debug_at.remove(&load.start);
                self.last_at.insert(load.start, self.code.len());
                self.code.push(ListedCode {
                    debug_info,
                    ..code(load.start, load.size, Some(at))
                });
            }
            RecordKind::Move => {
                let Some(moved) = jitdump::moved(body) else { return };
                let known = self.last_at.remove(&moved.from);
                let known = known.and_then(|index| self.code.get(index)).copied();
                self.code.push(code(moved.from, moved.size, None));
                self.last_at.insert(moved.to, self.code.len());
                self.code.push(ListedCode {
                    entry: known.and_then(|known| known.entry),
                    debug_info: known.and_then(|known| known.debug_info),
                    ..code(moved.to, moved.size, None)
                });
            }
            RecordKind::DebugInfo if prefix.size <= MAX_DEBUG_INFO => {
                if let Some(address) = jitdump::debug_address(body) {
                    self.debug_at.insert(address, at);
                }
            }
            _ => {}
        }
    }

    /// Reads the name of code again. `None`: it has none, or the file has changed since.
    pub fn name(&self, code: &ListedCode) -> Option<CodeName> {
        let at = code.entry?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self.kind {
            ListKind::PerfMap => {
                let bytes = self.file.read(at, 2 * perf_map::MAX_NAME).ok()?;
                let line = bytes.split(|byte| *byte == b'\n').next()?;
                let found = perf_map::parse(line)?;
                let is_same = found.start == code.start && found.size == code.size;
                is_same.then(|| CodeName {
                    name: text(found.name),
                    lines: Vec::new(),
                })
            }
            ListKind::Jitdump => {
                let bytes = self.record(at, RecordKind::Load)?;
                let load = jitdump::load(&bytes).filter(|load| !load.name.is_empty())?;
                let lines = code.debug_info.and_then(|at| self.lines(at, &load));
                Some(CodeName {
                    name: text(load.name),
                    lines: lines.unwrap_or_default(),
                })
            }
        }
    }

    /// Reads the body of a record, of functions without their code.
    fn record(&self, at: u64, kind: RecordKind) -> Option<Vec<u8>> {
        let prefix = jitdump::prefix(&self.file.read(at, jitdump::PREFIX).ok()?)?;
        let size = (prefix.size as usize).saturating_sub(jitdump::PREFIX);
        let limit = match kind {
            RecordKind::DebugInfo => MAX_DEBUG_INFO as usize,
            _ => jitdump::BODY,
        };
        let body = (prefix.kind == kind).then(|| {
            self.file
                .read(at.saturating_add(jitdump::PREFIX as u64), size.min(limit))
        });
        body?.ok()
    }

    /// Reads the lines of a function. Without sense, as of a program that writes freed memory, none
    /// of them is used.
    fn lines(&self, at: u64, function: &jitdump::Load<'_>) -> Option<Vec<(u64, String, u32)>> {
        let body = self.record(at, RecordKind::DebugInfo)?;
        if jitdump::debug_address(&body) != Some(function.start) {
            return None;
        }
        let mut lines = Vec::new();
        for line in jitdump::debug_lines(&body).take(MAX_LINES) {
            let address = line.address.checked_sub(self.line_shift)?;
            let offset = address.checked_sub(function.start)?;
            let file = std::str::from_utf8(line.file).ok()?;
            let is_sound = offset < function.size
                && !file.is_empty()
                && file.len() <= perf_map::MAX_NAME
                && !file.contains(char::is_control);
            lines.push((offset, is_sound.then(|| file.to_owned())?, line.line));
        }
        lines.sort_by_key(|(offset, ..)| *offset);
        Some(lines)
    }
}

#[cfg(test)]
pub(super) mod tests;
