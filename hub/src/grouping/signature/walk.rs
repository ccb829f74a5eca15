//! The walk over a stack that decides on each frame.

use super::names::{self, FrameName};
use crate::grouping::cause::CauseKind;
use crate::grouping::explain::{Decision, FrameDecision};
use crate::grouping::lists::{self, KnownFunction, Role};
use crate::grouping::recursion;
use crate::grouping::rules::{RuleAction, RuleSet};
use crate::stack::Frame;

/// The most frames that are read.
const MAX_READ: usize = 256;
/// The most frames that count, after recursion is collapsed.
const MAX_CONSIDERED: usize = 40;
/// The most addresses in a provisional signature, as in the address signature of a report.
const MAX_ADDRESSES: usize = 8;
/// The occurrences that make a function the hub of an irregular recursion.
const MIN_OCCURRENCES: usize = 5;

/// The frames of a stack, with the decisions so far.
pub struct Walk<'a> {
    frames: &'a [Frame],
    names: Vec<FrameName>,
    known: Vec<Option<KnownFunction>>,
    decisions: Vec<Option<Decision>>,
    /// The names of a recursion, which replace those of the kept frames.
    recursion: Option<Vec<String>>,
    has_end: bool,
}

/// The result of a walk.
pub struct Outcome {
    /// The names of the signature, innermost first.
    pub parts: Vec<String>,
    /// The name that the title has.
    pub last: Option<String>,
    /// Whether the names have addresses.
    pub is_provisional: bool,
    /// The decision on each frame.
    pub decisions: Vec<FrameDecision>,
}

impl<'a> Walk<'a> {
    /// Names the frames of a stack.
    pub fn new(frames: &'a [Frame]) -> Self {
        let names: Vec<FrameName> = frames.iter().take(MAX_READ).map(FrameName::of).collect();
        let known = names.iter().map(|name| name.function().and_then(lists::find));
        Self {
            frames,
            known: known.collect(),
            decisions: vec![None; names.len()],
            names,
            recursion: None,
            has_end: false,
        }
    }

    /// Returns the frames without a decision.
    fn open(&self) -> Vec<usize> {
        (0..self.names.len())
            .filter(|&at| self.decisions[at].is_none())
            .collect()
    }

    /// Decides on frames that have no decision yet.
    fn decide(&mut self, frames: impl IntoIterator<Item = usize>, decision: &Decision) {
        for at in frames {
            self.decisions[at].get_or_insert_with(|| decision.clone());
        }
    }

    fn module(&self, at: usize) -> Option<&str> {
        self.frames[at].module.as_deref()
    }

    /// Applies the rules that drop frames.
    pub fn apply_ignoring(&mut self, rules: &RuleSet) {
        for (number, rule) in (1..).zip(rules.rules()) {
            let matches: Vec<bool> = (0..self.names.len())
                .map(|at| rule.matches(self.names[at].function(), self.module(at)))
                .collect();
            match rule.action() {
                RuleAction::Ignore => {
                    let matching = (0..matches.len()).filter(|&at| matches[at]);
                    self.decide(matching, &Decision::Ignored { rule: number });
                }
                RuleAction::IgnoreUpTo => {
                    let first = matches.iter().position(|&is_match| is_match);
                    let run = first.map_or(0, |first| {
                        matches[first..].iter().take_while(|is_match| **is_match).count()
                    });
                    self.decide(
                        0..first.unwrap_or(0) + run,
                        &Decision::IgnoredUpTo { rule: number },
                    );
                }
                RuleAction::GroupBy { .. } => {}
            }
        }
    }

    /// Applies the first rule that groups by a frame of the stack. Returns the name that the rule
    /// gives to the group.
    pub fn apply_group_by(&mut self, rules: &RuleSet) -> Option<Option<String>> {
        let open = self.open();
        for (number, rule) in (1..).zip(rules.rules()) {
            let RuleAction::GroupBy { name } = rule.action() else {
                continue;
            };
            let found = open
                .iter()
                .find(|&&at| rule.matches(self.names[at].function(), self.module(at)));
            if let Some(&at) = found {
                self.decide([at], &Decision::GroupedBy { rule: number });
                self.decide(open, &Decision::NotGroupedBy);
                self.has_end = true;
                return Some(name.clone());
            }
        }
        None
    }

