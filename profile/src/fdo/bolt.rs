//! Input for BOLT: pre-aggregated branches for `perf2bolt --pa`, and `fdata` for `llvm-bolt -data`.
//!
//! Source: LLVM, `bolt/include/bolt/Profile/DataAggregator.h` and `DataReader.h`.

use super::binary::Binary;
use super::branch_profile::{Branch, BranchProfile};
use crate::Result;
use backtrail_pt::Svma;
use std::collections::BTreeMap;
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

/// A place in `fdata`: the symbol, or an unknown place, and the offset.
type Place = (bool, String, u64);

/// Writes branches by symbol and offset.
///
/// # Errors
///
/// Those of `out`.
pub fn write_fdata(profile: &BranchProfile, binary: &impl Binary, out: &mut dyn Write) -> Result<()> {
    let mut sums: BTreeMap<(Place, Place), (u64, u64)> = BTreeMap::new();
    let place = |at: Option<Svma>| match at.and_then(|at| binary.symbol(at)) {
        Some((name, offset)) => (true, name.to_string(), offset),
        None => (false, "[unknown]".to_owned(), 0),
    };
    let mut add = |Branch { from, to }: Branch, taken: u64, mispredicted: u64| {
        let (from, to) = (place(from), place(to));
        if from.0 || to.0 {
            let sum = sums.entry((from, to)).or_default();
            sum.0 = sum.0.saturating_add(mispredicted);
            sum.1 = sum.1.saturating_add(taken);
        }
    };
    for (branch, count) in profile.branches() {
        add(branch, count.taken, count.mispredicted);
    }
    for ((from, to), (mispredicted, taken)) in sums {
        let place = |(is_symbol, name, offset): &Place| format!("{} {name} {offset:x}", u8::from(*is_symbol));
        writeln!(out, "{} {} {mispredicted} {taken}", place(&from), place(&to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
