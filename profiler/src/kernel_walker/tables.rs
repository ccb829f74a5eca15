//! The mappings and unwind tables that the program knows.

use super::mapped_array::{MapValue, MappedArray};
use super::ranges::Ranges;
use crate::modules::{ModuleIdx, ModuleKind, Modules, TableOf};
use crate::tasks::Tasks;
use crate::unwind_table::Row;
use backtrail_bpf::{
    MAX_MODULE_ROWS, MAX_PROCESS_MAPPINGS, MappingRow, ModuleRow, ProcessRow, TlsSlotRow, table_state,
    tls_kind,
};
use backtrail_process::thread_context::tls::{Libc, TlsSlot};
use backtrail_pt::Pid;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

/// The size of a row.
pub(super) const ROW: usize = size_of::<Row>();
/// `max_entries` of the maps.
const MAPPINGS: u32 = 1 << 16;
const MODULES: u32 = 1 << 14;
/// The rows that are mapped into this process at once.
const ROWS_AT_ONCE: usize = 1 << 16;
/// The number of the modules that do not fit. Their stacks are always copied.
const UNKNOWN_MODULE: u32 = MODULES - 1;
/// Addresses from here on are not those of programs, or do not fit in a word of a stack.
const END_OF_PROGRAMS: u64 = 1 << 47;

// SAFETY: they are integers without padding, of 32, 16 and 8 bytes.
unsafe impl MapValue for MappingRow {}
// SAFETY: as above.
unsafe impl MapValue for ModuleRow {}
// SAFETY: as above.
unsafe impl MapValue for Row {}

/// The maps of the program.
#[derive(Debug)]
pub(super) struct Maps {
    pub processes: OwnedFd,
    pub mappings: OwnedFd,
    pub modules: OwnedFd,
    pub rows: OwnedFd,
    pub interpreters: OwnedFd,
    pub tls_slots: OwnedFd,
}

/// The content of the maps.
#[derive(Debug)]
pub(crate) struct WalkerTables {
    maps: Maps,
    mappings: MappedArray<MappingRow>,
    modules: MappedArray<ModuleRow>,
    ranges: Ranges,
    /// The mappings of each process that the program knows.
    processes: HashMap<Pid, Range<u32>>,
    /// The processes whose Python interpreter the program knows.
    interpreters: BTreeSet<Pid>,
    /// The processes that samples need.
    wanted: BTreeSet<Pid>,
    /// The processes that need the tables of all their files.
    cut: BTreeSet<Pid>,
    row_len: u32,
    row_capacity: u32,
}

/// The changes that all programs get.
#[derive(Debug, Default)]
pub(crate) struct WalkerChanges {
    /// The modules whose tables became known.
    pub decided: Vec<ModuleIdx>,
    /// The processes whose mappings changed.
    pub mapped: HashSet<Pid>,
    /// The processes whose threads have their requests elsewhere now.
    pub slots: Vec<(Pid, Option<TlsSlot>)>,
    /// The processes that the program gets to know.
    pub wanted: Vec<Pid>,
}

impl WalkerTables {
    pub(super) fn new(maps: Maps, row_capacity: u32) -> io::Result<Self> {
        Ok(Self {
            mappings: MappedArray::map(maps.mappings.as_fd(), 0, MAPPINGS as usize)?,
            modules: MappedArray::map(maps.modules.as_fd(), 0, MODULES as usize)?,
            maps,
            ranges: Ranges::new(MAPPINGS),
            processes: HashMap::new(),
            wanted: BTreeSet::new(),
            cut: BTreeSet::new(),
            interpreters: BTreeSet::new(),
            row_len: 0,
            row_capacity,
        })
    }

    /// Notes that the stack of a sample was copied, so that the next one is not. A copy that is too
    /// short does not lead to all files whose tables are needed.
    pub fn want(&mut self, pid: Pid, is_complete: bool) {
        if !self.processes.contains_key(&pid) {
            self.wanted.insert(pid);
        }
        if !is_complete {
            self.cut.insert(pid);
        }
    }

