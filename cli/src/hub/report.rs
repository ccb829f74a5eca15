//! Builds the report of a crash from its bundle. No packet and no debug information is read.

use backtrail_bundle::manifest::{Crash, Meta, Module, Process};
use backtrail_bundle::redact::Secrets;
use backtrail_bundle::{Bundle, Error, Result};
use backtrail_debugger::crash_stack::{CodeAddress, CodeOrigin, CrashStack};
use backtrail_pt::BuildId;
use backtrail_report::{AddressFrame, CrashReport, ModuleOffer, ReportId, VERSION};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The longest stack of a report.
const MAX_FRAMES: usize = 128;
/// The most modules of a report.
const MAX_MODULES: usize = 4096;
/// The most labels of a report.
const MAX_LABELS: usize = 64;
/// The longest name and the longest text in bytes.
const MAX_NAME: usize = 255;
const MAX_TEXT: usize = 4096;
/// The digits of a build id that name a build.
const BUILD_DIGITS: usize = 12;

/// The configured names of a report. `None`: the bundle names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportNames<'a> {
    /// The service.
    pub service: Option<&'a str>,
    /// The build.
    pub build: Option<&'a str>,
    /// The host.
    pub host: Option<&'a str>,
}

/// Returns the report of a bundle with a crash. `size` is the size of the bundle that can be sent.
/// The same bundle always has the same identifier.
///
/// # Errors
/// Fails if the bundle has no crash, or is malformed.
pub fn crash_report(bundle: &Bundle, size: Option<u64>, names: ReportNames<'_>) -> Result<CrashReport> {
    let manifest = bundle.manifest();
    let meta = &manifest.meta;
    let crash = meta
        .crash
        .ok_or_else(|| Error::Usage("the bundle has no crash, and a hub keeps crashes only".to_owned()))?;
    let process = manifest.processes.iter().find(|process| process.pid == crash.pid);
    let stack = match process {
        Some(process) => stack_of(bundle, process, &crash)?,
        None => CrashStack {
            end: Some("the bundle does not describe the crashed process".to_owned()),
            ..CrashStack::default()
        },
    };
    let modules = process.map_or(&[][..], |process| &process.modules);
    let executable = meta
        .program
        .clone()
        .or_else(|| modules.first().map(|module| module.path.clone()));
    let executable = executable.unwrap_or_default();
    let thread = process.and_then(|process| process.threads.iter().find(|thread| thread.tid == crash.tid));
    let name = |text: &str, unknown: &str| match printable(text, MAX_NAME) {
        text if text.trim().is_empty() => unknown.to_owned(),
        text => text,
    };
    let build = names
        .build
        .map(str::to_owned)
        .or_else(|| build_of(modules, &executable));
    let unit = meta
        .collected
        .as_ref()
        .and_then(|collected| collected.service.as_deref());
    let service = names
        .service
        .or(unit)
        .map_or_else(|| service_of(&executable), str::to_owned);
    let host = names.host.or(meta.host.as_deref()).unwrap_or_default();
    let report = CrashReport {
        version: VERSION,
        id: identifier(bundle)?,
        time: time_of(meta),
        host: name(host, "unknown"),
        service: name(&service, "unknown"),
        build: name(&build.unwrap_or_default(), "unknown"),
        signal: crash.signal,
        code: crash.code,
        fault_address: crash.fault_address.map(|address| address.0),
        pid: crash.pid.0,
        tid: crash.tid.0,
        thread: thread
            .and_then(|thread| thread.name.as_deref())
            .map(|name| printable(name, MAX_NAME)),
        kernel: meta.kernel.as_deref().map(|kernel| printable(kernel, MAX_NAME)),
        cpu: Some(manifest.cpu.to_string()),
        labels: labels_of(meta, &crash),
        frames: stack
            .frames
            .iter()
            .map(|frame| address_frame(frame, modules))
            .collect(),
        frames_end: stack.end.map(|end| printable(&end, MAX_TEXT)),
        modules: offers(bundle, modules),
        bundle_size: size,
        executable: printable(&executable, MAX_TEXT),
    };
    let checked = report.check();
    checked.map_err(|error| Error::Usage(format!("the bundle cannot be reported: {error}")))?;
    Ok(report)
}

/// Removes values of environment variables from a report.
pub fn hide_in_report(report: &mut CrashReport, secrets: &Secrets) {
    for value in report.labels.values_mut() {
        *value = secrets.hide(value);
    }
}

fn stack_of(bundle: &Bundle, process: &Process, crash: &Crash) -> Result<CrashStack> {
    use backtrail_debugger::Error as DebuggerError;
    match CrashStack::of(bundle, process, crash.tid, MAX_FRAMES) {
        Ok(stack) => Ok(stack),
        Err(DebuggerError::Bundle(error)) => Err(error),
        Err(error) => Err(Error::Usage(error.to_string())),
    }
}

/// Returns the identifier of a bundle by its descriptions, which have the times, the process and
/// its random addresses.
fn identifier(bundle: &Bundle) -> Result<ReportId> {
    let mut digest = Sha256::new();
    for name in ["trace.json", "meta.json"] {
        let path = backtrail_bundle::BundlePath::new(name)?;
        let bytes = bundle.bytes(&path);
        // Bundles of LLDB have no meta.json, and no crash either.
        let bytes = bytes.map(|bytes| bytes.to_vec()).unwrap_or_default();
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(&bytes);
    }
    Ok(ReportId::of_digest(&digest.finalize().into()))
}

/// Returns the time of the crash in microseconds since 1970. 0: unknown.
fn time_of(meta: &Meta) -> u64 {
    let exact = meta.collected.as_ref().and_then(|collected| collected.time);
    let exact = exact.map(|nanos| nanos / 1000);
    let created = || meta.created_at.map(|seconds| seconds.saturating_mul(1_000_000));
    exact.or_else(created).unwrap_or(0)
}

