//! What names mean in a frame, and where the values of variables are.

use super::frame::SelectedFrame;
use super::parser::Names;
use super::source::ValueSource;
use super::text::ELEMENTS;
use super::thread_local::Linker;
use super::types::{ModuleRef, Ty};
use super::value::{Gap, MAX_SIZE, Value};
use crate::error::{Error, Result};
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_pt::{Avma, Svma};
use backtrail_symbolizer::types::{Language, TypeKind};
use backtrail_symbolizer::{
    EntryId, FrameState, Function, Global, LocationExpression, Piece, Scope, Symbolizer, Unknown,
    ValueLocation, Variable, VariableLocation, is_named, is_visible,
};
use std::sync::Arc;

/// The DWARF numbers of xmm0 to xmm15 begin here (System V ABI AMD64, section 3.6.2).
const XMM0: u16 = 17;

/// Calls `look` with the selected frame.
pub(crate) fn with_scene<T>(
    navigator: &Navigator,
    watch: &Watch<'_>,
    look: impl FnOnce(&Scene<'_>) -> Result<T>,
) -> Result<T> {
    let frame = SelectedFrame::of(navigator, watch)?;
    let process = navigator.process()?;
    let mut scene = Scene::new(&process.symbols, &frame, &navigator.printed);
    scene.elements = navigator.elements;
    look(&scene)
}

/// A frame with its names, types and values.
pub(crate) struct Scene<'a> {
    /// The process.
    pub symbols: &'a Symbolizer,
    /// Who knows registers and memory.
    pub source: &'a dyn ValueSource,
    /// Where variables are looked up.
    pub look_up: Option<Avma>,
    /// Where the frame stands.
    pub pc: Option<u64>,
    /// The frame may not be set up yet: a register that its variables are counted from may be the caller's.
    in_prologue: bool,
    /// What can be named.
    pub scope: Option<Scope>,
    /// The module of the frame.
    pub here: Option<Arc<ModuleRef>>,
    /// All modules with symbols; that of the frame first.
    pub modules: Vec<Arc<ModuleRef>>,
    /// What was printed before, `$1` first.
    pub history: &'a [Value],
    /// Of a string or an array, so many elements are shown.
    pub elements: usize,
}