    /// Builds the tables that copied stacks need. Every record so far must have been applied.
    pub fn build(&mut self, tasks: &Tasks, modules: &mut Modules) {
        for pid in std::mem::take(&mut self.cut) {
            for (_, mapped) in tasks.mappings(pid) {
                modules.table(mapped.module);
            }
        }
    }

    /// Brings the maps up to date after [`WalkerTables::build`].
    pub fn update(&mut self, changes: &WalkerChanges, tasks: &Tasks, modules: &Modules) {
        let mut pids = std::mem::take(&mut self.wanted);
        pids.extend(changes.wanted.iter().copied());
        for module in &changes.decided {
            self.add_module(*module, modules);
            // Their processes have an interpreter from now on.
            if modules.python(*module).is_some() {
                pids.extend(self.processes.keys());
            }
        }
        for pid in &changes.mapped {
            if self.processes.contains_key(pid) {
                pids.insert(*pid);
            }
        }
        let now = Instant::now();
        for pid in pids {
            self.set_process(pid, tasks, modules, now);
        }
        for (pid, slot) in &changes.slots {
            self.set_slot(*pid, *slot);
        }
    }

    /// Returns the processes that the program knows.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// Returns the number by which the program knows a module.
    pub fn number(module: ModuleIdx, kind: Option<ModuleKind>) -> u32 {
        match kind {
            Some(ModuleKind::File | ModuleKind::Vdso) => {
                module.number().saturating_add(1).min(UNKNOWN_MODULE)
            }
            _ => 0,
        }
    }

    /// Sets where the threads of a process have their requests.
    fn set_slot(&self, pid: Pid, slot: Option<TlsSlot>) {
        let map = self.maps.tls_slots.as_fd();
        // If there are too many processes, samples of this one have no requests.
        match slot.and_then(slot_row) {
            Some(row) => drop(update(map, &pid.0, &row)),
            None => remove(map, &pid.0),
        }
    }

    fn add_module(&mut self, module: ModuleIdx, modules: &Modules) {
        let number = Self::number(module, modules.kind(module));
        if number == 0 || number >= UNKNOWN_MODULE {
            return;
        }
        let mut row = ModuleRow {
            state: table_state::MISSING,
            ..ModuleRow::default()
        };
        match modules.table_of(module) {
            TableOf::Unread => return,
            TableOf::Missing => {}
            TableOf::Ready(table) => {
                let rows = table.rows();
                let Some(first_row) = self.add_rows(rows) else {
                    return;
                };
                row = ModuleRow {
                    state: table_state::READY,
                    first_row,
                    rows: u32::try_from(rows.len()).unwrap_or(0),
                    unused: 0,
                };
            }
        }
        // The program reads the state first.
        let unread = ModuleRow {
            state: table_state::UNREAD,
            ..row
        };
        self.modules.set(number as usize, unread);
        fence(Ordering::SeqCst);
        self.modules.set(number as usize, row);
    }

    /// Adds the rows of a table. `None`: there is no room. Stacks with this module are copied.
    fn add_rows(&mut self, rows: &[Row]) -> Option<u32> {
        let first = self.row_len;
        let len = u32::try_from(rows.len()).ok()?;
        let end = first.checked_add(len).filter(|end| *end <= self.row_capacity)?;
        if rows.len() > MAX_MODULE_ROWS {
            return None;
        }
        // Mapped in parts for a moment: all rows together are as large as the rest of the memory of
        // this process.
        let mut start = first as usize;
        for part in rows.chunks(ROWS_AT_ONCE) {
            let mut mapped = MappedArray::map(self.maps.rows.as_fd(), start, part.len()).ok()?;
            for (index, row) in part.iter().enumerate() {
                mapped.set(index, *row);
            }
            start += part.len();
        }
        self.row_len = end;
        Some(first)
    }

