//! Input for BOLT: pre-aggregated branches for `perf2bolt --pa`.
//!
//! Source: LLVM, `bolt/include/bolt/Profile/DataAggregator.h`.

use super::branch_profile::BranchProfile;
use crate::Result;
use backtrail_pt::Svma;
use std::io::Write;

/// Writes pre-aggregated branches and straight code, with the addresses of the binary's program
/// headers. An end outside of the binary is `X:0`, an unknown object.
///
/// # Errors
///
/// Those of `out`.
pub fn write_preaggregated(profile: &BranchProfile, out: &mut dyn Write) -> Result<()> {
    let address = |at: Option<Svma>| at.map_or("X:0".to_owned(), |at| format!("{:x}", at.0));
    for (branch, count) in profile.branches() {
        writeln!(
            out,
            "B {} {} {} {}",
            address(branch.from),
            address(branch.to),
            count.taken,
            count.mispredicted
        )?;
    }
    for (range, count) in profile.ranges() {
        writeln!(out, "F {:x} {:x} {count}", range.first.0, range.last.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdo::Branch;

    #[test]
    fn branches_and_ranges_have_hexadecimal_addresses() {
        let mut profile = BranchProfile::default();
        let branch = |from: u64, to: u64| Branch {
            from: (from != 0).then_some(Svma(from)),
            to: Some(Svma(to)),
        };
        profile.add_history([(branch(0, 0x4010), false), (branch(0x40ab, 0x4010), true)], 2);
        let mut out = Vec::new();
        write_preaggregated(&profile, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "B X:0 4010 2 0\nB 40ab 4010 2 2\nF 4010 40ab 2\n"
        );
    }
}
