//! LLDB's trace bundles: a JSON description with the files it names.

use crate::manifest::{Manifest, Module, Process, Source, Thread};
use crate::schema::{FileRole, Findings, Node, decode_trace, parse_json};
use crate::writer::plain_name;
use crate::{BundlePath, Error, Overwrite, Result, SharedBytes, Stop, Writer};
use backtrail_perf::switch;
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Imports the bundle described by the file `json`.
///
/// Paths in it may lead anywhere, as in LLDB: they are the user's own. A trace of the kernel becomes a
/// process with a thread for each processor. Threads that only the context switches tell of are
/// added, as LLDB does: its schema calls the list of threads optional then.
///
/// # Errors
/// Malformed, when the description or a file it names is; the first finding is told. When `stop` came.
pub fn lldb(json: &Path, target: &Path, overwrite: Overwrite, stop: &Stop) -> Result<Manifest> {
    stop.told(import_until(json, target, overwrite, stop))
}

fn import_until(json: &Path, target: &Path, overwrite: Overwrite, stop: &Stop) -> Result<Manifest> {
    let name = json
        .file_name()
        .unwrap_or(json.as_os_str())
        .to_string_lossy()
        .into_owned();
    let value = parse_json(&SharedBytes::map_file(json)?, &name)?;
    let base = json.parent().unwrap_or(Path::new(""));
    let writer = Writer::create(target, overwrite)?.until(stop);
    let findings = Findings::default();
    let mut files = Files {
        base,
        writer: &writer,
        taken: HashMap::new(),
    };
    let decoded = decode_trace(&Node::root(&value, &name, &findings), &mut |path, role| {
        files.take(path, role)
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
    // Of what no vendor's processor is named for, as of what our recorder makes, it is not known here what made it.
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
    taken: HashMap<PathBuf, BundlePath>,
}

impl Files<'_> {
    /// Copies the file that the description calls `path`, once, and says where it is now.
    fn take(&mut self, path: &str, role: FileRole) -> Result<BundlePath> {
        // An absolute path replaces the base.
        let source = self.base.join(path);
        // However a description spells it, a file is copied once.
        let real = source.canonicalize().unwrap_or_else(|_| source.clone());
        if let Some(taken) = self.taken.get(&real) {
            return Ok(taken.clone());
        }
        if !source.is_file() {
            return Err(Error::malformed(
                source.display(),
                "the description names this file, but it is not there",
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
            // Two folders may hold files of one name.
            let place = BundlePath::new(&format!("{folder}/{}-{}", self.taken.len(), plain_name(path)))?;
            self.writer.add_file(&place, &source)?;
            place
        };
        self.taken.insert(real, place.clone());
        Ok(place)
    }

    /// Looks for a module without a copy where the traced system had it.
    fn find_missing(&mut self, module: &mut Module, notes: &mut Vec<String>) {
        if module.file.is_none() {
            match self.take(&module.path, FileRole::Module) {
                Ok(file) => module.file = Some(file),
                Err(_) => notes.push(format!(
                    "module {:?} was not found: its code is missing",
                    module.path
                )),
            }
        }
    }
}

/// Adds the threads of known processes that only the context switches tell of.
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
                let note = format!("thread {} is known from the context switches alone", seen.tid);
                manifest.meta.notes.push(note);
            }
        }
    }
    Ok(())
}
