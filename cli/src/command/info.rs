//! `backtrail info`.

use crate::args::Info;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::published_context::{self, ContextInfo};
use crate::terminal::plain;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::manifest::{self, Source};
use backtrail_debugger::Session;
use backtrail_decoder::CpuReport;
use backtrail_decoder::split::UnattributedReason;
use backtrail_pt::Tid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Prints the contents of a bundle, or one line of digest per thread.
pub fn run(args: &Info) -> Result<(), Failure> {
    let options = open::options(&args.decode);
    let session = open::session(&args.bundle, &options, &Interrupt::install())?;
    let info = BundleInfo::of(&session, args);
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-info/2", &info)?;
    } else if args.digest {
        for thread in session.threads() {
            writeln!(output, "{}", thread.digest_line())?;
        }
    } else {
        let context = published_context(&session);
        info.print(context, &mut output)?;
    }
    output.finish()
}

fn published_context(session: &Session) -> Option<&PublishedContext> {
    session.bundle()?.manifest().meta.context.as_ref()
}

#[derive(Serialize)]
struct BundleInfo {
    name: String,
    engine: String,
    source: Option<&'static str>,
    created_by: Option<String>,
    command_line: Vec<String>,
    crash: Option<CrashInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<ContextInfo>,
    ending: Option<Ending>,
    overhead: Option<OverheadInfo>,
    threads: Vec<ThreadInfo>,
    cpus: Vec<CpuInfo>,
    modules: Vec<ModuleInfo>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CrashInfo {
    tid: u32,
    signal: i32,
    code: i32,
    fault_address: Option<String>,
    pc: String,
}

/// The exit of the program, with its status or signal.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ending {
    Exited(i32),
    Killed(i32),
}

impl From<manifest::Ending> for Ending {
    fn from(ending: manifest::Ending) -> Self {
        match ending {
            manifest::Ending::Exited(status) => Self::Exited(status),
            manifest::Ending::Killed(signal) => Self::Killed(signal),
        }
    }
}

/// The cost of recording in software, in nanoseconds.
#[derive(Serialize)]
struct OverheadInfo {
    wall: u64,
    program_cpu: Option<u64>,
    recorder_cpu: u64,
    stops: u64,
}

#[derive(Serialize)]
struct ThreadInfo {
    tid: u32,
    name: Option<String>,
    instructions: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    gaps: usize,
    /// The memory of the history in bytes.
    history_bytes: usize,
}

#[derive(Serialize)]
struct CpuInfo {
    cpu: u32,
    instructions: u64,
    attributed: u64,
    errors: u64,
    psb_blocks: usize,
    executions: usize,
    executions_by_thread: BTreeMap<u32, usize>,
    unattributed: Vec<UnattributedInfo>,
}

#[derive(Serialize)]
struct UnattributedInfo {
    reason: String,
    instructions: u64,
    pieces: u64,
}

#[derive(Serialize)]
struct ModuleInfo {
    pid: u32,
    path: String,
    base: String,
    build_id: Option<String>,
    in_bundle: bool,
}

impl BundleInfo {
    fn of(session: &Session, args: &Info) -> Self {
        let manifest = session.bundle().map(|bundle| bundle.manifest());
        let meta = manifest.map(|manifest| &manifest.meta);
        let processes = manifest
            .map(|manifest| manifest.processes.as_slice())
            .unwrap_or_default();
        let modules = processes.iter().flat_map(|process| {
            process.modules.iter().map(|module| ModuleInfo {
                pid: process.pid.0,
                path: module.path.clone(),
                base: module.base.to_string(),
                build_id: module.build_id.as_ref().map(ToString::to_string),
                in_bundle: module.file.is_some(),
            })
        });
        let threads = session.threads().iter().map(|thread| ThreadInfo {
            tid: thread.tid.0,
            name: thread.name.clone(),
            instructions: thread.history.len(),
            errors: thread.history.errors(),
            // A digest goes through every instruction.
            digest: (args.digest && args.json).then(|| format!("{:016x}", thread.history.digest())),
            gaps: thread.history.gaps().count(),
            history_bytes: thread.history.memory(),
        });
        Self {
            name: session.name().to_owned(),
            engine: args.decode.engine.clone(),
            source: meta.map(|meta| source_name(meta.source)),
            created_by: meta.and_then(|meta| meta.created_by.clone()),
            command_line: meta.map(|meta| meta.command_line.clone()).unwrap_or_default(),
            crash: session.crash().map(|crash| CrashInfo {
                tid: crash.tid.0,
                signal: crash.signal,
                code: crash.code,
                fault_address: crash.fault_address.map(|address| address.to_string()),
                pc: crash.pc.to_string(),
            }),
            context: published_context(session).map(ContextInfo::new),
            ending: session.ending().map(Ending::from),
            overhead: meta.and_then(|meta| meta.overhead).map(|overhead| OverheadInfo {
                wall: overhead.wall,
                program_cpu: overhead.program_cpu,
                recorder_cpu: overhead.recorder_cpu,
                stops: overhead.stops,
            }),
            threads: threads.collect(),
            cpus: session.cpus().iter().map(cpu_info).collect(),
            modules: modules.collect(),
            notes: session.notes().to_vec(),
        }
    }

