//! The functions of the calls. Each one is looked up once.

use backtrail_debugger::functions::InlinedFunction;
use backtrail_debugger::session::Process;
use backtrail_decoder::Version;
use backtrail_pt::{Avma, Pid};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// An index into [`Functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// The origin of a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A symbol.
    Symbol,
    /// Code without a symbol. The name is its address.
    Unnamed,
    /// A function that the compiler inlined into its caller.
    Inlined,
    /// No function: a pause of the thread.
    Pause,
}

/// A called function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The origin of the name.
    pub kind: FunctionKind,
    /// The demangled name. Without symbols, it is the address.
    pub name: Arc<str>,
    /// The linkage name. It equals `name` if that is not mangled.
    pub linkage_name: Arc<str>,
    /// The declaration in source code.
    pub declared: Option<(Arc<str>, u32)>,
    /// The process of the calls.
    pub pid: Pid,
    /// The entry address. Without symbols, it is any address in the function.
    pub entry: Avma,
    /// The name of the module file, if known.
    pub module: Option<Arc<str>>,
    /// The version of the code of a call.
    pub version: Version,
}

/// The key of a function: its process, an address, and the number of the module that was mapped
/// there in place of another.
type FunctionKey = (Pid, Avma, Option<usize>);

/// The key of an inlined function: its process, module and name.
type InlinedKey = (Pid, Option<Arc<str>>, Arc<str>);

/// All functions of the calls so far.
#[derive(Debug, Default)]
pub struct Functions {
    list: Vec<Function>,
    /// Functions by requested address, and by entry.
    known: FxHashMap<FunctionKey, FunctionId>,
    stand_ins: FxHashMap<(Pid, &'static str), FunctionId>,
    /// Inlined functions. All copies in a module are one function.
    inlined: FxHashMap<InlinedKey, FunctionId>,
}

impl Functions {
    /// Returns the function that contains an address of a process in a version of the code.
    pub fn of(&mut self, process: &Process, at: Avma, version: Version) -> FunctionId {
        let key = |at| (process.pid, at, process.modules.mapped_since(at, version));
        let of_address = key(at);
        if let Some(&known) = self.known.get(&of_address) {
            return known;
        }
        let function = look_up(process, at, version);
        let entry = key(function.entry);
        let next = FunctionId(self.list.len() as u32);
        let id = *self.known.entry(entry).or_insert(next);
        if id == next {
            self.list.push(function);
        }
        self.known.insert(of_address, id);
        id
    }

    /// Returns a placeholder for the time in which a thread executes nothing.
    pub fn placeholder(&mut self, process: &Process, name: &'static str) -> FunctionId {
        let next = FunctionId(self.list.len() as u32);
        let id = *self.stand_ins.entry((process.pid, name)).or_insert(next);
        if id == next {
            self.list.push(Function {
                kind: FunctionKind::Pause,
                name: name.into(),
                linkage_name: name.into(),
                declared: None,
                pid: process.pid,
                entry: Avma(0),
                module: None,
                version: Version::default(),
            });
        }
        id
    }

    /// Returns an inlined function by one of its copies, in a version of the code.
    pub fn inlined(&mut self, process: &Process, copy: &InlinedFunction, version: Version) -> FunctionId {
        let entry = copy.copy.begin;
        let module = process.symbols_at(version).module_at(entry);
        let module = module.map(|module| module.name.clone());
        let key = (process.pid, module.clone(), Arc::clone(&copy.name));
        let next = FunctionId(self.list.len() as u32);
        let id = *self.inlined.entry(key).or_insert(next);
        if id == next {
            self.list.push(Function {
                kind: FunctionKind::Inlined,
                name: Arc::clone(&copy.name),
                linkage_name: Arc::clone(&copy.name),
                declared: copy.declared.clone(),
                pid: process.pid,
                entry,
                module,
                version,
            });
        }
        id
    }

    /// Returns a function by its index.
    #[must_use]
    pub fn get(&self, id: FunctionId) -> Option<&Function> {
        self.list.get(id.0 as usize)
    }

    /// Iterates over the functions in order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &Function)> {
        (0..).map(FunctionId).zip(&self.list)
    }

    /// Returns the number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn look_up(process: &Process, at: Avma, version: Version) -> Function {
    let symbols = process.symbols_at(version);
    let module = symbols.module_at(at).map(|module| module.name.clone());
    let Some(function) = symbols.function_at(at) else {
        let name: Arc<str> = at.to_string().into();
        return Function {
            kind: FunctionKind::Unnamed,
            linkage_name: Arc::clone(&name),
            name,
            declared: None,
            pid: process.pid,
            entry: at,
            module,
            version,
        };
    };
    Function {
        kind: FunctionKind::Symbol,
        name: function.name,
        linkage_name: function.linkage_name,
        declared: function.declared,
        pid: process.pid,
        entry: function.entry,
        module,
        version,
    }
}
