//! Jobs: queries of the profile store that run by a schedule.
//!
//! A job keeps its results, compares one number with a threshold, and announces what it finds by
//! the channels of alerts. [`definition`] is what a person writes, [`execute`] answers the query,
//! [`outcome`] decides on events, and [`run`] runs each due job on one hub.

pub mod alerts;
pub mod definition;
pub mod execute;
pub mod manage;
pub mod metrics;
pub mod outcome;
pub mod run;
pub mod schedule;
pub mod threshold;

#[cfg(test)]
mod tests;
