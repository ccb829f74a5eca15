//! Runs a path symbolically: finds its effects by applying the rules to placeholder calls.

use super::rules::{Rules, Source, TransferKind};
use super::transfers::Transfer;
use crate::forest::code_sites::{CodeSite, FunctionIdx, SiteIdx};
use crate::forest::effects::Op;
use crate::forest::stack::{EnclosingCall, Frame, FrameKey, NONE, Stack, TailJump};

/// Open calls for a symbolic run: a placeholder for any call, and above it the calls of the path.
/// If the path returns from the placeholder, another one takes its site.
#[derive(Default)]
pub(super) struct SymbolicStack {
    stack: Stack,
    levels: Vec<EnclosingCall>,
    /// The sites that no open call may return to.
    unexpected: Vec<SiteIdx>,
    /// The tail jumps, each once; at most one more than [`SymbolicStack::TAILS`].
    tails: Vec<TailJump>,
    renamed_to: Option<CodeSite>,
}

/// The outcome of a symbolic transfer.
enum SymbolicOutcome {
    Done,
    /// A jump to this function out of the placeholder.
    Jumps(FunctionIdx),
    /// A return from the placeholder.
    Returns,
    /// A proof that the placeholder is a call of the function that starts at the target.
    Renames,
    /// The effect depends on unknown calls.
    Open,
}

impl SymbolicStack {
    /// The most calls open at once, or returned from.
    const LONGEST: usize = 1 << 12;
    /// The most tail jumps of a summary. This bounds the work of each application.
    const TAILS: usize = 32;

    /// Runs all transfers of a path that starts in the function `function_of_path`. Returns whether
    /// their effects depend only on a few open calls below.
    pub fn apply(
        &mut self,
        function_of_path: FunctionIdx,
        transfers: &[Transfer],
        rules: &mut Rules<'_>,
    ) -> bool {
        self.stack.begin();
        self.levels.clear();
        self.unexpected.clear();
        self.tails.clear();
        self.renamed_to = None;
        rules.exchange(&mut self.stack);
        let done = self.run_on(function_of_path, transfers, rules);
        rules.exchange(&mut self.stack);
        done.is_some()
    }

    fn run_on(
        &mut self,
        function_of_path: FunctionIdx,
        transfers: &[Transfer],
        rules: &mut Rules<'_>,
    ) -> Option<()> {
        let mut function = function_of_path;
        self.begin_level(function, rules);
        // Each transfer makes at most one call.
        if transfers.len() > Stack::MOST_AT_ONCE as usize {
            return None;
        }
        for transfer in transfers {
            let number = self.levels.len() - 1;
            if rules.depth().max(self.levels.len()) >= Self::LONGEST {
                return None;
            }
            let level = self.levels.last_mut()?;
            let outcome = try_transfer(transfer, rules, level, function, &mut self.unexpected);
            match outcome {
                SymbolicOutcome::Done => {}
                SymbolicOutcome::Jumps(to) => {
                    level.unshared = true;
                    let tail = TailJump {
                        level: number,
                        function: to,
                    };
                    if self.tails.len() <= Self::TAILS && !self.tails.contains(&tail) {
                        self.tails.push(tail);
                    }
                }
                SymbolicOutcome::Returns => {
                    level.key.returns_to = transfer.to.id;
                    rules.leave_all(u64::from(transfer.offset));
                    function = transfer.to.function;
                    self.begin_level(function, rules);
                }
                SymbolicOutcome::Renames if number == 0 && self.renamed_to.is_none() => {
                    self.renamed_to = Some(transfer.to);
                    function = transfer.to.function;
                }
                SymbolicOutcome::Renames | SymbolicOutcome::Open => return None,
            }
        }
        Some(())
    }

    /// Opens a placeholder for a call of a function.
    fn begin_level(&mut self, function: FunctionIdx, rules: &mut Rules<'_>) {
        rules.push_placeholder(function);
        self.levels.push(EnclosingCall {
            key: FrameKey::NONE,
            unshared: false,
        });
    }

