//! Temporary.
use backtrail_pt::{Avma, Cofi};
use backtrail_pt::cofi::CodeInstruction;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode { #[default] Bits64, Bits32, Bits16 }
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role { Plain, Ptwrite, WritesCr3, LoadsVmcs, EntersVm, ReturnsFromInterrupt, ReturnsFromUserInterrupt }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction { pub len: u8, pub cofi: Cofi, pub role: Role }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError { Truncated, Invalid }
pub fn decode(code: &[u8], at: Avma, _mode: Mode) -> Result<Instruction, DecodeError> {
    let found = CodeInstruction::decode(code, at).ok_or(DecodeError::Invalid)?;
    Ok(Instruction { len: found.len, cofi: found.cofi, role: Role::Plain })
}
