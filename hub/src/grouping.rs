//! Grouping of crashes: signatures, rules of users, and the explanation of each decision.
//!
//! All functions here are pure. They read frames and facts of a crash, and do no input or output.
//! Equal input has an equal result on every machine. docs/hub-grouping.md describes the rules for
//! users.
//!
//! # Data flow
//!
//! ```text
//! facts of the signal ─ cause ────────────────┐
//! frames ─ normalize ─ recursion ─ lists ─ signature ─ group id
//!                        rules ───────────────┘  └─ explanation
//! ```
//!
//! [`group`] computes the signature of one crash. [`trial`] compares the groups before and after a
//! change of the rules. [`ways`] splits a group by the calls before the crash. [`similar`] suggests
//! groups with similar stacks.

pub mod cause;
pub mod explain;
pub mod lists;
pub mod normalize;
pub(crate) mod printable;
mod recursion;
pub mod rules;
pub mod signature;
pub mod similar;
pub mod trial;
pub mod ways;

pub use cause::{Access, CauseKind, CrashCause, CrashFacts};
pub use explain::{Decision, FrameDecision};
pub use normalize::normalize;
pub use rules::{InvalidRule, Rule, RuleAction, RuleSet};
pub use signature::{Grouping, UnknownVersion, Version, group, group_id, group_with};
