//! The history of the heap.

use super::{Paint, Text};
use backtrail_debugger::heap::diagnosis::HeapDiagnosis;
use backtrail_debugger::heap::place::HeapPlace;
use backtrail_debugger::heap::records::RecordsView;
use backtrail_debugger::heap::search::BlockView;
use backtrail_debugger::heap::summary::{HeapSite, HeapSummary};
use backtrail_debugger::source::short;
use backtrail_debugger::time::nanos;
use serde::Serialize;

/// The blocks that covered an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeapView {
    /// The address.
    pub address: u64,
    /// The newest first.
    pub blocks: Vec<BlockView>,
    /// The number of older blocks.
    pub older: usize,
    /// Whether more were left out, because there are too many events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The completeness of the collector's records; absent: the calls are in the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsView>,
}

impl HeapView {
    pub(super) fn render(&self, to: &mut Text) {
        let address = self.address;
        if self.blocks.is_empty() {
            to.line(format!(
                "No recorded call allocated or freed a block at {address:#x}."
            ));
        }
        for block in &self.blocks {
            let size = block
                .size
                .map_or_else(|| "unknown size".to_owned(), |size| count(size, "byte"));
            let inside = match block.offset {
                0 => String::new(),
                offset => format!("; the address is {offset} bytes inside"),
            };
            to.line(format!("{:#x}, {size}{inside}", block.block));
            match &block.allocated {
                Some(allocated) => render_place("allocated", allocated, to),
                None => to.line("  allocated before the history, or in a gap"),
            }
            match &block.freed {
                Some(freed) => render_place("freed", freed, to),
                None if block.free_is_missing => {
                    to.line("  freed in a gap: the address was allocated again");
                }
                None => to.line("  not freed"),
            }
        }
        if self.older > 0 {
            let older = count(self.older as u64, "older block");
            to.line(to.paint(Paint::Faint, format!("    <{older}>")));
        }
        if self.is_cut {
            to.line(to.paint(Paint::Faint, "    <more blocks were left out: too many events>"));
        }
        if let Some(records) = &self.records {
            render_records(records, to);
        }
    }
}

/// Renders what is known of the completeness of the collector's records.
fn render_records(records: &RecordsView, to: &mut Text) {
    let since = nanos(records.since_ns);
    to.line(to.paint(
        Paint::Faint,
        format!("The collector noted the calls since {since}; older ones are unknown."),
    ));
    for gap in &records.gaps {
        let (from, end) = (nanos(gap.from_ns), nanos(gap.to_ns));
        let calls = count(gap.calls, "call");
        to.line(format!("Gap: {calls} were lost between {from} and {end}."));
    }
    if records.more_gaps > 0 {
        let more = count(records.more_gaps as u64, "older gap");
        to.line(to.paint(Paint::Faint, format!("    <{more}>")));
    }
}

/// Renders `freed by free in reaper at dispatch.cpp:135, thread 7 "reaper" [t7#12, −3 ms]`.
fn render_place(verb: &str, place: &HeapPlace, to: &mut Text) {
    let function = to.paint(
        Paint::Function,
        place.function.as_deref().unwrap_or("unknown code"),
    );
    let line = match (&place.file, place.line) {
        (Some(file), Some(line)) => {
            format!(
                " at {}",
                to.paint(Paint::Place, format!("{}:{line}", short(file)))
            )
        }
        _ => String::new(),
    };
    let name = place.name.as_deref().map(|name| format!(" \"{name}\""));
    let aside = to.paint(Paint::Faint, format!("[{}]", place.moment()));
    to.line(format!(
        "  {verb} by {} in {function}{line}, thread {}{}  {aside}",
        place.by,
        place.thread,
        name.unwrap_or_default()
    ));
}

/// Renders what the heap says about a crash.
pub(super) fn render_diagnosis(diagnosis: &HeapDiagnosis, to: &mut Text) {
    to.line(to.paint(Paint::Alarm, diagnosis.to_string()));
    to.line(format!(
        "  {} `info heap {:#x}` shows more.",
        diagnosis.evidence(),
        diagnosis.block.block
    ));
}

pub(super) fn render_summary(summary: &HeapSummary, to: &mut Text) {
    let most = if summary.is_cut { "at least " } else { "" };
    to.line(format!(
        "{most}{} live, {}, at this position",
        count(summary.live_blocks, "block"),
        count(summary.live_bytes, "byte")
    ));
    to.line(format!(
        "{} and {} before",
        count(summary.allocations, "allocation"),
        count(summary.frees, "free")
    ));
    if summary.failed > 0 {
        to.line(format!("{} failed", count(summary.failed, "allocation")));
    }
    if summary.unknown_frees > 0 {
        let frees = count(summary.unknown_frees, "free");
        to.line(format!(
            "{frees} of blocks whose allocation is not in the history"
        ));
    }
    if !summary.sites.is_empty() {
        to.line("Most live bytes, by the line that allocated:");
    }
    for site in &summary.sites {
        render_site(site, to);
    }
    if summary.more_sites > 0 {
        let more = count(summary.more_sites as u64, "other line");
        to.line(to.paint(Paint::Faint, format!("    <{more}>")));
    }
    if let Some(records) = &summary.records {
        render_records(records, to);
    }
}

fn render_site(site: &HeapSite, to: &mut Text) {
    let function = site.function.as_deref().unwrap_or("unknown code");
    let line = match (&site.file, site.line) {
        (Some(file), Some(line)) => {
            format!(
                " at {}",
                to.paint(Paint::Place, format!("{}:{line}", short(file)))
            )
        }
        _ => String::new(),
    };
    to.line(format!(
        "{:>12} bytes in {:>8}  {}{line}",
        site.bytes,
        count(site.blocks, "block"),
        to.paint(Paint::Function, function)
    ));
}

/// Returns `1 block`, `2 blocks`.
fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}
