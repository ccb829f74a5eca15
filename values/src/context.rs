//! The names in scope of a frame, and the values of its variables.

use super::parser::Names;
use super::source::{Frame, ValueSource};
use super::symbols::code_symbol;
use super::text::ELEMENTS;
use super::types::{ModuleRef, Ty};
use super::value::{Unavailable, Value};
use crate::error::{Error, Result};
use backtrail_pt::Avma;
use backtrail_symbolizer::types::{Language, TypeKind};
use backtrail_symbolizer::{EntryId, Function, Global, Scope, Symbolizer, Variable, is_named, is_visible};
use std::sync::Arc;

/// A frame with its names, types and values.
pub struct EvalContext<'a> {
    /// The process.
    pub symbols: &'a Symbolizer,
    /// Reads registers and memory.
    pub source: &'a dyn ValueSource,
    /// The address at which variables are looked up.
    pub look_up: Option<Avma>,
    /// The program counter of the frame.
    pub pc: Option<u64>,
    /// The frame may not be set up yet: a register that its variables are counted from may be the
    /// caller's.
    pub(crate) in_prologue: bool,
    /// The names in scope.
    pub scope: Option<Scope>,
    /// The module of the frame.
    pub here: Option<Arc<ModuleRef>>,
    /// All modules with symbols; that of the frame first.
    pub modules: Vec<Arc<ModuleRef>>,
    /// The value history, `$1` first.
    pub history: &'a [Value],
    /// The number of elements that are shown of a string or an array.
    pub elements: usize,
}

impl<'a> EvalContext<'a> {
    /// Returns the context of a frame.
    pub fn new(symbols: &'a Symbolizer, frame: &'a Frame<'_>, history: &'a [Value]) -> Self {
        let (look_up, level) = (frame.look_up, frame.level);
        let mut modules: Vec<_> = ModuleRef::all(symbols).into_iter().map(Arc::new).collect();
        let module = look_up.and_then(|at| symbols.module_at(at));
        let file = module.and_then(|module| Some((module.file.as_ref()?, module.bias)));
        let number = file.and_then(|(file, bias)| {
            modules
                .iter()
                .position(|known| Arc::ptr_eq(&known.file, file) && known.bias == bias)
        });
        if let Some(number) = number {
            modules.swap(0, number);
        }
        let here = modules.first().filter(|_| number.is_some()).cloned();
        let scope = look_up
            .zip(here.as_ref())
            .and_then(|(at, here)| here.file.scope_at(at.to_svma(here.bias), level));
        let function = look_up.and_then(|at| symbols.function_at(at));
        let in_prologue = function
            .zip(look_up)
            .is_some_and(|(function, at)| (function.entry..symbols.after_prologue(&function)).contains(&at));
        Self {
            symbols,
            in_prologue,
            source: frame.source.as_ref(),
            look_up,
            pc: frame.pc,
            scope,
            here,
            modules,
            history,
            elements: ELEMENTS,
        }
    }

    /// The language of the frame.
    pub fn language(&self) -> Language {
        self.scope
            .as_ref()
            .map(|scope| scope.language)
            .unwrap_or_default()
    }

    /// The local variable or parameter that a name means, of the innermost block.
    fn local(&self, name: &str) -> Option<&Variable> {
        let scope = self.scope.as_ref()?;
        let blocks = scope.blocks.iter().flat_map(|block| block.iter().rev());
        blocks
            .chain(scope.parameters.iter().rev())
            .find(|variable| *variable.name == *name)
    }

    /// Returns the value of a name; `None` if the name is unknown.
    pub fn named(&self, name: &str) -> Result<Option<Value>> {
        if let (Some(variable), Some(here)) = (self.local(name), &self.here) {
            return Ok(Some(self.value_of(variable, here)));
        }
        // In a member function, members come before what is global.
        if let (Some(this), Some(here)) = (self.local("this"), &self.here)
            && let Ok(member) = self.member(&self.value_of(this, here), name)
        {
            return Ok(Some(member));
        }
        let near = self.scope.as_ref().and_then(|scope| scope.function);
        for (number, module) in self.modules.iter().enumerate() {
            let found = module.file.globals_named(name, near.filter(|_| number == 0));
            if !found.is_empty() {
                return self
                    .one_of(name, &found, module, near.filter(|_| number == 0))
                    .map(Some);
            }
        }
        Ok(self.function(name))
    }

    /// A variable of a source file.
    pub fn named_in_file(&self, file: &str, name: &str) -> Result<Value> {
        for module in &self.modules {
            let Some(unit) = module.file.unit_of_file(file) else {
                continue;
            };
            let found = module.file.globals_named(name, Some(unit));
            let in_unit = found.iter().find(|global| match global {
                Global::Variable(variable) => module.file.same_unit(variable.entry, unit),
                Global::Enumerator { entry, .. } => module.file.same_unit(*entry, unit),
                _ => false,
            });
            if let Some(global) = in_unit {
                return Ok(self.global(global, module));
            }
        }
        Err(Error(format!("no symbol \"{name}\" in \"{file}\"")))
    }

