//! Branches of a binary in last branch records (LBR).

use super::FdoBinary;
use backtrail_profile::fdo::{Branch, BranchProfile, ContextProfile, HybridSample};
use backtrail_profile::format::perf_data::{self, BranchSample};
use backtrail_profile::format::perf_script::{self, ScriptBranch, ScriptMapping};
use backtrail_profile::format::recording;
use backtrail_profile::{Frame, ModuleId, Profile, Result};
use backtrail_pt::{FileOffset, Svma};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

/// The counts of samples with last branch records.
#[derive(Clone, Debug, Default)]
pub struct LbrCounts {
    /// The branches of all samples.
    pub branches: BranchProfile,
    /// The same with the calls that led to them, if they were asked for.
    pub contexts: ContextProfile,
    /// Whether a sample has a call chain.
    pub has_chains: bool,
}

impl LbrCounts {
    fn add(&mut self, sample: &HybridSample, count: u64, binary: &FdoBinary, with_contexts: bool) {
        let oldest_first = sample.branches.iter().rev().copied();
        self.branches.add_history(oldest_first, count);
        self.has_chains |= sample.chain.len() > 1;
        if with_contexts {
            self.contexts.add_sample(sample, count, binary);
        }
    }
}

/// Counts the branches of a binary in the text of `perf script -F ip,brstack --show-mmap-events`,
/// with the calls that led to them if `with_contexts`.
///
/// The mappings of files with the binary's name place it. Without any, the addresses are those of
/// the binary, as they are in an executable that is not position-independent.
///
/// # Errors
///
/// Those of the reader.
pub fn branches_of_script(input: impl BufRead, binary: &FdoBinary, with_contexts: bool) -> Result<LbrCounts> {
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
    let mut counts: HashMap<(&[u64], &[ScriptBranch]), u64> = HashMap::new();
    for sample in &script.samples {
        let chain = match with_contexts {
            true => &sample.chain[..],
            false => &[],
        };
        *counts.entry((chain, &sample.branches)).or_default() += 1;
    }
    let mut found = LbrCounts::default();
    for ((chain, branches), count) in counts {
        let branches = branches.iter().map(|record| {
            let branch = Branch {
                from: place(record.from),
                to: place(record.to),
            };
            (branch, record.is_mispredicted == Some(true))
        });
        let sample = HybridSample {
            chain: chain.iter().map(|address| place(*address)).collect(),
            branches: branches.collect(),
        };
        found.add(&sample, count, binary, with_contexts);
    }
    Ok(found)
}

/// Counts the branches of a binary in a `perf.data` file of `perf record -b`, with the calls that
/// led to them if `with_contexts`. The binary is the module with its build id. If the file has no
/// build ids, the name decides.
///
/// # Errors
///
/// Those of the reader.
pub fn branches_of_perf_data(bytes: &[u8], binary: &FdoBinary, with_contexts: bool) -> Result<LbrCounts> {
    counts(binary, with_contexts, |visit| {
        perf_data::read_branches(bytes, visit)
    })
}

/// Counts the branches of a binary in a recording of `backtrail profile record --event lbr`, as
/// [`branches_of_perf_data`] does.
///
/// # Errors
///
/// Those of the reader.
pub fn branches_of_recording(bytes: &[u8], binary: &FdoBinary, with_contexts: bool) -> Result<LbrCounts> {
    counts(binary, with_contexts, |visit| {
        recording::read_branches(bytes, visit)
    })
}

/// Counts the branches of the samples that `read` visits.
fn counts(
    binary: &FdoBinary,
    with_contexts: bool,
    read: impl FnOnce(&mut dyn FnMut(&Profile, &BranchSample)) -> Result<()>,
) -> Result<LbrCounts> {
    let mut modules: HashMap<ModuleId, bool> = HashMap::new();
    let mut found = LbrCounts::default();
    read(&mut |profile, sample| {
        let mut place = |frame: Frame| match frame {
            Frame::Code { module, offset } => {
                let is_ours = *modules
                    .entry(module)
                    .or_insert_with(|| is_binary(profile, module, binary));
                is_ours.then(|| binary.code_at(offset)).flatten()
            }
            _ => None,
        };
        let chain = sample.chain.iter().map(|frame| place(*frame)).collect();
        let branches = sample.branches.iter().map(|record| {
            let branch = Branch {
                from: place(record.from),
                to: place(record.to),
            };
            (branch, record.is_mispredicted == Some(true))
        });
        let sample = HybridSample {
            chain,
            branches: branches.collect(),
        };
        found.add(&sample, 1, binary, with_contexts);
    })?;
    Ok(found)
}

fn is_binary(profile: &Profile, module: ModuleId, binary: &FdoBinary) -> bool {
    let Some(module) = profile.modules.get(module) else {
        return false;
    };
    match &module.build_id {
        Some(build_id) => binary.is_build(build_id),
        None => Path::new(profile.text(module.path)).file_name() == Some(binary.name().as_ref()),
    }
}
