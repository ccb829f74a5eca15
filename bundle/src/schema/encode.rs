//! Encodes a [`Manifest`] as `trace.json`.

use super::{OURS, SHARED_MEMORY_VERSION, VERSION};
use crate::manifest::{CpuTrace, Manifest, Mapping, Module, Process, RawImage, SharedMemory, Thread};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{BuildId, CpuModel, TimingParams};
use serde_json::{Map, Value, json};

/// Encodes `manifest`. Addresses are strings, because some JSON readers lose precision beyond 2^53.
pub(crate) fn encode_trace(manifest: &Manifest) -> Value {
    let mut root = Map::new();
    let mut put = |key: &str, value: Value| root.insert(key.to_owned(), value);
    put("type", json!("intel-pt"));
    put("cpuInfo", cpu_info("GenuineIntel", lldb_cpu(manifest.cpu)));
    put("processes", manifest.processes.iter().map(process).collect());
    if !manifest.cpus.is_empty() {
        put("cpus", manifest.cpus.iter().map(cpu_trace).collect());
    }
    if let Some(tsc) = manifest.tsc {
        let zero = tsc.zero.to_string();
        put(
            "tscPerfZeroConversion",
            json!({ "timeMult": tsc.mult, "timeShift": tsc.shift, "timeZero": zero }),
        );
    }
    put(OURS, ours(manifest));
    Value::Object(root)
}

fn cpu_info(vendor: &str, cpu: CpuModel) -> Value {
    json!({ "vendor": vendor, "family": cpu.family, "model": cpu.model, "stepping": cpu.stepping })
}

/// Returns the processor to state to LLDB, which loads only those that libipt knows. Others, and
/// software traces, are stated as 6/122/1; our own key holds the true one. libipt works around one
/// erratum of 6/122/1, an OVF followed by TIP.PGD, which the recorder never writes.
fn lldb_cpu(cpu: CpuModel) -> CpuModel {
    match cpu.vendor {
        Vendor::Intel => cpu,
        Vendor::Other => CpuModel {
            vendor: Vendor::Intel,
            family: 6,
            model: 122,
            stepping: 1,
        },
    }
}

fn ours(manifest: &Manifest) -> Value {
    let mut ours = Map::new();
    let mut put = |key: &str, value: Value| ours.insert(key.to_owned(), value);
    put("version", json!(version(manifest)));
    if manifest.cpu.vendor == Vendor::Other {
        put("cpuInfo", cpu_info("Other", manifest.cpu));
    }
    if manifest.timing != TimingParams::default() {
        let TimingParams {
            mtc_freq,
            nom_freq,
            cpuid_15h_eax,
            cpuid_15h_ebx,
        } = manifest.timing;
        put(
            "timing",
            json!({
                "mtcFreq": mtc_freq,
                "nomFreq": nom_freq,
                "cpuid15hEax": cpuid_15h_eax,
                "cpuid15hEbx": cpuid_15h_ebx,
            }),
        );
    }
    if !manifest.filters.is_empty() {
        let filters = manifest.filters.iter();
        put(
            "filters",
            filters
                .map(|filter| json!({ "from": filter.from.to_string(), "to": filter.to.to_string() }))
                .collect(),
        );
    }
    if let Some(core) = &manifest.core {
        put("core", json!(core.as_str()));
    }
    Value::Object(ours)
}

/// Returns the lowest format version whose readers understand this manifest.
fn version(manifest: &Manifest) -> u64 {
    let modules = manifest.processes.iter().flat_map(|process| &process.modules);
    let mut mappings = modules.flat_map(|module| &module.mappings);
    if mappings.any(|mapping| mapping.from.is_some() || mapping.until.is_some()) {
        VERSION
    } else if manifest
        .processes
        .iter()
        .any(|process| process.versions.is_some())
    {
        2
    } else {
        1
    }
}

