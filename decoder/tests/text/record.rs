//! Records an engine's output as text.

use crate::address::Labels;
use backtrail_decoder::{Config, Engine, Event, GapCause, Image, Sink, Stamp};
use backtrail_pt::{Avma, Cofi};
use std::fmt::Write;
use std::ops::ControlFlow;

/// The first words of expected lines.
pub const WORDS: [&str; 10] = [
    "at", "sync", "begins", "time", "enabled", "disabled", "branched", "overflow", "ptwrite", "lost",
];

/// Decodes a trace to a line per event or run of instructions.
pub fn record(
    engine: &dyn Engine,
    trace: &[u8],
    image: &Image,
    config: &Config,
    addresses: &Labels,
    offsets: &Labels,
) -> Vec<String> {
    let mut recording = Recording {
        addresses,
        offsets,
        lines: Vec::new(),
        row: None,
    };
    // Only its sink could cancel it.
    let _ = engine.decode(trace, image, config, &mut recording);
    recording.end_row();
    fold(recording.lines)
}

struct Recording<'a> {
    addresses: &'a Labels,
    offsets: &'a Labels,
    lines: Vec<String>,
    /// Contiguous instructions, and the address after them.
    row: Option<(String, Avma)>,
}

impl Recording<'_> {
    fn end_row(&mut self) {
        self.lines.extend(self.row.take().map(|(row, _)| row));
    }

    fn text(&self, event: &Event) -> String {
        let name = |at: Avma| self.addresses.name(at.0);
        let offset = |offset: u64| self.offsets.exact(offset);
        match event {
            Event::Sync { offset: at } => format!("sync {}", offset(*at)),
            Event::FlowBegins { offset: at } => format!("begins {}", offset(*at)),
            Event::Time(stamp) => time(stamp),
            Event::Enabled { at, status } => {
                format!("enabled {}{}", name(*at), if *status { " status" } else { "" })
            }
            Event::Disabled { from, to } => {
                let mut text = "disabled".to_owned();
                for (word, at) in [("from", from), ("to", to)] {
                    if let Some(at) = at {
                        let _ = write!(text, " {word} {}", name(*at));
                    }
                }
                text
            }
            Event::Branched { from } => format!("branched from {}", name(*from)),
            Event::Overflow { offset: at } => format!("overflow {}", offset(*at)),
            Event::Ptwrite { value } => format!("ptwrite {value:#x}"),
            Event::Lost { cause, .. } => {
                let (text, is_error) = match cause {
                    GapCause::LostCode { at } => (format!("lost code at {}", name(*at)), true),
                    GapCause::RunAway { at } => (format!("lost run-away at {}", name(*at)), false),
                    GapCause::Overlong { at } => (format!("lost overlong at {}", name(*at)), false),
                    GapCause::OtherInstruction { at } => {
                        (format!("lost other-instruction at {}", name(*at)), false)
                    }
                    GapCause::UnknownCaller { at } => {
                        (format!("lost unknown-caller at {}", name(*at)), false)
                    }
                    GapCause::Corrupt { error, at: None } => (format!("lost trace: {error}"), true),
                    GapCause::Corrupt { error, at: Some(at) } => {
                        (format!("lost trace: {error} at {}", name(*at)), true)
                    }
                    other => (format!("lost {other:?}"), true),
                };
                assert_eq!(cause.is_decode_error(), is_error, "{text}");
                text
            }
            other => format!("{other:?}"),
        }
    }
}

fn time(stamp: &Stamp) -> String {
    let mut text = format!("time {:#x}", stamp.tsc.0);
    for (word, count) in [("mtc", stamp.lost_mtc), ("cyc", stamp.lost_cyc)] {
        if count != 0 {
            let _ = write!(text, " lost-{word}:{count}");
        }
    }
    text
}

impl Sink for Recording<'_> {
    fn instruction(&mut self, at: Avma, len: u8, _: Cofi) {
        let name = self.addresses.name(at.0);
        let end = at + u64::from(len);
        match &mut self.row {
            Some((row, next)) if *next == at => {
                let _ = write!(row, " {name}");
                *next = end;
            }
            _ => {
                self.end_row();
                self.row = Some((format!("at {name}"), end));
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.end_row();
        self.lines.push(self.text(&event));
    }

    fn progress(&mut self, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Folds repeated runs into one line with a count: `5 * at a b` or `3 * at a b / c`.
fn fold(lines: Vec<String>) -> Vec<String> {
    let mut folded = Vec::new();
    let mut rest = &lines[..];
    while let Some(first) = rest.first() {
        let (period, count) = repeated(rest);
        if count == 1 {
            folded.push(first.clone());
        } else {
            let rows: Vec<&str> = rest[..period].iter().map(|row| &row[ROW.len()..]).collect();
            folded.push(format!("{count} * {ROW}{}", rows.join(" / ")));
        }
        rest = &rest[period * count..];
    }
    folded
}

const ROW: &str = "at ";

/// Returns how many runs at the start repeat, and how often; the largest such number of runs.
fn repeated(lines: &[String]) -> (usize, usize) {
    const MAX_PERIOD: usize = 8;
    let rows = lines.iter().take_while(|line| line.starts_with(ROW)).count();
    let mut best = (1, 1);
    for period in 1..=MAX_PERIOD.min(rows / 2) {
        let again = lines[..rows]
            .chunks_exact(period)
            .take_while(|chunk| *chunk == &lines[..period]);
        let count = again.count();
        // A single run is folded from two on, several from three on.
        let enough = if period == 1 { 2 } else { 3 };
        if count >= enough && period * count > best.0 * best.1 {
            best = (period, count);
        }
    }
    best
}
