//! Evaluates the location of a variable in a frame, and reads its value there.

use super::context::EvalContext;
use super::source::ValueSource;
use super::thread_local::Linker;
use super::types::{ModuleRef, Ty};
use super::value::{MAX_SIZE, Unavailable, Value};
use backtrail_pt::Svma;
use backtrail_symbolizer::{
    EntryId, FrameState, Global, LocationExpression, Piece, Unknown, ValueLocation, Variable,
    VariableLocation,
};
use std::sync::Arc;

/// The DWARF number of xmm0; xmm1 to xmm15 follow (System V ABI AMD64, section 3.6.2).
const XMM0: u16 = 17;

impl EvalContext<'_> {
    /// The value of a variable.
    pub fn value_of(&self, variable: &Variable, module: &Arc<ModuleRef>) -> Value {
        let ty = Ty::of(module, variable.type_entry);
        if variable.type_entry.is_none() {
            return Value::unavailable(
                ty,
                Unavailable::Unknown("the debug information does not state its type".into()),
            );
        }
        if variable.location == VariableLocation::DeclaredOnly {
            return self.defined_elsewhere(variable, module, ty);
        }
        let ty = self.with_bounds(ty);
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
            None => Value::unavailable(
                ty,
                Unavailable::Unknown("more than one module may define it".into()),
            ),
        }
    }

    /// The value at a location.
    pub fn at_location(&self, location: &VariableLocation, module: &Arc<ModuleRef>, ty: Ty) -> Value {
        let cause = match location {
            VariableLocation::OptimizedOut => Unavailable::OptimizedOut,
            VariableLocation::Constant(number) => return Value::number(ty, *number),
            VariableLocation::Bytes(bytes) => {
                let mut bytes = bytes.to_vec();
                let size = ty.size().filter(|size| *size <= MAX_SIZE);
                bytes.resize(size.map_or(bytes.len(), |size| size as usize), 0);
                return Value::new(ty, bytes);
            }
            VariableLocation::Expression(expression) => match self.pieces(expression, module) {
                Ok(pieces) => return self.assembled(&pieces, ty),
                Err(why) => Unavailable::Unknown(why),
            },
            VariableLocation::DeclaredOnly => Unavailable::Unknown("it is defined elsewhere".into()),
            VariableLocation::Unknown(why) => Unavailable::Unknown((*why).into()),
        };
        Value::unavailable(ty, cause)
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

    pub(crate) fn in_place(&self, place: &ValueLocation, ty: Ty) -> Value {
        let size = ty.size().unwrap_or(8).min(MAX_SIZE) as usize;
        let bytes = match place {
            ValueLocation::Memory(address) => return Value::at(ty, *address),
            ValueLocation::OptimizedOut => return Value::unavailable(ty, Unavailable::OptimizedOut),
            ValueLocation::Unknown(why) => return Value::unavailable(ty, Unavailable::Unknown(why.clone())),
            ValueLocation::ImplicitPointer { entry, offset } => {
                return Value::unavailable(ty, Unavailable::ImplicitPointer(*entry, *offset));
            }
            ValueLocation::Register(register) => match self.register_bytes(*register, size) {
                Ok(bytes) => bytes,
                Err(why) => return Value::unavailable(ty, Unavailable::Unknown(why)),
            },
            ValueLocation::Value(bytes) => bytes.to_vec(),
            ValueLocation::Bytes(bytes) => bytes.to_vec(),
        };
        match bytes.get(..size) {
            Some(bytes) => Value::new(ty, bytes.to_vec()),
            None => Value::unavailable(
                ty,
                Unavailable::Unknown("its location is smaller than its type".into()),
            ),
        }
    }

    /// Returns the bytes of a register, of which the caller needs the first `size`.
    pub(crate) fn register_bytes(&self, register: u16, size: usize) -> std::result::Result<Vec<u8>, Unknown> {
        match register.checked_sub(XMM0) {
            Some(number) if number < 16 => Ok(self.source.vector(number)?.to_vec()),
            Some(_) => Err("it is in a register that is not supported".into()),
            None => Ok(self.source.low(register, size)?.to_le_bytes().to_vec()),
        }
    }

    /// Returns the target of an implicit pointer.
    pub fn implicit_target(&self, entry: EntryId, offset: i64, target: Ty) -> Value {
        let Some(here) = &self.here else {
            return Value::unavailable(target, Unavailable::OptimizedOut);
        };
        let at = self.look_up.map_or(Svma(0), |at| at.to_svma(here.bias));
        let value = match here.file.variable_at(entry, at) {
            Some(variable) => self.value_of(&variable, here),
            None => match here.file.location_at(entry, at) {
                Some(location) => self.at_location(&location, here, target.clone()),
                None => Value::unavailable(target.clone(), Unavailable::OptimizedOut),
            },
        };
        match u64::try_from(offset) {
            Ok(offset) => value.part(target, offset),
            Err(_) => Value::unavailable(target, Unavailable::OptimizedOut),
        }
    }
}

/// The state that location expressions of a module's variables read.
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
