//! perf's address filters: `filter START[/SIZE][@FILE]`, separated by commas or spaces.
//!
//! Source: `tools/perf/Documentation/perf-record.txt`, "--filter". perf resolves symbols before it
//! stores the text, so it contains only numbers. In a file, they are file offsets.

use crate::manifest::{AddressFilter, Process};
use backtrail_pt::Avma;
use std::collections::BTreeSet;

/// The most address ranges that a processor filters by (CPUID, leaf 14H, subleaf 1, EAX\[2:0\]).
const MAX_FILTERS: usize = 7;
/// The most ranges after resolution. A file may be mapped in any number of processes.
const MAX_RANGES: usize = 4096;

/// Resolves the filters to addresses. If one cannot be resolved, a note is added and none is used.
/// A decoder that knew only some filters would report errors for the others.
pub(super) fn resolve(text: &str, processes: &[Process], notes: &mut Vec<String>) -> Vec<AddressFilter> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    let stated = || {
        text.split(',')
            .filter_map(|part| part.trim().strip_prefix("filter "))
    };
    let filters: Option<Vec<Vec<AddressFilter>>> = match stated().nth(MAX_FILTERS) {
        Some(_) => None,
        None => stated().map(|rest| one(rest.trim(), processes)).collect(),
    };
    let filters = filters.map(|filters| filters.concat());
    filters
        .filter(|filters| filters.len() <= MAX_RANGES)
        .unwrap_or_else(|| {
            notes.push(format!(
                "address filter {text:?} not understood; decoding without it"
            ));
            Vec::new()
        })
}

/// Resolves one filter. Its file may be mapped more than once.
fn one(text: &str, processes: &[Process]) -> Option<Vec<AddressFilter>> {
    let (range, file) = text
        .split_once('@')
        .map_or((text, None), |(range, file)| (range.trim(), Some(file.trim())));
    let (start, size) = range.split_once('/')?;
    let (start, size) = (number(start)?, number(size)?);
    let last = |start: u64| start.checked_add(size.checked_sub(1)?);
    let Some(file) = file else {
        return Some(vec![AddressFilter {
            from: Avma(start),
            to: Avma(last(start)?),
        }]);
    };
    let modules = processes
        .iter()
        .flat_map(|process| &process.modules)
        .filter(|module| module.path == file);
    let mappings = modules.flat_map(|module| &module.mappings);
    let hit = mappings
        .filter(|mapping| (mapping.offset.0..mapping.offset.0.saturating_add(mapping.size)).contains(&start));
    // Most processes map a file at few addresses.
    let ranges: Option<BTreeSet<(u64, u64)>> = hit
        .map(|mapping| {
            let from = mapping.start.0.checked_add(start - mapping.offset.0)?;
            Some((from, last(from)?))
        })
        .collect();
    let ranges = ranges.filter(|ranges| !ranges.is_empty() && ranges.len() <= MAX_RANGES)?;
    let filter = |(from, to)| AddressFilter {
        from: Avma(from),
        to: Avma(to),
    };
    Some(ranges.into_iter().map(filter).collect())
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |digits| u64::from_str_radix(digits, 16).ok(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Mapping, Module};
    use backtrail_pt::FileOffset;

    #[test]
    fn offsets_in_a_file_become_addresses() {
        let mapping = Mapping {
            start: Avma(0x7000_1000),
            offset: FileOffset(0x1000),
            size: 0x2000,
            ..Mapping::default()
        };
        let module = Module {
            path: "/bin/a".to_owned(),
            mappings: vec![mapping],
            ..Module::default()
        };
        let processes = [Process {
            modules: vec![module],
            ..Process::default()
        }];
        let mut notes = Vec::new();
        let mut resolved = |text: &str| resolve(text, &processes, &mut notes);
        let filter = |from, to| AddressFilter {
            from: Avma(from),
            to: Avma(to),
        };
        assert_eq!(
            resolved("filter 0x1800/0x100@/bin/a"),
            [filter(0x7000_1800, 0x7000_18ff)]
        );
        assert_eq!(
            resolved("filter 0x400000/16, filter 4096/1"),
            [filter(0x40_0000, 0x40_000f), filter(4096, 4096)]
        );
        assert!(resolved("").is_empty());
        assert!(notes.is_empty());
        let many = ["filter 1/1"; MAX_FILTERS + 1].join(",");
        for bad in ["filter 0x9000/1@/bin/a", "filter 1/0", "filter main", &many] {
            assert!(resolve(bad, &processes, &mut notes).is_empty(), "{bad}");
        }
        assert_eq!(notes.len(), 4);
    }
}
