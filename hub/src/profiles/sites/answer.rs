//! The part that each site has in a result.

use serde::{Deserialize, Serialize};

/// The state of a site's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteState {
    /// The result has it.
    Complete,
    /// The site did not answer in time.
    Late,
    /// The site refused, failed or cannot be reached.
    Failed,
}

/// A site's part in a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteAnswer {
    /// The name of the site.
    pub name: String,
    /// The state.
    pub state: SiteState,
    /// The reason of a missing part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SiteAnswer {
    /// Returns a complete part.
    #[must_use]
    pub fn complete(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: SiteState::Complete,
            reason: None,
        }
    }

    /// Returns a missing part.
    #[must_use]
    pub fn missing(name: &str, problem: SiteProblem) -> Self {
        Self {
            name: name.to_owned(),
            state: problem.state,
            reason: Some(problem.reason),
        }
    }

    /// Returns a sentence about a missing part. `None`: the part is complete.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let reason = self.reason.as_deref()?;
        Some(format!("partial result: site {} is missing: {reason}", self.name))
    }
}

/// Returns whether a part is missing.
#[must_use]
pub fn is_partial(answers: &[SiteAnswer]) -> bool {
    answers.iter().any(|answer| answer.state != SiteState::Complete)
}

/// The reason for which a site has no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteProblem {
    /// `Late` or `Failed`.
    pub state: SiteState,
    /// The reason, one line.
    pub reason: String,
}

impl SiteProblem {
    /// Returns a failure.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self {
            state: SiteState::Failed,
            reason: reason.into(),
        }
    }
}
