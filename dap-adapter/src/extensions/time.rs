//! Moments and lengths for clients whose numbers are doubles: relative to the crash, and with their
//! text.

use backtrail_debugger::latency::{Span, Unit};
use backtrail_debugger::time::{Duration, Time};
use serde::Serialize;

/// `Moment` of `docs/dap.md`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertainty: Option<u64>,
    unit: &'static str,
    text: String,
}

impl From<Time> for Moment {
    fn from(time: Time) -> Self {
        let (at, uncertainty, unit) = match time.ns {
            Some(ns) => (ns, time.uncertainty_ns, "ns"),
            None => (time.ticks(), time.uncertainty_ticks, "ticks"),
        };
        Self {
            at,
            uncertainty,
            unit,
            text: time.to_string(),
        }
    }
}

/// `Length` of `docs/dap.md`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Length {
    least: u64,
    most: u64,
    unit: Unit,
    text: String,
}

impl Length {
    /// A length in a unit.
    #[must_use]
    pub fn of(unit: Unit, span: Span) -> Self {
        Self {
            least: span.least,
            most: span.most,
            unit,
            text: span.describe(unit),
        }
    }
}

impl From<Duration> for Length {
    fn from(duration: Duration) -> Self {
        let (unit, [least, most]) = match duration.ns {
            Some(ns) => (Unit::Ns, ns),
            None => (Unit::Ticks, duration.ticks),
        };
        Self {
            least,
            most,
            unit,
            text: duration.to_string(),
        }
    }
}
