//! The summaries of paths: their effects on the open calls, determined once.

use super::block_ends::BlockEndTable;
use super::jump_watch::JumpWatch;
use super::rules::{Rules, Source, TransferKind};
use super::symbolic_stack::SymbolicStack;
use super::transfers::{self, Transfer};
use crate::forest::code_sites::{CodeSite, SiteIdx};
use crate::forest::effects::{EffectStore, Transition};
use crate::forest::stack::{
    Frame, FrameKey, InlineSummary, NONE, PathExit, PathSummary, SpilledParts, SpilledSummary, SummaryBody,
    SummaryCtx, TailJump,
};
use crate::{PathIdx, PathTable};

/// The path summaries.
#[derive(Default)]
pub(super) struct PathSummaries {
    /// The summaries by path.
    summaries: Vec<PathSummary>,
    /// The frames of spilled summaries; see [`SpilledParts`].
    frames: Vec<Frame>,
    more: Vec<ExtraConditions>,
    unexpected: JumpWatch,
    symbolic: SymbolicStack,
    ends: BlockEndTable,
    /// A buffer for the transfers of a path.
    transfers: Vec<Transfer>,
}

/// Further conditions of a few summaries.
struct ExtraConditions {
    tails: Box<[TailJump]>,
    renamed_to: Option<CodeSite>,
    /// The sites that no open call may return to, although some call does.
    unexpected: Box<[SiteIdx]>,
}

impl ExtraConditions {
    fn is_nothing(&self) -> bool {
        self.tails.is_empty() && self.renamed_to.is_none() && self.unexpected.is_empty()
    }
}

impl PathSummaries {
    /// Returns the summary of a path; unknown if it was not defined.
    #[inline]
    pub fn of(&self, path: PathIdx) -> &PathSummary {
        self.summaries.get(path.index()).unwrap_or(&PathSummary::UNKNOWN)
    }

    /// Returns the first site of a path.
    pub fn first(&self, path: PathIdx) -> CodeSite {
        self.of(path).site()
    }

    /// Applies a summary and the transition to the next path. Returns whether it applies.
    #[inline(always)]
    pub fn apply(
        &self,
        summary: &PathSummary,
        next: &PathSummary,
        execution: u64,
        effects: &mut EffectStore,
        rules: &mut Rules<'_>,
    ) -> bool {
        match &summary.body {
            SummaryBody::Inline(inline) => {
                let (stack, sites) = rules.parts();
                let mut ctx = SummaryCtx {
                    execution,
                    effects,
                    sites,
                };
                stack.apply_inline(summary, inline, next, &mut ctx)
            }
            SummaryBody::Spilled(spilled) => {
                self.apply_spilled(summary, spilled, next, execution, effects, rules)
            }
            SummaryBody::Unknown | SummaryBody::Irregular => false,
        }
    }

    #[inline(never)]
    fn apply_spilled(
        &self,
        summary: &PathSummary,
        spilled: &SpilledSummary,
        next: &PathSummary,
        execution: u64,
        effects: &mut EffectStore,
        rules: &mut Rules<'_>,
    ) -> bool {
        let frames = self.frames.get(spilled.first as usize..).unwrap_or(&[]);
        let (Some((levels, rest)), more) = (
            frames.split_at_checked(spilled.levels as usize),
            self.more.get(spilled.more as usize),
        ) else {
            return false;
        };
        let Some(open) = rest.get(..spilled.open as usize) else {
            return false;
        };
        let mut unexpected = more.iter().flat_map(|more| &more.unexpected);
        if unexpected.any(|&site| rules.expects(site)) {
            return false;
        }
        let (stack, sites) = rules.parts();
        let mut ctx = SummaryCtx {
            execution,
            effects,
            sites,
        };
        let spilled = SpilledParts {
            levels,
            open,
            tails: more.map_or(&[], |more| &more.tails),
            renamed_to: more.and_then(|more| more.renamed_to),
        };
        stack.apply_spilled(summary, &spilled, next, &mut ctx)
    }

    /// Executes a path transfer by transfer; it starts with instruction `index`. Returns its last
    /// instruction.
    #[cold]
    pub fn follow(
        &mut self,
        path: PathIdx,
        table: PathTable<'_>,
        index: u64,
        rules: &mut Rules<'_>,
    ) -> Option<Source> {
        self.transfers.clear();
        transfers::list(path, table, rules, &mut self.ends, &mut self.transfers);
        for transfer in &self.transfers {
            transfer.happen(index, rules);
        }
        self.invalidate_returned_to(rules);
        let last = *table.paths.blocks(path).last()?;
        self.ends.known(last).map(|end| end.last)
    }

    /// Invalidates the summaries of paths that jump to sites which calls now return to.
    fn invalidate_returned_to(&mut self, rules: &mut Rules<'_>) {
        while let Some(site) = rules.sites.new_return() {
            for path in self.unexpected.take(site) {
                if let Some(summary) = self.summaries.get_mut(path.index()) {
                    summary.body = SummaryBody::Unknown;
                }
            }
        }
    }

