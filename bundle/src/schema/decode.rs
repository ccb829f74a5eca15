//! Decodes `trace.json` to a [`Manifest`].

use super::{Node, OURS, SHARED_MEMORY_VERSION, VERSION, rules};
use crate::manifest::{
    AddressFilter, CpuTrace, Manifest, Mapping, Meta, Module, Process, RawImage, SharedMemory, Thread,
};
use crate::{BundlePath, Error, Result};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, BuildId, Cpu, CpuModel, FileOffset, Nanos, Pid, Tid, TimingParams, TscConversion};

/// LLDB's `kDefaultKernelLoadAddress`, where x86-64 Linux links the kernel.
const KERNEL_BASE: Avma = Avma(0xffff_ffff_8100_0000);
/// LLDB's `kDefaultKernelProcessID`.
const KERNEL_PID: Pid = Pid(1);

/// The purpose of a path in the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileRole {
    /// PT packets.
    Trace,
    /// Context switches.
    Switches,
    /// An ELF file.
    Module,
    /// Raw code.
    Image,
    /// Code versions.
    Versions,
    /// A value log.
    Values,
    /// The core.
    Core,
}

/// Maps a path of the description to a path of the bundle. A reader checks the path; an importer
/// copies the file.
pub(crate) type PathResolver<'a> = dyn FnMut(&str, FileRole) -> Result<BundlePath> + 'a;

/// Decodes the description, and reports faults. Returns `None` if required parts are missing. The
/// manifest is valid only if no fault was reported.
pub(crate) fn decode_trace(root: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<Manifest> {
    root.object()?;
    let kind = root.field("type").string();
    if kind.as_ref().is_some_and(|kind| kind != "intel-pt") {
        root.field("type").report("only \"intel-pt\" is supported");
    }
    let ours = root.field(OURS);
    check_version(&ours);
    let cpu = cpu_model(&root.field("cpuInfo"));
    let true_cpu = ours.field("cpuInfo");
    let cpu = if true_cpu.exists() {
        cpu_model(&true_cpu)
    } else {
        cpu
    };
    let tsc_node = root.field("tscPerfZeroConversion");
    let tsc = if tsc_node.exists() {
        tsc_conversion(&tsc_node)
    } else {
        None
    };
    let mut cpus = elements(&root.field("cpus"), |node| cpu_trace(node, resolve_path));
    if root.field("cpus").exists() && !tsc_node.exists() {
        root.report("\"tscPerfZeroConversion\" is required when \"cpus\" is given");
    }
    let mut processes = elements(&root.field("processes"), |node| process(node, resolve_path));
    let kernel = root.field("kernel");
    if kernel.exists() {
        if root
            .field("processes")
            .optional_array()
            .is_some_and(|processes| processes.len() != 0)
        {
            root.report("\"processes\" must be empty when \"kernel\" is given");
        }
        if !root.field("cpus").exists() {
            root.report("\"cpus\" is required when \"kernel\" is given");
        }
        processes.extend(kernel_process(&kernel, std::mem::take(&mut cpus), resolve_path));
    } else {
        root.field("processes").array();
    }
    let manifest = Manifest {
        cpu: cpu?,
        timing: timing(&ours.field("timing"))?,
        tsc,
        filters: elements(&ours.field("filters"), address_filter),
        processes,
        cpus,
        core: optional_path(&ours.field("core"), FileRole::Core, resolve_path),
        meta: Meta::default(),
    };
    rules::apply(root, &manifest);
    Some(manifest)
}

fn check_version(ours: &Node<'_>) {
    if ours.exists()
        && let Some(version) = ours.field("version").integer(u64::MAX)
        && version > VERSION
    {
        let problem =
            format!("bundle version {version} is newer than this program supports; update backtrail");
        ours.report_error(Error::unsupported(super::TRACE_JSON, problem));
    }
}

/// Returns the valid elements of an optional array.
fn elements<T>(node: &Node<'_>, mut read: impl FnMut(&Node<'_>) -> Option<T>) -> Vec<T> {
    let elements = node.optional_array().into_iter().flatten();
    elements.filter_map(|element| read(&element)).collect()
}

