//! Evaluates location expressions (DWARF 5, sections 2.5 and 2.6), with bounds on steps and nesting.

use super::entry::Entry;
use super::types::constant;
use super::{DebugInfo, Slice};
use crate::place::{FrameState, LocationExpression, Piece, Place, Unknown};
use crate::types::EntryId;
use crate::variables::VariableLocation;
use gimli::{EvaluationResult, LittleEndian, Location, Operation, Value, ValueType};

/// No genuine expression executes more operations.
const MAX_OPERATIONS: u32 = 4096;
/// Nor asks so often for something outside of it.
const MAX_QUESTIONS: usize = 1024;
/// Expressions that need others' values nest no deeper.
const MAX_DEPTH: u32 = 4;
/// Nor has a value more pieces.
const MAX_PIECES: usize = 4096;

const DAMAGED: Unknown = Unknown::Borrowed("its location expression is malformed");

/// An expression's surroundings.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    frame_base: Option<&'a LocationExpression>,
    frame: &'a dyn FrameState,
    /// What is on the stack before the first operation.
    object: Option<u64>,
    depth: u32,
}

impl<'d> DebugInfo<'d> {
    /// The pieces of a value, in order.
    pub fn evaluate(
        &self,
        expression: &LocationExpression,
        frame_base: Option<&LocationExpression>,
        frame: &dyn FrameState,
    ) -> Result<Vec<Piece>, Unknown> {
        let around = Surroundings {
            frame_base,
            frame,
            object: None,
            depth: 0,
        };
        self.evaluate_in(expression, around)
    }

    /// The address of a member of the object at an address (DWARF 5, section 5.7.6).
    pub fn member_at(
        &self,
        expression: &LocationExpression,
        object: u64,
        frame: &dyn FrameState,
    ) -> Result<u64, Unknown> {
        let around = Surroundings {
            frame_base: None,
            frame,
            object: Some(object),
            depth: 0,
        };
        match self.evaluate_in(expression, around)?.as_slice() {
            [
                Piece {
                    place: Place::Memory(address),
                    ..
                },
            ] => Ok(*address),
            _ => Err(DAMAGED),
        }
    }

    fn evaluate_in(
        &self,
        expression: &LocationExpression,
        around: Surroundings<'_>,
    ) -> Result<Vec<Piece>, Unknown> {
        if around.depth > MAX_DEPTH {
            return Err("its location depends on too many others".into());
        }
        let owner = self.entry(expression.unit).ok_or(DAMAGED)?;
        let parts = parts(&expression.code, owner.unit.unit.gimli.encoding()).ok_or(DAMAGED)?;
        if parts.is_empty() {
            let place = self.place(&owner, &expression.code, around)?;
            return Ok(vec![Piece {
                bits: None,
                bit_offset: 0,
                place,
            }]);
        }
        // Each by itself: of one, what it takes may be unknown, and of another not.
        let pieces = parts.into_iter().map(|part| Piece {
            bits: Some(part.bits),
            bit_offset: part.bit_offset,
            place: self
                .place(&owner, part.code, around)
                .unwrap_or_else(Place::Unknown),
        });
        Ok(pieces.collect())
    }

    /// Where the expression of a value says that it is, or the part of one that is about a piece.
    fn place(&self, owner: &Entry<'_, 'd>, code: &[u8], around: Surroundings<'_>) -> Result<Place, Unknown> {
        if code.is_empty() {
            return Ok(Place::OptimizedOut);
        }
        let unit = &owner.unit.unit.gimli;
        let code = gimli::Expression(Slice::new(code, LittleEndian));
        let mut evaluation = code.evaluation(unit.encoding());
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(object) = around.object {
            evaluation.set_initial_value(object);
        }
        let malformed = |_| DAMAGED;
        let mut state = evaluation.evaluate().map_err(malformed)?;
        for _ in 0..MAX_QUESTIONS {
            state = match state {
                EvaluationResult::Complete => {
                    return match evaluation.as_result() {
                        [] => Ok(Place::OptimizedOut),
                        [piece] => Ok(found(owner, &piece.location)),
                        _ => Err(DAMAGED),
                    };
                }
                EvaluationResult::RequiresMemory { space: Some(_), .. } => {
                    return Err("it is in another address space".into());
                }
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    base_type,
                    space: None,
                } => {
                    let mut bytes = [0; 8];
                    let part = bytes.get_mut(..size.into()).ok_or(DAMAGED)?;
                    around.frame.memory(address, part)?;
                    let value = typed(owner, base_type, u64::from_le_bytes(bytes))?;
                    evaluation.resume_with_memory(value)
                }
                EvaluationResult::RequiresRegister { register, base_type } => {
                    let value = around.frame.register(register.0)?;
                    evaluation.resume_with_register(typed(owner, base_type, value)?)
                }
                EvaluationResult::RequiresFrameBase => {
                    evaluation.resume_with_frame_base(self.frame_base_value(around)?)
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    evaluation.resume_with_call_frame_cfa(around.frame.cfa()?)
                }
                EvaluationResult::RequiresTls(offset) => {
                    evaluation.resume_with_tls(around.frame.thread_local(offset)?)
                }
                EvaluationResult::RequiresEntryValue(inner) => {
                    let register = sole_register(inner, unit.encoding())
                        .ok_or("it depends on memory at the entry of the function")?;
                    let value = around.frame.entry_value(register)?;
                    evaluation.resume_with_entry_value(Value::Generic(value))
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(around.frame.bias()))
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = owner.sections().address(unit, index).map_err(malformed)?;
                    let bias = if relocate { around.frame.bias() } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(bias))
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    evaluation.resume_with_base_type(base_type(owner, offset).ok_or(DAMAGED)?)
                }
                EvaluationResult::RequiresParameterRef(_) => {
                    return Err("it is a parameter of the caller that is not stated".into());
                }
                _ => return Err("its location expression is of a kind that is not supported".into()),
            }
            .map_err(malformed)?;
        }
        Err(DAMAGED)
    }

    fn frame_base_value(&self, around: Surroundings<'_>) -> Result<u64, Unknown> {
        let expression = around
            .frame_base
            .ok_or("the function does not state its frame, or has not set it up yet")?;
        let inner = Surroundings {
            frame_base: None,
            object: None,
            depth: around.depth + 1,
            ..around
        };
        match self.evaluate_in(expression, inner)?.as_slice() {
            [Piece { place, .. }] => match place {
                Place::Register(register) => around.frame.register(*register),
                Place::Memory(address) => Ok(*address),
                Place::Value(bytes) => Ok(u64::from_le_bytes(*bytes)),
                _ => Err(DAMAGED),
            },
            _ => Err(DAMAGED),
        }
    }

    /// Where the variable is that an implicit pointer points into.
    pub fn implicit_target(&self, id: EntryId, at: u64) -> Option<VariableLocation> {
        let entry = self.entry(id)?;
        match constant(&entry) {
            Some(value) => Some(VariableLocation::Constant(value)),
            None => Some(entry.location(gimli::DW_AT_location, at)),
        }
    }
}

