//! Leaving out segments by what the catalog says about them.

use crate::segment::{day, hour_of_day};
use backtrail_store::SegmentEntry;
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use std::collections::HashSet;

/// The limits and names that the catalog has of segments.
pub(super) struct SegmentStatistics<'a>(pub(super) &'a [SegmentEntry]);

impl SegmentStatistics<'_> {
    /// Returns a value per segment.
    fn column(&self, value: impl Fn(&SegmentEntry) -> Option<ScalarValue>) -> Option<ArrayRef> {
        let values: Option<Vec<_>> = self.0.iter().map(value).collect();
        ScalarValue::iter_to_array(values?).ok()
    }

    fn limits(&self, column: &Column, nanos: impl Fn(&SegmentEntry) -> u64) -> Option<ArrayRef> {
        let zone = Some("UTC".into());
        match column.name.as_str() {
            "time" => self.column(|segment| {
                let micros = i64::try_from(nanos(segment) / 1000).ok();
                Some(ScalarValue::TimestampMicrosecond(micros, zone.clone()))
            }),
            "date" => self.column(|segment| Some(ScalarValue::Date32(Some(day(segment.hour))))),
            "hour" => self.column(|segment| Some(ScalarValue::Int32(Some(hour_of_day(segment.hour))))),
            "segment" => self.column(|segment| Some(ScalarValue::Utf8View(Some(segment.id.to_string())))),
            _ => None,
        }
    }
}

impl PruningStatistics for SegmentStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.limits(column, |segment| segment.first)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.limits(column, |segment| segment.last)
    }

    fn num_containers(&self) -> usize {
        self.0.len()
    }

    fn null_counts(&self, _: &Column) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        None
    }

    /// Returns false for segments that have none of the values.
    #[allow(clippy::mutable_key_type)]
    fn contained(&self, column: &Column, values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        let names: fn(&SegmentEntry) -> &Option<Vec<String>> = match column.name.as_str() {
            "service" => |segment| &segment.services,
            "host" => |segment| &segment.hosts,
            "event" => |segment| &segment.events,
            _ => return None,
        };
        let wanted: Option<HashSet<&str>> = values.iter().map(|value| value.try_as_str().flatten()).collect();
        let wanted = wanted?;
        let rows = self.0.iter().map(|segment| {
            let names = names(segment).as_ref()?;
            let found = names.iter().filter(|name| wanted.contains(name.as_str())).count();
            match (found, names.len()) {
                (0, _) => Some(false),
                (found, all) if found == all => Some(true),
                _ => None,
            }
        });
        Some(rows.collect())
    }
}

/// Returns whether a column of the catalog's type is one that segments have limits of.
#[cfg(test)]
fn has_limits(segments: &[SegmentEntry], name: &str) -> bool {
    let statistics = SegmentStatistics(segments);
    statistics.min_values(&Column::from_name(name)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::schema::time;
    use datafusion::arrow::array::Array;

    fn segment(services: Option<&[&str]>) -> SegmentEntry {
        let file = serde_json::json!({"rows": 1, "bytes": 1, "footer_crc": 0});
        let entry = serde_json::json!({
            "id": "0".repeat(32), "hour": 498_873, "level": 0, "first": 5, "last": 9,
            "samples": file, "stacks": file, "frames": file, "contexts": file,
            "services": services, "build_ids": "", "notes": [],
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn segment_without_a_service_is_left_out() {
        let segments = [
            segment(Some(&["api"])),
            segment(Some(&["api", "web"])),
            segment(None),
            segment(Some(&["web"])),
        ];
        let statistics = SegmentStatistics(&segments);
        #[allow(clippy::mutable_key_type)]
        let values = HashSet::from([ScalarValue::from("web")]);
        let found = statistics
            .contained(&Column::from_name("service"), &values)
            .unwrap();
        let found: Vec<Option<bool>> = found.iter().collect();
        assert_eq!(found, [Some(false), None, None, Some(true)]);
        assert!(
            statistics
                .contained(&Column::from_name("build"), &values)
                .is_none()
        );
    }

    #[test]
    fn times_and_partitions_have_limits() {
        let segments = [segment(None)];
        for name in ["time", "date", "hour", "segment"] {
            assert!(has_limits(&segments, name), "{name}");
        }
        assert!(!has_limits(&segments, "weight"));
        let statistics = SegmentStatistics(&segments);
        let max = statistics.max_values(&Column::from_name("time")).unwrap();
        assert_eq!((max.data_type(), max.len()), (&time(), 1));
    }
}