/// Returns the file name of the program.
fn service_of(executable: &str) -> String {
    // The kernel appends this to the path of a removed program.
    let path = executable.strip_suffix(" (deleted)").unwrap_or(executable);
    let name = Path::new(path).file_name();
    name.map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the start of the executable's build id.
fn build_of(modules: &[Module], executable: &str) -> Option<String> {
    let module = modules.iter().find(|module| module.path == executable)?;
    let digits = module.build_id.as_ref()?.to_string();
    Some(digits.chars().take(BUILD_DIGITS).collect())
}

/// Returns the labels of the crashed thread's request, and then those of the process.
fn labels_of(meta: &Meta, crash: &Crash) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut add = |name: &str, value: &str| {
        let name = printable(name, MAX_NAME);
        if labels.len() < MAX_LABELS && !labels.contains_key(&name) {
            labels.insert(name, printable(value, MAX_TEXT));
        }
    };
    // That user controls everything else in the bundle.
    if let Some(user) = meta
        .collected
        .as_ref()
        .and_then(|collected| collected.deposited_by)
    {
        add("backtrail.deposited_by", &user.to_string());
    }
    let Some(context) = &meta.context else {
        return labels;
    };
    if let Some(thread) = context.thread(crash.tid) {
        if let Some(span) = &thread.span {
            add("trace_id", &span.trace_id.to_string());
            add("span_id", &span.span_id.to_string());
        }
        thread
            .attributes
            .iter()
            .for_each(|(name, value)| add(name, value));
    }
    context.resource.iter().for_each(|(name, value)| add(name, value));
    labels
}

/// Returns a frame with the name of its module. Code without a file has the offset 0, because its
/// address differs from process to process.
fn address_frame(frame: &CodeAddress, modules: &[Module]) -> AddressFrame {
    let unnamed = |name: &str, offset| AddressFrame {
        module: name.to_owned(),
        build_id: None,
        offset,
    };
    match frame.origin {
        CodeOrigin::Module { index, offset } => match modules.get(index) {
            Some(module) => AddressFrame {
                module: printable(&module.path, MAX_TEXT),
                build_id: module.build_id.as_ref().map(ToString::to_string),
                offset: offset.0,
            },
            None => unnamed("[unknown]", 0),
        },
        CodeOrigin::Vdso { offset } => unnamed("[vdso]", offset),
        _ => unnamed("[unknown]", 0),
    }
}

/// Returns the modules whose files are in the bundle, each once.
fn offers(bundle: &Bundle, modules: &[Module]) -> Vec<ModuleOffer> {
    let mut seen = BTreeSet::new();
    let files = modules
        .iter()
        .filter_map(|module| Some((module, module.file.as_ref()?)));
    let once = files.filter(|(_, file)| seen.insert((*file).clone()));
    let offers = once.filter_map(|(module, file)| {
        let size = bundle.root().join(file.as_str()).metadata().ok()?.len();
        Some(ModuleOffer {
            path: printable(&module.path, MAX_TEXT),
            build_id: module.build_id.as_ref().map(ToString::to_string),
            size,
        })
    });
    offers.take(MAX_MODULES).collect()
}

/// Replaces control characters, and cuts a text at a number of bytes.
fn printable(text: &str, most: usize) -> String {
    let mut plain: String = text
        .chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect();
    let mut end = plain.len().min(most);
    while !plain.is_char_boundary(end) {
        end -= 1;
    }
    plain.truncate(end);
    plain
}

/// Returns the build ids of the offered modules that the hub does not need.
pub fn excluded_modules(report: &CrashReport, needed: &[String]) -> BTreeSet<BuildId> {
    let needed: BTreeSet<&str> = needed.iter().map(String::as_str).collect();
    let offered = report
        .modules
        .iter()
        .filter_map(|module| module.build_id.as_deref());
    let unneeded = offered.filter(|id| !needed.contains(id));
    unneeded.filter_map(|id| id.parse().ok()).collect()
}

/// Returns the size of the files in a directory in bytes.
pub fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_of(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
        _ => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_program_even_if_it_was_removed() {
        assert_eq!(service_of("/srv/bank/ledger"), "ledger");
        assert_eq!(service_of("/srv/bank/ledger (deleted)"), "ledger");
        assert_eq!(service_of(""), "");
    }

    #[test]
    fn texts_of_a_bundle_fit_into_a_report() {
        assert_eq!(printable("a\nb\u{7}", 255), "a\u{fffd}b\u{fffd}");
        assert_eq!(printable("äää", 3), "ä");
        assert_eq!(printable("abc", 0), "");
    }

    #[test]
    fn only_offered_modules_that_are_not_needed_are_left_out() {
        let offer = |id: Option<&str>| ModuleOffer {
            path: "x".to_owned(),
            build_id: id.map(str::to_owned),
            size: 1,
        };
        let report = CrashReport {
            version: VERSION,
            id: ReportId::of_digest(&[0; 32]),
            time: 0,
            host: String::new(),
            service: String::new(),
            build: String::new(),
            executable: String::new(),
            signal: 11,
            code: 0,
            fault_address: None,
            pid: 1,
            tid: 1,
            thread: None,
            kernel: None,
            cpu: None,
            labels: BTreeMap::new(),
            frames: Vec::new(),
            frames_end: None,
            modules: vec![offer(Some("ab12")), offer(Some("cd34")), offer(None)],
            bundle_size: None,
        };
        let excluded = excluded_modules(&report, &["cd34".to_owned(), "ef56".to_owned()]);
        assert_eq!(excluded, [BuildId::new(&[0xab, 0x12]).unwrap()].into());
    }
}
