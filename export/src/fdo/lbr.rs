//! Branches of a binary in last branch records (LBR).

use super::FdoBinary;
use backtrail_profile::fdo::{Branch, BranchProfile};
use backtrail_profile::format::perf_data::{self, BranchStack};
use backtrail_profile::format::perf_script::{self, ScriptBranch, ScriptMapping};
use backtrail_profile::{Frame, ModuleId, Profile, Result};
use backtrail_pt::{FileOffset, Svma};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

/// Counts the branches of a binary in the text of `perf script -F ip,brstack --show-mmap-events`.
///
/// The mappings of files with the binary's name place it. Without any, the addresses are those of
/// the binary, as they are in an executable that is not position-independent.
///
/// # Errors
///
/// Those of the reader.
pub fn branches_of_script(input: impl BufRead, binary: &FdoBinary) -> Result<BranchProfile> {
    let script = perf_script::read(input)?;
    let is_ours =
        |mapping: &&ScriptMapping| Path::new(&mapping.path).file_name() == Some(binary.name().as_ref());
    let mappings: Vec<&ScriptMapping> = script.mappings.iter().filter(is_ours).collect();
    let place = |address: u64| match mappings.is_empty() {
        true => Some(Svma(address)).filter(|at| binary.is_code(*at)),
        false => mappings.iter().find_map(|mapping| {
            let distance = address.checked_sub(mapping.start)?;
            let is_here = distance < mapping.size;
            binary
                .code_at(FileOffset(mapping.offset.checked_add(distance)?))
                .filter(|_| is_here)
        }),
    };
    // Loops repeat the same records many times.
    let mut counts: HashMap<&[ScriptBranch], u64> = HashMap::new();
    for sample in &script.samples {
        *counts.entry(&sample.branches).or_default() += 1;
    }
    let mut profile = BranchProfile::default();
    for (branches, count) in counts {
        let oldest_first = branches.iter().rev().map(|record| {
            let branch = Branch {
                from: place(record.from),
                to: place(record.to),
            };
            (branch, record.is_mispredicted == Some(true))
        });
        profile.add_history(oldest_first, count);
    }
    Ok(profile)
}

/// Counts the branches of a binary in a `perf.data` file of `perf record -b`. The binary is the
/// module with its build id. If the file has no build ids, the name decides.
///
/// # Errors
///
/// Those of the reader.
pub fn branches_of_perf_data(bytes: &[u8], binary: &FdoBinary) -> Result<BranchProfile> {
    let mut modules: HashMap<ModuleId, bool> = HashMap::new();
    let mut branches = BranchProfile::default();
    perf_data::read_branches(bytes, &mut |profile, stack: &BranchStack| {
        let mut place = |frame: Frame| match frame {
            Frame::Code { module, offset } => {
                let is_ours = *modules
                    .entry(module)
                    .or_insert_with(|| is_binary(profile, module, binary));
                is_ours.then(|| binary.code_at(offset)).flatten()
            }
            _ => None,
        };
        let oldest_first = stack.iter().rev().map(|record| {
            let branch = Branch {
                from: place(record.from),
                to: place(record.to),
            };
            (branch, record.is_mispredicted == Some(true))
        });
        branches.add_history(oldest_first, 1);
    })?;
    Ok(branches)
}

fn is_binary(profile: &Profile, module: ModuleId, binary: &FdoBinary) -> bool {
    let Some(module) = profile.modules.get(module) else {
        return false;
    };
    match (&module.build_id, binary.build_id()) {
        (Some(found), Some(wanted)) => *found == wanted,
        (Some(_), None) => false,
        (None, _) => Path::new(profile.text(module.path)).file_name() == Some(binary.name().as_ref()),
    }
}
