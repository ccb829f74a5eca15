//! The binaries behind the mappings: which files they were, where a copy is, how they lay.

use super::PerfImport;
use super::sideband::Traced;
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

/// Where copies of the traced machine's binaries may be.
pub(super) struct BinaryFinder<'a> {
    import: &'a PerfImport,
    build_ids: HashMap<String, BuildId>,
    /// The candidates that are files, by the path that was recorded: each is read once, however many records name it.
    known: RefCell<HashMap<String, Rc<Vec<Candidate>>>>,
}

/// A file that may be the one that was mapped.
struct Candidate {
    place: PathBuf,
    /// What is known of it; else why it cannot be read.
    read: std::result::Result<Binary, String>,
}

/// As much of a binary as its mappings are compared with.
struct Binary {
    build_id: Option<BuildId>,
    /// The lowest stated address.
    lowest_load: Svma,
    /// Its executable segments.
    code: Vec<Load>,
}

impl Binary {
    fn read(place: &Path) -> Result<Self> {
        let bytes = SharedBytes::map_file(place)?;
        let elf = Elf::parse(&bytes, place.display())?;
        Ok(Self {
            build_id: elf.build_id(),
            lowest_load: elf.lowest_load()?,
            code: elf.loads().filter(|load| load.flags & PF_X.0 != 0).collect(),
        })
    }

    /// Actual minus stated addresses, when an executable segment holds what was mapped.
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

/// The file that was mapped, and where its lowest page lies.
struct Found {
    place: PathBuf,
    base: Avma,
}

impl<'a> BinaryFinder<'a> {
    pub(super) fn new(import: &'a PerfImport, data: &PerfData<'_>) -> Self {
        Self {
            import,
            build_ids: data.build_ids().into_iter().collect(),
            known: RefCell::default(),
        }
    }

    /// The places to look at, best first.
    fn candidates(&self, path: &str) -> Vec<PathBuf> {
        let recorded = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        let name = recorded.file_name().unwrap_or(recorded.as_os_str());
        let mut places = Vec::new();
        if let Some(symfs) = &self.import.symfs {
            // A recorded path goes beneath symfs, whatever it says: no step up is followed.
            let inside = recorded.components().filter_map(|part| match part {
                std::path::Component::Normal(name) => Some(name),
                _ => None,
            });
            places.push(symfs.join(inside.collect::<PathBuf>()));
            places.push(symfs.join(name));
        }
        places.push(self.import.data.parent().unwrap_or(Path::new("")).join(name));
        places.push(recorded.to_owned());
        places
    }

    /// Returns the candidates for a recorded path that are files, as they were read.
    fn files(&self, path: &str) -> Rc<Vec<Candidate>> {
        if let Some(known) = self.known.borrow().get(path) {
            return Rc::clone(known);
        }
        let places = self.candidates(path).into_iter();
        let files = places.filter(|place| place.is_file()).map(|place| Candidate {
            read: Binary::read(&place).map_err(|error| error.to_string()),
            place,
        });
        let files: Rc<Vec<Candidate>> = Rc::new(files.collect());
        self.known.borrow_mut().insert(path.to_owned(), Rc::clone(&files));
        files
    }

    /// Returns the first candidate that is the mapped file as far as can be told; else why there is none.
    fn find(&self, mmap: &Mmap) -> std::result::Result<Found, String> {
        let wanted = mmap.build_id.as_ref().or(self.build_ids.get(&mmap.path));
        let mut why = "was not found: its code is missing".to_owned();
        for Candidate { place, read } in self.files(&mmap.path).iter() {
            let binary = match read {
                Ok(binary) => binary,
                Err(error) => {
                    why = format!("could not be read ({error})");
                    continue;
                }
            };
            match (&binary.build_id, binary.bias(mmap)) {
                (Some(found), _) if wanted.is_some_and(|wanted| wanted != found) => {
                    why = format!(
                        "was found as {} only, with another build id ({found})",
                        place.display()
                    );
                }
                (_, Some(bias)) => {
                    let lowest_page = binary.lowest_load.0 & !(crate::PAGE_SIZE - 1);
                    return Ok(Found {
                        place: place.clone(),
                        base: Avma(lowest_page.wrapping_add(bias)),
                    });
                }
                (_, None) => {
                    why = format!(
                        "was found as {} only, which does not fit what was mapped",
                        place.display()
                    );
                }
            }
        }
        Err(why)
    }
}

/// Names of mappings that are no files.
fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//anon")
        && !path.starts_with("/dev/zero")
        && !path.starts_with("/memfd:")
        && !path.starts_with("/SYSV")
}

/// Adds the modules that were mapped into the process; where the records tell of none, those that
/// the core tells of.
pub(super) fn add_modules(
    writer: &Writer,
    process: &mut Process,
    traced: &Traced<'_>,
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
            Ok(Found { place, base }) => {
                let (file, build_id) = writer.add_module(&place, &mmap.path)?;
                (Some(file), base, build_id)
            }
            Err(why) => {
                if missing.insert(&mmap.path) {
                    notes.push(format!("module {:?} {why}", mmap.path));
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
            }),
        }
    }
    let anonymous = traced.mappings.iter().filter(is_anonymous).count();
    if anonymous != 0 {
        notes.push(format!(
            "process {} mapped executable memory without a file {anonymous} times: what code was made there at run time is missing",
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

/// Notes executable files that the core knows but no record told of.
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
                "the core has {:?} at {}, but no record tells of it",
                file.path, file.start
            ));
        }
    }
}
