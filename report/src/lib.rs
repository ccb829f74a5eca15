//! Crash reports: what hosts send to a hub, and what the hub answers.
//!
//! A host first sends a [`CrashReport`], which is small: it has no memory and no symbol. The hub
//! counts it, and [answers](Receipt) whether it wants the bundle too. Crashes at the same place
//! have the same [`AddressSignature`], so that a hub counts a known crash without any symbol.
//!
//! All types are JSON on the wire. Their limits are checked by [`CrashReport::check`], because a
//! report comes from outside. The crate knows no bundle, no database and no server. With the
//! feature `client`, it sends reports and bundles to a hub.
//!
//! # Example
//!
//! ```
//! use backtrail_report::{AddressFrame, AddressSignature};
//!
//! let frames = [AddressFrame { module: "ledger".into(), build_id: Some("a1b2c3d4".into()), offset: 0x1204 }];
//! let signature = AddressSignature::of(&frames);
//! assert_eq!(signature, AddressSignature::of(&frames));
//! assert_eq!(AddressSignature::of(&[]), None);
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
mod frame;
mod heartbeat;
mod id;
mod receipt;
mod report;
mod signature;

pub use frame::AddressFrame;
pub use heartbeat::{Heartbeat, RunningBuild};
pub use id::{InvalidId, ReportId};
pub use receipt::{BundleRequest, Receipt, WantReason};
pub use report::{CrashReport, InvalidReport, ModuleOffer};
pub use signature::AddressSignature;

/// The version of the report format. A hub refuses newer ones.
pub const VERSION: u32 = 1;
