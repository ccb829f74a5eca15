//! Evaluates location expressions (DWARF 5, sections 2.5 and 2.6), with bounds on steps and
//! nesting.

use super::entry::Entry;
use super::info::DebugInfo;
use super::sections::Slice;
use super::types::constant;
use crate::entry_id::EntryId;
use crate::location::{FrameState, LocationExpression, Piece, Unknown, ValueLocation};
use crate::variables::VariableLocation;
use gimli::{EvaluationResult, LittleEndian, Location, Operation, Value, ValueType};
use std::borrow::Cow;

/// The most operations of a genuine expression.
const MAX_OPERATIONS: u32 = 4096;
/// The most lookups outside of the expression.
const MAX_LOOKUPS: usize = 1024;
/// The deepest nesting of expressions that need other values.
const MAX_DEPTH: u32 = 4;
/// The most pieces of a value.
const MAX_PIECES: usize = 4096;

const DAMAGED: Unknown = Unknown::Borrowed("its location expression is malformed");
const UNKNOWN_TYPE: Unknown = Unknown::Borrowed("its location expression uses an unsupported type");
/// Clang loads 16 bytes for a spilled number of 8.
const WIDE_LOAD: Unknown =
    Unknown::Borrowed("its location expression is malformed: it loads more bytes than an address has");

/// The context of an evaluation.
#[derive(Clone, Copy)]
struct EvalContext<'a> {
    frame_base: Option<&'a LocationExpression>,
    frame: &'a dyn FrameState,
    /// The initial stack value.
    object: Option<u64>,
    depth: u32,
}

impl<'d> DebugInfo<'d> {
    /// Returns the pieces of a value, in order.
    pub fn evaluate(
        &self,
        expression: &LocationExpression,
        frame_base: Option<&LocationExpression>,
        frame: &dyn FrameState,
    ) -> Result<Vec<Piece>, Unknown> {
        let context = EvalContext {
            frame_base,
            frame,
            object: None,
            depth: 0,
        };
        self.evaluate_in(expression, context)
    }

    /// Returns the pieces of a value whose expression computes the value itself, not a location.
    pub fn evaluate_value(
        &self,
        expression: &LocationExpression,
        frame_base: Option<&LocationExpression>,
        frame: &dyn FrameState,
    ) -> Result<Vec<Piece>, Unknown> {
        let owner = self.entry(expression.unit).ok_or(DAMAGED)?;
        if is_location(&expression.code, owner.unit.unit.gimli.encoding()) {
            return self.evaluate(expression, frame_base, frame);
        }
        let code = [&*expression.code, &[gimli::DW_OP_stack_value.0]].concat();
        let expression = LocationExpression {
            code: code.into(),
            unit: expression.unit,
        };
        self.evaluate(&expression, frame_base, frame)
    }

    /// Returns the address of a member of the object at an address (DWARF 5, section 5.7.6).
    pub fn member_at(
        &self,
        expression: &LocationExpression,
        object: u64,
        frame: &dyn FrameState,
    ) -> Result<u64, Unknown> {
        let context = EvalContext {
            frame_base: None,
            frame,
            object: Some(object),
            depth: 0,
        };
        match self.evaluate_in(expression, context)?.as_slice() {
            [
                Piece {
                    location: ValueLocation::Memory(address),
                    ..
                },
            ] => Ok(*address),
            _ => Err(DAMAGED),
        }
    }

    fn evaluate_in(
        &self,
        expression: &LocationExpression,
        context: EvalContext<'_>,
    ) -> Result<Vec<Piece>, Unknown> {
        if context.depth > MAX_DEPTH {
            return Err("its location depends on too many other values".into());
        }
        let owner = self.entry(expression.unit).ok_or(DAMAGED)?;
        let encoding = owner.unit.unit.gimli.encoding();
        let code = without_marks(&expression.code, encoding);
        let parts = parts(&code, encoding).ok_or(DAMAGED)?;
        if parts.is_empty() {
            let location = self.locate(&owner, &code, context)?;
            return Ok(vec![Piece {
                bits: None,
                bit_offset: 0,
                location,
            }]);
        }
        // Evaluate each piece by itself, because one may be unknown while another is known.
        let pieces = parts.into_iter().map(|part| Piece {
            bits: Some(part.bits),
            bit_offset: part.bit_offset,
            location: self
                .locate(&owner, part.code, context)
                .unwrap_or_else(ValueLocation::Unknown),
        });
        Ok(pieces.collect())
    }

