//! The branches of a recording, as those of `perf record -b`.

use super::decode::read;
use crate::Result;
use crate::format::perf_data::{BranchFrames, BranchSample};
use crate::frame::{Frame, FrameId};
use crate::profile::Profile;
use backtrail_pt::FileOffset;

/// Reads the branches of a recording (`--event lbr`) instead of its samples. `visit` receives those
/// of each sample, and the profile.
///
/// # Errors
///
/// As [`read`].
pub fn read_branches(bytes: &[u8], visit: &mut dyn FnMut(&Profile, &BranchSample)) -> Result<()> {
    let profile = read(bytes)?;
    let frame = |id: FrameId| profile.frames.get(id).copied().unwrap_or(Frame::Lost);
    let mut found = BranchSample::default();
    for stack in &profile.branch_stacks {
        found.chain.clear();
        let frames = profile.stacks.frames(stack.stack).map(frame).enumerate();
        found.chain.extend(frames.map(|(depth, frame)| match depth {
            0 => frame,
            _ => return_address(frame),
        }));
        found.branches.clear();
        found
            .branches
            .extend(stack.branches.iter().map(|branch| BranchFrames {
                from: frame(branch.from),
                to: frame(branch.to),
                is_mispredicted: branch.is_mispredicted,
            }));
        visit(&profile, &found);
    }
    Ok(())
}

/// Returns the return address of a caller. Its frame is the last byte of the call.
fn return_address(caller: Frame) -> Frame {
    match caller {
        Frame::Code { module, offset } => Frame::Code {
            module,
            offset: FileOffset(offset.0.saturating_add(1)),
        },
        Frame::Address(address) => Frame::Address(address.saturating_add(1)),
        other => other,
    }
}
