//! The functions that calls are of, each looked up once.

use backtrail_debugger::session::Process;
use backtrail_pt::{Avma, Pid};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The number of a function in [`Functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// A function that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The demangled name; without symbols, the address.
    pub name: Arc<str>,
    /// As the linker knows it; the same where nothing is mangled.
    pub linkage_name: Arc<str>,
    /// Where the source declares it.
    pub declared: Option<(Arc<str>, u32)>,
    /// The process that it was called in.
    pub pid: Pid,
    /// Where calls enter; without symbols, any address in it.
    pub entry: Avma,
    /// The name of the file that it is in, if known.
    pub module: Option<Arc<str>>,
}

/// All functions met so far.
#[derive(Debug, Default)]
pub struct Functions {
    list: Vec<Function>,
    /// By any address that was asked for, and by entry.
    known: FxHashMap<(Pid, Avma), FunctionId>,
    stand_ins: FxHashMap<(Pid, &'static str), FunctionId>,
}

impl Functions {
    /// The function of a process that has an address.
    pub fn of(&mut self, process: &Process, at: Avma) -> FunctionId {
        if let Some(&known) = self.known.get(&(process.pid, at)) {
            return known;
        }
        let function = look_up(process, at);
        let entry = (process.pid, function.entry);
        let next = FunctionId(self.list.len() as u32);
        let id = *self.known.entry(entry).or_insert(next);
        if id == next {
            self.list.push(function);
        }
        self.known.insert((process.pid, at), id);
        id
    }

    /// The function that represents a thread without execution.
    pub fn stand_in(&mut self, process: &Process, name: &'static str) -> FunctionId {
        let next = FunctionId(self.list.len() as u32);
        let id = *self.stand_ins.entry((process.pid, name)).or_insert(next);
        if id == next {
            self.list.push(Function {
                name: name.into(),
                linkage_name: name.into(),
                declared: None,
                pid: process.pid,
                entry: Avma(0),
                module: None,
            });
        }
        id
    }

    /// A function met before.
    #[must_use]
    pub fn get(&self, id: FunctionId) -> Option<&Function> {
        self.list.get(id.0 as usize)
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &Function)> {
        (0..).map(FunctionId).zip(&self.list)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// None was met yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn look_up(process: &Process, at: Avma) -> Function {
    let module = process.symbols.module_at(at).map(|module| module.name.clone());
    let Some(function) = process.symbols.function_at(at) else {
        let name: Arc<str> = at.to_string().into();
        return Function {
            linkage_name: Arc::clone(&name),
            name,
            declared: None,
            pid: process.pid,
            entry: at,
            module,
        };
    };
    Function {
        name: function.name,
        linkage_name: function.linkage_name,
        declared: function.declared,
        pid: process.pid,
        entry: function.entry,
        module,
    }
}
