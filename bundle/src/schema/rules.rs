//! Checks the rules of a manifest that go beyond the types of its fields.

use super::Node;
use crate::manifest::Manifest;
use std::collections::HashSet;

/// Reports at `root` every rule that `manifest` violates.
pub(super) fn apply(root: &Node<'_>, manifest: &Manifest) {
    let mut pids = HashSet::new();
    let mut cpus = HashSet::new();
    let mut cpu_traces = HashSet::new();
    let threads = || manifest.processes.iter().flat_map(|process| &process.threads);
    if !manifest.cpus.is_empty() && threads().any(|thread| thread.trace.is_some()) {
        root.report("a trace is kept by processor (\"cpus\") or by thread (\"iptTrace\"), not both");
    }
    for cpu in &manifest.cpus {
        if !cpus.insert(cpu.cpu) {
            root.field("cpus")
                .report(format!("processor {} is listed twice", cpu.cpu));
        }
        if !cpu_traces.insert(&cpu.trace) {
            root.field("cpus")
                .report(format!("{} is the trace of two processors", cpu.trace));
        }
    }
    let mut traces = HashSet::new();
    for process in &manifest.processes {
        let node = root.field("processes");
        if !pids.insert(process.pid) {
            node.report(format!("process {} is listed twice", process.pid));
        }
        let mut tids = HashSet::new();
        for thread in &process.threads {
            if !tids.insert(thread.tid) {
                node.report(format!(
                    "thread {} of process {} is listed twice",
                    thread.tid, process.pid
                ));
            }
            // Otherwise a short description could make a reader decode one long trace any number of
            // times.
            if let Some(trace) = thread.trace.as_ref().filter(|trace| !traces.insert(*trace)) {
                node.report(format!("{trace} is the trace of two threads"));
            }
        }
        let mapped = || process.modules.iter().flat_map(|module| &module.mappings);
        let is_timed = mapped().any(|mapping| mapping.from.or(mapping.until).is_some());
        if is_timed && process.versions.is_some() {
            node.report(format!(
                "code of process {} changes by \"codeVersions\" or by times of mappings, not both",
                process.pid
            ));
        }
        let areas = mapped()
            .map(|mapping| (mapping.start, mapping.offset, mapping.size))
            .chain(
                process
                    .images
                    .iter()
                    .map(|image| (image.start, image.offset, image.size)),
            );
        for (start, offset, size) in areas {
            if start.0.checked_add(size).is_none() || offset.0.checked_add(size).is_none() {
                node.report(format!("{size:#x} bytes at {start} exceed the address space"));
            }
        }
    }
}