    /// Evaluates an expression, or the part of it that describes one piece, to a location.
    fn locate(
        &self,
        owner: &Entry<'_, 'd>,
        code: &[u8],
        context: EvalContext<'_>,
    ) -> Result<ValueLocation, Unknown> {
        if code.is_empty() {
            return Ok(ValueLocation::OptimizedOut);
        }
        let unit = &owner.unit.unit.gimli;
        let code = gimli::Expression(Slice::new(code, LittleEndian));
        let mut evaluation = code.evaluation(unit.encoding());
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(object) = context.object {
            evaluation.set_initial_value(object);
        }
        let malformed = |error| match error {
            gimli::Error::InvalidDerefSize(_) => WIDE_LOAD,
            _ => DAMAGED,
        };
        let mut state = evaluation.evaluate().map_err(malformed)?;
        for _ in 0..MAX_LOOKUPS {
            state = match state {
                EvaluationResult::Complete => {
                    return match evaluation.as_result() {
                        [] => Ok(ValueLocation::OptimizedOut),
                        [piece] => Ok(convert(owner, &piece.location)),
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
                    context.frame.memory(address, part)?;
                    let value = typed(owner, base_type, u64::from_le_bytes(bytes))?;
                    evaluation.resume_with_memory(value)
                }
                EvaluationResult::RequiresRegister { register, base_type } => {
                    let value = context.frame.register(register.0)?;
                    evaluation.resume_with_register(typed(owner, base_type, value)?)
                }
                EvaluationResult::RequiresFrameBase => {
                    evaluation.resume_with_frame_base(self.frame_base_value(context)?)
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    evaluation.resume_with_call_frame_cfa(context.frame.cfa()?)
                }
                EvaluationResult::RequiresTls(offset) => {
                    evaluation.resume_with_tls(context.frame.thread_local(offset)?)
                }
                EvaluationResult::RequiresEntryValue(inner) => {
                    let (register, base_type) = typed_register(inner, unit.encoding())
                        .ok_or("it depends on memory at the function's entry")?;
                    let value = context.frame.entry_value(register)?;
                    evaluation.resume_with_entry_value(typed(owner, base_type, value)?)
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(context.frame.bias()))
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = owner.sections().address(unit, index).map_err(malformed)?;
                    let bias = if relocate { context.frame.bias() } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(bias))
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    evaluation.resume_with_base_type(base_type(owner, offset).ok_or(UNKNOWN_TYPE)?)
                }
                EvaluationResult::RequiresParameterRef(_) => {
                    return Err("the caller does not state this parameter".into());
                }
                _ => return Err("its location expression is not supported".into()),
            }
            .map_err(malformed)?;
        }
        Err(DAMAGED)
    }

    fn frame_base_value(&self, context: EvalContext<'_>) -> Result<u64, Unknown> {
        let expression = context
            .frame_base
            .ok_or("the function's frame base is not stated, or not set up yet")?;
        let inner = EvalContext {
            frame_base: None,
            object: None,
            depth: context.depth + 1,
            ..context
        };
        match self.evaluate_in(expression, inner)?.as_slice() {
            [Piece { location, .. }] => match location {
                ValueLocation::Register(register) => context.frame.register(*register),
                ValueLocation::Memory(address) => Ok(*address),
                ValueLocation::Value(bytes) => Ok(u64::from_le_bytes(*bytes)),
                _ => Err(DAMAGED),
            },
            _ => Err(DAMAGED),
        }
    }

    /// Returns the variable that an implicit pointer points into.
    pub fn implicit_target(&self, id: EntryId, at: u64) -> Option<VariableLocation> {
        let entry = self.entry(id)?;
        match constant(&entry) {
            Some(value) => Some(VariableLocation::Constant(value)),
            None => Some(entry.location(gimli::DW_AT_location, at)),
        }
    }
}