    /// Determines the summary of a new path.
    #[cold]
    pub fn define(
        &mut self,
        path: PathIdx,
        table: PathTable<'_>,
        effects: &mut EffectStore,
        rules: &mut Rules<'_>,
    ) -> Option<()> {
        let blocks = table.paths.blocks(path);
        let first = self.ends.of(*blocks.first()?, table, rules)?.first;
        let last = self.ends.of(*blocks.last()?, table, rules)?.last;
        let at = path.index();
        if self.summaries.len() <= at {
            self.summaries
                .resize(table.paths.len().max(at + 1), PathSummary::UNKNOWN);
        }
        self.transfers.clear();
        transfers::list(path, table, rules, &mut self.ends, &mut self.transfers);
        self.invalidate_returned_to(rules);
        let mut summary = PathSummary {
            first: first.id,
            inside: first.function,
            return_site: last.return_site(),
            count: u32::try_from(table.paths.count(path)).ok()?,
            end: end_of(&last),
            body: SummaryBody::Inline(InlineSummary::NOTHING),
            ..PathSummary::UNKNOWN
        };
        let mut ops: &[_] = &[];
        let mut resolved = None;
        if !self.transfers.is_empty() || summary.end.is_glue() {
            let done = self.symbolic.apply(first.function, &self.transfers, rules);
            match done.then(|| self.write(path, &mut summary, rules)).flatten() {
                Some(body) => {
                    summary.body = body;
                    (ops, resolved) = (self.symbolic.ops(), self.symbolic.open().last());
                }
                None => summary.body = SummaryBody::Irregular,
            }
        }
        let transition = match (summary.end, resolved) {
            (end, _) if end.calls() => Transition::Calls,
            (end, _) if end.returns() => Transition::Returns,
            (end, Some(open)) if end.is_glue() => Transition::Resolves(open.call),
            (end, _) if end.jumps() => Transition::MayTailCall,
            _ => Transition::Nothing,
        };
        // The effects of earlier executions must stay as they are.
        let stays = matches!(summary.body, SummaryBody::Irregular) && self.of(path).first != SiteIdx::NONE;
        if !stays && effects.set_path(path, first.id, ops, transition).is_none() {
            summary.body = SummaryBody::Irregular;
        }
        *self.summaries.get_mut(at)? = summary;
        Some(())
    }

    /// Returns the summary body of the last symbolic run; `None`: it is too large.
    fn write(&mut self, path: PathIdx, summary: &mut PathSummary, rules: &Rules<'_>) -> Option<SummaryBody> {
        summary.begin = self.symbolic.began();
        let more = ExtraConditions {
            unexpected: self.watch(path, rules)?,
            tails: self.symbolic.tails().into(),
            renamed_to: self.symbolic.renamed_to(),
        };
        // Glue code that the path did not call belongs to a call before the path, which must be
        // renamed.
        let renamed_to = summary.end.is_glue() && self.symbolic.open().len() == 0;
        match inline(&self.symbolic) {
            Some(inline) if more.is_nothing() && !renamed_to => Some(SummaryBody::Inline(inline)),
            _ => self.spill(more),
        }
    }

    fn spill(&mut self, more: ExtraConditions) -> Option<SummaryBody> {
        let (levels, open) = (self.symbolic.levels(), self.symbolic.open());
        let spilled = SpilledSummary {
            first: u32::try_from(self.frames.len()).ok()?,
            levels: u32::try_from(levels.len()).ok()?,
            open: u32::try_from(open.len()).ok()?,
            more: match more.is_nothing() {
                true => NONE,
                false => u32::try_from(self.more.len()).ok()?,
            },
        };
        self.frames.extend(levels.iter().map(|level| level.frame()));
        self.frames.extend(open);
        if spilled.more != NONE {
            self.more.push(more);
        }
        Some(SummaryBody::Spilled(spilled))
    }

    /// Watches the sites that no open call may return to. Returns those that some call returns to
    /// already.
    fn watch(&mut self, path: PathIdx, rules: &Rules<'_>) -> Option<Box<[SiteIdx]>> {
        let sites = self.symbolic.unexpected();
        sites.sort_unstable();
        sites.dedup();
        let is_known = |site: &SiteIdx| rules.sites.may_be_returned_to(*site);
        for &site in sites.iter().filter(|&site| !is_known(site)) {
            self.unexpected.add(path, site)?;
        }
        sites.retain(is_known);
        Some(sites.as_slice().into())
    }
}

/// Returns an inline summary of the last symbolic run, if it fits.
fn inline(symbolic: &SymbolicStack) -> Option<InlineSummary> {
    let (levels, open) = (symbolic.levels(), symbolic.open());
    let mut inline = InlineSummary::NOTHING;
    if levels.len() > inline.levels.len()
        || open.len() > inline.open.len()
        || levels.iter().any(|level| level.unshared)
    {
        return None;
    }
    for (key, level) in inline.levels.iter_mut().zip(levels) {
        *key = level.key;
    }
    inline.opened = u8::try_from(open.len()).ok()?;
    inline.left = u8::try_from(levels.len()).ok()?.checked_sub(1)?;
    for (at, frame) in open.enumerate() {
        if frame.base as usize != at {
            return None;
        }
        *inline.open.get_mut(at)? = FrameKey {
            returns_to: frame.returns_to,
            function: frame.function,
        };
        *inline.calls.get_mut(at)? = u8::try_from(frame.call).ok()?;
    }
    Some(inline)
}

/// Returns the exit of a path by its last instruction.
fn end_of(last: &Source) -> PathExit {
    match last.kind {
        TransferKind::Sequential => PathExit::SEQUENTIAL,
        TransferKind::Call | TransferKind::IndirectCall => PathExit::CALL,
        TransferKind::Return => PathExit::RETURN,
        TransferKind::IndirectJump if last.glue => PathExit::INDIRECT_GLUE_JUMP,
        TransferKind::Jump if last.glue => PathExit::GLUE_JUMP,
        TransferKind::Conditional if last.glue => PathExit::OTHER,
        TransferKind::Conditional => PathExit::CONDITIONAL,
        TransferKind::Jump => PathExit::JUMP,
        TransferKind::IndirectJump => PathExit::INDIRECT_JUMP,
        TransferKind::Far => PathExit::OTHER,
    }
}
