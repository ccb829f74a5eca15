//! Reads the context that a process publishes for OpenTelemetry: which request a thread works on.
//!
//! Two documents describe it, in `oteps/profiles` of open-telemetry/opentelemetry-specification:
//!
//! - [`process_context`]: OTEP 4719, process context. A memory mapping with a name and a signature
//!   points to a protobuf message with the resource attributes of the process.
//! - [`record`]: OTEP 4947, thread context. A thread-local variable `otel_thread_ctx_v1` points to
//!   the record of the thread's current request, or is null.
//!
//! The variable is found as the OpenTelemetry eBPF profiler does (`interpreter/threadcontext`):
//!
//! - [`symbol`] finds in an ELF file how code of the file computes the variable's address.
//! - [`tls`] resolves that in a running process, and for a thread by its thread pointer (the FS
//!   base of x86-64).
//!
//! A thread must be stopped while its context is read, or read itself, because only the thread
//! writes its record (OTEP 4947, "Concurrency model"). A record that is not valid gives no context.

pub mod process_context;
pub mod record;
pub mod symbol;
pub mod tls;

use crate::load_segments::LoadSegments;
use crate::maps::{self, Map};
use crate::{RawTid, code_image};
use backtrail_bundle::context::{PublishedContext, ThreadContext};
use backtrail_bundle::core::Memory;
use backtrail_pt::{Avma, Tid};
use object::read::ReadCache;
use process_context::ProcessContext;
use record::Record;
use std::collections::HashSet;
use std::fs::File;
use tls::{Libc, TlsSlot};

/// Maximum number of variables that are read for each thread. Each binary may define one.
const MAX_SLOTS: usize = 8;
/// Maximum number of threads whose contexts are read.
const MAX_THREADS: usize = 4096;

/// The published context of a process, and where its threads keep theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextReader {
    /// The context of the process.
    pub process: ProcessContext,
    /// The variables of its threads.
    pub slots: Vec<TlsSlot>,
}

impl ContextReader {
    /// Returns the reader of a process, or `None` if the process publishes no context.
    ///
    /// `open` returns the file of an executable mapping, which must be the mapped one. Files are
    /// read only if the context names a format of thread contexts that is known.
    pub fn of_process(
        maps: &[Map],
        memory: &mut impl Memory,
        open: &mut dyn FnMut(&Map) -> Option<File>,
    ) -> Option<Self> {
        let process = process_context::read(maps, memory)?;
        let slots = match process.has_thread_contexts() {
            true => slots(maps, memory, open),
            false => Vec::new(),
        };
        Some(Self { process, slots })
    }

    /// Returns the record of a thread, by its thread pointer.
    pub fn record(&self, thread_pointer: u64, memory: &mut impl Memory) -> Option<Record> {
        self.slots
            .iter()
            .find_map(|slot| record::read(slot.address(thread_pointer, memory)?, memory))
    }

    /// Returns the contexts of the process and of these threads, given by id and thread pointer.
    /// `None`: there are none.
    pub fn read(
        &self,
        threads: impl IntoIterator<Item = (Tid, u64)>,
        memory: &mut impl Memory,
    ) -> Option<PublishedContext> {
        let threads = threads.into_iter().take(MAX_THREADS);
        let threads = threads.filter_map(|(tid, pointer)| {
            let record = self.record(pointer, memory)?;
            Some(ThreadContext {
                tid,
                span: record.span,
                attributes: record.named(&self.process.keys),
            })
        });
        let found = PublishedContext {
            threads: threads.collect(),
            resource: self.process.resource.clone(),
        };
        (found != PublishedContext::default()).then_some(found)
    }
}

/// Returns the contexts of a stopped process and of its threads, given by id and thread pointer.
#[must_use]
pub fn of_stopped_process(
    pid: RawTid,
    threads: impl IntoIterator<Item = (Tid, u64)>,
) -> Option<PublishedContext> {
    let mut memory = |address: Avma, out: &mut [u8]| crate::memory::read(pid, address.0, out);
    let mut open = |map: &Map| code_image::open(pid, map);
    let reader = ContextReader::of_process(&maps::maps(pid), &mut memory, &mut open)?;
    reader.read(threads, &mut memory)
}

/// Returns the thread-local variables of a process's binaries.
fn slots(maps: &[Map], memory: &mut impl Memory, open: &mut dyn FnMut(&Map) -> Option<File>) -> Vec<TlsSlot> {
    let libc = Libc::of_maps(maps);
    let mut seen = HashSet::new();
    let mut slots = Vec::new();
    for map in maps.iter().filter(|map| map.executable && map.is_file()) {
        if slots.len() >= MAX_SLOTS
            || !seen.insert((map.device, map.inode, map.start.wrapping_sub(map.offset)))
        {
            continue;
        }
        let slot = open(map).and_then(|file| {
            let access = symbol::find(&ReadCache::new(&file))?;
            let bias = LoadSegments::read(&file)?.bias(map.start, map.offset)?;
            access.resolve(bias, libc, memory)
        });
        slots.extend(slot.filter(|slot| !slots.contains(slot)));
    }
    slots
}

/// Reads exactly `N` bytes of memory.
fn bytes<const N: usize>(memory: &mut impl Memory, address: u64) -> Option<[u8; N]> {
    let mut out = [0; N];
    (memory.read(Avma(address), &mut out) == N).then_some(out)
}

/// Reads a word of memory.
fn word(memory: &mut impl Memory, address: u64) -> Option<u64> {
    bytes(memory, address).map(u64::from_le_bytes)
}