fn process(process: &Process) -> Value {
    // LLDB refuses a bundle if it cannot open one module, so our own key lists the missing ones.
    let (found, missing): (Vec<_>, Vec<_>) = process.modules.iter().partition(|module| module.file.is_some());
    let mut ours = Map::new();
    if !missing.is_empty() {
        ours.insert(
            "missingModules".to_owned(),
            missing.into_iter().map(module).collect(),
        );
    }
    if !process.images.is_empty() {
        ours.insert(
            "images".to_owned(),
            process.images.iter().map(raw_image).collect(),
        );
    }
    if let Some(versions) = &process.versions {
        ours.insert("codeVersions".to_owned(), json!(versions.as_str()));
    }
    if let Some(ranges) = &process.shared_memory {
        let ranges: Vec<Value> = ranges.iter().map(shared_memory).collect();
        let value = json!({ "version": SHARED_MEMORY_VERSION, "ranges": ranges });
        ours.insert("sharedMemory".to_owned(), value);
    }
    let value = json!({
        "pid": process.pid.0,
        "triple": "x86_64-*-linux",
        "threads": process.threads.iter().map(thread).collect::<Vec<_>>(),
        "modules": found.into_iter().map(module).collect::<Vec<_>>(),
    });
    with_ours(value, ours)
}

fn shared_memory(range: &SharedMemory) -> Value {
    json!({ "start": range.start.to_string(), "size": range.size, "unseen": range.is_unseen })
}

fn thread(thread: &Thread) -> Value {
    let mut value = json!({ "tid": thread.tid.0 });
    if let (Some(trace), Some(object)) = (&thread.trace, value.as_object_mut()) {
        object.insert("iptTrace".to_owned(), json!(trace.as_str()));
    }
    let name = thread.name.iter().map(|name| ("name".to_owned(), json!(name)));
    let values = thread.values.iter();
    let values = values.map(|path| ("values".to_owned(), json!(path.as_str())));
    with_ours(value, name.chain(values).collect())
}

fn module(module: &Module) -> Value {
    let mut value = json!({ "systemPath": module.path, "loadAddress": module.base.to_string() });
    let mut ours = Map::new();
    if let Some(object) = value.as_object_mut() {
        if let Some(file) = &module.file {
            object.insert("file".to_owned(), json!(file.as_str()));
        }
        if let Some(id) = &module.build_id {
            ours.insert("buildId".to_owned(), json!(id.to_string()));
            object.extend(uuid(id).map(|uuid| ("uuid".to_owned(), json!(uuid))));
        }
    }
    if !module.mappings.is_empty() {
        ours.insert(
            "mappings".to_owned(),
            module.mappings.iter().map(mapping).collect(),
        );
    }
    if module.mapped_from > 0 {
        ours.insert("mappedFrom".to_owned(), json!(module.mapped_from));
    }
    if let Some(until) = module.mapped_until {
        ours.insert("mappedUntil".to_owned(), json!(until));
    }
    with_ours(value, ours)
}

/// Formats a build id of the usual length as LLDB prints it.
fn uuid(id: &BuildId) -> Option<String> {
    let digits = id.to_string().to_uppercase();
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32, 32..40];
    let groups: Option<Vec<&str>> = groups.into_iter().map(|group| digits.get(group)).collect();
    (digits.len() == 40).then_some(groups?.join("-"))
}

fn mapping(mapping: &Mapping) -> Value {
    let mut value = json!({
        "start": mapping.start.to_string(),
        "offset": mapping.offset.to_string(),
        "size": mapping.size,
    });
    if let Some(object) = value.as_object_mut() {
        let times = [("from", mapping.from), ("until", mapping.until)];
        let times = times
            .into_iter()
            .filter_map(|(key, time)| Some((key.to_owned(), time?)));
        object.extend(times.map(|(key, time)| (key, json!(time.0.to_string()))));
    }
    value
}

fn raw_image(image: &RawImage) -> Value {
    json!({
        "file": image.file.as_str(),
        "start": image.start.to_string(),
        "offset": image.offset.to_string(),
        "size": image.size,
    })
}

fn cpu_trace(cpu: &CpuTrace) -> Value {
    json!({
        "id": cpu.cpu.0,
        "iptTrace": cpu.trace.as_str(),
        "contextSwitchTrace": cpu.switches.as_str(),
    })
}

fn with_ours(mut value: Value, ours: Map<String, Value>) -> Value {
    if let (false, Some(object)) = (ours.is_empty(), value.as_object_mut()) {
        object.insert(OURS.to_owned(), Value::Object(ours));
    }
    value
}
