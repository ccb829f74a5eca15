//! Opens a bundle, and reads its parts.

use crate::archive;
use crate::code::ModuleFiles;
use crate::core::Core;
use crate::manifest::{CpuTrace, Manifest, Process};
use crate::schema::{FileRole, Findings, META_JSON, Node, TRACE_JSON, decode_meta, decode_trace, parse_json};
use crate::unpacked::Unpacked;
use crate::value_log::ValueLog;
use crate::versions::CodeVersions;
use crate::{BundlePath, CancelToken, CodeSection, Error, Result, SharedBytes, code};
use backtrail_perf::ContextSwitch;
use backtrail_perf::switch::AuxEnd;
use backtrail_pt::{Pid, Tid};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The error message for a directory without a description.
const NOT_A_BUNDLE: &str = "this is not a bundle (it has no trace.json): pass a directory that `backtrail record` or `backtrail import` wrote, or a .btz file";

/// An open bundle. Every file that it names existed inside it when it was opened.
#[derive(Debug)]
pub struct Bundle {
    manifest: Manifest,
    root: PathBuf,
    /// Indexes into the manifest's processes.
    by_pid: HashMap<Pid, usize>,
    module_files: Mutex<ModuleFiles>,
    /// The cached result of [`Self::core_pid`].
    core_pid: OnceLock<Option<Pid>>,
    /// The directory of an unpacked bundle.
    _unpacked: Option<Unpacked>,
}

impl Bundle {
    /// Opens a bundle directory or a packed bundle. A packed one is unpacked into a temporary
    /// directory, which is removed with the `Bundle`.
    ///
    /// # Errors
    /// Fails if the description is malformed, or if a file is missing. The contents of traces,
    /// modules and the core are only checked when they are read.
    pub fn open(path: &Path) -> Result<Self> {
        let unpacked = if path.is_dir() {
            None
        } else {
            let unpacked = Unpacked::new()?;
            archive::unpack_into(path, &unpacked.path(), &CancelToken::default())?;
            Some(unpacked)
        };
        let root = unpacked.as_ref().map_or_else(|| path.to_owned(), Unpacked::path);
        let findings = Findings::default();
        let manifest = load(&root, path, &findings);
        match (manifest, findings.into_vec().into_iter().next()) {
            (_, Some(error)) => Err(error),
            (Some(manifest), None) => Ok(Self {
                by_pid: (manifest.processes.iter().enumerate())
                    .map(|(index, process)| (process.pid, index))
                    .collect(),
                manifest,
                root,
                module_files: Mutex::default(),
                core_pid: OnceLock::new(),
                _unpacked: unpacked,
            }),
            (None, None) => Err(Error::malformed(TRACE_JSON, "it describes no trace")),
        }
    }

    /// Returns the description of the trace.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the bundle's directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the contents of a file of the bundle.
    ///
    /// # Errors
    /// Fails if the file is missing, or if a symbolic link leads out of the bundle.
    pub fn bytes(&self, path: &BundlePath) -> Result<SharedBytes> {
        SharedBytes::map_file(&path.resolve(&self.root)?)
    }

    /// Returns the code of a process. Sections may overlap; later ones cover earlier ones.
    ///
    /// The order is: executable memory saved in the core (the only source of the vdso), the
    /// modules, then the raw images. A module without a file has no section.
    ///
    /// # Errors
    /// Fails if a module's file, build id or load address is invalid, or if the core is damaged.
    pub fn code(&self, pid: Pid) -> Result<Vec<CodeSection>> {
        let mut files = self.module_files.lock().unwrap_or_else(PoisonError::into_inner);
        let process = self.process(pid)?;
        let core = self.core_of(pid)?;
        code::sections(process, core.as_ref(), &mut files, |path| self.bytes(path))
    }

    /// Returns whether the core belongs to `process`. It belongs to the process that crashed.
    /// Without a crash it belongs to the process that it names, or to the only one.
    fn core_belongs_to(&self, process: &Process) -> bool {
        match self.manifest.meta.crash {
            Some(crash) => crash.pid == process.pid,
            None => self.manifest.processes.len() == 1 || self.core_pid() == Some(process.pid),
        }
    }

    /// Returns the versions of code that cover [`Self::code`] of a process. They are empty if its
    /// code did not change.
    ///
    /// # Errors
    /// Fails if the file is malformed, or if a boundary is outside of its thread's trace.
    pub fn code_versions(&self, pid: Pid) -> Result<CodeVersions> {
        CodeVersions::load(self.process(pid)?, |path| self.bytes(path))
    }

    /// Returns the value log of a thread. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the file is malformed.
    pub fn value_log(&self, pid: Pid, tid: Tid) -> Result<Option<ValueLog>> {
        let threads = &self.process(pid)?.threads;
        let thread = threads.iter().find(|thread| thread.tid == tid);
        let path = thread.and_then(|thread| thread.values.as_ref());
        path.map(|path| ValueLog::parse(self.bytes(path)?, path))
            .transpose()
    }

    /// Returns a process of the manifest.
    pub(crate) fn process(&self, pid: Pid) -> Result<&Process> {
        let index = self.by_pid.get(&pid);
        let found = index.and_then(|&index| self.manifest.processes.get(index));
        found.ok_or_else(|| Error::Usage(format!("the bundle has no process {pid}")))
    }