    /// Returns the kind of crash that the innermost library functions show.
    pub fn implied_kind(&self) -> Option<CauseKind> {
        let library = self.known.iter().map_while(|known| *known);
        let kinds: Vec<CauseKind> = library.filter_map(|known| known.kind).collect();
        // A failed allocation ends in a panic or an exception too.
        let precise = [CauseKind::OutOfMemory, CauseKind::StackOverflow];
        let found = kinds.iter().find(|kind| precise.contains(kind));
        found.or(kinds.first()).copied()
    }

    /// Keeps the recursion of a full stack. Returns false if the stack has none.
    pub fn keep_recursion(&mut self) -> bool {
        let open = self.open();
        let names: Vec<String> = open.iter().map(|&at| self.names[at].text().to_owned()).collect();
        let Some(cycle) = recursion::cycle(&names) else {
            return self.keep_most_frequent(&open, &names);
        };
        let first = &names[cycle.start..cycle.start + cycle.period];
        let is_relevant = |at: usize| self.known[at].is_none_or(|known| known.role != Role::Irrelevant);
        let mut kept: Vec<usize> = open[cycle.start..cycle.start + cycle.period].to_vec();
        if kept.iter().any(|&at| is_relevant(at)) {
            kept.retain(|&at| is_relevant(at));
        }
        let parts: Vec<String> = kept.iter().map(|&at| self.names[at].text().to_owned()).collect();
        let repeated = names[cycle.start..]
            .iter()
            .zip(first.iter().cycle())
            .take_while(|(name, expected)| name == expected)
            .count();
        self.decide(kept, &Decision::Recursion);
        self.decide(
            open[cycle.start..cycle.start + repeated].iter().copied(),
            &Decision::RecursionCollapsed,
        );
        self.decide(open, &Decision::OutsideRecursion);
        self.recursion = Some(recursion::rotated(&parts));
        true
    }

    /// Keeps the function that occurs most often in an irregular recursion.
    fn keep_most_frequent(&mut self, open: &[usize], names: &[String]) -> bool {
        let Some((name, count)) = recursion::most_frequent(names) else {
            return false;
        };
        if count < MIN_OCCURRENCES {
            return false;
        }
        let same = open.iter().zip(names).filter(|(_, other)| *other == name);
        let mut same: Vec<usize> = same.map(|(&at, _)| at).collect();
        let again = same.split_off(1);
        self.decide(same, &Decision::Recursion);
        self.decide(again, &Decision::RecursionCollapsed);
        self.decide(open.iter().copied(), &Decision::OutsideRecursion);
        self.recursion = Some(vec![name.clone()]);
        true
    }

    /// Returns whether a function raised the signal by a direct call.
    fn is_reporter(&self, at: usize) -> bool {
        let called = at.checked_sub(1).and_then(|inner| self.names[inner].function());
        called.is_some_and(lists::is_raising)
    }

    /// Walks from the innermost frame to the first one of the program. With `keeps_reporter`, a
    /// function of the program that raised the signal itself is kept, and the walk goes on.
    pub fn run(&mut self, is_raised: bool, keeps_reporter: bool) {
        self.collapse_recursion();
        let open = self.open();
        self.decide(open.iter().skip(MAX_CONSIDERED).copied(), &Decision::BeyondLimit);
        let open = &open[..open.len().min(MAX_CONSIDERED)];
        let start = if is_raised { self.start(open) } else { 0 };
        self.decide(open[..start].iter().copied(), &Decision::WithinSentinel);
        let mut walked = open[start..].iter().copied();
        let mut has_reporter = !keeps_reporter;
        for at in walked.by_ref() {
            let decision = match (&self.names[at], self.known[at]) {
                (FrameName::Module(_), _) => Decision::ModuleOnly,
                (_, None) if !has_reporter && self.is_reporter(at) => {
                    has_reporter = true;
                    Decision::Reporter
                }
                (_, None) => Decision::End,
                (_, Some(known)) => match known.role {
                    Role::Sentinel => Decision::Sentinel,
                    Role::Irrelevant => Decision::Irrelevant,
                    Role::Prefix => Decision::Prefix,
                },
            };
            let is_end = decision == Decision::End;
            // The program's own function is known, even if its caller is not.
            self.has_end |= is_end || decision == Decision::Reporter;
            self.decisions[at] = Some(decision);
            if is_end {
                break;
            }
        }
        self.decide(walked, &Decision::AfterEnd);
        self.drop_details(open);
        self.keep_one(open, start);
    }

