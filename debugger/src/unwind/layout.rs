//! Finds the layout of a frame from the instructions that its function executed since its entry.
//!
//! This serves code without call frame information, such as code that a compiler generated at run
//! time. As with call frame information, callees are assumed to preserve the registers of the ABI,
//! and saved registers are assumed to be unchanged. Sources: Intel SDM, volume 2; System V ABI
//! AMD64, section 3.2.1.

use super::operation::{MemoryOperand, Operand, Operation};
use super::{COUNT, PC, RSP, is_preserved};
use backtrail_symbolizer::{CfaRule, RegisterRule, UnwindRow};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const RBP: u16 = 6;

/// The content of a register, relative to the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterContent {
    /// The value of a register, by its DWARF number, on entry to the function.
    Entry(u16),
    /// The canonical frame address plus an offset.
    Frame(i64),
    Unknown,
}

/// The known layout of a frame while its function runs.
pub(crate) struct Layout {
    /// By DWARF number.
    registers: [RegisterContent; COUNT],
    /// The entry values that were saved, by how many bytes from the canonical frame address.
    saved: BTreeMap<i64, u16>,
}

impl Layout {
    /// Before the first instruction of a function.
    pub fn at_entry() -> Self {
        let mut registers = [RegisterContent::Unknown; COUNT];
        for (number, holds) in (0..).zip(&mut registers) {
            *holds = match number {
                // The return address was put below the frame.
                RSP => RegisterContent::Frame(-8),
                number => RegisterContent::Entry(number),
            };
        }
        Self {
            registers,
            saved: BTreeMap::new(),
        }
    }

    /// Returns the layout that call frame information describes; `None` if it describes more than
    /// register locations.
    pub fn by(row: &UnwindRow) -> Option<Self> {
        let CfaRule::Register { register, offset } = row.cfa else {
            return None;
        };
        if row.signal_frame || row.rule(row.return_address) != Some(&RegisterRule::Offset(-8)) {
            return None;
        }
        let mut layout = Self {
            registers: [RegisterContent::Unknown; COUNT],
            saved: BTreeMap::new(),
        };
        for entry in (0..COUNT as u16).filter(|&register| is_preserved(register)) {
            match row.rule(entry) {
                None | Some(RegisterRule::SameValue) => layout.put(entry, RegisterContent::Entry(entry)),
                Some(RegisterRule::Register(other)) => layout.put(*other, RegisterContent::Entry(entry)),
                Some(RegisterRule::Offset(at)) => layout.store(Some(*at), 8, RegisterContent::Entry(entry)),
                Some(_) => {}
            }
        }
        layout.put(RSP, RegisterContent::Unknown);
        layout.put(register, RegisterContent::Frame(offset.wrapping_neg()));
        Some(layout)
    }

    /// An instruction of the function itself ran; `None`: no function's body has that.
    pub fn step(&mut self, operation: &Operation) -> Option<()> {
        match operation {
            Operation::Foreign => return None,
            Operation::Push(value) => self.push(self.value(*value)),
            Operation::Pop(to) => {
                let value = self.pop();
                self.put(*to, value);
            }
            Operation::Leave => {
                self.put(RSP, self.get(RBP));
                let value = self.pop();
                self.put(RBP, value);
            }
            Operation::Set(to, value) => self.put(*to, self.value(*value)),
            Operation::Store(to, value) => self.store(self.place(*to), 8, self.value(*value)),
            Operation::Address(to, place) => {
                let at = self.place(*place);
                self.put(*to, at.map_or(RegisterContent::Unknown, RegisterContent::Frame));
            }
            Operation::Add(to, by) => {
                let sum = self.moved(*to, *by);
                self.put(*to, sum);
            }
            Operation::Other {
                stack,
                changes,
                stores,
            } => {
                let moved = stack.map_or(RegisterContent::Unknown, |by| self.moved(RSP, by));
                for (to, size) in stores {
                    self.store(self.place(*to), *size, RegisterContent::Unknown);
                }
                for register in Operation::registers(*changes) {
                    let value = if register == RSP {
                        moved
                    } else {
                        RegisterContent::Unknown
                    };
                    self.put(register, value);
                }
            }
        }
        Some(())
    }

    /// A callee ran, and returned.
    pub fn called(&mut self) {
        for (number, holds) in (0..).zip(&mut self.registers) {
            if !is_preserved(number) {
                *holds = RegisterContent::Unknown;
            }
        }
    }