    /// Replaces the mappings of a process by the current ones.
    fn set_process(&mut self, pid: Pid, tasks: &Tasks, modules: &Modules, now: Instant) {
        let rows = tasks
            .mappings(pid)
            .filter(|(range, _)| range.end <= END_OF_PROGRAMS);
        let rows: Vec<_> = rows
            .map(|(range, mapped)| MappingRow {
                start: range.start,
                end: range.end,
                bias: range.start.wrapping_sub(mapped.offset.0),
                module: Self::number(mapped.module, modules.kind(mapped.module)),
                unused: 0,
            })
            .collect();
        self.set_interpreter(pid, tasks, modules);
        let fits = !rows.is_empty() && rows.len() <= MAX_PROCESS_MAPPINGS;
        let len = u32::try_from(rows.len()).ok().filter(|_| fits);
        let range = len.and_then(|len| self.ranges.allocate(len, now));
        let old = match range {
            None => {
                remove(self.maps.processes.as_fd(), &pid.0);
                self.processes.remove(&pid)
            }
            Some(range) => {
                for (index, row) in (range.start..).zip(&rows) {
                    self.mappings.set(index as usize, *row);
                }
                fence(Ordering::SeqCst);
                let row = ProcessRow {
                    first: range.start,
                    mappings: range.end - range.start,
                };
                match update(self.maps.processes.as_fd(), &pid.0, &row) {
                    Ok(()) => self.processes.insert(pid, range),
                    // Too many processes.
                    Err(_) => {
                        self.ranges.retire(range, now);
                        self.processes.remove(&pid)
                    }
                }
            }
        };
        if let Some(old) = old {
            self.ranges.retire(old, now);
        }
    }
}

impl WalkerTables {
    /// Sets or removes the Python interpreter of a process.
    fn set_interpreter(&mut self, pid: Pid, tasks: &Tasks, modules: &Modules) {
        let map = self.maps.interpreters.as_fd();
        let interpreter = tasks.mappings(pid).find_map(|(range, mapped)| {
            let build = modules.python(mapped.module)?;
            build.interpreter(range.start.wrapping_sub(mapped.offset.0))
        });
        // If there are too many, the others have frames of the interpreter's functions.
        let is_set = interpreter.is_some_and(|interpreter| update(map, &pid.0, &interpreter).is_ok());
        if is_set {
            self.interpreters.insert(pid);
        } else if self.interpreters.remove(&pid) {
            remove(map, &pid.0);
        }
    }
}

/// Returns a slot in the form of the map.
fn slot_row(slot: TlsSlot) -> Option<TlsSlotRow> {
    Some(match slot {
        TlsSlot::Static(offset) => TlsSlotRow {
            offset,
            kind: tls_kind::STATIC,
            ..TlsSlotRow::default()
        },
        TlsSlot::Dynamic {
            libc,
            module,
            offset,
            generation,
        } => TlsSlotRow {
            offset: i64::try_from(offset).ok()?,
            generation,
            kind: match libc {
                Libc::Glibc => tls_kind::GLIBC,
                Libc::Musl => tls_kind::MUSL,
            },
            module: u32::try_from(module).ok()?,
        },
    })
}

/// `union bpf_attr` of calls for the elements of a map.
#[repr(C)]
struct ElementCall {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Sets the value of a key. Both must have the sizes of the map.
pub(super) fn update<K, V>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    const BPF_MAP_UPDATE_ELEM: i64 = 2;
    call(BPF_MAP_UPDATE_ELEM, map, key, std::ptr::from_ref(value) as u64)
}

/// Removes a key, if it is there.
fn remove<K>(map: BorrowedFd<'_>, key: &K) {
    const BPF_MAP_DELETE_ELEM: i64 = 3;
    // The key may not be there.
    let _ = call(BPF_MAP_DELETE_ELEM, map, key, 0);
}

fn call<K>(command: i64, map: BorrowedFd<'_>, key: &K, value: u64) -> io::Result<()> {
    let attributes = ElementCall {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: std::ptr::from_ref(key) as u64,
        value,
        flags: 0,
    };
    // SAFETY: the kernel reads the attributes, and the key and the value that they point to. All
    // live through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(&attributes),
            size_of::<ElementCall>(),
        )
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