impl<'a> Scene<'a> {
    /// Of the selected frame.
    pub fn new(symbols: &'a Symbolizer, frame: &'a SelectedFrame<'_>, history: &'a [Value]) -> Self {
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

    /// What a name means; `None`: nothing.
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
            });
            if let Some(global) = in_unit {
                return Ok(self.global(global, module));
            }
        }
        Err(Error::Cannot(format!("no symbol \"{name}\" in \"{file}\"")))
    }

    /// What several variables have the name is not guessed between, unless one is of the same source file.
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
        });
        if places.len() > 1 && !nearest {
            return Err(Error::Cannot(format!(
                "{} variables are called \"{name}\"; 'FILE'::{name} or a longer path tells which is meant",
                places.len()
            )));
        }
        values
            .into_iter()
            .next()
            .ok_or_else(|| Error::Cannot(format!("no symbol \"{name}\" in the current context")))
    }

    fn global(&self, global: &Global, module: &Arc<ModuleRef>) -> Value {
        match global {
            Global::Variable(variable) => self.value_of(variable, module),
            Global::Enumerator { entry, value } => {
                Value::number(Ty::of(module, Some(*entry)), i128::from(*value))
            }
        }
    }

    fn function(&self, name: &str) -> Option<Value> {
        let here = self.look_up.and_then(|at| self.symbols.function_at(at));
        let from = here.as_ref().map(|here| &*here.name);
        let found = self.symbols.functions_named(name);
        // What does not have the name itself has a symbol of that name.
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
        // What the executable defines goes before all others.
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

    /// The value of a variable.
    pub fn value_of(&self, variable: &Variable, module: &Arc<ModuleRef>) -> Value {
        let ty = Ty::of(module, variable.type_entry);
        if variable.type_entry.is_none() {
            return Value::gap(ty, Gap::Unknown("its type is not stated".into()));
        }
        if variable.location == VariableLocation::DeclaredOnly {
            return self.defined_elsewhere(variable, module, ty);
        }
        self.at_location(&variable.location, module, ty)
    }

    fn defined_elsewhere(&self, variable: &Variable, module: &Arc<ModuleRef>, ty: Ty) -> Value {
        let found = module.file.globals_named(&variable.name, Some(variable.entry));
        let defined = found.iter().find_map(|global| match global {
            Global::Variable(found) if found.location != VariableLocation::DeclaredOnly => Some(found),
            _ => None,
        });
        if let Some(defined) = defined {
            let own = Ty::of(module, defined.type_entry);
            return self.at_location(&defined.location, module, own);
        }
        match self.data_named(&variable.name) {
            Some(at) => Value::at(ty, at),
            None => Value::gap(
                ty,
                Gap::Unknown("it is not certain which module defines it".into()),
            ),
        }
    }

    /// The value at a location.
    pub fn at_location(&self, location: &VariableLocation, module: &Arc<ModuleRef>, ty: Ty) -> Value {
        let gap = match location {
            VariableLocation::OptimizedOut => Gap::OptimizedOut,
            VariableLocation::Constant(number) => return Value::number(ty, i128::from(*number)),
            VariableLocation::Bytes(bytes) => {
                let mut bytes = bytes.to_vec();
                let size = ty.size().filter(|size| *size <= MAX_SIZE);
                bytes.resize(size.map_or(bytes.len(), |size| size as usize), 0);
                return Value::new(ty, bytes);
            }
            VariableLocation::Expression(expression) => match self.pieces(expression, module) {
                Ok(pieces) => return self.assembled(&pieces, ty),
                Err(why) => Gap::Unknown(why),
            },
            VariableLocation::DeclaredOnly => Gap::Unknown("it is defined elsewhere".into()),
            VariableLocation::Unknown(why) => Gap::Unknown((*why).into()),
        };
        Value::gap(ty, gap)
    }

    /// The pieces of a value.
    pub fn pieces(
        &self,
        expression: &LocationExpression,
        module: &Arc<ModuleRef>,
    ) -> std::result::Result<Vec<Piece>, Unknown> {
        let frame_base = self.scope.as_ref().and_then(|scope| scope.frame_base.as_ref());
        let frame_base = match frame_base {
            Some(base) if base.is_register() && self.in_prologue => None,
            other => other,
        };
        let state = ModuleState {
            source: self.source,
            modules: &self.modules,
            module,
        };
        module.file.evaluate(expression, frame_base, &state)
    }

    /// The address of a member of an object, where it depends on the object.
    pub fn member_at(
        &self,
        expression: &LocationExpression,
        object: u64,
        module: &Arc<ModuleRef>,
    ) -> std::result::Result<u64, Unknown> {
        let state = ModuleState {
            source: self.source,
            modules: &self.modules,
            module,
        };
        module.file.member_at(expression, object, &state)
    }

    pub(super) fn in_place(&self, location: &ValueLocation, ty: Ty) -> Value {
        let size = ty.size().unwrap_or(8).min(MAX_SIZE) as usize;
        let bytes = match location {
            ValueLocation::Memory(address) => return Value::at(ty, *address),
            ValueLocation::OptimizedOut => return Value::gap(ty, Gap::OptimizedOut),
            ValueLocation::Unknown(why) => return Value::gap(ty, Gap::Unknown(why.clone())),
            ValueLocation::ImplicitPointer { entry, offset } => {
                return Value::gap(ty, Gap::ImplicitPointer(*entry, *offset));
            }
            ValueLocation::Register(register) => match self.register_bytes(*register, size) {
                Ok(bytes) => bytes,
                Err(why) => return Value::gap(ty, Gap::Unknown(why)),
            },
            ValueLocation::Value(bytes) => bytes.to_vec(),
            ValueLocation::Bytes(bytes) => bytes.to_vec(),
        };
        match bytes.get(..size) {
            Some(bytes) => Value::new(ty, bytes.to_vec()),
            None => Value::gap(ty, Gap::Unknown("its place is smaller than its type".into())),
        }
    }

    /// A register's bytes; the first `size` are asked for.
    pub(super) fn register_bytes(&self, register: u16, size: usize) -> std::result::Result<Vec<u8>, Unknown> {
        match register.checked_sub(XMM0) {
            Some(number) if number < 16 => Ok(self.source.vector(number)?.to_vec()),
            Some(_) => Err("it is in a register that is not read".into()),
            None => Ok(self.source.low(register, size)?.to_le_bytes().to_vec()),
        }
    }

    /// What an implicit pointer points to.
    pub fn implicit_target(&self, entry: EntryId, offset: i64, target: Ty) -> Value {
        let Some(here) = &self.here else {
            return Value::gap(target, Gap::OptimizedOut);
        };
        let at = self.look_up.map_or(Svma(0), |at| at.to_svma(here.bias));
        let value = match here.file.variable_at(entry, at) {
            Some(variable) => self.value_of(&variable, here),
            None => match here.file.location_at(entry, at) {
                Some(location) => self.at_location(&location, here, target.clone()),
                None => Value::gap(target.clone(), Gap::OptimizedOut),
            },
        };
        match u64::try_from(offset) {
            Ok(offset) => value.part(target, offset),
            Err(_) => Value::gap(target, Gap::OptimizedOut),
        }
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
        if let Some(symbol) = crate::disassembly::symbol(self.symbols, Avma(at)) {
            return Some(symbol);
        }
        let module = self.symbols.module_at(Avma(at))?;
        let data = module.file.as_ref()?.data_at(Avma(at).to_svma(module.bias))?;
        let offset = at.wrapping_sub(data.start.to_avma(module.bias).0);
        Some(match offset {
            0 => data.name.to_string(),
            offset => format!("{}+{offset}", data.name),
        })
    }
}

