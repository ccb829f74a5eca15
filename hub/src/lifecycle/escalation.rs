//! Escalation: the share of hosts on which a group crashes grows beyond its own history.
//!
//! The share of an hour is the number of hosts with a crash of the group, divided by the number of
//! hosts that report. A group escalates if all of these hold:
//!
//! 1. At least [`LEAST_HOSTS`] hosts crashed in the current hour.
//! 2. At least [`LEAST_HOURS`] earlier hours are known. Hours in which no host reports are unknown.
//! 3. The share is at least twice the usual share: the 95th percentile of the earlier hours, by
//!    nearest rank. Hours without a crash count as zero.
//! 4. The lower bound of the share's 95 % interval by Wilson's score is above the usual share. In a
//!    small fleet, one host more or less is no escalation.
//!
//! Numbers of reports do not count, so one host that crashes in a loop is no escalation.

use serde::{Deserialize, Serialize};

/// The least number of hosts that crashed.
pub const LEAST_HOSTS: u64 = 3;
/// The least number of earlier hours.
pub const LEAST_HOURS: usize = 24;
/// The earlier hours that count: seven days.
pub const MAX_HOURS: usize = 7 * 24;
/// The factor by which the share must be above the usual one.
const FACTOR: f64 = 2.0;
/// The quantile of the normal distribution for an interval of 95 %.
const QUANTILE: f64 = 1.96;

/// Hosts with a crash of a group, and hosts that report, in one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShare {
    /// The hosts with a crash.
    pub crashed: u64,
    /// The hosts that report.
    pub reporting: u64,
}

/// The decision on a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// Whether the group escalates.
    pub is_escalating: bool,
    /// The share of hosts in the current hour, from 0 to 1. `None`: no host reports.
    pub share: Option<f64>,
    /// The usual share. `None`: too few earlier hours are known.
    pub usual: Option<f64>,
}

impl HostShare {
    /// Returns the share, from 0 to 1. `None`: no host reports.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.reporting > 0).then(|| self.bounded_crashed() / count(self.reporting))
    }

    /// Returns the lower bound of the share's 95 % interval by Wilson's score.
    fn lower_bound(self) -> f64 {
        let Some(share) = self.share() else {
            return 0.0;
        };
        let hosts = count(self.reporting);
        let square = QUANTILE * QUANTILE;
        let center = share + square / (2.0 * hosts);
        let spread = QUANTILE * ((share * (1.0 - share) + square / (4.0 * hosts)) / hosts).sqrt();
        ((center - spread) / (1.0 + square / hosts)).max(0.0)
    }

    /// Returns the hosts with a crash. A host that crashes without heartbeats is no more than all.
    fn bounded_crashed(self) -> f64 {
        count(self.crashed.min(self.reporting))
    }
}

/// Returns a number of hosts for a division. Fleets have fewer than 2^32 hosts.
fn count(hosts: u64) -> f64 {
    f64::from(u32::try_from(hosts).unwrap_or(u32::MAX))
}

/// Decides whether a group escalates, by the shares of the current hour and of earlier hours,
/// oldest first.
#[must_use]
pub fn escalation(current: HostShare, earlier: &[HostShare]) -> Escalation {
    let recent = &earlier[earlier.len().saturating_sub(MAX_HOURS)..];
    let mut shares: Vec<f64> = recent.iter().filter_map(|hour| hour.share()).collect();
    shares.sort_by(f64::total_cmp);
    // The nearest rank of the 95th percentile.
    let rank = (shares.len() * 95).div_ceil(100);
    let usual = shares.get(rank.saturating_sub(1)).copied();
    let usual = usual.filter(|_| shares.len() >= LEAST_HOURS);
    let share = current.share();
    let is_escalating = match (share, usual) {
        (Some(share), Some(usual)) => {
            current.crashed >= LEAST_HOSTS && share >= FACTOR * usual && current.lower_bound() > usual
        }
        _ => false,
    };
    Escalation {
        is_escalating,
        share,
        usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(crashed: u64, reporting: u64, hours: usize) -> Vec<HostShare> {
        vec![HostShare { crashed, reporting }; hours]
    }

    fn escalates(crashed: u64, reporting: u64, earlier: &[HostShare]) -> bool {
        escalation(HostShare { crashed, reporting }, earlier).is_escalating
    }

    #[test]
    fn share_beyond_the_history_escalates() {
        let calm = hours(2, 1000, 48);
        assert!(escalates(20, 1000, &calm));
        assert!(!escalates(3, 1000, &calm));
        // As many more hosts report: the share is the same.
        assert!(!escalates(20, 10_000, &calm));
    }

    #[test]
    fn few_hosts_do_not_escalate() {
        assert!(!escalates(2, 1000, &hours(0, 1000, 48)));
        assert!(escalates(3, 1000, &hours(0, 1000, 48)));
        // Twice the usual share of a small fleet is within chance.
        assert!(!escalates(4, 10, &hours(2, 10, 48)));
        assert!(escalates(40, 100, &hours(20, 100, 48)));
    }

    #[test]
    fn young_groups_and_silent_fleets_are_undecided() {
        assert!(!escalates(50, 1000, &hours(0, 1000, LEAST_HOURS - 1)));
        assert!(!escalates(50, 1000, &hours(0, 0, 48)));
        let decision = escalation(HostShare::default(), &hours(0, 10, 48));
        assert_eq!((decision.is_escalating, decision.share), (false, None));
    }

    #[test]
    fn daily_peak_is_usual() {
        let mut week = Vec::new();
        for _ in 0..7 {
            week.extend(hours(1, 1000, 21));
            week.extend(hours(30, 1000, 3));
        }
        assert!(!escalates(32, 1000, &week));
        assert!(escalates(120, 1000, &week));
    }

    #[test]
    fn only_the_last_week_counts() {
        let mut history = hours(500, 1000, 500);
        history.extend(hours(1, 1000, MAX_HOURS));
        assert!(escalates(50, 1000, &history));
    }
}
