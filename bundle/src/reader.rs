//! Opening a bundle and reading its parts.

use crate::archive;
use crate::code::ModuleFiles;
use crate::core::Core;
use crate::manifest::{CpuTrace, Manifest, Process};
use crate::schema::{Findings, META_JSON, Node, TRACE_JSON, decode_meta, decode_trace, parse_json};
use crate::unpacked::Unpacked;
use crate::{BundlePath, CodeVersions, Error, Result, SharedBytes, code};
use backtrail_perf::ContextSwitch;
use backtrail_pt::{Avma, Pid};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What is said of a directory without a description.
const NO_BUNDLE: &str = "this is no bundle, for it has no trace.json: a bundle is the directory that `backtrail record` or `backtrail import` makes, or its .btz file";

/// A bundle at hand. The files it names were there, inside it, when it was opened.
#[derive(Debug)]
pub struct Bundle {
    manifest: Manifest,
    root: PathBuf,
    /// Indexes into the manifest's processes.
    by_pid: HashMap<Pid, usize>,
    module_files: Mutex<ModuleFiles>,
    /// See [`Self::core_pid`].
    core_pid: OnceLock<Option<Pid>>,
    /// Where a packed bundle was unpacked to.
    _unpacked: Option<Unpacked>,
}

/// Code as it lay in a process's memory.
#[derive(Clone, Debug)]
pub struct CodeSection {
    /// The first address.
    pub start: Avma,
    /// The code.
    pub bytes: SharedBytes,
    /// Which of the process's modules it is of, as an index.
    pub module: Option<usize>,
}

impl Bundle {
    /// Opens a bundle: its directory, or the one file it was packed into, which is unpacked
    /// into a temporary directory that lives as long as the `Bundle`.
    ///
    /// # Errors
    /// Malformed, when anything in its description cannot be, or a file is missing. The contents of
    /// traces, modules and the core are looked at only when asked for.
    pub fn open(path: &Path) -> Result<Self> {
        let unpacked = if path.is_dir() {
            None
        } else {
            let unpacked = Unpacked::new()?;
            archive::unpack_into(path, &unpacked.path())?;
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

    /// What the bundle says of its trace.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The directory the bundle stands in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The contents of a file of the bundle.
    ///
    /// # Errors
    /// Malformed, when it is missing or a link leads out of the bundle.
    pub fn bytes(&self, path: &BundlePath) -> Result<SharedBytes> {
        SharedBytes::map_file(&path.resolve(&self.root)?)
    }

    /// The code of a process. Sections may overlap: a later one lies over the earlier.
    ///
    /// First what the core saved of executable memory (the vdso stands nowhere else), then the
    /// modules, then the raw images. A module without file has no code here.
    ///
    /// # Errors
    /// Malformed, when a module is no ELF file for x86-64, is not the one its build id says, or cannot lie
    /// where the bundle says; or when the core is damaged.
    pub fn code(&self, pid: Pid) -> Result<Vec<CodeSection>> {
        let mut files = self.module_files.lock().unwrap_or_else(PoisonError::into_inner);
        code::sections(self, &mut files, pid)
    }

    /// What lies over [`Self::code`] of a process, and since when; empty when its code did not change.
    ///
    /// # Errors
    /// Malformed, when the file cannot be, or a boundary is outside of its thread's trace.
    pub fn code_versions(&self, pid: Pid) -> Result<CodeVersions> {
        CodeVersions::load(self.process(pid)?, |path| self.bytes(path))
    }

    /// A process of the manifest.
    pub(crate) fn process(&self, pid: Pid) -> Result<&Process> {
        let index = self.by_pid.get(&pid);
        let found = index.and_then(|&index| self.manifest.processes.get(index));
        found.ok_or_else(|| Error::Usage(format!("the bundle has no process {pid}")))
    }

    /// The core of the crash, when the bundle has one.
    ///
    /// # Errors
    /// Malformed, when it is no readable ELF core.
    pub fn core(&self) -> Result<Option<Core>> {
        let path = self.manifest.core.as_ref();
        path.map(|path| Core::parse(self.bytes(path)?, path)).transpose()
    }

    /// The process that the core says it is of; `None`: there is no core, or it cannot be read.
    pub(crate) fn core_pid(&self) -> Option<Pid> {
        let read = || {
            self.core()
                .ok()
                .flatten()
                .map(|core| Pid(core.contents().process.pid))
        };
        *self.core_pid.get_or_init(read)
    }

    /// The context switches of a processor, in order of time.
    ///
    /// # Errors
    /// Malformed, when a record cannot be, or time runs backward.
    pub fn switches(&self, cpu: &CpuTrace) -> Result<Vec<ContextSwitch>> {
        let bytes = self.bytes(&cpu.switches)?;
        backtrail_perf::switch::parse(&bytes).map_err(Error::perf(Path::new(cpu.switches.as_str())))
    }
}

/// Reads both descriptions beneath `root`, of the bundle that the user knows as `path`; what is wrong goes to `findings`.
pub(crate) fn load(root: &Path, path: &Path, findings: &Findings) -> Option<Manifest> {
    let description = root.join(TRACE_JSON).symlink_metadata();
    if description.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        findings.add(|| Error::malformed(path.display(), NO_BUNDLE));
        return None;
    }
    let parsed = BundlePath::new(TRACE_JSON)
        .and_then(|path| SharedBytes::map_file(&path.resolve(root)?))
        .and_then(|bytes| parse_json(&bytes, TRACE_JSON));
    let value = parsed.map_err(|error| findings.add(|| error)).ok()?;
    let mut found: HashSet<BundlePath> = HashSet::new();
    let mut take_path = |text: &str, _| {
        let path = BundlePath::new(text)?;
        // Each file is looked for once, and none any more when the bundle is refused anyway.
        if !found.contains(&path) && !findings.is_full() {
            path.resolve(root)?;
            found.insert(path.clone());
        }
        Ok(path)
    };
    let mut manifest = decode_trace(&Node::root(&value, TRACE_JSON, findings), &mut take_path)?;
    // LLDB's own bundles have no such file.
    if root.join(META_JSON).symlink_metadata().is_ok() {
        let parsed = BundlePath::new(META_JSON)
            .and_then(|path| SharedBytes::map_file(&path.resolve(root)?))
            .and_then(|bytes| parse_json(&bytes, META_JSON));
        let value = parsed.map_err(|error| findings.add(|| error)).ok()?;
        manifest.meta = decode_meta(&Node::root(&value, META_JSON, findings))?;
    }
    Some(manifest)
}
