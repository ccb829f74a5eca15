//! Numbers of samples of idle threads that were left out.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The samples of idle threads that a rule left out before they were stored, by service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>")]
pub struct IdleCounts(BTreeMap<String, u64>);

impl IdleCounts {
    /// The name of all further services, of which there may be many.
    const OTHERS: &'static str = "";

    /// The most services that are counted on their own.
    const MOST: usize = 256;

    /// Adds samples of a service. The number of names is limited to
    /// 256. Further services are counted together.
    pub fn add(&mut self, service: &str, samples: u64) {
        if samples == 0 {
            return;
        }
        let names = self.0.len() - usize::from(self.0.contains_key(Self::OTHERS));
        let is_full = names >= Self::MOST && !self.0.contains_key(service);
        let name = if is_full { Self::OTHERS } else { service };
        let count = self.0.entry(name.to_owned()).or_default();
        *count = count.saturating_add(samples);
    }

    /// Adds the numbers of another list.
    pub fn absorb(&mut self, other: &Self) {
        other
            .0
            .iter()
            .for_each(|(service, samples)| self.add(service, *samples));
    }

    /// Returns the samples of some services. `None`: of all.
    #[must_use]
    pub fn of(&self, services: Option<&[String]>) -> u64 {
        let counts = self.0.iter().filter(|(service, _)| match services {
            Some(services) => services.contains(service),
            None => true,
        });
        counts.fold(0, |sum, (_, samples)| sum.saturating_add(*samples))
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The limit of names holds for lists of others too.
impl From<BTreeMap<String, u64>> for IdleCounts {
    fn from(counts: BTreeMap<String, u64>) -> Self {
        let mut limited = Self::default();
        counts
            .iter()
            .for_each(|(service, samples)| limited.add(service, *samples));
        limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_services_are_counted_together() {
        let mut counts = IdleCounts::default();
        for number in 0..IdleCounts::MOST + 50 {
            counts.add(&format!("service-{number}"), 2);
        }
        counts.add("service-3", 5);
        assert_eq!(counts.of(None), 2 * (IdleCounts::MOST as u64 + 50) + 5);
        assert_eq!(counts.of(Some(&["service-3".to_owned()])), 7);
        assert!(counts.0.len() <= IdleCounts::MOST + 1);
        let mut sum = IdleCounts::default();
        sum.absorb(&counts);
        assert_eq!(sum, counts);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<IdleCounts>(&text).unwrap(), counts);
    }

    #[test]
    fn lists_of_others_are_limited() {
        let names = (0..1000).map(|number| format!("\"s{number}\":{}", u64::MAX));
        let text = format!("{{{}}}", names.collect::<Vec<_>>().join(","));
        let counts: IdleCounts = serde_json::from_str(&text).unwrap();
        assert_eq!(counts.0.len(), IdleCounts::MOST + 1);
        assert_eq!(counts.of(None), u64::MAX);
        for wrong in ["[]", "{\"a\":-1}", "{\"a\":1e30}", "{\"a\":\"1\"}"] {
            assert!(serde_json::from_str::<IdleCounts>(wrong).is_err(), "{wrong}");
        }
    }
}
