//! Evaluates the DWARF expressions of call frame information.

use crate::dwarf::Slice;
use gimli::{Encoding, EvaluationResult, LittleEndian, Value};
use std::sync::Arc;

/// The longest accepted expression in bytes.
const MAX_LEN: usize = 1024;
/// The most operations of a genuine expression.
const MAX_OPERATIONS: u32 = 1024;

/// The registers and the memory that an expression reads.
pub trait Machine {
    /// Returns the value of the register with this DWARF number, if known.
    fn register(&self, register: u16) -> Option<u64>;

    /// Fills `out` with the memory at `address`. Returns `None` if some of it is unknown.
    fn memory(&self, address: u64, out: &mut [u8]) -> Option<()>;
}

/// A DWARF expression (DWARF 5, section 2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    code: Arc<[u8]>,
    encoding: Encoding,
}

impl Expression {
    /// Returns `None` if the expression is too long.
    pub(super) fn new(code: &[u8], encoding: Encoding) -> Option<Self> {
        (code.len() <= MAX_LEN).then(|| Self {
            code: code.into(),
            encoding,
        })
    }

    /// Returns the value on top of the stack at the end of the expression. `initial` is the initial
    /// stack value. Returns `None` if the machine does not know a value, or if the expression is
    /// malformed or too long.
    #[must_use]
    pub fn evaluate(&self, initial: Option<u64>, machine: &dyn Machine) -> Option<u64> {
        let code = gimli::Expression(Slice::new(&self.code, LittleEndian));
        let mut evaluation = code.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            // Typed values need a base type of a unit, but call frame information belongs to no
            // unit.
            state = match state {
                EvaluationResult::Complete => return evaluation.value_result()?.to_u64(u64::MAX).ok(),
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    space: None,
                    base_type,
                } if base_type.0 == 0 => {
                    let mut bytes = [0; 8];
                    machine.memory(address, bytes.get_mut(..size.into())?)?;
                    evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(bytes)))
                }
                EvaluationResult::RequiresRegister { register, base_type } if base_type.0 == 0 => {
                    let value = machine.register(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                _ => return None,
            }
            .ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers;

    impl Machine for Numbers {
        fn register(&self, register: u16) -> Option<u64> {
            (register < 17).then_some(u64::from(register) * 0x100)
        }

        fn memory(&self, address: u64, out: &mut [u8]) -> Option<()> {
            (address < 0x1_0000).then(|| out.fill(address as u8))
        }
    }

    fn evaluate(code: &[u8], initial: Option<u64>) -> Option<u64> {
        let encoding = Encoding {
            address_size: 8,
            format: gimli::Format::Dwarf32,
            version: 4,
        };
        Expression::new(code, encoding)?.evaluate(initial, &Numbers)
    }

    #[test]
    fn plt_stub_expression_is_evaluated() {
        // DW_OP_breg7 8; DW_OP_breg16 0; lit15; and; lit11; ge; lit3; shl; plus: the expression
        // that `ld` writes for `.plt`.
        let code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(evaluate(&code, None), Some(0x708));
    }

    #[test]
    fn memory_is_read_with_the_requested_size() {
        // DW_OP_plus_uconst 5; DW_OP_deref_size 2.
        assert_eq!(evaluate(&[0x23, 5, 0x94, 2], Some(0x10)), Some(0x1515));
        assert_eq!(evaluate(&[0x06], Some(0x2_0000)), None, "not all memory is known");
        assert_eq!(evaluate(&[0x92, 17, 0], None), None, "nor are all registers");
    }

    #[test]
    fn endless_or_too_long_expressions_have_no_value() {
        assert_eq!(evaluate(&[0x2f, 0xfd, 0xff], None), None, "DW_OP_skip -3");
        assert_eq!(evaluate(&[0x30; MAX_LEN + 1], None), None);
        assert_eq!(evaluate(&[], None), None);
        assert_eq!(
            evaluate(&[0x03, 1, 0, 0, 0, 0, 0, 0, 0], None),
            None,
            "DW_OP_addr is not moved"
        );
    }
}
