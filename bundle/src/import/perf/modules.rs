//! Finds the binaries of the mappings, and computes their load addresses.

use super::sideband::TracedProcess;
use crate::core::Core;
use crate::elf::{Elf, Load};
use crate::manifest::{Mapping, Module, Process};
use crate::{Result, SharedBytes, Writer};
use backtrail_perf::PerfData;
use backtrail_perf::record::Mmap;
use backtrail_pt::{Avma, BuildId, Svma};
use object::elf::PF_X;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Searches for copies of the traced machine's binaries.
pub(super) struct BinaryFinder<'a> {
    symfs: Option<&'a Path>,
    /// The directory of the `perf.data` file.
    beside: &'a Path,
    build_ids: HashMap<String, BuildId>,
    /// The existing candidates by recorded path. Each is read once, however many records name it.
    known: RefCell<HashMap<String, Rc<Vec<Candidate>>>>,
}

/// A file that may be the mapped one.
struct Candidate {
    path: PathBuf,
    /// The parsed binary, or the reason why it could not be read.
    read: std::result::Result<Binary, String>,
}

/// The parts of a binary that are compared with its mappings.
struct Binary {
    build_id: Option<BuildId>,
    /// The lowest stated address.
    lowest_load: Svma,
    /// The executable segments.
    code: Vec<Load>,
}

impl Binary {
    fn read(path: &Path) -> Result<Self> {
        let bytes = SharedBytes::map_file(path)?;
        let elf = Elf::parse(&bytes, path.display())?;
        Ok(Self {
            build_id: elf.build_id(),
            lowest_load: elf.lowest_load()?,
            code: elf.loads().filter(|load| load.flags & PF_X.0 != 0).collect(),
        })
    }

    /// Returns actual minus stated addresses if an executable segment contains the mapping.
    fn bias(&self, mmap: &Mmap) -> Option<u64> {
        let holds = |start: u64, size: u64| {
            let start_page = start & !(crate::PAGE_SIZE - 1);
            (start_page..start.saturating_add(size)).contains(&mmap.offset.0)
        };
        let load = self
            .code
            .iter()
            .find(|load| holds(load.offset.0, load.file_size))?;
        let svma = load
            .svma
            .0
            .wrapping_add(mmap.offset.0)
            .wrapping_sub(load.offset.0);
        Some(mmap.start.0.wrapping_sub(svma))
    }
}

/// The mapped file, and the address of its lowest page.
struct MappedBinary {
    path: PathBuf,
    base: Avma,
}

impl<'a> BinaryFinder<'a> {
    pub(super) fn new(symfs: Option<&'a Path>, beside: &'a Path, data: &PerfData<'_>) -> Self {
        Self {
            symfs,
            beside,
            build_ids: data.build_ids().into_iter().collect(),
            known: RefCell::default(),
        }
    }

    /// Returns the paths to try, best first.
    fn candidates(&self, path: &str) -> Vec<PathBuf> {
        let recorded = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        let name = recorded.file_name().unwrap_or(recorded.as_os_str());
        let mut paths = Vec::new();
        if let Some(symfs) = self.symfs {
            // A recorded path is resolved below symfs; `..` components are dropped.
            let inside = recorded.components().filter_map(|part| match part {
                std::path::Component::Normal(name) => Some(name),
                _ => None,
            });
            paths.push(symfs.join(inside.collect::<PathBuf>()));
            paths.push(symfs.join(name));
        }
        paths.push(self.beside.join(name));
        paths.push(recorded.to_owned());
        paths
    }

    /// Reads the candidates for a recorded path that are files.
    fn files(&self, path: &str) -> Rc<Vec<Candidate>> {
        if let Some(known) = self.known.borrow().get(path) {
            return Rc::clone(known);
        }
        let paths = self.candidates(path).into_iter();
        let files = paths.filter(|path| path.is_file()).map(|path| Candidate {
            read: Binary::read(&path).map_err(|error| error.to_string()),
            path,
        });
        let files: Rc<Vec<Candidate>> = Rc::new(files.collect());
        self.known.borrow_mut().insert(path.to_owned(), Rc::clone(&files));
        files
    }

