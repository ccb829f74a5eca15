//! DWARF expressions of call frame information, and their evaluation.

use super::Slice;
use gimli::{Encoding, EvaluationResult, LittleEndian, Value};
use std::sync::Arc;

/// No genuine expression of call frame information is longer, in bytes.
const MAX_LEN: usize = 1024;
/// No genuine expression executes more operations.
const MAX_OPERATIONS: u32 = 1024;

/// The registers and the memory that an expression reads.
pub trait Machine {
    /// The value of the register with this DWARF number, if known.
    fn register(&self, register: u16) -> Option<u64>;

    /// Fills `out` with the memory at `address`; `None`: it is not all known.
    fn memory(&self, address: u64, out: &mut [u8]) -> Option<()>;
}

/// A DWARF expression (DWARF 5, section 2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    code: Arc<[u8]>,
    encoding: Encoding,
}

impl Expression {
    /// `None`: it is longer than any that is believed.
    pub(super) fn new(code: &[u8], encoding: Encoding) -> Option<Self> {
        (code.len() <= MAX_LEN).then(|| Self {
            code: code.into(),
            encoding,
        })
    }

    /// The value on top of the stack at its end; `initial` is on the stack at its beginning.
    /// `None` where it needs what the machine does not know, is malformed, or does not end soon.
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
            // A typed value stands for a unit's base type, and call frame information belongs to no unit.
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
    fn a_linkage_stub_has_its_rule() {
        // DW_OP_breg7 8; DW_OP_breg16 0; lit15; and; lit11; ge; lit3; shl; plus: what `ld` writes for `.plt`.
        let code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(evaluate(&code, None), Some(0x708));
    }

    #[test]
    fn memory_is_read_as_wide_as_asked() {
        // DW_OP_plus_uconst 5; DW_OP_deref_size 2.
        assert_eq!(evaluate(&[0x23, 5, 0x94, 2], Some(0x10)), Some(0x1515));
        assert_eq!(evaluate(&[0x06], Some(0x2_0000)), None, "not all memory is known");
        assert_eq!(evaluate(&[0x92, 17, 0], None), None, "nor are all registers");
    }

    #[test]
    fn what_does_not_end_or_is_too_long_has_no_value() {
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
