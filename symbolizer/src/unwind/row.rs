//! A row of the call frame information as plain data.

use super::Slice;
use super::expression::Expression;
use gimli::UnwindSection;

/// How the caller's registers are found where one row of the table holds (DWARF 5, section 6.4.1).
///
/// Registers go by their DWARF numbers: 0 to 15 are rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, and 16
/// is the return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindRow {
    /// How the canonical frame address is found: the stack pointer of the caller, before its call.
    pub cfa: CfaRule,
    /// The rules that are stated, by register, ascending. For another register the ABI says what holds.
    pub registers: Vec<(u16, RegisterRule)>,
    /// The column of the return address.
    pub return_address: u16,
    /// The code was not called but put there by the kernel when a signal came: the next frame was interrupted.
    pub signal_frame: bool,
}

/// How the canonical frame address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CfaRule {
    /// The value of a register, and an offset added to it.
    Register {
        /// Its DWARF number.
        register: u16,
        /// In bytes.
        offset: i64,
    },
    /// The result of an expression.
    Expression(Expression),
}

/// How a register of the caller is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterRule {
    /// It is lost.
    Undefined,
    /// It has the same value still.
    SameValue,
    /// It was saved so many bytes from the canonical frame address.
    Offset(i64),
    /// It is the canonical frame address and so many bytes.
    ValOffset(i64),
    /// It is in another register.
    Register(u16),
    /// It was saved at the address that an expression gives.
    Expression(Expression),
    /// It is the value that an expression gives.
    ValExpression(Expression),
}

impl UnwindRow {
    /// The rule that is stated for a register.
    #[must_use]
    pub fn rule(&self, register: u16) -> Option<&RegisterRule> {
        let at = self
            .registers
            .binary_search_by_key(&register, |(register, _)| *register)
            .ok()?;
        self.registers.get(at).map(|(_, rule)| rule)
    }

    /// `None`: it says what is not known here.
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
