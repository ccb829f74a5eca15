//! The recording of a program, and the values that the debugger shows in it.

use super::programs::{ENVIRONMENT, Extent, Program};
use super::stepped::{Counted, Visit};
use backtrail_debugger::evaluation::memory;
use backtrail_debugger::evaluation::variables::{Format, VariableKind, variables};
use backtrail_debugger::session::Thread;
use backtrail_debugger::{Navigator, OpenOptions, Session, Watch, registers};
use backtrail_pt::Avma;
use backtrail_symbolizer::{Function, Symbolizer};
use backtrail_tests::backtrail::command;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::random::Random;
use backtrail_values::tree::Node;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::process::Stdio;

/// A random position.
pub struct Position {
    pub visit: Visit,
    /// The number of its thread in the session.
    thread: usize,
    /// The index in the history of the thread.
    index: u64,
}

/// A value, or the reason why it is unknown.
pub type Answer<T> = Result<T, String>;

/// The registers and variables that the debugger shows at a position.
#[derive(Debug, Default)]
pub struct Shown {
    /// The id of the thread, which differs between runs.
    pub tid: u32,
    /// Registers by name. Those of vectors have 128 bits.
    pub registers: BTreeMap<String, Answer<String>>,
    /// Arguments and locals, in order.
    pub variables: Vec<(String, Answer<String>)>,
}

/// A recorded program.
pub struct Recording {
    navigator: Navigator,
    /// Reads memory elsewhere.
    reader: RefCell<Navigator>,
    extent: Extent,
    /// The number of instructions in all threads.
    pub instructions: u64,
    _bundle: Bundle,
}

/// Returns variables with their texts or the reasons why they are unknown.
pub fn texts(nodes: Vec<Node>) -> Vec<(String, Answer<String>)> {
    let text = |node: Node| match node.shown.unknown {
        Some(why) => (node.name, Err(why)),
        None => (node.name, Ok(node.shown.text)),
    };
    nodes.into_iter().map(text).collect()
}

impl Recording {
    /// Records a program with values, without address randomization.
    pub fn of(program: &Program, executable: &Path, arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle");
        // The streams are those of the single steps.
        let status = command()
            .unwrap()
            .args(["record", "--full", "--no-aslr", "--values", "--exit-zero", "-o"])
            .arg(&path)
            .arg("--")
            .arg(executable)
            .args(arguments)
            .env_clear()
            .envs(ENVIRONMENT)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(
            status.success() && path.join("trace.json").exists(),
            "{}",
            program.name()
        );
        let open = || Session::open(&path, &OpenOptions::default(), &Watch::none()).unwrap();
        let session = open();
        let instructions = session.threads().iter().map(|thread| thread.history.len()).sum();
        Self {
            navigator: Navigator::new(session).unwrap(),
            reader: RefCell::new(Navigator::new(open()).unwrap()),
            extent: program.extent,
            instructions,
            _bundle: Bundle::in_folder(folder, path),
        }
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.navigator.session()
    }

    fn threads(&self) -> &[Thread] {
        self.session().threads()
    }

    /// Returns the instructions that are compared.
    pub fn counted(&self, executable: &Path) -> Counted {
        let (mut addresses, mut entries) = (HashSet::new(), HashSet::new());
        let name = executable.to_str().unwrap();
        for thread in self.threads() {
            let Some(symbols) = self.session().symbols_at(thread, thread.history.len()) else {
                continue;
            };
            for pc in thread.history.executed_pcs() {
                let function = symbols.function_at(pc);
                let is_counted = match self.extent {
                    Extent::FromMain => true,
                    Extent::OwnFile => symbols.module_at(pc).is_some_and(|module| &*module.name == name),
                    Extent::PackageMain => {
                        // Where a function begins, it may be preempted and begin again.
                        let is_inside = |function: &Function<Avma>| {
                            function.name.starts_with("main.") && pc >= symbols.after_prologue(function)
                        };
                        function.as_ref().is_some_and(is_inside)
                    }
                };
                if is_counted {
                    addresses.insert(pc.0);
                }
                entries.extend(function.map(|function| function.entry.0));
            }
        }
        assert!(!addresses.is_empty(), "no instruction of {name} was recorded");
        Counted {
            addresses,
            from: self.main(),
            is_merged: self.extent == Extent::PackageMain,
            entries,
        }
    }

