//! The explanation of a signature: one decision for each frame of the stack.

use serde::{Deserialize, Serialize};

/// The reason for which a frame is, or is not, part of a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Decision {
    /// The first frame of the program's own code, which ends the signature.
    End,
    /// A function of the program that ended the process itself: kept, and its caller is kept too.
    Reporter,
    /// A known library function: kept, and its caller is kept too.
    Prefix,
    /// Code without symbols: kept by its module, and its caller is kept too.
    ModuleOnly,
    /// The frame belongs to a cycle of calls that repeats until the stack is full.
    Recursion,
    /// A function that reports or raises the crash. The signature starts at its caller.
    Sentinel,
    /// A frame within the sentinel.
    WithinSentinel,
    /// A function that says nothing about the defect.
    Irrelevant,
    /// An inner function of the library whose outer function is kept.
    LibraryDetail,
    /// The same module as the frame before, both without symbols.
    Repeated,
    /// A repetition of the frames before.
    RecursionCollapsed,
    /// A call by which the program left the recursion.
    OutsideRecursion,
    /// A rule of a user ignores the frame.
    Ignored {
        /// The number of the rule, from 1.
        rule: usize,
    },
    /// A rule of a user ignores all frames up to a caller of this one, or to this one.
    IgnoredUpTo {
        /// The number of the rule, from 1.
        rule: usize,
    },
    /// A rule of a user groups by this frame.
    GroupedBy {
        /// The number of the rule, from 1.
        rule: usize,
    },
    /// Another frame, by which a rule groups, makes this one irrelevant.
    NotGroupedBy,
    /// The only frame with a name, although it says little.
    OnlyFrame,
    /// A caller of the frame that ends the signature.
    AfterEnd,
    /// The stack is too deep.
    BeyondLimit,
}

/// A frame, its normalized name, and the decision about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameDecision {
    /// The number of the frame, from 0, the innermost.
    pub frame: usize,
    /// The normalized name: the function, else the file and line, else the module.
    pub name: String,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
}

impl Decision {
    /// Returns whether the frame's name is part of the signature.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::End
                | Self::Reporter
                | Self::Prefix
                | Self::ModuleOnly
                | Self::Recursion
                | Self::GroupedBy { .. }
                | Self::OnlyFrame
        )
    }

    /// Returns a word or two for a column of a table.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::End => "kept: end",
            Self::Reporter => "kept: reporter",
            Self::Prefix => "kept: prefix",
            Self::ModuleOnly => "kept: module",
            Self::Recursion => "kept: recursion",
            Self::OnlyFrame => "kept: only frame",
            Self::GroupedBy { .. } => "kept: rule",
            Self::Sentinel => "sentinel",
            Self::WithinSentinel => "before start",
            Self::Irrelevant => "irrelevant",
            Self::LibraryDetail => "library detail",
            Self::Repeated => "repeated",
            Self::RecursionCollapsed => "recursion",
            Self::OutsideRecursion => "outside recursion",
            Self::Ignored { .. } | Self::IgnoredUpTo { .. } => "ignored: rule",
            Self::NotGroupedBy => "other frame",
            Self::AfterEnd => "after end",
            Self::BeyondLimit => "beyond limit",
        }
    }

    /// Returns one sentence for the group's page.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::End => "Kept: the program's own code, which ends the signature.".to_owned(),
            Self::Reporter => {
                "Kept: the function ended the process itself, so that its caller is kept too.".to_owned()
            }
            Self::Prefix => "Kept: a library function, so that its caller is kept too.".to_owned(),
            Self::ModuleOnly => "Kept by its module: the code has no symbols.".to_owned(),
            Self::Recursion => "Kept: one of the functions that call each other without end.".to_owned(),
            Self::OnlyFrame => "Kept: no other frame has a name.".to_owned(),
            Self::GroupedBy { rule } => format!("Kept: rule {rule} groups by this frame."),
            Self::Sentinel => {
                "Dropped: the function reports the crash, and the signature starts at its caller.".to_owned()
            }
            Self::WithinSentinel => "Dropped: the function is part of reporting the crash.".to_owned(),
            Self::Irrelevant => "Dropped: the function is part of every crash of this kind.".to_owned(),
            Self::LibraryDetail => "Dropped: an inner function of the library that is kept below.".to_owned(),
            Self::Repeated => "Dropped: the same module as in the frame before.".to_owned(),
            Self::RecursionCollapsed => {
                "Dropped: a repetition, because the depth of a recursion does not matter.".to_owned()
            }
            Self::OutsideRecursion => "Dropped: the frame is not part of the recursion.".to_owned(),
            Self::Ignored { rule } => format!("Dropped: rule {rule} ignores the frame."),
            Self::IgnoredUpTo { rule } => {
                format!("Dropped: rule {rule} ignores the frames up to a function that it names.")
            }
            Self::NotGroupedBy => "Dropped: a rule groups by another frame.".to_owned(),
            Self::AfterEnd => "Dropped: a caller of the frame that ends the signature.".to_owned(),
            Self::BeyondLimit => "Dropped: the stack is deeper than the frames that count.".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_survives_json() {
        for decision in [Decision::End, Decision::Ignored { rule: 3 }] {
            let frame = FrameDecision {
                frame: 2,
                name: "ledger::post".to_owned(),
                decision,
            };
            let text = serde_json::to_string(&frame).unwrap();
            assert_eq!(serde_json::from_str::<FrameDecision>(&text).unwrap(), frame);
        }
    }

    #[test]
    fn sentences_name_the_rule_from_one() {
        let sentence = Decision::Ignored { rule: 3 }.sentence();
        assert_eq!(sentence, "Dropped: rule 3 ignores the frame.");
    }
}
