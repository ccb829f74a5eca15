//! The files with code that processes have mapped, each once.

use crate::clock::thread_time;
use crate::module_file;
use crate::module_key::{MappedAt, ModuleKey};
use crate::python::PythonBuild;
use crate::unwind_table::UnwindTable;
use crate::vdso::Vdso;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The index of a module in [`Modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleIdx(u32);

impl ModuleIdx {
    /// Returns the position of the module.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The unwind table of a module, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableOf<'a> {
    /// The table was not needed yet.
    Unread,
    /// There is no table.
    Missing,
    /// The table was read.
    Ready(&'a UnwindTable),
}

/// The kind of a mapping with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleKind {
    /// A file.
    File,
    /// The functions that the kernel provides to all processes.
    Vdso,
    /// Memory without a file, as of a JIT compiler.
    Anonymous,
    /// The kernel, or a module of it.
    Kernel,
}

impl ModuleKind {
    /// Returns the kind of a mapping by the path that the kernel reports.
    pub fn of_path(path: &str) -> Self {
        // Files that only hold memory. Their names come from mm/shmem.c and mm/memfd.c.
        const MEMORY: [&str; 5] = ["//", "/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage"];
        match path {
            Vdso::MODULE => Self::Vdso,
            path if path.starts_with('/') && !MEMORY.iter().any(|name| path.starts_with(name)) => Self::File,
            _ => Self::Anonymous,
        }
    }
}

/// A module with its unwind table.
#[derive(Debug)]
struct Module {
    key: ModuleKey,
    kind: ModuleKind,
    table: TableState,
    /// The Python interpreter in the file, known with the table.
    python: Option<PythonBuild>,
}

#[derive(Debug)]
enum TableState {
    /// The table was not needed yet.
    Unread,
    Ready(UnwindTable),
    /// The file has none, or cannot be read, or the budget is spent.
    Missing,
}

/// All modules so far.
#[derive(Debug)]
pub(crate) struct Modules {
    modules: Vec<Module>,
    by_key: HashMap<ModuleKey, ModuleIdx>,
    /// The mapping that each module was last seen in.
    mapped: HashMap<ModuleIdx, MappedAt>,
    table_bytes: usize,
    table_budget: usize,
    /// The paths of modules whose tables the budget excluded.
    excluded: usize,
    reading: Duration,
    /// The modules whose tables were needed for the first time since the last call of
    /// [`Modules::take_decided`].
    decided: Vec<ModuleIdx>,
}

impl Modules {
    /// Returns no modules. `table_budget` bounds the bytes of all unwind tables.
    pub fn new(table_budget: usize) -> Self {
        Self {
            modules: Vec::new(),
            by_key: HashMap::new(),
            mapped: HashMap::new(),
            table_bytes: 0,
            table_budget,
            excluded: 0,
            reading: Duration::ZERO,
            decided: Vec::new(),
        }
    }

    /// Returns the index of a module, and adds it if it is new.
    pub fn intern(&mut self, key: ModuleKey, kind: ModuleKind, mapped: Option<MappedAt>) -> ModuleIdx {
        let index = match self.by_key.get(&key) {
            Some(index) => *index,
            None => {
                let index = ModuleIdx(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
                self.by_key.insert(key.clone(), index);
                self.modules.push(Module {
                    key,
                    kind,
                    table: TableState::Unread,
                    python: None,
                });
                index
            }
        };
        if let Some(mapped) = mapped {
            self.mapped.insert(index, mapped);
        }
        index
    }

    /// Returns the path and build id of a module.
    pub fn key(&self, index: ModuleIdx) -> Option<&ModuleKey> {
        self.modules.get(index.0 as usize).map(|module| &module.key)
    }

    /// Returns the kind of a module.
    pub fn kind(&self, index: ModuleIdx) -> Option<ModuleKind> {
        self.modules.get(index.0 as usize).map(|module| module.kind)
    }

    /// Returns the unwind table of a module, and builds it the first time. `None`: there is none.
    pub fn table(&mut self, index: ModuleIdx) -> Option<&UnwindTable> {
        let mapped = self.mapped.get(&index);
        let module = self.modules.get_mut(index.0 as usize)?;
        if matches!(module.table, TableState::Unread) {
            self.decided.push(index);
            let began = thread_time();
            let (table, python) = match module.kind {
                ModuleKind::File => module_file::read(&module.key, mapped),
                ModuleKind::Vdso => (Vdso::of_this_machine().and_then(Vdso::table), None),
                ModuleKind::Anonymous | ModuleKind::Kernel => (None, None),
            };
            module.python = python;
            self.reading += thread_time().saturating_sub(began);
            let left = self.table_budget.saturating_sub(self.table_bytes);
            module.table = match table {
                Some(table) if table.bytes() <= left => {
                    self.table_bytes += table.bytes();
                    TableState::Ready(table)
                }
                Some(_) => {
                    self.excluded += 1;
                    TableState::Missing
                }
                None => TableState::Missing,
            };
        }
        match &module.table {
            TableState::Ready(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the unwind table of a module, and does not build it.
    pub fn table_of(&self, index: ModuleIdx) -> TableOf<'_> {
        match self.modules.get(index.0 as usize).map(|module| &module.table) {
            None | Some(TableState::Unread) => TableOf::Unread,
            Some(TableState::Missing) => TableOf::Missing,
            Some(TableState::Ready(table)) => TableOf::Ready(table),
        }
    }

    /// Returns the Python interpreter of a module whose table is known.
    pub fn python(&self, index: ModuleIdx) -> Option<PythonBuild> {
        self.modules.get(index.0 as usize)?.python
    }

    /// Returns sentences about Pythons whose functions have no names.
    pub fn python_notes(&self) -> BTreeSet<String> {
        let builds = self.modules.iter().filter_map(|module| module.python);
        builds.filter_map(|build| build.note()).collect()
    }

    /// Returns the modules whose tables were built since the last call, or are missing.
    pub fn take_decided(&mut self) -> Vec<ModuleIdx> {
        std::mem::take(&mut self.decided)
    }

    /// Returns all modules whose tables were built, or are missing.
    pub fn all_decided(&self) -> Vec<ModuleIdx> {
        let numbered = (0..).map(ModuleIdx).zip(&self.modules);
        let decided = numbered.filter(|(_, module)| !matches!(module.table, TableState::Unread));
        decided.map(|(index, _)| index).collect()
    }

    /// Returns the processor time that went into building tables.
    pub fn reading(&self) -> Duration {
        self.reading
    }

    /// Returns the number of modules whose tables exceeded the budget.
    pub fn excluded(&self) -> usize {
        self.excluded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn kinds_follow_from_paths() {
        for (path, kind) in [
            ("/usr/bin/python3.11", ModuleKind::File),
            ("/tmp/a (deleted)", ModuleKind::File),
            ("[vdso]", ModuleKind::Vdso),
            ("//anon", ModuleKind::Anonymous),
            ("", ModuleKind::Anonymous),
            ("[heap]", ModuleKind::Anonymous),
            ("/memfd:doublemapper (deleted)", ModuleKind::Anonymous),
        ] {
            assert_eq!(ModuleKind::of_path(path), kind, "{path}");
        }
    }

    #[test]
    fn budget_bounds_the_tables() {
        let exe: Rc<str> = std::env::current_exe().unwrap().display().to_string().into();
        let key = || ModuleKey {
            path: Rc::clone(&exe),
            build_id: module_file::build_id_of_path(&exe),
            file: None,
        };
        let mut modules = Modules::new(1 << 28);
        let module = modules.intern(key(), ModuleKind::File, None);
        assert_eq!(modules.intern(key(), ModuleKind::File, None), module);
        assert!(modules.table(module).is_some_and(|table| table.len() > 1000));
        let mut modules = Modules::new(1000);
        let module = modules.intern(key(), ModuleKind::File, None);
        assert!(modules.table(module).is_none());
        assert_eq!(modules.excluded(), 1);
    }
}