    /// Returns the rules by which the caller's registers are found; `None` if the frame's address
    /// is unknown.
    pub fn row(&self) -> Option<UnwindRow> {
        let at = |register: u16| match self.get(register) {
            RegisterContent::Frame(at) => Some((register, at)),
            _ => None,
        };
        let (register, from) = at(RSP).or_else(|| {
            (0..COUNT as u16)
                .filter(|&number| is_preserved(number))
                .find_map(at)
        })?;
        let preserved = (0..COUNT as u16).filter(|&register| is_preserved(register) && register != RSP);
        let mut registers: Vec<(u16, RegisterRule)> = preserved
            .map(|register| (register, self.rule(register)))
            .collect();
        registers.push((PC, RegisterRule::Offset(-8)));
        Some(UnwindRow {
            cfa: CfaRule::Register {
                register,
                offset: from.wrapping_neg(),
            },
            registers,
            return_address: PC,
            signal_frame: false,
        })
    }

    /// Returns the location of the value that a register had on entry.
    fn rule(&self, register: u16) -> RegisterRule {
        if self.get(register) == RegisterContent::Entry(register) {
            return RegisterRule::SameValue;
        }
        let slot = self.saved.iter().find(|(_, saved)| **saved == register);
        let copy = || {
            (0..COUNT as u16)
                .find(|&other| is_preserved(other) && self.get(other) == RegisterContent::Entry(register))
        };
        match slot {
            Some((&at, _)) => RegisterRule::Offset(at),
            None => copy().map_or(RegisterRule::Undefined, RegisterRule::Register),
        }
    }

    /// Returns the content of a register plus an offset.
    fn moved(&self, register: u16, by: i64) -> RegisterContent {
        match self.get(register) {
            RegisterContent::Frame(at) => RegisterContent::Frame(at.wrapping_add(by)),
            _ => RegisterContent::Unknown,
        }
    }

    fn push(&mut self, value: RegisterContent) {
        let below = match self.get(RSP) {
            RegisterContent::Frame(at) => Some(at.wrapping_sub(8)),
            _ => None,
        };
        self.put(
            RSP,
            below.map_or(RegisterContent::Unknown, RegisterContent::Frame),
        );
        self.store(below, 8, value);
    }

    fn pop(&mut self) -> RegisterContent {
        let RegisterContent::Frame(at) = self.get(RSP) else {
            return RegisterContent::Unknown;
        };
        self.put(RSP, RegisterContent::Frame(at.wrapping_add(8)));
        self.load(at)
    }

    fn value(&self, operand: Operand) -> RegisterContent {
        match operand {
            Operand::Register(register) => self.get(register),
            Operand::Memory(place) => self
                .place(place)
                .map_or(RegisterContent::Unknown, |at| self.load(at)),
            Operand::Other => RegisterContent::Unknown,
        }
    }

    /// Returns the frame offset of a memory operand; `None` if it is unknown or elsewhere.
    fn place(&self, place: MemoryOperand) -> Option<i64> {
        match self.moved(place.base?, place.displacement) {
            RegisterContent::Frame(at) => Some(at),
            _ => None,
        }
    }

    fn load(&self, at: i64) -> RegisterContent {
        self.saved.get(&at).map_or(RegisterContent::Unknown, |&register| {
            RegisterContent::Entry(register)
        })
    }

    /// Writes `size` bytes; nowhere in particular for `None`.
    fn store(&mut self, at: Option<i64>, size: i64, value: RegisterContent) {
        let Some(at) = at else { return };
        let over = self
            .saved
            .range(at.saturating_sub(7)..at.saturating_add(size.max(1)));
        let over: Vec<i64> = over.map(|(&at, _)| at).collect();
        for at in over {
            self.saved.remove(&at);
        }
        if let RegisterContent::Entry(register) = value {
            self.saved.insert(at, register);
        }
    }

    fn get(&self, register: u16) -> RegisterContent {
        self.registers
            .get(usize::from(register))
            .copied()
            .unwrap_or(RegisterContent::Unknown)
    }

    fn put(&mut self, register: u16, value: RegisterContent) {
        if let Some(holds) = self.registers.get_mut(usize::from(register)) {
            *holds = value;
        }
    }
}