    /// Returns the address of `main`.
    fn main(&self) -> u64 {
        let symbols = self.session().processes()[0].symbols_at_end();
        let name = match self.extent {
            Extent::PackageMain => "main.main",
            _ => "main",
        };
        let found = symbols.functions_named(name);
        let found: BTreeSet<Avma> = found
            .iter()
            .filter(|function| &*function.linkage_name == name)
            .map(|function| function.entry)
            .collect();
        assert_eq!(found.len(), 1);
        found.first().unwrap().0
    }

    /// Returns up to `count` random positions, in the order of the history.
    pub fn positions(&self, counted: &Counted, count: usize, random: &mut Random) -> Vec<Position> {
        let mut all = Vec::new();
        for (number, thread) in self.threads().iter().enumerate() {
            let mut executed: HashMap<u64, u32> = HashMap::new();
            let mut is_counted = number > 0 && !counted.is_merged;
            for (index, instruction) in (0..).zip(thread.history.walk(0)) {
                let address = instruction.pc.0;
                is_counted |= address == counted.from;
                if !is_counted || !counted.addresses.contains(&address) {
                    continue;
                }
                let executed = executed.entry(address).or_default();
                let visit = Visit {
                    thread: if counted.is_merged { 0 } else { number },
                    address,
                    earlier: *executed,
                };
                *executed += 1;
                all.push(Position {
                    visit,
                    thread: number,
                    index,
                });
            }
        }
        let threads: BTreeSet<usize> = all.iter().map(|position| position.thread).collect();
        assert!(
            !counted.is_merged || threads.len() == 1,
            "several threads: {threads:?}"
        );
        let mut chosen = BTreeSet::new();
        while chosen.len() < count.min(all.len()) {
            chosen.insert(random.below(all.len()));
        }
        let positions = all.into_iter().enumerate();
        let chosen = positions.filter(|(at, _)| chosen.contains(at));
        chosen.map(|(_, position)| position).collect()
    }

    /// Returns the thread of a position.
    pub fn thread_of(&self, position: &Position) -> &Thread {
        &self.threads()[position.thread]
    }

    /// Returns the name of a position.
    pub fn name_of(&self, position: &Position) -> String {
        self.thread_of(position).position(position.index).to_string()
    }

    /// Returns the symbols at a position.
    pub fn symbols_at(&self, position: &Position) -> &Symbolizer {
        let thread = self.thread_of(position);
        self.session().symbols_at(thread, position.index).unwrap()
    }

    /// Returns what the debugger shows at a position.
    pub fn shown(&mut self, position: &Position) -> Shown {
        let thread = self.thread_of(position);
        let (tid, at) = (thread.tid.0, thread.position(position.index));
        self.navigator.go_to(at).unwrap();
        let (navigator, watch) = (&self.navigator, Watch::none());
        let mut shown = Shown {
            tid,
            ..Shown::default()
        };
        let general = registers::general(navigator, &watch).unwrap();
        for register in general
            .into_iter()
            .chain(registers::vectors(navigator, &watch).unwrap())
        {
            let value = register.value.map(|value| format!("{value:#x}"));
            let value = value
                .or(register.vector)
                .ok_or(register.unknown.unwrap_or_default());
            shown.registers.insert(register.name, value);
        }
        for kind in [VariableKind::Arguments, VariableKind::Locals] {
            let nodes = variables(navigator, kind, Format::default(), &watch);
            shown.variables.extend(texts(nodes.unwrap_or_default()));
        }
        shown
    }

    /// Fills memory with the bytes that the first thread had there at last, if they are known
    /// somewhere.
    pub fn read_last(&self, at: u64, out: &mut [u8]) {
        /// The number of tried positions.
        const TRIES: u64 = 32;
        let (mut reader, watch) = (self.reader.borrow_mut(), Watch::none());
        let thread = &self.threads()[0];
        for number in (0..TRIES).rev() {
            let index = thread.history.len().saturating_sub(1) * number / (TRIES - 1);
            reader.go_to(thread.position(index)).unwrap();
            let read = memory::read(&reader, at, out.len() as u64, &watch).unwrap();
            if read.bytes.len() == out.len() {
                out.copy_from_slice(&read.bytes);
                return;
            }
        }
    }
}
