//! The input of a query in SQL from the hub: names of code without stored lines, and crashes.

use super::names;
use crate::database::sql_crashes::SqlCrash;
use crate::error::Result;
use crate::hub::Hub;
use backtrail_profile::{Frame, Profile};
use backtrail_store::SegmentEntry;
use serde::Serialize;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most places of code whose names a query gets.
const MAX_PLACES: usize = 1 << 20;
/// The most crashes of a query.
const MAX_CRASHES: i64 = 100_000;
/// The longest time in which places are searched.
const LONGEST: Duration = Duration::from_secs(20);
/// The functions of the engine that need names.
const OF_STACKS: [&str; 4] = ["matches", "frames_of", "flamegraph", "folded"];

/// The functions at an offset of a file, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedPlace {
    build_id: String,
    offset: u64,
    functions: Vec<String>,
}

/// The parts of a query's input, and notes of what is missing in them.
#[derive(Clone, Debug, Default)]
pub struct SqlInput {
    /// The names of code.
    pub symbols: Vec<NamedPlace>,
    /// The crashes.
    pub crashes: Vec<SqlCrash>,
    /// The time of the samples in nanoseconds since 1970.
    pub times: Option<Range<u64>>,
    /// The notes.
    pub notes: Vec<String>,
}

impl SqlInput {
    /// Returns what a query over some segments and a time in nanoseconds since 1970 needs. A part
    /// whose name is not in the text is left out.
    ///
    /// # Errors
    /// Fails if the store, the symbol service or the database fails.
    pub async fn of(
        hub: &Arc<Hub>,
        sql: &str,
        segments: &[SegmentEntry],
        times: &Range<u64>,
    ) -> Result<Self> {
        let sql = sql.to_lowercase();
        let mut input = Self {
            times: Some(times.clone()),
            ..Self::default()
        };
        if OF_STACKS.iter().any(|name| sql.contains(name)) {
            input.add_symbols(hub, segments).await?;
        }
        if sql.contains("crashes") {
            input.add_crashes(hub, times).await?;
        }
        Ok(input)
    }

    async fn add_symbols(&mut self, hub: &Arc<Hub>, segments: &[SegmentEntry]) -> Result<()> {
        let mut newest: Vec<SegmentEntry> = segments.to_vec();
        newest.sort_by_key(|entry| (Reverse(entry.hour), Reverse(entry.last), entry.id));
        let deadline = Instant::now() + LONGEST;
        let found = hub.profiles.unnamed_code(&newest, MAX_PLACES, deadline).await?;
        let left = newest.len() - found.segments;
        if left > 0 {
            self.notes.push(format!(
                "code of {left} older segments may have no names, because there is too much of it; query a shorter time"
            ));
        }
        let mut profile = found.profile;
        names::add(hub, &mut profile).await?;
        self.notes.append(&mut profile.notes);
        self.symbols = named_places(&profile);
        Ok(())
    }

    async fn add_crashes(&mut self, hub: &Hub, times: &Range<u64>) -> Result<()> {
        let micros = |time: u64| i64::try_from(time / 1000).unwrap_or(i64::MAX);
        let range = micros(times.start)..micros(times.end);
        self.crashes = hub.database.sql_crashes(&range, MAX_CRASHES).await?;
        if self.crashes.len() as i64 == MAX_CRASHES {
            self.notes.push(format!(
                "the table `crashes` has the newest {MAX_CRASHES} crashes of the time; query a shorter time"
            ));
        }
        Ok(())
    }
}

/// Returns the code of a profile that has names.
fn named_places(profile: &Profile) -> Vec<NamedPlace> {
    let named = profile.frames.iter().filter_map(|(id, frame)| {
        let Frame::Code { module, offset } = *frame else {
            return None;
        };
        let build_id = profile.modules.get(module)?.build_id.as_ref()?;
        let lines = profile.lines_of(id).iter();
        let functions: Vec<String> = lines
            .filter_map(|line| profile.functions.get(line.function))
            .map(|function| profile.text(function.name).to_owned())
            .collect();
        (!functions.is_empty()).then(|| NamedPlace {
            build_id: build_id.to_string(),
            offset: offset.0,
            functions,
        })
    });
    named.collect()
}