impl Names for Scene<'_> {
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
                // A record and a variable may share a name; in C, `struct` tells them apart.
                let tagged = ty.described().is_some_and(|(_, described)| {
                    described.language == Language::C
                        && matches!(described.kind, TypeKind::Record(_) | TypeKind::Enumeration(_))
                });
                !tagged || !is_value()
            }
            None => false,
        }
    }
}

/// What expressions of a module's variables ask.
struct ModuleState<'a> {
    source: &'a dyn ValueSource,
    modules: &'a [Arc<ModuleRef>],
    module: &'a ModuleRef,
}

impl FrameState for ModuleState<'_> {
    fn bias(&self) -> u64 {
        self.module.bias
    }

    fn register(&self, register: u16) -> std::result::Result<u64, Unknown> {
        self.source.register(register)
    }

    fn memory(&self, address: u64, out: &mut [u8]) -> std::result::Result<(), Unknown> {
        self.source.memory(address, out)
    }

    fn cfa(&self) -> std::result::Result<u64, Unknown> {
        self.source.cfa()
    }

    fn thread_local(&self, offset: u64) -> std::result::Result<u64, Unknown> {
        let (pointer, entry) = self.source.thread_pointer()?;
        let executable =
            entry.is_some_and(|entry| self.module.file.contains_code(entry.to_svma(self.module.bias)));
        if !executable {
            return Linker::new(self.source, self.modules)?.address(self.module, pointer, offset);
        }
        let block = self.module.file.thread_local_block();
        let size = block.ok_or("the module has no thread-local data")?;
        Ok(pointer.wrapping_sub(size).wrapping_add(offset))
    }

    fn entry_value(&self, register: u16) -> std::result::Result<u64, Unknown> {
        self.source.entry_value(register)
    }
}