    /// Returns the core of the crash, if the bundle has one.
    ///
    /// # Errors
    /// Fails if it is not a readable ELF core.
    pub fn core(&self) -> Result<Option<Core>> {
        let path = self.manifest.core.as_ref();
        path.map(|path| Core::parse(self.bytes(path)?, path)).transpose()
    }

    /// Returns the core if it is that of this process.
    ///
    /// # Errors
    /// Fails as [`Self::core`] does, and if there is no such process.
    pub fn core_of(&self, pid: Pid) -> Result<Option<Core>> {
        match self.core_belongs_to(self.process(pid)?) {
            true => self.core(),
            false => Ok(None),
        }
    }

    /// Returns the directory of the bundle's debug files, which are named by build ids:
    /// `.build-id/xx/yyyy.debug`. It may be missing.
    #[must_use]
    pub fn debug_root(&self) -> PathBuf {
        self.root.join(crate::supplementary::DEBUG_ROOT)
    }

    /// Returns the process that the core names. `None` if there is no core, or if it cannot be
    /// read.
    pub(crate) fn core_pid(&self) -> Option<Pid> {
        let read = || {
            self.core()
                .ok()
                .flatten()
                .map(|core| Pid(core.contents().process.pid))
        };
        *self.core_pid.get_or_init(read)
    }

    /// Returns the context switches of a processor, in time order.
    ///
    /// # Errors
    /// Fails if a record is malformed, or if timestamps run backward.
    pub fn switches(&self, cpu: &CpuTrace) -> Result<Vec<ContextSwitch>> {
        let bytes = self.bytes(&cpu.switches)?;
        backtrail_perf::switch::parse(&bytes).map_err(Error::perf(Path::new(cpu.switches.as_str())))
    }

    /// Returns when parts of a processor's trace were complete, as far as that was recorded.
    ///
    /// # Errors
    /// Fails if a record is malformed.
    pub fn aux_ends(&self, cpu: &CpuTrace) -> Result<Vec<AuxEnd>> {
        let bytes = self.bytes(&cpu.switches)?;
        backtrail_perf::switch::parse_aux(&bytes).map_err(Error::perf(Path::new(cpu.switches.as_str())))
    }
}

/// Reads both descriptions below `root`. `path` is the bundle's path in errors. Faults are added to
/// `findings`.
pub(crate) fn load(root: &Path, path: &Path, findings: &Findings) -> Option<Manifest> {
    load_with(root, path, findings, &mut |file, _| file.resolve(root).map(drop))
}

/// Reads both descriptions as [`load`] does. Returns the module files that do not exist beside it,
/// instead of adding faults for them.
pub(crate) fn load_partial(
    root: &Path,
    path: &Path,
    findings: &Findings,
) -> Option<(Manifest, BTreeSet<BundlePath>)> {
    let mut missing = BTreeSet::new();
    let manifest = load_with(root, path, findings, &mut |file, role| {
        let found = root.join(file.as_str()).symlink_metadata();
        let is_missing = found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if role == FileRole::Module && is_missing {
            missing.insert(file.clone());
            return Ok(());
        }
        file.resolve(root).map(drop)
    })?;
    Some((manifest, missing))
}

/// Reads both descriptions. `check_file` checks each file that they name, once for each role.
fn load_with(
    root: &Path,
    path: &Path,
    findings: &Findings,
    check_file: &mut dyn FnMut(&BundlePath, FileRole) -> Result<()>,
) -> Option<Manifest> {
    let description = root.join(TRACE_JSON).symlink_metadata();
    if description.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        findings.add(|| Error::malformed(path.display(), NOT_A_BUNDLE));
        return None;
    }
    let parsed = BundlePath::new(TRACE_JSON)
        .and_then(|path| SharedBytes::map_file(&path.resolve(root)?))
        .and_then(|bytes| parse_json(&bytes, TRACE_JSON));
    let value = parsed.map_err(|error| findings.add(|| error)).ok()?;
    let mut checked: HashSet<(BundlePath, FileRole)> = HashSet::new();
    let mut resolve_path = |text: &str, role| {
        let path = BundlePath::new(text)?;
        // Check each file once, and stop when the bundle is refused anyway.
        let key = (path.clone(), role);
        if !checked.contains(&key) && !findings.is_full() {
            check_file(&path, role)?;
            checked.insert(key);
        }
        Ok(path)
    };
    let mut manifest = decode_trace(&Node::root(&value, TRACE_JSON, findings), &mut resolve_path)?;
    // LLDB's own bundles do not have this file.
    if root.join(META_JSON).symlink_metadata().is_ok() {
        let parsed = BundlePath::new(META_JSON)
            .and_then(|path| SharedBytes::map_file(&path.resolve(root)?))
            .and_then(|bytes| parse_json(&bytes, META_JSON));
        let value = parsed.map_err(|error| findings.add(|| error)).ok()?;
        manifest.meta = decode_meta(&Node::root(&value, META_JSON, findings))?;
    }
    Some(manifest)
}
