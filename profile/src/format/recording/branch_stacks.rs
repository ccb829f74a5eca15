//! How a block stores the branches before samples.

use super::varint::{Reader, write, write_signed};
use crate::branch_stack::{BranchStack, TakenBranch};
use crate::frame::FrameId;
use crate::stacks::StackId;
use crate::table::Id;

/// Appends branch stacks. A branch is two frames, each as the difference to the last one, and the
/// prediction: 0 unknown, 1 right, 2 wrong.
pub(super) fn encode(stacks: &[BranchStack], out: &mut Vec<u8>) {
    write(stacks.len() as u64, out);
    let mut last = 0;
    let mut frame = |frame: FrameId, out: &mut Vec<u8>| {
        let index = frame.index() as i64;
        write_signed(index - last, out);
        last = index;
    };
    for stack in stacks {
        write(stack.stack.index() as u64, out);
        write(stack.branches.len() as u64, out);
        for branch in &stack.branches {
            frame(branch.from, out);
            frame(branch.to, out);
            write(
                branch.is_mispredicted.map_or(0, |wrong| 1 + u64::from(wrong)),
                out,
            );
        }
    }
}

/// Reads branch stacks. The ids are those of the profile by the indexes in the segment. `None`:
/// malformed.
pub(super) fn decode(
    reader: &mut Reader<'_>,
    stacks: &[StackId],
    frames: &[FrameId],
) -> Option<Vec<BranchStack>> {
    let mut last = 0_i64;
    let mut frame = |reader: &mut Reader<'_>| {
        last = last.checked_add(reader.signed()?)?;
        frames.get(usize::try_from(last).ok()?).copied()
    };
    let mut found = Vec::new();
    for _ in 0..reader.number()? {
        let stack = reader.entry(stacks)?;
        let mut branches = Vec::new();
        for _ in 0..reader.number()? {
            branches.push(TakenBranch {
                from: frame(reader)?,
                to: frame(reader)?,
                is_mispredicted: match reader.number()? {
                    0 => None,
                    1 => Some(false),
                    2 => Some(true),
                    _ => return None,
                },
            });
        }
        found.push(BranchStack {
            stack,
            branches: branches.into(),
        });
    }
    Some(found)
}