/// What an expression says of one piece of a value.
struct Part<'a> {
    code: &'a [u8],
    bits: u64,
    bit_offset: u64,
}

/// The pieces that an expression is made of, in order; none: it is of a value as a whole. `None`: it is malformed.
fn parts(code: &[u8], encoding: gimli::Encoding) -> Option<Vec<Part<'_>>> {
    let expression = gimli::Expression(Slice::new(code, LittleEndian));
    let mut operations = expression.operations(encoding);
    let (mut parts, mut begin, mut here) = (Vec::new(), 0, 0);
    while let Some(operation) = operations.next().ok()? {
        let behind = operations.offset_from(&expression);
        if let Operation::Piece {
            size_in_bits,
            bit_offset,
        } = operation
        {
            parts.push(Part {
                code: code.get(begin..here)?,
                bits: size_in_bits,
                bit_offset: bit_offset.unwrap_or(0),
            });
            begin = behind;
        }
        here = behind;
    }
    let whole = parts.is_empty() || begin == code.len();
    (whole && parts.len() <= MAX_PIECES).then_some(parts)
}

fn found(owner: &Entry<'_, '_>, location: &Location<Slice<'_>>) -> Place {
    match *location {
        Location::Empty => Place::OptimizedOut,
        Location::Register { register } => Place::Register(register.0),
        Location::Address { address } => Place::Memory(address),
        Location::Value { value } => Place::Value(bits(value).to_le_bytes()),
        Location::Bytes { value } => Place::Bytes(value.slice().into()),
        Location::ImplicitPointer { value, byte_offset } => Place::ImplicitPointer {
            entry: EntryId {
                offset: value.0,
                supplementary: owner.supplementary,
            },
            offset: byte_offset,
        },
    }
}

/// `DW_OP_regN`, or `DW_OP_bregN 0` and its like.
pub(super) fn sole_register(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
) -> Option<u16> {
    let mut operations = expression.operations(encoding);
    let found = match operations.next().ok()?? {
        Operation::Register { register } => register.0,
        Operation::RegisterOffset {
            register, offset: 0, ..
        } => register.0,
        _ => return None,
    };
    operations.next().ok()?.is_none().then_some(found)
}

fn base_type(owner: &Entry<'_, '_>, offset: gimli::UnitOffset) -> Option<ValueType> {
    if offset.0 == 0 {
        return Some(ValueType::Generic);
    }
    let entry = owner.unit.unit.entry(offset)?;
    ValueType::from_entry(&entry).ok()?
}

fn typed(owner: &Entry<'_, '_>, offset: gimli::UnitOffset, value: u64) -> Result<Value, Unknown> {
    let as_type = base_type(owner, offset).ok_or("its location expression has a value of an unknown type")?;
    match as_type {
        ValueType::F32 => Ok(Value::F32(f32::from_bits(value as u32))),
        ValueType::F64 => Ok(Value::F64(f64::from_bits(value))),
        other => Value::from_u64(other, value).map_err(|_| DAMAGED),
    }
}

/// The bits of a value, extended as its sign asks.
fn bits(value: Value) -> u64 {
    match value {
        Value::Generic(value) | Value::U64(value) => value,
        Value::I8(value) => value as u64,
        Value::U8(value) => value.into(),
        Value::I16(value) => value as u64,
        Value::U16(value) => value.into(),
        Value::I32(value) => value as u64,
        Value::U32(value) => value.into(),
        Value::I64(value) => value as u64,
        Value::F32(value) => value.to_bits().into(),
        Value::F64(value) => value.to_bits(),
    }
}
