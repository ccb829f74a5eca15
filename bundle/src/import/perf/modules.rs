//! Finds the binaries of the mappings, and computes their load addresses.

use super::code_map::{CodeMap, is_file};
use super::sideband::TracedProcess;
use crate::core::Core;
use crate::elf::{Elf, Load};
use crate::manifest::{Mapping, Module, Process};
use crate::{BundlePath, Result, SharedBytes, Writer};
use backtrail_perf::PerfData;
use backtrail_perf::record::Mmap;
use backtrail_pt::{Avma, BuildId, Svma};
use object::elf::PF_X;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The directories below `--symfs` with files by build id: its own, and those of a system.
const BUILD_ID_PARENTS: [&str; 3] = ["", "usr/lib/debug", "usr/lib"];

/// The path and the build id of a wanted file.
type FileKey = (String, Option<BuildId>);

/// Searches for copies of the traced machine's binaries.
pub(super) struct BinaryFinder<'a> {
    symfs: &'a [PathBuf],
    /// The directory of the `perf.data` file.
    beside: &'a Path,
    build_ids: HashMap<String, BuildId>,
    /// The existing candidates by recorded path and build id. Each is read once, however many
    /// records name it.
    known: RefCell<HashMap<FileKey, Rc<Vec<Candidate>>>>,
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

    /// Returns actual minus stated addresses, and the size of the rest of the segment in whole
    /// pages. `None`: no executable segment contains the start of the mapping.
    fn bias(&self, mmap: &Mmap) -> Option<(u64, u64)> {
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
        let end = load.offset.0.saturating_add(load.file_size);
        let end = end.checked_next_multiple_of(crate::PAGE_SIZE).unwrap_or(u64::MAX);
        Some((mmap.start.0.wrapping_sub(svma), end.saturating_sub(mmap.offset.0)))
    }
}

/// The mapped file, the address of its lowest page, and the size of the mapped segment from the
/// start of the mapping on.
struct MappedBinary {
    path: PathBuf,
    base: Avma,
    code_size: u64,
}

impl<'a> BinaryFinder<'a> {
    pub(super) fn new(symfs: &'a [PathBuf], beside: &'a Path, data: &PerfData<'_>) -> Self {
        Self {
            symfs,
            beside,
            build_ids: data.build_ids().into_iter().collect(),
            known: RefCell::default(),
        }
    }

    /// Returns the paths to try, best first.
    fn candidates(&self, path: &str, id: Option<&BuildId>) -> Vec<PathBuf> {
        let recorded = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        let name = recorded.file_name().unwrap_or(recorded.as_os_str());
        let mut paths = Vec::new();
        for symfs in self.symfs {
            // A recorded path is resolved below symfs; `..` components are dropped.
            let inside = recorded.components().filter_map(|part| match part {
                std::path::Component::Normal(name) => Some(name),
                _ => None,
            });
            paths.push(symfs.join(inside.collect::<PathBuf>()));
            paths.push(symfs.join(name));
        }
        let digits = id.map(ToString::to_string).unwrap_or_default();
        if let Some((first, rest)) = digits.split_at_checked(2) {
            let below = format!(".build-id/{first}/{rest}");
            for symfs in self.symfs {
                paths.extend(BUILD_ID_PARENTS.map(|parent| symfs.join(parent).join(&below)));
                // The cache of `perf buildid-cache` has a directory for each build id.
                paths.push(symfs.join(&below).join("elf"));
            }
        }
        paths.push(self.beside.join(name));
        paths.push(recorded.to_owned());
        paths
    }

    /// Reads the candidates for a recorded path and build id that are files.
    fn files(&self, path: &str, id: Option<&BuildId>) -> Rc<Vec<Candidate>> {
        let key = (path.to_owned(), id.cloned());
        if let Some(known) = self.known.borrow().get(&key) {
            return Rc::clone(known);
        }
        let paths = self.candidates(path, id).into_iter();
        let files = paths.filter(|path| path.is_file()).map(|path| Candidate {
            read: Binary::read(&path).map_err(|error| error.to_string()),
            path,
        });
        let files: Rc<Vec<Candidate>> = Rc::new(files.collect());
        self.known.borrow_mut().insert(key, Rc::clone(&files));
        files
    }

    /// Returns the build id that was recorded for a mapping.
    fn recorded_id(&self, mmap: &Mmap) -> Option<&BuildId> {
        self.build_ids.get(&mmap.path)
    }

