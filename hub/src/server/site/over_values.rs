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
    let (inside_all, outside_all) = (inside.len() as u64, outside.len() as u64);
    if inside_all < FEWEST || outside_all == 0 {
        return Vec::new();
    }
    let (inner, outer) = (counts(inside), counts(outside));
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let mut found: Vec<_> = inner
        .into_iter()
        .map(|((field, value), inside)| {
            let outside = outer.get(&(field.clone(), value.clone())).copied().unwrap_or(0);
            let difference = share(inside, inside_all) - share(outside, outside_all);
            let over = OverValue {
                field,
                value,
                inside,
                inside_all,
                outside,
                outside_all,
            };
            (difference, over)
        })
        .filter(|(difference, over)| *difference >= DIFFERENCE && over.inside >= FEWEST)
        .collect();
    found.sort_by(|one, two| {
        two.0
            .total_cmp(&one.0)
            .then_with(|| one.1.value.cmp(&two.1.value))
    });
    found.truncate(SHOWN);
    found.into_iter().map(|(_, over)| over).collect()
}

/// Returns how many reports have each value of each field.
fn counts(reports: &[CrashReport]) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for report in reports {
        let mut fields = vec![
            ("build", Some(report.build.clone())),
            ("host", Some(report.host.clone())),
            ("kernel", report.kernel.clone()),
            ("processor", report.cpu.clone()),
            ("thread", report.thread.clone()),
        ];
        let labels = report.labels.iter();
        fields.extend(labels.map(|(key, value)| (key.as_str(), Some(value.clone()))));
        for (field, value) in fields {
            if let Some(value) = value {
                *counts.entry((field.to_owned(), value)).or_insert(0) += 1;
            }
        }
    }
    counts
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
    fn few_reports_prove_nothing() {
        let inside = vec![report("a", "6.1"), report("b", "6.1")];
        assert_eq!(over_values(&inside, &[report("a", "6.12")]), []);
    }
}