/// Returns an expression without gcc's marks for variables that may not be initialized
/// (`DW_OP_GNU_uninit`).
fn without_marks(code: &[u8], encoding: gimli::Encoding) -> Cow<'_, [u8]> {
    if !code.contains(&gimli::DW_OP_GNU_uninit.0) {
        return Cow::Borrowed(code);
    }
    let expression = gimli::Expression(Slice::new(code, LittleEndian));
    let mut operations = expression.operations(encoding);
    let (mut kept, mut start) = (Vec::with_capacity(code.len()), 0);
    while let Ok(Some(operation)) = operations.next() {
        let end = operations.offset_from(&expression);
        match operation {
            Operation::Uninitialized => {}
            // The target of a branch would move.
            Operation::Bra { .. } | Operation::Skip { .. } => return Cow::Borrowed(code),
            _ => kept.extend_from_slice(code.get(start..end).unwrap_or_default()),
        }
        start = end;
    }
    kept.extend_from_slice(code.get(start..).unwrap_or_default());
    Cow::Owned(kept)
}

/// Returns whether an expression describes a location or an implicit value. Malformed ones count,
/// too.
fn is_location(code: &[u8], encoding: gimli::Encoding) -> bool {
    let expression = gimli::Expression(Slice::new(code, LittleEndian));
    let mut operations = expression.operations(encoding);
    loop {
        match operations.next() {
            Ok(None) => return false,
            Err(_)
            | Ok(Some(
                Operation::Register { .. }
                | Operation::StackValue
                | Operation::ImplicitValue { .. }
                | Operation::ImplicitPointer { .. }
                | Operation::Piece { .. },
            )) => return true,
            Ok(Some(_)) => {}
        }
    }
}

/// The part of an expression that describes one piece of a value.
struct PieceExpression<'a> {
    code: &'a [u8],
    bits: u64,
    bit_offset: u64,
}

/// Splits an expression into its pieces, in order. The result is empty if the expression describes
/// a value as a whole. Returns `None` if the expression is malformed.
fn parts(code: &[u8], encoding: gimli::Encoding) -> Option<Vec<PieceExpression<'_>>> {
    let expression = gimli::Expression(Slice::new(code, LittleEndian));
    let mut operations = expression.operations(encoding);
    let (mut parts, mut begin, mut here) = (Vec::new(), 0, 0);
    while let Some(operation) = operations.next().ok()? {
        let end = operations.offset_from(&expression);
        if let Operation::Piece {
            size_in_bits,
            bit_offset,
        } = operation
        {
            parts.push(PieceExpression {
                code: code.get(begin..here)?,
                bits: size_in_bits,
                bit_offset: bit_offset.unwrap_or(0),
            });
            begin = end;
        }
        here = end;
    }
    let whole = parts.is_empty() || begin == code.len();
    (whole && parts.len() <= MAX_PIECES).then_some(parts)
}

fn convert(owner: &Entry<'_, '_>, location: &Location<Slice<'_>>) -> ValueLocation {
    match *location {
        Location::Empty => ValueLocation::OptimizedOut,
        Location::Register { register } => ValueLocation::Register(register.0),
        Location::Address { address } => ValueLocation::Memory(address),
        Location::Value { value } => ValueLocation::Value(bits(value).to_le_bytes()),
        Location::Bytes { value } => ValueLocation::Bytes(value.slice().into()),
        Location::ImplicitPointer { value, byte_offset } => ValueLocation::ImplicitPointer {
            entry: EntryId {
                // In a split file, the offset counts from the start of the unit's own section.
                offset: owner.unit.base.saturating_add(value.0),
                supplementary: owner.supplementary,
            },
            offset: byte_offset,
        },
    }
}

/// Returns the register of `DW_OP_regN`, `DW_OP_bregN 0` or their equivalents.
pub(super) fn sole_register(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
) -> Option<u16> {
    typed_register(expression, encoding).map(|(register, _)| register)
}

/// Returns the register of `DW_OP_regN`, `DW_OP_regval_type` or their equivalents, and the type of
/// its value.
fn typed_register(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
) -> Option<(u16, gimli::UnitOffset)> {
    let mut operations = expression.operations(encoding);
    let found = match operations.next().ok()?? {
        Operation::Register { register } => (register.0, gimli::UnitOffset(0)),
        Operation::RegisterOffset {
            register,
            offset: 0,
            base_type,
        } => (register.0, base_type),
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
    let as_type = base_type(owner, offset).ok_or(UNKNOWN_TYPE)?;
    match as_type {
        ValueType::F32 => Ok(Value::F32(f32::from_bits(value as u32))),
        ValueType::F64 => Ok(Value::F64(f64::from_bits(value))),
        other => Value::from_u64(other, value).map_err(|_| DAMAGED),
    }
}

/// Returns the bits of a value, sign-extended if its type is signed.
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
