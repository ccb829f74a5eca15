//! Stacks that an eBPF program walks when a sample is taken (`bpf/src/sample.bpf.c`).
//!
//! The program needs no copy of the stack, but it knows only the mappings and unwind tables in its
//! maps. A sample that it cannot walk has a copy of the stack, as without eBPF. This sample fills
//! the maps for the next ones: with the mappings of its process, and with the tables that were
//! needed. So only code that runs has tables in the kernel.

mod mapped_array;
mod ranges;
mod tables;

use crate::sampler::{OutputIds, Rings, Sampler};
use aya::maps::Map;
use aya::programs::{PerfEvent, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use backtrail_bpf::{SAMPLE, SAMPLE_PROGRAMS};
use backtrail_perf::attr::Attr;
use backtrail_perf::event::{Event, Target};
use std::error::Error as StdError;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use tables::Maps;
pub(crate) use tables::{WalkerChanges, WalkerTables};

/// The attached programs. They are detached with the events that they are attached to.
#[derive(Debug)]
pub(crate) struct KernelWalker {
    /// The mappings and unwind tables that the programs know.
    pub tables: WalkerTables,
    /// The map with the wanted period of each program.
    periods: OwnedFd,
    /// The index of the event of each program in [`Sampler::events`].
    events: Vec<usize>,
    _outputs: Vec<Event>,
    _output_map: OwnedFd,
}

impl KernelWalker {
    /// Attaches the programs to events that are not enabled yet. `table_budget` is the bytes of all
    /// unwind tables.
    ///
    /// # Errors
    ///
    /// The reason in words. The events then copy stacks.
    pub fn attach(sampler: &Sampler, rings: &mut Rings, table_budget: usize) -> Result<Self, String> {
        check_pid_namespace()?;
        let btf = Btf::from_sys_fs().map_err(|error| {
            format!("the kernel's BTF (/sys/kernel/btf/vmlinux) is missing or invalid: {error}")
        })?;
        let rows = u32::try_from(table_budget / tables::ROW).unwrap_or(u32::MAX);
        let mut object = EbpfLoader::new()
            .btf(Some(&btf))
            .map_max_entries("rows", rows)
            .load(SAMPLE)
            .map_err(|error| reason(&error))?;
        let mut programs = Vec::new();
        let mut events = Vec::new();
        for index in sampler.walked_events() {
            let number = events.len();
            if number >= SAMPLE_PROGRAMS {
                break;
            }
            programs.push(load(&mut object, number)?);
            events.push(index);
        }
        let outputs = map_fd(&mut object, "outputs")?;
        let mut output_events = Vec::new();
        let mut ids = OutputIds::default();
        for (cpu, owner) in sampler.ring_owners() {
            let output = Event::open(
                "stacks",
                &Attr::program_output(),
                Target::Everyone,
                Some(cpu),
                None,
            )
            .map_err(|error| error.to_string())?;
            output.set_output(owner).map_err(|error| error.to_string())?;
            ids.ids.insert(output.id().map_err(|error| error.to_string())?);
            let fd = output.as_fd().as_raw_fd().cast_unsigned();
            tables::update(outputs.as_fd(), &cpu.0, &fd)
                .map_err(|error| format!("an event does not fit the eBPF program: {error}"))?;
            output_events.push(output);
        }
        let periods = map_fd(&mut object, "periods")?;
        let maps = Maps {
            processes: map_fd(&mut object, "processes")?,
            mappings: map_fd(&mut object, "mappings")?,
            modules: map_fd(&mut object, "modules")?,
            rows: map_fd(&mut object, "rows")?,
            interpreters: map_fd(&mut object, "interpreters")?,
            tls_slots: map_fd(&mut object, "tls_slots")?,
        };
        let tables =
            WalkerTables::new(maps, rows).map_err(|error| format!("mmap of an eBPF map: {error}"))?;
        for (program, index) in programs.iter().zip(&events) {
            for event in sampler.open_events(*index) {
                event
                    .set_program(program.as_fd())
                    .map_err(|error| error.to_string())?;
            }
        }
        ids.events.clone_from(&events);
        rings.read_walked(ids);
        Ok(Self {
            tables,
            periods,
            events,
            _outputs: output_events,
            _output_map: outputs,
        })
    }

    /// Changes the rate of events with a timer: the programs take fewer samples.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn set_frequency(&self, sampler: &Sampler, frequency: u64) -> io::Result<()> {
        for (number, event) in (0_u32..).zip(&self.events) {
            let period = sampler.timer_period(*event, frequency).unwrap_or(0);
            tables::update(self.periods.as_fd(), &number, &period)?;
        }
        Ok(())
    }
}

/// Loads a program. The events that it is attached to keep it.
fn load(object: &mut Ebpf, number: usize) -> Result<OwnedFd, String> {
    let name = format!("sample_{number}");
    let program = object
        .program_mut(&name)
        .ok_or_else(|| format!("the object lacks the program {name}"))?;
    let program: &mut PerfEvent = program.try_into().map_err(|error| program_error(&error))?;
    program.load().map_err(|error| program_error(&error))?;
    let fd = program.fd().map_err(|error| program_error(&error))?;
    fd.as_fd().try_clone_to_owned().map_err(|error| error.to_string())
}

fn map_fd(object: &mut Ebpf, name: &str) -> Result<OwnedFd, String> {
    let map = object
        .map(name)
        .ok_or_else(|| format!("the object lacks the map {name}"))?;
    let data = match map {
        Map::Array(data) | Map::HashMap(data) | Map::PerfEventArray(data) => data,
        _ => return Err(format!("the map {name} is of another type")),
    };
    let fd: BorrowedFd<'_> = data.fd().as_fd();
    fd.try_clone_to_owned().map_err(|error| error.to_string())
}

/// Checks that this process sees the process ids of the first namespace (`PROC_PID_INIT_INO` in
/// `include/linux/proc_ns.h`).
fn check_pid_namespace() -> Result<(), String> {
    const FIRST: u64 = 0xEFFF_FFFC;
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() == FIRST => Ok(()),
        _ => Err(
            "eBPF programs see process ids of the first pid namespace, and this process others".to_owned(),
        ),
    }
}

/// Returns in one line why a program is not loaded.
fn program_error(error: &ProgramError) -> String {
    match error {
        // The verifier's log is long. Its last lines have the reason.
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let mut lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            lines.drain(..lines.len().saturating_sub(3));
            format!(
                "the kernel does not load the program: {io_error} {}",
                lines.join(" / ")
            )
        }
        error => reason(error),
    }
}

/// Returns the causes of an error in one line, each once, and the privileges that are needed.
fn reason(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    if text.contains("(os error 1)") {
        text.push_str("; root, or CAP_BPF and CAP_PERFMON may do that");
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether the programs can be loaded.
///
/// # Errors
///
/// The reason in words.
pub(crate) fn check() -> Result<(), String> {
    let btf = Btf::from_sys_fs().map_err(|error| reason(&error))?;
    let mut object = EbpfLoader::new()
        .btf(Some(&btf))
        .load(SAMPLE)
        .map_err(|error| reason(&error))?;
    load(&mut object, 0).map(drop)?;
    check_pid_namespace()
}