    /// Returns the variable of a name. If several have the name, one of the same source file is
    /// taken, and otherwise none.
    fn one_of(
        &self,
        name: &str,
        found: &[Global],
        module: &Arc<ModuleRef>,
        near: Option<EntryId>,
    ) -> Result<Value> {
        let values: Vec<Value> = found.iter().map(|global| self.global(global, module)).collect();
        let mut places: Vec<Option<u64>> = values.iter().map(Value::address).collect();
        places.dedup();
        let nearest = found.first().is_some_and(|global| match global {
            Global::Variable(variable) => {
                near.is_some_and(|near| module.file.same_unit(variable.entry, near))
            }
            Global::Enumerator { .. } => true,
            _ => false,
        });
        if places.len() > 1 && !nearest {
            return Err(Error(format!(
                "{} variables are named \"{name}\"; use 'FILE'::{name} or a qualified name to select one",
                places.len()
            )));
        }
        values
            .into_iter()
            .next()
            .ok_or_else(|| Error(format!("no symbol \"{name}\" in the current context")))
    }

    fn global(&self, global: &Global, module: &Arc<ModuleRef>) -> Value {
        match global {
            Global::Variable(variable) => self.value_of(variable, module),
            Global::Enumerator { entry, value } => Value::number(Ty::of(module, Some(*entry)), *value),
            _ => Value::unavailable(
                Ty::of(module, None),
                Unavailable::Unknown("its kind of name is not supported".into()),
            ),
        }
    }

    fn function(&self, name: &str) -> Option<Value> {
        let here = self.look_up.and_then(|at| self.symbols.function_at(at));
        let from = here.as_ref().map(|here| &*here.name);
        let found = self.symbols.functions_named(name);
        // A function of another name has a symbol of this name.
        let means = |function: &&Function<Avma>| {
            is_visible(&function.name, name, from) || !is_named(&function.name, name)
        };
        // The function itself before a linkage stub for it.
        let function = found
            .iter()
            .filter(means)
            .min_by_key(|function| function.name.ends_with("@plt"))?;
        let module = self.symbols.module_at(function.entry)?;
        let module = self.modules.iter().find(|known| {
            module
                .file
                .as_ref()
                .is_some_and(|file| Arc::ptr_eq(file, &known.file))
        })?;
        let described = module.file.function_type(function.entry.to_svma(module.bias));
        let ty = match described {
            Some(entry) => Ty::of(module, Some(entry)),
            None => Ty::Function(Arc::new(Ty::int())),
        };
        Some(Value::at(ty, function.entry.0))
    }

    /// The address of data that only the symbol tables know.
    pub fn data_named(&self, name: &str) -> Option<u64> {
        let defined = |module: &ModuleRef| {
            let (at, _) = module.file.data_named(name)?;
            Some(at.to_avma(module.bias).0)
        };
        // The executable takes precedence over all other modules.
        let entry = self.source.thread_pointer().ok().and_then(|(_, entry)| entry);
        let executable = self
            .modules
            .iter()
            .find(|module| entry.is_some_and(|entry| module.file.contains_code(entry.to_svma(module.bias))));
        if let Some(at) = executable.and_then(|module| defined(module)) {
            return Some(at);
        }
        // Between several others the dynamic linker decides; it is not known how.
        let mut found = self.modules.iter().filter_map(|module| defined(module));
        let first = found.next();
        first.filter(|_| found.next().is_none())
    }

    /// The type called `name`, and the number of C of that name.
    pub fn type_named(&self, name: &str) -> Option<Ty> {
        let near = self.scope.as_ref().and_then(|scope| scope.function);
        let found = self.modules.iter().enumerate().find_map(|(number, module)| {
            let entry = module.file.type_named(name, near.filter(|_| number == 0))?;
            Some(Ty::of(module, Some(entry)))
        });
        found.or_else(|| super::arithmetic::built_in(name))
    }

    /// `main+4` or `counter` for an address, as far as symbols cover it.
    pub fn symbol(&self, at: u64) -> Option<String> {
        if let Some(symbol) = code_symbol(self.symbols, Avma(at)) {
            return Some(symbol);
        }
        let data = self.symbols.data_at(Avma(at))?;
        let offset = at.wrapping_sub(data.start.0);
        Some(match offset {
            0 => data.name.to_string(),
            offset => format!("{}+{offset}", data.name),
        })
    }
}

impl Names for EvalContext<'_> {
    fn is_type(&self, name: &str) -> bool {
        if self.local(name).is_some() {
            return false;
        }
        if super::arithmetic::built_in(name).is_some() {
            return true;
        }
        let is_value = || {
            let mut modules = self.modules.iter();
            modules.any(|module| {
                let globals = module.file.globals_named(name, None);
                globals.iter().any(|global| matches!(global, Global::Variable(_)))
            })
        };
        match self.type_named(name) {
            Some(ty) => {
                // In C, a record and a variable can share a name; `struct` distinguishes them.
                let tagged = ty.described().is_some_and(|(_, described)| {
                    described.language.is_written_as_c()
                        && matches!(described.kind, TypeKind::Record(_) | TypeKind::Enumeration(_))
                });
                !tagged || !is_value()
            }
            None => false,
        }
    }
}
