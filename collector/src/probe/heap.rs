//! The heap probe: calls of allocator functions in some processes, by uprobes.
//!
//! One eBPF object (`bpf/src/heap.bpf.c`) serves all processes. Each function of a process has its
//! own breakpoints, which no other process meets.

use super::ProbeError;
use super::bpf::take;
use super::reason::{error_reason, program_error};
use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeLinkId, UProbeScope};
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use backtrail_bpf::{HEAP, HeapEvent, HeapProcessRow, heap_cookie};
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_pt::{FileOffset, Pid};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// An allocator function of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbedFunction {
    /// The file.
    pub path: Arc<PathBuf>,
    /// The offset of its first instruction in the file.
    pub offset: FileOffset,
    /// The function.
    pub function: AllocatorFunction,
}

/// The heap probe. Dropping it detaches it from all processes. The field order detaches before it
/// unmaps.
pub struct HeapProbe {
    programs: Ebpf,
    ring: RingBuf<MapData>,
    processes: HashMap<MapData, u32, Row>,
}

/// The breakpoints of a process.
#[derive(Debug, Default)]
pub struct HeapAttachment(Vec<(&'static str, UProbeLinkId)>);

/// Breakpoints that no longer record.
#[derive(Debug, Default)]
pub struct HeapBreakpoints(Vec<UProbeLink>);

impl HeapBreakpoints {
    /// Adds others.
    pub fn add(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Removes the breakpoints, at the same time: the kernel waits for each.
    pub fn remove(self) {
        std::thread::scope(|scope| {
            for link in self.0 {
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                // Without a thread, the link is dropped here.
                let _ = thread.spawn_scoped(scope, move || drop(link));
            }
        });
    }
}

/// The lost calls of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostCalls {
    /// Their number since the attachment.
    pub count: u64,
    /// The time of the last one, by `CLOCK_MONOTONIC`.
    pub at: u64,
}

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Row(HeapProcessRow);

// SAFETY: the struct has integers without padding only.
unsafe impl Pod for Row {}

impl HeapProbe {
    /// Loads the programs. No process has breakpoints yet.
    ///
    /// # Errors
    /// When the kernel refuses. CAP_BPF, CAP_PERFMON, BTF and `CONFIG_UPROBE_EVENTS` are needed.
    pub fn load() -> Result<Self, ProbeError> {
        load().map_err(ProbeError::Heap)
    }

    /// Attaches to functions of a process, and records their calls from now on. `known` are the
    /// functions that it is attached to already.
    ///
    /// # Errors
    /// When the kernel refuses, and for C++ operators, which exceptions can leave. `attachment` has
    /// the breakpoints before the failure.
    pub fn attach(
        &mut self,
        pid: Pid,
        functions: &[ProbedFunction],
        known: usize,
        attachment: &mut HeapAttachment,
    ) -> Result<(), ProbeError> {
        for function in functions {
            if is_operator(function.function) {
                let name = function.function.name();
                // An exception cannot pass a frame whose return address the kernel has replaced.
                return Err(ProbeError::Heap(format!("{name} may end by an exception")));
            }
            // The return probe first. A call that begins before it is attached would never end.
            let names: &[&'static str] = match function.function.gives_block() {
                true => &["returned", "called"],
                false => &["freed"],
            };
            for name in names {
                let link = self
                    .attach_program(pid, function, name)
                    .map_err(ProbeError::Heap)?;
                attachment.0.push((name, link));
            }
        }
        let mut row = match known {
            0 => HeapProcessRow::default(),
            _ => self
                .processes
                .get(&pid.0, 0)
                .map_or_else(|_| HeapProcessRow::default(), |row| row.0),
        };
        let frees = functions
            .iter()
            .filter(|function| !function.function.gives_block());
        row.repeats |= u32::from(frees.count() > usize::from(known == 0));
        self.processes
            .insert(pid.0, Row(row), 0)
            .map_err(|error| ProbeError::Heap(error_reason(&error)))
    }

    fn attach_program(
        &mut self,
        pid: Pid,
        function: &ProbedFunction,
        name: &str,
    ) -> Result<UProbeLinkId, String> {
        let process = NonZeroU32::new(pid.0).ok_or("there is no process 0")?;
        let program = self
            .programs
            .program_mut(name)
            .ok_or_else(|| format!("the object of the probe lacks the program {name}"))?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(function.offset.0),
            cookie: Some(cookie(function.function)),
        };
        let scope = UProbeScope::OneProcess(process);
        <&mut UProbe>::try_from(program)
            .and_then(|program| program.attach(point, function.path.as_path(), scope))
            .map_err(|error| program_error(&error))
    }

    /// Records no further calls of a process. Returns its breakpoints. Dropping them removes them,
    /// which takes about a tenth of a second for each.
    #[must_use]
    pub fn detach(&mut self, pid: Pid, attachment: HeapAttachment) -> HeapBreakpoints {
        let _ = self.processes.remove(&pid.0);
        let mut links = Vec::new();
        for (name, link) in attachment.0 {
            let program = self.programs.program_mut(name);
            let program = program.and_then(|program| <&mut UProbe>::try_from(program).ok());
            let taken = program.and_then(|program| program.take_link(link).ok());
            links.extend(taken);
        }
        HeapBreakpoints(links)
    }

    /// Returns the descriptor that becomes readable when there are many records.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Takes all records. Never blocks.
    pub fn drain(&mut self, each: &mut dyn FnMut(&HeapEvent)) {
        while let Some(record) = self.ring.next() {
            if let Some(event) = HeapEvent::parse(&record) {
                drop(record);
                each(&event);
            }
        }
    }

    /// Returns the calls of a process that were lost because the ring was full, or because an
    /// exception left an allocator function.
    #[must_use]
    pub fn lost(&self, pid: Pid) -> LostCalls {
        self.processes.get(&pid.0, 0).map_or_else(
            |_| LostCalls::default(),
            |row| LostCalls {
                count: row.0.lost,
                at: row.0.lost_at,
            },
        )
    }
}

/// Returns whether this is a C++ operator.
fn is_operator(function: AllocatorFunction) -> bool {
    use AllocatorFunction as F;
    matches!(function, F::New | F::NewArray | F::Delete | F::DeleteArray)
}

/// Returns the cookie of a function for the programs: its number, and how it takes arguments.
fn cookie(function: AllocatorFunction) -> u64 {
    use AllocatorFunction as F;
    let arguments = match function {
        F::Calloc => heap_cookie::SIZE_IS_PRODUCT,
        F::Realloc => heap_cookie::RESIZES,
        F::AlignedAlloc | F::Memalign => heap_cookie::SIZE_IN_SI,
        F::PosixMemalign => heap_cookie::STORES_BLOCK,
        _ => 0,
    };
    arguments | function as u64
}

fn load() -> Result<HeapProbe, String> {
    // Without BTF the object loads too, but reads kernel structs at wrong offsets.
    let btf = Btf::from_sys_fs().map_err(|error| {
        format!("the kernel's BTF (/sys/kernel/btf/vmlinux) is missing or invalid: {error}")
    })?;
    let mut programs = EbpfLoader::new()
        .btf(Some(&btf))
        .load(HEAP)
        .map_err(|error| error_reason(&error))?;
    let ring = RingBuf::try_from(take(&mut programs, "calls")?).map_err(|error| error_reason(&error))?;
    let processes =
        HashMap::try_from(take(&mut programs, "processes")?).map_err(|error| error_reason(&error))?;
    for name in ["called", "returned", "freed"] {
        let program = programs
            .program_mut(name)
            .ok_or_else(|| format!("the object of the probe lacks the program {name}"))?;
        <&mut UProbe>::try_from(program)
            .and_then(|program| program.load())
            .map_err(|error| program_error(&error))?;
    }
    Ok(HeapProbe {
        programs,
        ring,
        processes,
    })
}