    /// Returns the operations of the run.
    pub fn ops(&self) -> &[Op] {
        &self.stack.log().ops
    }

    /// Returns the number of calls started.
    pub fn began(&self) -> u32 {
        self.stack.began()
    }

    /// Returns the sites that no open call may return to, in no order and with duplicates.
    pub fn unexpected(&mut self) -> &mut Vec<SiteIdx> {
        &mut self.unexpected
    }

    /// Returns the functions that placeholders jump to; none if there are too many.
    pub fn tails(&self) -> &[TailJump] {
        match self.tails.len() {
            0..=Self::TAILS => &self.tails,
            _ => &[],
        }
    }

    /// Returns the conditions on the enclosing calls, the innermost first.
    pub fn levels(&self) -> &[EnclosingCall] {
        &self.levels
    }

    /// Returns the function that the innermost call was renamed to.
    pub fn renamed_to(&self) -> Option<CodeSite> {
        self.renamed_to
    }

    /// Returns the calls of the path that are still open, outermost first, in the form of
    /// [`SpilledParts`](crate::forest::stack::SpilledParts).
    pub fn open(&self) -> impl ExactSizeIterator<Item = Frame> {
        let frames = self.stack.frames().get(1..).unwrap_or(&[]);
        frames.iter().map(|frame| Frame {
            base: frame.base.checked_sub(1).unwrap_or(NONE),
            ..*frame
        })
    }
}

fn try_transfer(
    transfer: &Transfer,
    rules: &mut Rules<'_>,
    level: &mut EnclosingCall,
    function: FunctionIdx,
    unexpected: &mut Vec<SiteIdx>,
) -> SymbolicOutcome {
    let (from, to) = (&transfer.from, transfer.to);
    let mut outcome = SymbolicOutcome::Done;
    if from.falls(to) {
        return SymbolicOutcome::Done;
    }
    match from.kind {
        TransferKind::Call | TransferKind::IndirectCall => {}
        TransferKind::Return | TransferKind::IndirectJump if rules.returns(to) => {}
        // A return over calls, perhaps a stack switch, which the rules must record.
        TransferKind::Return | TransferKind::IndirectJump if rules.expects(to.id) => {
            return SymbolicOutcome::Open;
        }
        TransferKind::Return if rules.base() == 0 => return SymbolicOutcome::Returns,
        TransferKind::Return | TransferKind::Sequential | TransferKind::Far => return SymbolicOutcome::Open,
        TransferKind::Conditional | TransferKind::Jump | TransferKind::IndirectJump => {
            let outermost = rules.depth() == 1;
            let stays = rules.stays(rules.inside(), from, to);
            let resolves = !stays && from.glue;
            let tail_calls =
                !stays && (!to.is_known() || rules.sites.is_start(to) || leaves_for_good(from, to, rules));
            let goes_back = !stays && !tail_calls && to.is_known();
            if resolves {
                if outermost {
                    outcome = SymbolicOutcome::Renames;
                }
            } else if goes_back && !rules.is_running(to) {
                return SymbolicOutcome::Open;
            } else if tail_calls && to.is_known() && rules.base() == 0 {
                outcome = SymbolicOutcome::Jumps(to.function);
            }
            if (outermost || goes_back || tail_calls) && level.key.function == FrameKey::ANY {
                level.key.function = function;
            }
            if from.kind == TransferKind::IndirectJump {
                unexpected.push(to.id);
            }
        }
    }
    rules.transfer(from, to, u64::from(transfer.offset));
    outcome
}

/// Returns whether a direct jump leads into the middle of a function without an open call, so that
/// it does not go back.
fn leaves_for_good(from: &Source, to: CodeSite, rules: &mut Rules<'_>) -> bool {
    from.kind != TransferKind::IndirectJump && rules.inside() != FunctionIdx::UNKNOWN && !rules.is_running(to)
}