    /// Returns the first candidate that matches the mapping and the build id, if that is known.
    /// Otherwise returns the reason why there is none.
    fn find(&self, mmap: &Mmap, wanted: Option<&BuildId>) -> std::result::Result<MappedBinary, String> {
        let mut reason = "was not found: its code is missing".to_owned();
        for Candidate { path, read } in self.files(&mmap.path, wanted).iter() {
            let binary = match read {
                Ok(binary) => binary,
                Err(error) => {
                    reason = format!("could not be read ({error})");
                    continue;
                }
            };
            let found = binary.build_id.as_ref();
            match (found, binary.bias(mmap)) {
                (found, _) if wanted.is_some() && wanted != found => {
                    let found = found.map_or("none".to_owned(), ToString::to_string);
                    reason = format!(
                        "was only found as {}, with another build id ({found})",
                        path.display()
                    );
                }
                (_, Some((bias, code_size))) => {
                    let lowest_page = binary.lowest_load.0 & !(crate::PAGE_SIZE - 1);
                    return Ok(MappedBinary {
                        path: path.clone(),
                        base: Avma(lowest_page.wrapping_add(bias)),
                        code_size,
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

/// The path, base, build id and file of a module.
type ModuleKey<'a> = (&'a str, Avma, Option<BuildId>, Option<BundlePath>);

/// Returns the build id that the core has for the file of a mapping.
fn id_in_core(core: &Core, mmap: &Mmap) -> Option<BuildId> {
    let files = core.contents().files.iter();
    let first_pages = files.filter(|file| file.path == mmap.path && file.offset.0 == 0);
    let base = first_pages
        .map(|file| file.start)
        .filter(|start| *start <= mmap.start);
    core.mapped_build_id(base.max()?)
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
    let mut known: HashMap<ModuleKey<'_>, usize> = HashMap::new();
    let core_of_process = core.filter(|core| core.contents().process.pid == process.pid.0);
    let wanted = |mmap: &Mmap| {
        let recorded = mmap.build_id.clone().or(finder.recorded_id(mmap).cloned());
        recorded.or_else(|| id_in_core(core_of_process?, mmap))
    };
    let find = |mmap: &Mmap| match traced.files.supersede(mmap) {
        true => Err("was replaced by another file of that name: its first code is missing".to_owned()),
        false => finder.find(mmap, wanted(mmap).as_ref()),
    };
    let code = traced
        .code
        .code(|mmap| find(mmap).map_or(mmap.size, |found| found.code_size));
    for part in code.parts().filter(|part| is_file(&part.mmap.path)) {
        let mmap = &part.mmap;
        let mapping = Mapping {
            start: part.address(),
            offset: part.offset(),
            size: part.size(),
            from: part.from,
            until: part.until,
        };
        let (file, base, build_id) = match find(mmap) {
            Ok(MappedBinary { path, base, .. }) => {
                let (file, build_id) = writer.add_module(&path, &mmap.path)?;
                (Some(file), base, build_id)
            }
            Err(reason) => {
                if missing.insert(&mmap.path) {
                    notes.push(format!("module {:?} {reason}", mmap.path));
                }
                // Most files map their first page lowest.
                (None, Avma(mmap.start.0.wrapping_sub(mmap.offset.0)), wanted(mmap))
            }
        };
        let key = (&*mmap.path, base, build_id.clone(), file.clone());
        let index = *known.entry(key).or_insert(process.modules.len());
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
    note_anonymous(process, &code, notes);
    if let Some(core) = core_of_process {
        note_unrecorded(process, core, notes);
    }
    Ok(())
}

/// Notes code that is in no file.
fn note_anonymous(process: &Process, code: &CodeMap, notes: &mut Vec<String>) {
    let anonymous = code
        .parts()
        .filter(|part| part.mmap.path.starts_with("//anon"))
        .count();
    if anonymous != 0 {
        notes.push(format!(
            "process {} mapped anonymous executable memory {anonymous} times; code generated there is missing",
            process.pid
        ));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{FileOffset, Pid};
    use std::fs;

    #[test]
    fn right_build_is_found_by_path_and_by_build_id() {
        let program = std::env::current_exe().unwrap();
        let read = Binary::read(&program).unwrap();
        let (id, code) = (read.build_id.unwrap(), read.code[0]);
        let folder = tempfile::tempdir().unwrap();
        let symfs = ["one", "two"].map(|name| folder.path().join(name));
        let mmap = Mmap {
            pid: Pid(1),
            start: Avma(0x40_0000),
            size: code.file_size,
            offset: FileOffset(code.offset.0 & !(crate::PAGE_SIZE - 1)),
            path: "/no/such/tool".to_owned(),
            build_id: Some(id.clone()),
            file: None,
            executable: true,
            user: true,
        };
        let find = || {
            let finder = BinaryFinder {
                symfs: &symfs,
                beside: folder.path(),
                build_ids: HashMap::new(),
                known: RefCell::default(),
            };
            finder.find(&mmap, Some(&id)).map(|found| found.path)
        };
        let digits = id.to_string();
        let by_id = format!(".build-id/{}/{}", &digits[..2], &digits[2..]);
        // At the path is a file without this build id.
        fs::create_dir_all(symfs[0].join("no/such")).unwrap();
        fs::write(symfs[0].join("no/such/tool"), without_notes(&program)).unwrap();
        assert!(find().unwrap_err().contains("with another build id (none)"));
        for place in [
            "no/such/tool".to_owned(),
            "tool".to_owned(),
            by_id.clone(),
            format!("usr/lib/debug/{by_id}"),
            format!("usr/lib/{by_id}"),
            format!("{by_id}/elf"),
        ] {
            let right = symfs[1].join(&place);
            fs::create_dir_all(right.parent().unwrap()).unwrap();
            fs::copy(&program, &right).unwrap();
            assert_eq!(find(), Ok(right.clone()), "{place}");
            fs::remove_file(right).unwrap();
        }
    }

    /// Returns a program whose segments of notes are of no type.
    fn without_notes(program: &Path) -> Vec<u8> {
        let mut bytes = fs::read(program).unwrap();
        let count = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
        for header in bytes[64..].chunks_exact_mut(56).take(count) {
            if header[..4] == 4u32.to_le_bytes() {
                header[..4].fill(0);
            }
        }
        bytes
    }
}
