//! String instructions with and without repetition.

use super::flags::subtract;
use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::state::flag;

const RAX: u8 = 0;
const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

/// The most bytes that are moved or stored at once.
const CHUNK: usize = 4096;

/// A string instruction, with addresses of eight bytes and no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringOperation {
    /// The operation on an element.
    pub element: Element,
    /// The size of an element in bytes.
    pub size: u8,
    /// The repetition.
    pub repeat: Repeat,
}

/// An operation on one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `movs`.
    Move,
    /// `stos`.
    Store,
    /// `lods`.
    Load,
    /// `scas`.
    Scan,
    /// `cmps`.
    Compare,
}

/// The end of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One element.
    Once,
    /// Until rcx is zero.
    Count,
    /// Until rcx is zero, or ZF is not this.
    While(bool),
}

impl StringOperation {
    /// Applies the operation.
    ///
    /// # Errors
    /// Fails as the memory does. The registers are then those after the last elements that were
    /// stored.
    pub fn execute<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M> {
        if self.repeat == Repeat::Once {
            return self.one(machine);
        }
        while machine.state.general[RCX] != 0 {
            if self.many(machine)? {
                continue;
            }
            self.one(machine)?;
            machine.state.general[RCX] -= 1;
            if let Repeat::While(zero) = self.repeat
                && machine.flag(flag::ZERO)? != zero
            {
                break;
            }
        }
        Ok(())
    }

    /// Moves or stores elements at once, where that is the same as one after another. Returns
    /// whether it did.
    fn many<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M, bool> {
        let size = usize::from(self.size);
        let general = &machine.state.general;
        let (source, target) = (general[RSI], general[RDI]);
        let elements = usize::try_from(general[RCX])
            .unwrap_or(usize::MAX)
            .min(CHUNK / size);
        if elements < 2 || self.repeat != Repeat::Count || machine.state.flag(flag::DIRECTION) != Some(false)
        {
            return Ok(false);
        }
        let bytes = &mut [0; CHUNK][..elements * size];
        let len = bytes.len() as u64;
        let wraps = |address: u64| address.checked_add(len).is_none();
        match self.element {
            Element::Move => {
                // An element would load what one before it has stored.
                let overlaps = target > source && target - source < len;
                if overlaps || wraps(source) || wraps(target) || machine.memory.load(source, bytes).is_err() {
                    return Ok(false);
                }
            }
            Element::Store => {
                let value = general[usize::from(RAX)].to_le_bytes();
                for (byte, &value) in bytes.iter_mut().zip(value[..size].iter().cycle()) {
                    *byte = value;
                }
                if wraps(target) {
                    return Ok(false);
                }
            }
            Element::Load | Element::Scan | Element::Compare => return Ok(false),
        }
        machine.memory.store(target, bytes).map_err(Stop::Memory)?;
        let general = &mut machine.state.general;
        general[RCX] -= elements as u64;
        general[RDI] = target + len;
        if self.element == Element::Move {
            general[RSI] = source + len;
        }
        Ok(true)
    }

    fn one<M: Memory>(self, machine: &mut Machine<'_, M>) -> Done<M> {
        let size = self.size;
        let step = if machine.flag(flag::DIRECTION)? {
            -i64::from(size)
        } else {
            i64::from(size)
        };
        let (source, target) = (machine.state.general[RSI], machine.state.general[RDI]);
        match self.element {
            Element::Move => {
                let value = machine.load(source, size)?;
                machine.store(target, size, value)?;
            }
            Element::Store => {
                let value = machine.state.general_part(RAX, 0, size);
                machine.store(target, size, value)?;
            }
            Element::Load => {
                let value = machine.load(source, size)?;
                machine.state.set_general_part(RAX, 0, size, value);
            }
            Element::Scan => {
                let left = machine.state.general_part(RAX, 0, size);
                let right = machine.load(target, size)?;
                machine
                    .state
                    .set_flags(flag::STATUS, subtract(left, right, false, size).1);
            }
            Element::Compare => {
                let left = machine.load(source, size)?;
                let right = machine.load(target, size)?;
                machine
                    .state
                    .set_flags(flag::STATUS, subtract(left, right, false, size).1);
            }
        }
        let general = &mut machine.state.general;
        if !matches!(self.element, Element::Store | Element::Scan) {
            general[RSI] = source.wrapping_add_signed(step);
        }
        if self.element != Element::Load {
            general[RDI] = target.wrapping_add_signed(step);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::NoBytes;
    use crate::state::State;
    use proptest::prelude::*;

    const SIZE: usize = 3 * CHUNK;

    /// Memory at address 0.
    #[derive(Clone, Debug, PartialEq)]
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        type Error = NoBytes;

        fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), NoBytes> {
            let from = self.0.get(address as usize..).unwrap_or_default();
            bytes.copy_from_slice(from.get(..bytes.len()).ok_or(NoBytes)?);
            Ok(())
        }

        fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), NoBytes> {
            let to = self.0.get_mut(address as usize..).unwrap_or_default();
            to.get_mut(..bytes.len()).ok_or(NoBytes)?.copy_from_slice(bytes);
            Ok(())
        }
    }

    proptest! {
        /// Elements at once are the same as one after another, also where they overlap or a part of
        /// the memory is missing.
        #[test]
        fn repeated_moves_and_stores_are_those_of_single_elements(
            element in prop_oneof![Just(Element::Move), Just(Element::Store)],
            size in prop_oneof![Just(1_u8), Just(2), Just(4), Just(8)],
            source in 0..SIZE as u64,
            distance in -40_i64..40,
            far in prop_oneof![Just(0_u64), 0..SIZE as u64],
            count in 0_u64..1500,
            is_backward in any::<bool>(),
        ) {
            let mut state = State::default();
            state.general[usize::from(RAX)] = 0x1122_3344_5566_7788;
            state.general[RCX] = count;
            state.general[RSI] = source;
            state.general[RDI] = source.saturating_add_signed(distance) + far;
            state.set_flags(flag::DIRECTION, if is_backward { flag::DIRECTION } else { 0 });
            let memory = Bytes((0..SIZE).map(|at| (at * 7 % 251) as u8).collect());
            let operation = |repeat| StringOperation { element, size, repeat };
            let (mut one_state, mut one_memory) = (state.clone(), memory.clone());
            let mut one = Ok(());
            for _ in 0..count {
                let machine = &mut Machine { state: &mut one_state, memory: &mut one_memory };
                one = operation(Repeat::Once).execute(machine);
                if one.is_err() {
                    break;
                }
                one_state.general[RCX] -= 1;
            }
            let (mut many_state, mut many_memory) = (state, memory);
            let machine = &mut Machine { state: &mut many_state, memory: &mut many_memory };
            let many = operation(Repeat::Count).execute(machine);
            prop_assert_eq!(one.is_ok(), many.is_ok());
            if one.is_ok() {
                prop_assert_eq!(one_state, many_state);
                prop_assert_eq!(one_memory.0, many_memory.0);
            }
        }
    }
}