fn path(node: &Node<'_>, role: FileRole, resolve_path: &mut PathResolver<'_>) -> Option<BundlePath> {
    let text = node.string()?;
    resolve_path(&text, role)
        .map_err(|error| node.report_error(error))
        .ok()
}

fn optional_path(node: &Node<'_>, role: FileRole, resolve_path: &mut PathResolver<'_>) -> Option<BundlePath> {
    if node.exists() {
        path(node, role, resolve_path)
    } else {
        None
    }
}

fn cpu_model(node: &Node<'_>) -> Option<CpuModel> {
    node.object()?;
    let vendor = node.field("vendor").string();
    let (family, model) = (
        node.field("family").integer(u16::MAX.into()),
        node.field("model").integer(u8::MAX.into()),
    );
    let stepping = node.field("stepping").integer(15);
    Some(CpuModel {
        vendor: if vendor? == "GenuineIntel" {
            Vendor::Intel
        } else {
            Vendor::Other
        },
        family: family? as u16,
        model: model? as u8,
        stepping: stepping? as u8,
    })
}

fn tsc_conversion(node: &Node<'_>) -> Option<TscConversion> {
    node.object()?;
    let shift = node.field("timeShift").integer(63);
    let mult = node.field("timeMult").integer(u32::MAX.into());
    let zero = node.field("timeZero").number();
    let conversion = TscConversion::new(shift? as u16, mult? as u32, zero?);
    if conversion.is_none() {
        node.report("a \"timeMult\" of 0 cannot convert time");
    }
    conversion
}

fn timing(node: &Node<'_>) -> Option<TimingParams> {
    if !node.exists() {
        return Some(TimingParams::default());
    }
    let optional = |key, max| {
        let field = node.field(key);
        if field.exists() {
            field.integer(max)
        } else {
            Some(0)
        }
    };
    Some(TimingParams {
        mtc_freq: optional("mtcFreq", 15)? as u8,
        nom_freq: optional("nomFreq", u8::MAX.into())? as u8,
        cpuid_15h_eax: optional("cpuid15hEax", u32::MAX.into())? as u32,
        cpuid_15h_ebx: optional("cpuid15hEbx", u32::MAX.into())? as u32,
    })
}

fn address_filter(node: &Node<'_>) -> Option<AddressFilter> {
    node.object()?;
    let (from, to) = (node.field("from").number()?, node.field("to").number()?);
    if from > to {
        node.report("a filter cannot end before it starts");
    }
    Some(AddressFilter {
        from: Avma(from),
        to: Avma(to),
    })
}

