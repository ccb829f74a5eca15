//! The processes and threads that are sampled: their names and mappings at the time of a sample.

use crate::clock::thread_time;
use crate::generated_code::jitdump_path;
use crate::kernel::Kernel;
use crate::module_file;
use crate::module_key::{FileKey, MappedAt, ModuleKey};
use crate::modules::{ModuleIdx, ModuleKind, Modules};
use crate::vdso::Vdso;
use backtrail_perf::record::{Mmap, Record, RecordEvent};
use backtrail_process::{maps, status};
use backtrail_profile::{AddressSpaces, MappedModule};
use backtrail_pt::{BuildId, FileOffset, Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The names and mappings of all processes at one time.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    spaces: AddressSpaces<ModuleIdx>,
    names: HashMap<Tid, Rc<str>>,
    /// The processes whose mappings were looked up in `/proc`.
    looked_up: HashSet<Pid>,
    /// The processes with a thread that ended.
    ending: HashSet<Pid>,
    /// The paths of the jitdumps of processes.
    jitdumps: HashMap<Pid, Rc<str>>,
    build_ids: HashMap<FileKey, Option<BuildId>>,
    reading: Duration,
    /// The number of processes whose mappings were read.
    read: u64,
    /// The processes whose mappings changed since the last call of [`Tasks::take_changed`].
    changed: HashSet<Pid>,
}

impl Tasks {
    /// Maps the kernel, and returns its functions.
    pub fn map_kernel(&mut self, modules: &mut Modules) -> Kernel {
        Kernel::map(modules, &mut self.spaces)
    }

    /// Applies a record of the kernel.
    pub fn apply(&mut self, record: &Record, modules: &mut Modules) {
        match &record.event {
            RecordEvent::Mmap(mmap) => self.mmap(mmap, modules),
            RecordEvent::Comm { pid, tid, name, exec } => {
                if *exec {
                    self.spaces.clear(*pid);
                    self.changed.insert(*pid);
                    self.jitdumps.remove(pid);
                    // Its new mappings have records.
                    self.looked_up.insert(*pid);
                }
                self.names.insert(*tid, name.as_str().into());
            }
            RecordEvent::Fork { pid, tid, parent, .. } => {
                if pid != parent {
                    self.look_up(*parent, modules);
                    if self.spaces.has(*parent) {
                        self.spaces.fork(*parent, *pid);
                        self.changed.insert(*pid);
                        self.looked_up.insert(*pid);
                    }
                }
                let name = self.name(Tid(parent.0));
                self.names.insert(*tid, name);
            }
            RecordEvent::Exit { pid, tid } => {
                if pid.0 != tid.0 {
                    self.names.remove(tid);
                }
                self.ending.insert(*pid);
            }
            _ => {}
        }
    }

