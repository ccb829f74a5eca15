//! The state of a crash's bundle, from the first report until it is stored or refused.

use super::text::{bytes, shown_to};
use maud::{Markup, html};

/// The state of a bundle.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BundleState {
    /// The crash is counted. Its group has enough bundles.
    #[default]
    None,
    /// The host keeps memory and history to itself.
    Kept,
    /// The host was asked for the bundle.
    Wanted,
    /// The bundle is being uploaded.
    Uploading {
        /// The received bytes.
        received: u64,
        /// All bytes.
        total: u64,
    },
    /// A child process checks the bundle.
    Checking {
        /// The stage in words.
        stage: String,
        /// The finished part of the stage, from 0 to 1.
        done: f64,
    },
    /// The bundle is stored.
    Stored,
    /// The bundle was refused, for a reason in one sentence.
    Refused(String),
    /// The host did not send the bundle in time, or the bundle was removed by its age.
    Expired,
}

impl BundleState {
    /// Returns whether the state changes without a person.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        matches!(
            self,
            Self::Wanted | Self::Uploading { .. } | Self::Checking { .. }
        )
    }

    /// Returns the name, as the database has it. The script of the page loads it again when the
    /// name changes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::None | Self::Kept => "none",
            Self::Wanted => "wanted",
            Self::Uploading { .. } => "uploading",
            Self::Checking { .. } => "checking",
            Self::Stored => "stored",
            Self::Refused(_) => "refused",
            Self::Expired => "expired",
        }
    }

    /// Returns the finished part, from 0 to 1. `None`: unknown.
    #[must_use]
    pub fn done(&self) -> Option<f64> {
        match self {
            Self::Uploading { received, total } if *total > 0 => {
                Some((*received as f64 / *total as f64).clamp(0.0, 1.0))
            }
            Self::Checking { done, .. } if done.is_finite() => Some(done.clamp(0.0, 1.0)),
            _ => None,
        }
    }

    /// Returns the state in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::None => {
                "The crash is counted. Its group has enough bundles, so the host was not asked for this one."
                    .to_owned()
            }
            Self::Kept => {
                "There is no bundle: the host sends stacks only, and keeps memory and history (hub.send = \"stacks\")."
                    .to_owned()
            }
            Self::Wanted => "The hub asked the host for the bundle. The upload has not begun.".to_owned(),
            Self::Uploading { received, total } => {
                format!(
                    "The host uploads the bundle: {} of {}.",
                    bytes(*received),
                    bytes(*total)
                )
            }
            Self::Checking { stage, .. } => format!("The bundle is being checked: {}.", shown_to(stage, 80)),
            Self::Stored => "The bundle is stored.".to_owned(),
            Self::Refused(problem) => format!("The bundle was refused: {}", shown_to(problem, 400)),
            Self::Expired => "The bundle is not here any more, or it never arrived.".to_owned(),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::None => "Counted only",
            Self::Kept => "Stack only",
            Self::Wanted => "Bundle awaited",
            Self::Uploading { .. } => "Uploading",
            Self::Checking { .. } => "Being checked",
            Self::Stored => "No analysis",
            Self::Refused(_) => "Bundle refused",
            Self::Expired => "Bundle expired",
        }
    }
}

/// The steps from a report to a page with a history.
const STEPS: [(&str, &str); 4] = [
    ("report", "Reported"),
    ("wanted", "Asked for the bundle"),
    ("uploading", "Uploading"),
    ("checking", "Checking"),
];

/// Returns the panel in place of an analysis. A script keeps it up to date.
pub(super) fn panel(state: &BundleState, problem: Option<&str>, id: &str) -> Markup {
    let at = STEPS.iter().position(|(name, _)| *name == state.name());
    html! {
        section class={ "panel awaited " (state.name()) } id="progress" data-state=(state.name())
            data-source=[state.is_moving().then(|| format!("/c/{id}/state"))] {
            h2 { (state.title()) }
            @if let Some(at) = at {
                ol class="steps" {
                    @for (number, (_, label)) in STEPS.iter().enumerate() {
                        li class=(if number < at { "done" } else if number == at { "now" } else { "next" })
                            aria-current=[(number == at).then_some("step")] { (label) }
                    }
                }
                progress id="progress-bar" max="1" value=[state.done().map(|done| format!("{done:.3}"))] aria-label="Progress" {}
            }
            p id="progress-text" role="status" aria-live="polite" { (state.sentence()) }
            @if let Some(problem) = problem { p class="bad" { (shown_to(problem, 400)) } }
            @if state.is_moving() { p class="dim" { "This page shows the stack, the last lines and the timeline as soon as they are there." } }
            noscript { @if state.is_moving() { p { "Reload the page to see the newest state." } } }
        }
    }
}
