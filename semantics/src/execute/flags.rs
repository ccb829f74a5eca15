//! The flags of sums and differences, and the conditions of branches.

use crate::state::{State, flag, ones};

/// Returns the highest bit of the low `size` bytes.
pub const fn sign_bit(size: u8) -> u64 {
    ones(size) ^ (ones(size) >> 1)
}

/// Returns ZF, SF and PF of a result.
pub const fn of_result(result: u64, size: u8) -> u64 {
    let mut flags = 0;
    if result & ones(size) == 0 {
        flags |= flag::ZERO;
    }
    if result & sign_bit(size) != 0 {
        flags |= flag::SIGN;
    }
    if (result & 0xff).count_ones().is_multiple_of(2) {
        flags |= flag::PARITY;
    }
    flags
}

/// Returns a sum and its six flags.
pub const fn add(left: u64, right: u64, carry: bool, size: u8) -> (u64, u64) {
    let (left, right) = (left & ones(size), right & ones(size));
    let result = left.wrapping_add(right).wrapping_add(carry as u64) & ones(size);
    let mut flags = of_result(result, size);
    // Bit n of `carries` is the carry out of bit n.
    let carries = left & right | (left | right) & !result;
    if carries & sign_bit(size) != 0 {
        flags |= flag::CARRY;
    }
    if carries & 8 != 0 {
        flags |= flag::ADJUST;
    }
    if (left ^ result) & (right ^ result) & sign_bit(size) != 0 {
        flags |= flag::OVERFLOW;
    }
    (result, flags)
}

/// Returns a difference and its six flags.
pub const fn subtract(left: u64, right: u64, borrow: bool, size: u8) -> (u64, u64) {
    let (left, right) = (left & ones(size), right & ones(size));
    let result = left.wrapping_sub(right).wrapping_sub(borrow as u64) & ones(size);
    let mut flags = of_result(result, size);
    let borrows = !left & right | (!left | right) & result;
    if borrows & sign_bit(size) != 0 {
        flags |= flag::CARRY;
    }
    if borrows & 8 != 0 {
        flags |= flag::ADJUST;
    }
    if (left ^ right) & (left ^ result) & sign_bit(size) != 0 {
        flags |= flag::OVERFLOW;
    }
    (result, flags)
}

/// Returns whether a condition holds, by its four bits in instructions. `None`: an undefined flag
/// decides.
pub fn condition(code: u8, state: &State) -> Option<bool> {
    let flag = |bit| state.flag(bit);
    let holds = match code >> 1 & 7 {
        0 => flag(flag::OVERFLOW)?,
        1 => flag(flag::CARRY)?,
        2 => flag(flag::ZERO)?,
        3 => flag(flag::CARRY)? | flag(flag::ZERO)?,
        4 => flag(flag::SIGN)?,
        5 => flag(flag::PARITY)?,
        6 => flag(flag::SIGN)? != flag(flag::OVERFLOW)?,
        _ => flag(flag::ZERO)? | (flag(flag::SIGN)? != flag(flag::OVERFLOW)?),
    };
    Some(holds != (code & 1 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_and_overflows_are_found() {
        assert_eq!(
            add(0xff, 1, false, 1),
            (0, flag::CARRY | flag::ADJUST | flag::ZERO | flag::PARITY)
        );
        assert_eq!(
            add(0x7f, 0, true, 1),
            (0x80, flag::ADJUST | flag::SIGN | flag::OVERFLOW)
        );
        assert_eq!(
            subtract(0, 1, false, 8),
            (u64::MAX, flag::CARRY | flag::ADJUST | flag::SIGN | flag::PARITY)
        );
        assert_eq!(subtract(0x80, 1, false, 1), (0x7f, flag::ADJUST | flag::OVERFLOW));
    }

    #[test]
    fn conditions_need_their_flags_only() {
        let mut state = State::default();
        state.set_flags(flag::STATUS, flag::SIGN);
        // jl, jge
        assert_eq!(condition(0xc, &state), Some(true));
        assert_eq!(condition(0xd, &state), Some(false));
        state.undefine_flags(flag::OVERFLOW);
        assert_eq!(condition(0xc, &state), None);
        // js
        assert_eq!(condition(0x8, &state), Some(true));
    }
}