    /// Returns the first candidate that matches the mapping, or the reason why there is none.
    fn find(&self, mmap: &Mmap) -> std::result::Result<MappedBinary, String> {
        let wanted = mmap.build_id.as_ref().or(self.build_ids.get(&mmap.path));
        let mut reason = "was not found: its code is missing".to_owned();
        for Candidate { path, read } in self.files(&mmap.path).iter() {
            let binary = match read {
                Ok(binary) => binary,
                Err(error) => {
                    reason = format!("could not be read ({error})");
                    continue;
                }
            };
            match (&binary.build_id, binary.bias(mmap)) {
                (Some(found), _) if wanted.is_some_and(|wanted| wanted != found) => {
                    reason = format!(
                        "was only found as {}, with another build id ({found})",
                        path.display()
                    );
                }
                (_, Some(bias)) => {
                    let lowest_page = binary.lowest_load.0 & !(crate::PAGE_SIZE - 1);
                    return Ok(MappedBinary {
                        path: path.clone(),
                        base: Avma(lowest_page.wrapping_add(bias)),
                    });
                }
                (_, None) => {
                    reason = format!(
                        "was only found as {}, which does not fit the mapping",
                        path.display()
                    );
                }
            }
        }
        Err(reason)
    }
}

/// Returns whether a mapping's name is a file path.
fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//anon")
        && !path.starts_with("/dev/zero")
        && !path.starts_with("/memfd:")
        && !path.starts_with("/SYSV")
}

/// Adds the modules that were mapped into the process. Notes executable files that only the core
/// lists.
pub(super) fn add_modules(
    writer: &Writer,
    process: &mut Process,
    traced: &TracedProcess<'_>,
    finder: &BinaryFinder<'_>,
    core: Option<&Core>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let mut missing: HashSet<&str> = HashSet::new();
    let mut known: HashMap<(&str, Avma), usize> = HashMap::new();
    let is_anonymous = |mmap: &&Mmap| mmap.path.starts_with("//anon");
    for mmap in traced.mappings.iter().filter(|mmap| is_file(&mmap.path)) {
        let mapping = Mapping {
            start: mmap.start,
            offset: mmap.offset,
            size: mmap.size,
        };
        let (file, base, build_id) = match finder.find(mmap) {
            Ok(MappedBinary { path, base }) => {
                let (file, build_id) = writer.add_module(&path, &mmap.path)?;
                (Some(file), base, build_id)
            }
            Err(reason) => {
                if missing.insert(&mmap.path) {
                    notes.push(format!("module {:?} {reason}", mmap.path));
                }
                // Most files map their first page lowest.
                (
                    None,
                    Avma(mmap.start.0.wrapping_sub(mmap.offset.0)),
                    mmap.build_id.clone(),
                )
            }
        };
        let index = *known.entry((&mmap.path, base)).or_insert(process.modules.len());
        match process.modules.get_mut(index) {
            Some(module) => module.mappings.push(mapping),
            None => process.modules.push(Module {
                path: mmap.path.clone(),
                file,
                build_id,
                base,
                mappings: vec![mapping],
                ..Module::default()
            }),
        }
    }
    let anonymous = traced.mappings.iter().filter(is_anonymous).count();
    if anonymous != 0 {
        notes.push(format!(
            "process {} mapped anonymous executable memory {anonymous} times; code generated there is missing",
            process.pid
        ));
    }
    if let Some(core) = core
        && core.contents().process.pid == process.pid.0
    {
        note_unrecorded(process, core, notes);
    }
    Ok(())
}

/// Notes executable files that the core lists but no record mentions.
fn note_unrecorded(process: &Process, core: &Core, notes: &mut Vec<String>) {
    let contents = core.contents();
    let executable: HashSet<Avma> = contents
        .segments
        .iter()
        .filter(|segment| segment.executable)
        .map(|segment| segment.start)
        .collect();
    let recorded: HashSet<&str> = process
        .modules
        .iter()
        .map(|module| module.path.as_str())
        .collect();
    for file in contents
        .files
        .iter()
        .filter(|file| executable.contains(&file.start))
    {
        if !recorded.contains(file.path.as_str()) {
            notes.push(format!(
                "the core lists {:?} at {}, but no record mentions it",
                file.path, file.start
            ));
        }
    }
}
