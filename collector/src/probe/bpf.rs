//! The eBPF kinds: one object, loaded and attached by `aya`.

use super::event::{EventSource, Layout, RawEvent};
use super::reason::{error_reason, program_error};
use super::sample::known_user;
use super::{AttachKind, MAX_STACK, ProbeOptions, tracefs};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::{BtfTracePoint, FEntry, KProbe, ProgramError, RawTracePoint, TracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;
use backtrail_bpf::{CRASH, CrashEvent, STACK_CHUNK};
use backtrail_pt::{Cpu, Pid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The kernel function that dumps core, newest name first (`fs/coredump.c`, renamed in Linux 6.17).
const DUMP_FUNCTIONS: [&str; 2] = ["vfs_coredump", "do_coredump"];
/// Page size. The ring is a multiple of it.
const PAGE: u32 = 4096;
/// Bytes before each record of a ring (`BPF_RINGBUF_HDR_SZ`).
const RECORD_HEAD: u32 = 8;

/// The data that all eBPF kinds need, read once.
pub(super) struct Loader {
    btf: Result<Btf, String>,
}

/// An attached eBPF program and its ring. The field order detaches before it unmaps.
pub(super) struct BpfSource {
    _perf_event: Option<OwnedFd>,
    _programs: Ebpf,
    ring: RingBuf<MapData>,
    lost: Array<MapData, u64>,
}

impl Loader {
    pub(super) fn new() -> Self {
        let why = |error: aya::BtfError| {
            format!("the kernel's BTF (/sys/kernel/btf/vmlinux) is missing or invalid: {error}")
        };
        Self {
            btf: Btf::from_sys_fs().map_err(why),
        }
    }

    pub(super) fn attach(&self, kind: AttachKind, options: &ProbeOptions) -> Result<BpfSource, String> {
        // Without BTF the object loads too, but reads kernel structs at wrong offsets.
        let btf = self.btf.as_ref().map_err(Clone::clone)?;
        let stack_chunks = options.stack.min(MAX_STACK).div_ceil(STACK_CHUNK) as u32;
        let only = options.only.map_or(0, |pid| pid.0);
        let mut programs = EbpfLoader::new()
            .btf(Some(btf))
            .override_global("signals", &options.signals.bits(), true)
            .override_global("stack_chunks", &stack_chunks, true)
            .override_global("only", &only, true)
            .map_max_entries("crashes", ring_size(options.ring, stack_chunks))
            .load(CRASH)
            .map_err(|error| error_reason(&error))?;
        let ring =
            RingBuf::try_from(take(&mut programs, "crashes")?).map_err(|error| error_reason(&error))?;
        let lost = Array::try_from(take(&mut programs, "lost")?).map_err(|error| error_reason(&error))?;
        let mut excluded: HashMap<MapData, u32, u8> =
            HashMap::try_from(take(&mut programs, "spared")?).map_err(|error| error_reason(&error))?;
        for pid in &options.excluded {
            excluded
                .insert(pid.0, 1, 0)
                .map_err(|error| error_reason(&error))?;
        }
        let perf_event = self.attach_program(&mut programs, kind, btf)?;
        Ok(BpfSource {
            _perf_event: perf_event,
            _programs: programs,
            ring,
            lost,
        })
    }

    fn attach_program(
        &self,
        programs: &mut Ebpf,
        kind: AttachKind,
        btf: &Btf,
    ) -> Result<Option<OwnedFd>, String> {
        const TRACEPOINT: &str = "signal_deliver";
        let program = programs
            .program_mut(match kind {
                AttachKind::BtfTracepoint => "btf_tracepoint",
                AttachKind::Fentry => "fentry",
                AttachKind::Kprobe => "kprobe",
                AttachKind::RawTracepoint => "raw_tracepoint",
                AttachKind::Tracepoint => "tracepoint",
                AttachKind::PerfTracepoint => return Err("this kind has no eBPF program".to_owned()),
            })
            .ok_or("the object of the probe lacks this program")?;
        let attached: Result<Option<OwnedFd>, ProgramError> = match kind {
            AttachKind::BtfTracepoint => <&mut BtfTracePoint>::try_from(program).and_then(|program| {
                program.load(TRACEPOINT, btf)?;
                program.attach().map(|_| None)
            }),
            AttachKind::Fentry => {
                let function = dump_function(btf)?;
                <&mut FEntry>::try_from(program).and_then(|program| {
                    program.load(function, btf)?;
                    program.attach().map(|_| None)
                })
            }
            AttachKind::Kprobe => {
                let function = dump_function(btf)?;
                <&mut KProbe>::try_from(program).and_then(|program| {
                    program.load()?;
                    program.attach(function, 0).map(|_| None)
                })
            }
            AttachKind::RawTracepoint => <&mut RawTracePoint>::try_from(program).and_then(|program| {
                program.load()?;
                program.attach(TRACEPOINT).map(|_| None)
            }),
            // Not with aya, which requires a mounted tracefs.
            AttachKind::Tracepoint | AttachKind::PerfTracepoint => {
                let program = <&mut TracePoint>::try_from(program).map_err(|error| program_error(&error))?;
                program.load().map_err(|error| program_error(&error))?;
                let fd = program.fd().map_err(|error| program_error(&error))?;
                return tracefs::attach_program("signal", TRACEPOINT, fd.as_fd()).map(Some);
            }
        };
        attached.map_err(|error| program_error(&error))
    }
}

impl EventSource for BpfSource {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ring.as_fd()]
    }

    fn next(&mut self, event: &mut RawEvent) -> bool {
        while let Some(record) = self.ring.next() {
            if let Some((head, _)) = CrashEvent::parse(&record) {
                (event.at, event.cpu, event.pid) = (head.at, Cpu(head.cpu), Pid(head.pid));
                event.user = known_user(head.user);
                event.layout = Layout::Bpf;
                // Copied, so that the ring gets its space back at once.
                event.bytes.clear();
                event.bytes.extend_from_slice(&record);
                return true;
            }
        }
        false
    }

    fn lost(&self) -> u64 {
        self.lost.get(&0, 0).unwrap_or(0)
    }
}

pub(super) fn take(programs: &mut Ebpf, name: &str) -> Result<Map, String> {
    programs
        .take_map(name)
        .ok_or_else(|| format!("the object of the probe lacks the map {name}"))
}

/// Returns a power of two with room for at least four events.
fn ring_size(wanted: u32, stack_chunks: u32) -> u32 {
    let event = (size_of::<CrashEvent>() + STACK_CHUNK * stack_chunks as usize) as u32 + RECORD_HEAD;
    let most = 1 << 30;
    wanted.clamp(PAGE.max(4 * event), most).next_power_of_two()
}

/// Returns the name of the function that dumps core in this kernel.
fn dump_function(btf: &Btf) -> Result<&'static str, String> {
    DUMP_FUNCTIONS
        .into_iter()
        .find(|name| btf.id_by_type_name_kind(name, BtfKind::Func).is_ok())
        .ok_or_else(|| format!("the kernel has no function {}", DUMP_FUNCTIONS.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_size_is_a_power_of_two_for_some_events() {
        assert_eq!(ring_size(1 << 20, 32), 1 << 20);
        assert_eq!(ring_size((1 << 20) + 1, 32), 1 << 21);
        assert_eq!(ring_size(u32::MAX, 32), 1 << 30);
        let smallest = ring_size(0, 32);
        assert!(smallest.is_power_of_two() && smallest as usize >= 4 * (size_of::<CrashEvent>() + MAX_STACK));
        assert_eq!(ring_size(0, 0) % PAGE, 0);
    }
}