    fn print(&self, context: Option<&PublishedContext>, output: &mut Output) -> Result<(), Failure> {
        writeln!(output, "{}", plain(&self.name))?;
        if !self.command_line.is_empty() {
            writeln!(output, "  command   {}", plain(&self.command_line.join(" ")))?;
        }
        if let Some(source) = self.source {
            let by = self
                .created_by
                .as_deref()
                .map(|by| format!(" ({})", plain(by)))
                .unwrap_or_default();
            writeln!(output, "  source    {source}{by}, decoded by {}", self.engine)?;
        }
        if let Some(crash) = &self.crash {
            let fault = crash
                .fault_address
                .as_deref()
                .map(|at| format!(", address {at}"))
                .unwrap_or_default();
            let CrashInfo { tid, signal, pc, .. } = crash;
            writeln!(
                output,
                "  crash     signal {signal} in thread {tid} at {pc}{fault}"
            )?;
        }
        let crashed = self.crash.as_ref().map(|crash| Tid(crash.tid));
        for (name, text) in context
            .iter()
            .flat_map(|context| published_context::lines(context, crashed))
        {
            writeln!(output, "  {name:<9} {}", plain(&text))?;
        }
        match self.ending {
            Some(Ending::Exited(status)) => writeln!(output, "  ending    exited with status {status}")?,
            Some(Ending::Killed(signal)) => writeln!(output, "  ending    killed by signal {signal}")?,
            None => {}
        }
        if let Some(overhead) = &self.overhead {
            let seconds = |nanos: u64| format!("{}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1000);
            let program = overhead.program_cpu.map_or_else(
                || "unknown for the program".to_owned(),
                |nanos| format!("the program {}", seconds(nanos)),
            );
            writeln!(
                output,
                "  overhead  recording took {}; processor time: {program}, the recorder {}; {} stops",
                seconds(overhead.wall),
                seconds(overhead.recorder_cpu),
                overhead.stops
            )?;
        }
        self.print_threads(output)?;
        self.print_cpus(output)?;
        for module in &self.modules {
            let id = module.build_id.as_deref().unwrap_or("no build id");
            let missing = if module.in_bundle {
                ""
            } else {
                ", not in the bundle"
            };
            writeln!(
                output,
                "  module    {} {} ({id}{missing})",
                module.base,
                plain(&module.path)
            )?;
        }
        for note in &self.notes {
            writeln!(output, "  note      {}", plain(note))?;
        }
        Ok(())
    }

    fn print_threads(&self, output: &mut Output) -> Result<(), Failure> {
        for thread in &self.threads {
            let ThreadInfo {
                tid,
                instructions,
                errors,
                gaps,
                ..
            } = thread;
            let name = thread
                .name
                .as_deref()
                .map(|name| format!(" ({})", plain(name)))
                .unwrap_or_default();
            writeln!(
                output,
                "  thread    {tid}{name}: {instructions} instructions, {gaps} gaps, {errors} decode errors"
            )?;
        }
        Ok(())
    }

    fn print_cpus(&self, output: &mut Output) -> Result<(), Failure> {
        for cpu in &self.cpus {
            let CpuInfo {
                cpu,
                instructions,
                attributed,
                errors,
                psb_blocks,
                executions,
                ..
            } = cpu;
            writeln!(
                output,
                "  processor {cpu}: {attributed} of {instructions} instructions attributed to threads, \
                 {executions} continuous executions, {psb_blocks} PSB blocks, {errors} decode errors"
            )?;
        }
        for (cpu, lost) in self
            .cpus
            .iter()
            .flat_map(|cpu| cpu.unattributed.iter().map(move |lost| (cpu.cpu, lost)))
        {
            let UnattributedInfo {
                reason,
                instructions,
                pieces,
            } = lost;
            writeln!(
                output,
                "            processor {cpu}: {instructions} instructions in {pieces} ranges: {reason}"
            )?;
        }
        Ok(())
    }
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Hardware => "hardware",
        Source::Software => "software",
        _ => "unknown",
    }
}

fn cpu_info(report: &CpuReport) -> CpuInfo {
    CpuInfo {
        cpu: report.cpu.0,
        instructions: report.instructions,
        attributed: report.attributed,
        errors: report.errors,
        psb_blocks: report.psb_blocks,
        executions: report.executions(),
        executions_by_thread: report
            .executions_of
            .iter()
            .map(|(tid, count)| (tid.0, *count))
            .collect(),
        unattributed: report
            .unattributed
            .iter()
            .map(|(reason, lost)| UnattributedInfo {
                reason: reason_text(reason),
                instructions: lost.instructions,
                pieces: lost.pieces,
            })
            .collect(),
    }
}

fn reason_text(reason: &UnattributedReason) -> String {
    match reason {
        UnattributedReason::NoTime => "no timestamp before them".to_owned(),
        UnattributedReason::SwitchBetweenStamps => {
            "a context switch between the timestamps around them".to_owned()
        }
        UnattributedReason::NoSwitch => "no context switch record names the running thread".to_owned(),
        UnattributedReason::ForeignProcess(pid) => format!("process {pid} is not in this trace"),
        UnattributedReason::Contradiction => "their timestamps belong to two threads".to_owned(),
        UnattributedReason::OtherCode => {
            "decoded with another process's code before a timestamp identified the thread".to_owned()
        }
        other => format!("another reason ({other:?})"),
    }
}
