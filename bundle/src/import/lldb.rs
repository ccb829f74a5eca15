//! Imports LLDB's trace bundles: a JSON description and the files that it names.

use crate::manifest::{Manifest, Module, Process, Source, Thread};
use crate::schema::{FileRole, Findings, Node, decode_trace, parse_json};
use crate::writer::plain_name;
use crate::{BundlePath, CancelToken, Error, Overwrite, Result, SharedBytes, Writer};
use backtrail_perf::switch;
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Imports the bundle described by the file `json`.
///
/// Its paths may lead anywhere, as in LLDB, because the user owns them. A kernel trace becomes a
/// process with one thread for each processor. Threads that only the context switches mention are
/// added, as in LLDB: its schema makes the list of threads optional in that case.
///
/// # Errors
/// Fails with the first fault if the description or a file that it names is malformed, and if
/// `cancel` was set.
pub fn lldb(json: &Path, target: &Path, overwrite: Overwrite, cancel: &CancelToken) -> Result<Manifest> {
    cancel.or_canceled(import_cancelable(json, target, overwrite, cancel))
}

fn import_cancelable(
    json: &Path,
    target: &Path,
    overwrite: Overwrite,
    cancel: &CancelToken,
) -> Result<Manifest> {
    let name = json
        .file_name()
        .unwrap_or(json.as_os_str())
        .to_string_lossy()
        .into_owned();
    let value = parse_json(&SharedBytes::map_file(json)?, &name)?;
    let base = json.parent().unwrap_or(Path::new(""));
    let writer = Writer::create(target, overwrite)?.canceled_by(cancel);
    let findings = Findings::default();
    let mut files = Files {
        base,
        writer: &writer,
        copied: HashMap::new(),
    };
    let decoded = decode_trace(&Node::root(&value, &name, &findings), &mut |path, role| {
        files.copy_once(path, role)
    });
    if let Some(error) = findings.into_vec().into_iter().next() {
        return Err(error);
    }
    let mut manifest = decoded.ok_or_else(|| Error::malformed(&name, "it describes no trace"))?;
    for module in manifest
        .processes
        .iter_mut()
        .flat_map(|process| &mut process.modules)
    {
        files.find_missing(module, &mut manifest.meta.notes);
    }
    add_threads(&mut manifest, writer.root())?;
    // Another vendor's processor may stand for our recorder, so the source is unknown.
    manifest.meta.source = match manifest.cpu.vendor {
        Vendor::Intel => Source::Hardware,
        Vendor::Other => Source::Unknown,
    };
    manifest.meta.created_by = Some("import lldb".to_owned());
    writer.finish_checked(&manifest)?;
    Ok(manifest)
}

/// The files copied so far.
struct Files<'a> {
    base: &'a Path,
    writer: &'a Writer,
    copied: HashMap<PathBuf, BundlePath>,
}

impl Files<'_> {
    /// Copies the file that the description calls `path` once, and returns its path in the bundle.
    fn copy_once(&mut self, path: &str, role: FileRole) -> Result<BundlePath> {
        // An absolute path replaces the base.
        let source = self.base.join(path);
        // A file is copied once, however the description spells its path.
        let real = source.canonicalize().unwrap_or_else(|_| source.clone());
        if let Some(copied) = self.copied.get(&real) {
            return Ok(copied.clone());
        }
        if !source.is_file() {
            return Err(Error::malformed(
                source.display(),
                "the description names this file, but it does not exist",
            ));
        }
        let place = if role == FileRole::Module {
            self.writer.add_module(&source, path)?.0
        } else {
            let folder = match role {
                FileRole::Trace => "traces",
                FileRole::Switches => "sideband",
                FileRole::Versions => "code",
                _ => "images",
            };
            // Two directories may hold files with the same name.
            let place = BundlePath::new(&format!("{folder}/{}-{}", self.copied.len(), plain_name(path)))?;
            self.writer.add_file(&place, &source)?;
            place
        };
        self.copied.insert(real, place.clone());
        Ok(place)
    }

    /// Searches for a module that has no copy at its path on the traced system.
    fn find_missing(&mut self, module: &mut Module, notes: &mut Vec<String>) {
        if module.file.is_none() {
            match self.copy_once(&module.path, FileRole::Module) {
                Ok(file) => module.file = Some(file),
                Err(_) => notes.push(format!(
                    "module {:?} was not found: its code is missing",
                    module.path
                )),
            }
        }
    }
}

/// Adds threads of known processes that only the context switches mention.
fn add_threads(manifest: &mut Manifest, root: &Path) -> Result<()> {
    let mut processes: HashMap<Pid, &mut Process> = HashMap::new();
    let mut known: HashSet<(Pid, Tid)> = HashSet::new();
    for process in &mut manifest.processes {
        known.extend(process.threads.iter().map(|thread| (process.pid, thread.tid)));
        processes.insert(process.pid, process);
    }
    for cpu in &manifest.cpus {
        let bytes = SharedBytes::map_file(&cpu.switches.resolve(root)?)?;
        let switches = switch::parse(&bytes).map_err(Error::perf(Path::new(cpu.switches.as_str())))?;
        for seen in switches {
            if let Some(process) = processes.get_mut(&seen.pid)
                && known.insert((seen.pid, seen.tid))
            {
                process.threads.push(Thread {
                    tid: seen.tid,
                    ..Thread::default()
                });
                let note = format!("thread {} appears only in the context switches", seen.tid);
                manifest.meta.notes.push(note);
            }
        }
    }
    Ok(())
}
