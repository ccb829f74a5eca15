//! Values that the crashes of a group have more often than other crashes of the service.

use crate::server::pages::group::OverValue;
use backtrail_report::CrashReport;
use std::collections::BTreeMap;

/// The most values that are shown.
const SHOWN: usize = 12;
/// How much more often a value must occur inside than outside, as a difference of shares.
const DIFFERENCE: f64 = 0.2;
/// The fewest reports inside that make a share meaningful.
const FEWEST: u64 = 3;

/// Returns the over-represented values, the most different ones first.
#[must_use]
pub fn over_values(inside: &[CrashReport], outside: &[CrashReport]) -> Vec<OverValue> {
    let (inner, outer) = (Counts::of(inside), Counts::of(outside));
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let mut found: Vec<_> = inner
        .values
        .iter()
        .map(|(key, &inside)| {
            let over = OverValue {
                field: key.0.clone(),
                value: key.1.clone(),
                inside,
                inside_all: inner.all(&key.0),
                outside: outer.values.get(key).copied().unwrap_or(0),
                outside_all: outer.all(&key.0),
            };
            let difference = share(over.inside, over.inside_all) - share(over.outside, over.outside_all);
            (difference, over)
        })
        // A field that few others have cannot be compared.
        .filter(|(difference, over)| {
            *difference >= DIFFERENCE && over.inside >= FEWEST && over.outside_all >= FEWEST
        })
        .collect();
    found.sort_by(|one, two| {
        two.0
            .total_cmp(&one.0)
            .then_with(|| one.1.value.cmp(&two.1.value))
    });
    found.truncate(SHOWN);
    found.into_iter().map(|(_, over)| over).collect()
}

/// How many reports have each value, and each field.
#[derive(Default)]
struct Counts {
    values: BTreeMap<(String, String), u64>,
    fields: BTreeMap<String, u64>,
}

impl Counts {
    fn of(reports: &[CrashReport]) -> Self {
        let mut counts = Self::default();
        for report in reports {
            let mut fields = vec![
                ("build", Some(&report.build)),
                ("host", Some(&report.host)),
                ("kernel", report.kernel.as_ref()),
                ("processor", report.cpu.as_ref()),
                ("thread", report.thread.as_ref()),
            ];
            let labels = report.labels.iter();
            fields.extend(labels.map(|(key, value)| (key.as_str(), Some(value))));
            for (field, value) in fields {
                if let Some(value) = value {
                    let key = (field.to_owned(), value.clone());
                    *counts.values.entry(key).or_insert(0) += 1;
                    *counts.fields.entry(field.to_owned()).or_insert(0) += 1;
                }
            }
        }
        counts
    }

    /// Returns the number of reports that have a field.
    fn all(&self, field: &str) -> u64 {
        self.fields.get(field).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(build: &str, kernel: &str) -> CrashReport {
        let text = serde_json::json!({
            "version": 1, "id": "0123456789abcdefghjk", "time": 1, "host": "h", "service": "s", "build": build,
            "executable": "x", "signal": 11, "code": 1, "pid": 1, "tid": 1, "kernel": kernel, "frames": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_kernel_that_only_the_group_has_is_found() {
        let inside = vec![report("a", "6.1"), report("b", "6.1"), report("a", "6.1")];
        let outside = vec![
            report("a", "6.12"),
            report("b", "6.12"),
            report("a", "6.1"),
            report("b", "6.12"),
        ];
        let found = over_values(&inside, &outside);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&*found[0].field, &*found[0].value), ("kernel", "6.1"));
        assert_eq!((found[0].inside, found[0].outside), (3, 1));
    }

    #[test]
    fn a_field_that_the_others_lack_is_not_compared() {
        let mut outside = vec![report("a", "6.1"), report("b", "6.1"), report("c", "6.1")];
        let inside = vec![report("d", "6.12"); 3];
        assert_eq!(over_values(&inside, &outside).len(), 2);
        outside.iter_mut().for_each(|report| report.kernel = None);
        let found = over_values(&inside, &outside);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&*found[0].field, found[0].outside_all), ("build", 3));
    }

    #[test]
    fn few_reports_prove_nothing() {
        let inside = vec![report("a", "6.1"), report("b", "6.1")];
        assert_eq!(over_values(&inside, &[report("a", "6.12")]), []);
    }
}
