//! The hub's answer to a report.

use crate::ReportId;
use serde::{Deserialize, Serialize};

/// The hub's answer to one report: it is counted, and will not be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The report.
    pub id: ReportId,
    /// The page of the crash.
    pub link: String,
    /// The group, if the signature was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The bundle that the hub wants. `None`: nothing more is to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<BundleRequest>,
}

/// A request for the bundle of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleRequest {
    /// The reason for which the hub wants it.
    pub reason: WantReason,
    /// The offered modules that the hub has not got, by build id. The bundle may leave out all
    /// other modules that were offered.
    pub modules: Vec<String>,
}

/// The reason for which the hub asks for a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WantReason {
    /// No crash with this address signature is known.
    UnknownSignature,
    /// The report has no stack.
    NoStack,
    /// The group has fewer than three bundles.
    FewSamples,
    /// The group has no bundle of this build.
    NewBuild,
    /// The group's random sample takes this crash.
    Sampled,
    /// A person pushed the bundle.
    Pushed,
}
