//! Converts between our line numbers and the client's.

use crate::protocol::types::InitializeRequestArguments;

/// Whether the client counts lines from 0 or from 1.
#[derive(Clone, Copy)]
pub struct LineNumbering {
    from_zero: bool,
}

impl LineNumbering {
    /// Returns the numbering that the client announced.
    pub fn of(features: &InitializeRequestArguments) -> Self {
        Self {
            from_zero: features.lines_start_at1 == Some(false),
        }
    }

    /// Returns the client's line number counted from 1; `None` if it is out of range.
    pub fn read(self, line: i64) -> Option<u32> {
        let line = u32::try_from(line.checked_add(i64::from(self.from_zero))?).ok()?;
        (line > 0).then_some(line)
    }

    /// Returns a line number as the client counts.
    pub fn write(self, line: u32) -> i64 {
        i64::from(line) - i64::from(self.from_zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one_or_from_zero() {
        let (one, zero) = (
            LineNumbering { from_zero: false },
            LineNumbering { from_zero: true },
        );
        assert_eq!((one.read(5), zero.read(5)), (Some(5), Some(6)));
        assert_eq!((one.write(5), zero.write(5)), (5, 4));
        assert_eq!(
            (one.read(0), zero.read(-1), one.read(i64::MAX)),
            (None, None, None)
        );
    }
}