fn cpu_trace(node: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<CpuTrace> {
    node.object()?;
    let cpu = node.field("id").integer(u32::MAX.into());
    let trace = path(&node.field("iptTrace"), FileRole::Trace, resolve_path);
    let switches = path(
        &node.field("contextSwitchTrace"),
        FileRole::Switches,
        resolve_path,
    );
    Some(CpuTrace {
        cpu: Cpu(cpu? as u32),
        trace: trace?,
        switches: switches?,
    })
}

fn process(node: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<Process> {
    node.object()?;
    let pid = node.field("pid").integer(u32::MAX.into());
    node.field("triple").optional_string();
    node.field("threads").array();
    node.field("modules").array();
    let ours = node.field(OURS);
    let mut modules = elements(&node.field("modules"), |node| module(node, resolve_path));
    modules.extend(elements(&ours.field("missingModules"), |node| {
        module(node, resolve_path)
    }));
    Some(Process {
        threads: elements(&node.field("threads"), |node| thread(node, resolve_path)),
        modules,
        images: elements(&ours.field("images"), |node| raw_image(node, resolve_path)),
        versions: optional_path(&ours.field("codeVersions"), FileRole::Versions, resolve_path),
        shared_memory: shared_memory(&ours.field("sharedMemory")),
        pid: Pid(pid? as u32),
    })
}

/// Decodes the memory that a process shared. Another version of the list is unknown memory.
fn shared_memory(node: &Node<'_>) -> Option<Vec<SharedMemory>> {
    if !node.exists() {
        return None;
    }
    node.object()?;
    let version = node.field("version").integer(u64::MAX)?;
    let ranges = node.field("ranges");
    ranges.exists().then_some(())?;
    let range = |node: &Node<'_>| {
        node.object()?;
        Some(SharedMemory {
            start: Avma(node.field("start").number()?),
            size: node.field("size").number()?,
            is_unseen: node.field("unseen").boolean()?,
        })
    };
    (version == SHARED_MEMORY_VERSION).then(|| elements(&ranges, range))
}

fn thread(node: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<Thread> {
    node.object()?;
    let tid = node.field("tid").integer(u32::MAX.into());
    let trace = optional_path(&node.field("iptTrace"), FileRole::Trace, resolve_path);
    let ours = node.field(OURS);
    let name = ours.field("name").optional_string();
    let values = optional_path(&ours.field("values"), FileRole::Values, resolve_path);
    Some(Thread {
        tid: Tid(tid? as u32),
        name: name?,
        trace,
        values,
    })
}

fn module(node: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<Module> {
    node.object()?;
    let path = node.field("systemPath").string();
    let file = optional_path(&node.field("file"), FileRole::Module, resolve_path);
    let base = node.field("loadAddress").number();
    let build_id = build_id(node);
    let mappings = elements(&node.field(OURS).field("mappings"), mapping);
    let boundary = |key| {
        let field = node.field(OURS).field(key);
        match field.exists() {
            true => field
                .number()
                .map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
            false => None,
        }
    };
    Some(Module {
        path: path?,
        file,
        build_id,
        base: Avma(base?),
        mappings,
        mapped_from: boundary("mappedFrom").unwrap_or(0),
        mapped_until: boundary("mappedUntil"),
    })
}

/// Reads our build id in lower-case digits, or LLDB's UUID, which is the same bytes with dashes.
fn build_id(node: &Node<'_>) -> Option<BuildId> {
    let ours = node.field(OURS).field("buildId");
    let field = if ours.exists() { ours } else { node.field("uuid") };
    let text = field.optional_string()??;
    let id = text.replace('-', "").parse();
    if id.is_err() {
        field.report(format!(
            "{:?} is not a build id",
            text.chars().take(40).collect::<String>()
        ));
    }
    id.ok()
}

fn mapping(node: &Node<'_>) -> Option<Mapping> {
    node.object()?;
    let (start, offset) = (node.field("start").number(), node.field("offset").number());
    let size = node.field("size").number();
    let time = |key| {
        let field = node.field(key);
        let time = field.exists().then(|| field.number());
        time.flatten().map(Nanos)
    };
    let (from, until) = (time("from"), time("until"));
    if until.is_some_and(|until| Some(until) < from) {
        node.report("a mapping cannot end before it starts");
    }
    Some(Mapping {
        start: Avma(start?),
        offset: FileOffset(offset?),
        size: size?,
        from,
        until,
    })
}

fn raw_image(node: &Node<'_>, resolve_path: &mut PathResolver<'_>) -> Option<RawImage> {
    let file = path(&node.field("file"), FileRole::Image, resolve_path);
    let Mapping {
        start, offset, size, ..
    } = mapping(node)?;
    Some(RawImage {
        start,
        file: file?,
        offset,
        size,
    })
}

/// Builds the process of a kernel trace: one thread for each processor, as in LLDB.
fn kernel_process(
    node: &Node<'_>,
    cpus: Vec<CpuTrace>,
    resolve_path: &mut PathResolver<'_>,
) -> Option<Process> {
    node.object()?;
    let file = path(&node.field("file"), FileRole::Module, resolve_path);
    let base = node.field("loadAddress");
    let base = if base.exists() {
        Avma(base.number()?)
    } else {
        KERNEL_BASE
    };
    let module = Module {
        path: "[kernel]".to_owned(),
        file: Some(file?),
        base,
        ..Module::default()
    };
    let thread = |cpu: CpuTrace| Thread {
        tid: Tid(cpu.cpu.0),
        name: Some(format!("kernel_cpu_{}", cpu.cpu)),
        trace: Some(cpu.trace),
        values: None,
    };
    let threads = cpus.into_iter().map(thread).collect();
    Some(Process {
        pid: KERNEL_PID,
        threads,
        modules: vec![module],
        ..Process::default()
    })
}
