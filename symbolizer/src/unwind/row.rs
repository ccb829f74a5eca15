//! A row of the call frame information as plain data.

use super::expression::Expression;
use crate::dwarf::Slice;
use gimli::UnwindSection;

/// The rules in one row of the call frame table (DWARF 5, section 6.4.1).
///
/// Registers have DWARF numbers: 0 to 15 are rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, and
/// 16 is the return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindRow {
    /// The rule for the canonical frame address: the stack pointer of the caller, before its call.
    pub cfa: CfaRule,
    /// The stated rules, sorted by register. For other registers, the ABI applies.
    pub registers: Vec<(u16, RegisterRule)>,
    /// The column of the return address.
    pub return_address: u16,
    /// Whether the kernel entered this code for a signal. The next frame was interrupted, not
    /// called.
    pub signal_frame: bool,
}

/// The rule for the canonical frame address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CfaRule {
    /// The value of a register plus an offset.
    Register {
        /// The DWARF number of the register.
        register: u16,
        /// The offset in bytes.
        offset: i64,
    },
    /// The result of an expression.
    Expression(Expression),
}

/// The rule for a register of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterRule {
    /// The value is lost.
    Undefined,
    /// The value did not change.
    SameValue,
    /// The value was saved at this offset from the canonical frame address.
    Offset(i64),
    /// The value is the canonical frame address plus this offset.
    ValOffset(i64),
    /// The value is in another register.
    Register(u16),
    /// The value was saved at the address that an expression computes.
    Expression(Expression),
    /// The value is the result of an expression.
    ValExpression(Expression),
}

impl UnwindRow {
    /// Returns the stated rule for a register.
    #[must_use]
    pub fn rule(&self, register: u16) -> Option<&RegisterRule> {
        let at = self
            .registers
            .binary_search_by_key(&register, |(register, _)| *register)
            .ok()?;
        self.registers.get(at).map(|(_, rule)| rule)
    }

    /// Converts a row. Returns `None` if it uses an unsupported rule.
    pub(super) fn new<'d, S: UnwindSection<Slice<'d>>>(
        row: &gimli::UnwindTableRow<usize>,
        entry: &gimli::FrameDescriptionEntry<Slice<'d>>,
        section: &S,
    ) -> Option<Self> {
        let encoding = entry.cie().encoding();
        let expression = |expression: &gimli::UnwindExpression<usize>| {
            Expression::new(expression.get(section).ok()?.0.slice(), encoding)
        };
        let cfa = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => CfaRule::Register {
                register: register.0,
                offset: *offset,
            },
            gimli::CfaRule::Expression(found) => CfaRule::Expression(expression(found)?),
        };
        let rule = |rule: &gimli::RegisterRule<usize>| {
            Some(match rule {
                gimli::RegisterRule::SameValue => RegisterRule::SameValue,
                gimli::RegisterRule::Offset(offset) => RegisterRule::Offset(*offset),
                gimli::RegisterRule::ValOffset(offset) => RegisterRule::ValOffset(*offset),
                gimli::RegisterRule::Register(register) => RegisterRule::Register(register.0),
                gimli::RegisterRule::Expression(found) => RegisterRule::Expression(expression(found)?),
                gimli::RegisterRule::ValExpression(found) => RegisterRule::ValExpression(expression(found)?),
                _ => return None,
            })
        };
        let mut registers: Vec<_> = row
            .registers()
            .map(|(register, stated)| (register.0, rule(stated).unwrap_or(RegisterRule::Undefined)))
            .collect();
        registers.sort_by_key(|(register, _)| *register);
        Some(Self {
            cfa,
            registers,
            return_address: entry.cie().return_address_register().0,
            signal_frame: entry.is_signal_trampoline(),
        })
    }
}
