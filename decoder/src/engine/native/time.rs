//! Timestamps: computed while decoding, or deferred.
//!
//! A sequential decode keeps a [`TscEstimator`] up to date ([`TimeTracker::Live`]). A segment that
//! is decoded before its predecessors records its timing packets in a [`TimingLog`]
//! ([`TimeTracker::Deferred`]). A [`TimestampResolver`] computes their times later, segment by
//! segment.

mod calibration;
mod crystal;
mod log;
mod resolver;
mod tracker;
mod tsc;

pub(super) use log::LogWriter;
pub(crate) use log::TimingLog;
pub(crate) use resolver::{ResolvedTimestamps, TimestampResolver};
pub(super) use tracker::{EventTime, TimeTracker};
pub(super) use tsc::TscEstimator;