    /// Forgets processes that have ended, and returns them. Every record before must have been
    /// applied.
    pub fn forget_ended(&mut self) -> Vec<Pid> {
        let ending = std::mem::take(&mut self.ending);
        let mut ended = Vec::new();
        for pid in ending {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                ended.push(pid);
                self.spaces.clear(pid);
                self.changed.insert(pid);
                self.jitdumps.remove(&pid);
                self.names.remove(&Tid(pid.0));
                self.looked_up.remove(&pid);
            }
        }
        ended
    }

    /// Reads the mappings of a process that no record describes.
    pub fn look_up(&mut self, pid: Pid, modules: &mut Modules) {
        if self.spaces.has(pid) || !self.looked_up.insert(pid) {
            return;
        }
        let Ok(raw) = i32::try_from(pid.0) else { return };
        let began = thread_time();
        self.read += 1;
        for map in maps::maps(raw).into_iter().filter(|map| map.executable) {
            let file = (map.inode != 0).then_some(FileKey {
                device: map.device,
                inode: map.inode,
            });
            let range = map.start..map.end;
            let mapped = MappedAt { pid, range };
            self.note_jitdump(pid, &map.path);
            let module = self.module(&map.path, None, file, mapped, modules);
            self.map(pid, map.start, map.size(), module, map.offset);
        }
        self.reading += thread_time().saturating_sub(began);
    }

    /// Returns the processor time that went into reading the mappings of running processes.
    pub fn reading(&self) -> Duration {
        self.reading
    }

    /// Returns the number of processes whose mappings were read so far.
    pub fn processes_read(&self) -> u64 {
        self.read
    }

    fn mmap(&mut self, mmap: &Mmap, modules: &mut Modules) {
        if !mmap.executable || !mmap.user {
            return;
        }
        let start = mmap.start.0;
        let mapped = MappedAt {
            pid: mmap.pid,
            range: start..start.saturating_add(mmap.size),
        };
        self.note_jitdump(mmap.pid, &mmap.path);
        let file = mmap.file.map(FileKey::from);
        let module = self.module(&mmap.path, mmap.build_id.clone(), file, mapped, modules);
        self.looked_up.insert(mmap.pid);
        self.map(mmap.pid, start, mmap.size, module, mmap.offset.0);
    }

    fn map(&mut self, pid: Pid, start: u64, size: u64, module: ModuleIdx, offset: u64) {
        let offset = FileOffset(offset);
        self.changed.insert(pid);
        self.spaces
            .map(Some(pid), start, size, MappedModule { module, offset });
    }

    /// Returns the module of a mapping. A build id that the kernel does not report is read from the
    /// file.
    fn module(
        &mut self,
        path: &str,
        build_id: Option<BuildId>,
        file: Option<FileKey>,
        mapped: MappedAt,
        modules: &mut Modules,
    ) -> ModuleIdx {
        let kind = match ModuleKind::of_path(path) {
            // A process of 32 bits has another vDSO.
            ModuleKind::Vdso if u32::try_from(mapped.range.start).is_ok() => ModuleKind::Anonymous,
            kind => kind,
        };
        let build_id = match (kind, file) {
            (ModuleKind::Vdso, _) => Vdso::of_this_machine().and_then(|vdso| vdso.build_id().cloned()),
            (ModuleKind::File, Some(file)) if build_id.is_none() => {
                let known = self.build_ids.entry(file);
                known
                    .or_insert_with(|| module_file::identify(path, file, &mapped))
                    .clone()
            }
            (ModuleKind::File, _) => build_id,
            _ => None,
        };
        let key = ModuleKey {
            path: path.into(),
            file: file.filter(|_| kind == ModuleKind::File && build_id.is_none()),
            build_id,
        };
        modules.intern(key, kind, Some(mapped))
    }

    /// Returns the module and offset of an address of a process, or of the kernel.
    pub fn find(&self, pid: Option<Pid>, address: u64) -> Option<MappedModule<ModuleIdx>> {
        self.spaces.find(pid, address)
    }

    /// Returns the mappings of a process in ascending order.
    pub fn mappings(&self, pid: Pid) -> impl Iterator<Item = (Range<u64>, MappedModule<ModuleIdx>)> {
        self.spaces.mappings(pid)
    }

    /// Returns the processes whose mappings changed since the last call.
    pub fn take_changed(&mut self) -> HashSet<Pid> {
        std::mem::take(&mut self.changed)
    }

    fn note_jitdump(&mut self, pid: Pid, path: &str) {
        if let Some(path) = jitdump_path(path) {
            self.jitdumps.insert(pid, path);
        }
    }

    /// Returns the path of the jitdump that a process has mapped.
    pub fn jitdump(&self, pid: Pid) -> Option<&Rc<str>> {
        self.jitdumps.get(&pid)
    }

    /// Returns the name of a thread.
    pub fn name(&mut self, tid: Tid) -> Rc<str> {
        let name = self.names.entry(tid).or_insert_with(|| {
            let raw = i32::try_from(tid.0).unwrap_or(0);
            let name = status::thread_name(raw, raw);
            name.unwrap_or_default().into()
        });
        Rc::clone(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_perf::sample_id::SampleId;
    use backtrail_pt::Avma;

    const PID: Pid = Pid(u32::MAX - 7);

    fn record(event: RecordEvent) -> Record {
        Record {
            event,
            id: SampleId::default(),
        }
    }

    fn mmap(pid: Pid, start: u64, path: &str, build_id: u8) -> Record {
        record(RecordEvent::Mmap(Mmap {
            pid,
            start: Avma(start),
            size: 0x1000,
            offset: FileOffset(0x3000),
            path: path.to_owned(),
            build_id: BuildId::new(&[build_id]),
            file: None,
            executable: true,
            user: true,
        }))
    }

    fn at(tasks: &Tasks, modules: &Modules, pid: Pid, address: u64) -> Option<(String, u64)> {
        let found = tasks.find(Some(pid), address)?;
        Some((modules.key(found.module)?.path.to_string(), found.offset.0))
    }

    #[test]
    fn exec_replaces_mappings_and_children_inherit_them() {
        let (mut tasks, mut modules) = (Tasks::default(), Modules::new(0));
        let child = Pid(PID.0 + 1);
        tasks.apply(&mmap(PID, 0x1000, "/bin/shell", 1), &mut modules);
        let fork = RecordEvent::Fork {
            pid: child,
            tid: Tid(child.0),
            parent: PID,
            copies_mappings: true,
        };
        tasks.apply(&record(fork), &mut modules);
        assert_eq!(
            at(&tasks, &modules, child, 0x1010),
            Some(("/bin/shell".to_owned(), 0x3010))
        );
        let exec = RecordEvent::Comm {
            pid: child,
            tid: Tid(child.0),
            name: "server".to_owned(),
            exec: true,
        };
        tasks.apply(&record(exec), &mut modules);
        assert_eq!(at(&tasks, &modules, child, 0x1010), None);
        tasks.apply(&mmap(child, 0x1000, "/bin/server", 2), &mut modules);
        assert_eq!(
            at(&tasks, &modules, child, 0x1010),
            Some(("/bin/server".to_owned(), 0x3010))
        );
        assert_eq!(
            at(&tasks, &modules, PID, 0x1010),
            Some(("/bin/shell".to_owned(), 0x3010))
        );
        assert_eq!(&*tasks.name(Tid(child.0)), "server");
        let exit = RecordEvent::Exit {
            pid: child,
            tid: Tid(child.0),
        };
        tasks.apply(&record(exit), &mut modules);
        tasks.forget_ended();
        assert_eq!(at(&tasks, &modules, child, 0x1010), None);
    }

    #[test]
    fn running_process_is_looked_up_once() {
        let (mut tasks, mut modules) = (Tasks::default(), Modules::new(1 << 28));
        let own = Pid(std::process::id());
        tasks.look_up(own, &mut modules);
        let here = running_process_is_looked_up_once as *const () as u64;
        let found = tasks.find(Some(own), here).unwrap();
        let key = modules.key(found.module).unwrap();
        assert!(key.build_id.is_some() && key.file.is_none(), "{key:?}");
        assert!(modules.table(found.module).is_some());
        assert_eq!(tasks.find(Some(own), 1), None);
    }
}