    fn collapse_recursion(&mut self) {
        let open = self.open();
        let keys: Vec<(&FrameName, Option<u64>)> = open
            .iter()
            .map(|&at| {
                // Frames of one module without symbols are different functions.
                let offset = match self.names[at] {
                    FrameName::Module(_) => self.frames[at].offset,
                    _ => None,
                };
                (&self.names[at], offset)
            })
            .collect();
        let stays = recursion::collapsed(&keys);
        let gone: Vec<usize> = open
            .iter()
            .zip(stays)
            .filter(|(_, stays)| !stays)
            .map(|(&at, _)| at)
            .collect();
        self.decide(gone, &Decision::RecursionCollapsed);
    }

    /// Returns the number of frames within the innermost sentinel.
    fn start(&self, open: &[usize]) -> usize {
        let function = |&at: &usize| self.names[at].function().unwrap_or_default();
        // A handler that raises the signal again is within the frame of the kernel.
        let is_handler = open
            .first()
            .is_some_and(|first| lists::is_raising(function(first)));
        let is_start = |at: &usize| {
            let is_sentinel = self.known[*at].is_some_and(|known| known.role == Role::Sentinel);
            is_sentinel || (is_handler && lists::is_signal_trampoline(function(at)))
        };
        open.iter().position(is_start).unwrap_or(0)
    }

    /// Drops inner functions of libraries, and modules that repeat.
    fn drop_details(&mut self, open: &[usize]) {
        let kept: Vec<usize> = open
            .iter()
            .copied()
            .filter(|&at| self.decisions[at].as_ref().is_some_and(Decision::is_kept))
            .collect();
        let library = |at: usize| self.known[at].and_then(|known| known.library);
        for pair in kept.windows(2) {
            let (inner, outer) = (pair[0], pair[1]);
            if library(inner).is_some() && library(inner) == library(outer) {
                self.decisions[inner] = Some(Decision::LibraryDetail);
            }
        }
        if !self.has_end {
            return;
        }
        for pair in kept.windows(2) {
            let (inner, outer) = (pair[0], pair[1]);
            if self.decisions[outer] == Some(Decision::ModuleOnly) && self.names[inner] == self.names[outer] {
                self.decisions[outer] = Some(Decision::Repeated);
            }
        }
    }

    /// Keeps one frame of a stack that has no other: the sentinel, or the innermost frame.
    fn keep_one(&mut self, open: &[usize], start: usize) {
        let is_kept = |decision: &Option<Decision>| decision.as_ref().is_some_and(Decision::is_kept);
        if self.decisions.iter().any(is_kept) {
            return;
        }
        if let Some(&at) = open.get(start) {
            self.decisions[at] = Some(Decision::OnlyFrame);
        }
    }

    /// Returns the names of the signature and the decisions.
    pub fn outcome(self) -> Outcome {
        let kept: Vec<usize> = (0..self.names.len())
            .filter(|&at| self.decisions[at].as_ref().is_some_and(Decision::is_kept))
            .collect();
        let is_module = |at: usize| self.decisions[at] == Some(Decision::ModuleOnly);
        // Without a function of the program, only addresses keep different defects apart.
        let is_provisional =
            self.recursion.is_none() && !self.has_end && kept.iter().any(|&at| is_module(at));
        let mut addresses = 0;
        let mut parts = Vec::new();
        for &at in &kept {
            if !is_provisional || !is_module(at) {
                parts.push(self.names[at].text().to_owned());
            } else if addresses < MAX_ADDRESSES {
                addresses += 1;
                parts.push(names::address(&self.frames[at]));
            }
        }
        let first_address = kept.iter().find(|&&at| is_provisional && is_module(at));
        let last = match (&self.recursion, first_address) {
            (Some(cycle), _) => cycle.first().cloned(),
            (None, Some(&at)) => Some(names::address(&self.frames[at])),
            (None, None) => parts.last().cloned(),
        };
        let decision = |at: usize| self.decisions.get(at).cloned().flatten();
        let decisions = (0..self.frames.len().min(MAX_READ)).map(|at| FrameDecision {
            frame: at,
            name: self.names[at].text().to_owned(),
            decision: decision(at).unwrap_or(Decision::BeyondLimit),
        });
        Outcome {
            decisions: decisions.collect(),
            parts: self.recursion.unwrap_or(parts),
            last,
            is_provisional,
        }
    }
}
