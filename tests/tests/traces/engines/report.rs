//! A report of a difference between two engines, with what is needed to find the cause.

use crate::engines::assembler::Segment;
use crate::engines::compare::{self, Item, Level, Recording, difference};
use crate::engines::encode::Trace;
use crate::engines::minimise::minimise;
use crate::engines::units::{self, Unit};
use backtrail_decoder::{Engine, Event, GapCause};
use backtrail_pt::Avma;
use backtrail_pt::cofi::CodeInstruction;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// The time limit for reducing a difference.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of items shown before and after the first difference.
const AROUND: usize = 5;

/// The prefix of instructions with more registers (Intel APX specification, "REX2 Prefix").
const REX2: u8 = 0xd5;
/// The name of an instruction with this prefix in descriptions of differences.
pub const REX2_NAME: &str = "an instruction with REX2";

/// Returns a short description of the difference between two engines on a trace.
pub fn differ(first: &dyn Engine, second: &dyn Engine, trace: &Trace, level: Level) -> Option<String> {
    let recordings = [first, second].map(|engine| Recording::of(engine, trace));
    word(&recordings, &trace.code, level)
}

/// Returns short names of the first two items that differ. Further cases with the same names are
/// rarely new.
fn word(recordings: &[Recording; 2], code: &[Segment], level: Level) -> Option<String> {
    let difference = difference(&recordings[0], &recordings[1], level)?;
    let places = [difference.first, difference.second];
    let words = [0, 1].map(|side| match recordings[side].items.get(places[side]) {
        None => "the end".to_owned(),
        Some(Item::Instruction { at, .. }) if byte_at(code, *at) == Some(REX2) => REX2_NAME.to_owned(),
        Some(Item::Instruction { .. }) => "an instruction".to_owned(),
        Some(Item::Panic(_)) => "a panic".to_owned(),
        Some(Item::Event(Event::Lost {
            cause: GapCause::Corrupt { error, .. },
            ..
        })) => {
            format!("\"{error}\"")
        }
        Some(Item::Event(event)) => {
            let text = format!("{event:?}");
            let end = text.find([' ', '(']).unwrap_or(text.len());
            text[..end].to_owned()
        }
    });
    Some(words.join(" for "))
}

fn byte_at(code: &[Segment], at: Avma) -> Option<u8> {
    let segment = |segment: &Segment| {
        let offset = at.0.checked_sub(segment.start)?;
        segment.bytes.get(usize::try_from(offset).ok()?).copied()
    };
    code.iter().find_map(segment)
}

/// Compares two engines on a trace, and returns a report of a difference.
pub fn check(first: &dyn Engine, second: &dyn Engine, trace: &Trace, level: Level) -> Option<String> {
    let recordings = [first, second].map(|engine| Recording::of(engine, trace));
    let word = word(&recordings, &trace.code, level)?;
    Some(tell(first, second, trace, level, &word, recordings))
}

fn tell(
    first: &dyn Engine,
    second: &dyn Engine,
    trace: &Trace,
    level: Level,
    same: &str,
    recordings: [Recording; 2],
) -> String {
    let image = compare::image(&trace.code);
    let both = |bytes: &[u8]| {
        [first, second].map(|engine| Recording::of_parts(engine, bytes, &image, &trace.config))
    };
    let cut = units::cut(&trace.bytes);
    let mut text = String::new();
    sides(&mut text, first, second, &cut, &recordings, level);
    let differs = |units: &[Unit]| {
        word(&both(&units::join(units)), &trace.code, level).is_some_and(|word| word == same)
    };
    let smaller = minimise(&cut, PATIENCE, differs);
    let recordings = both(&units::join(&smaller));
    let _ = writeln!(
        text,
        "\n{} of {} packets show it too:\n{}\nwhich gives",
        smaller.len(),
        cut.len(),
        units::text(&smaller, None)
    );
    sides(&mut text, first, second, &[], &recordings, level);
    let _ = writeln!(text, "\nwith {:?}\nand the code", trace.config);
    code(&mut text, trace, &recordings);
    text
}

/// Both outputs, and the trace between them.
fn sides(
    text: &mut String,
    first: &dyn Engine,
    second: &dyn Engine,
    units: &[Unit],
    recordings: &[Recording; 2],
    level: Level,
) {
    let Some(difference) = difference(&recordings[0], &recordings[1], level) else {
        return;
    };
    let places = [difference.first, difference.second];
    for ((engine, recording), place) in [first, second].iter().zip(recordings).zip(places) {
        let _ = writeln!(
            text,
            "{} (item {place} of {}, {} instructions, {} losses):",
            engine.name(),
            recording.items.len(),
            recording.pcs().len(),
            recording.losses()
        );
        let begin = place.saturating_sub(AROUND);
        for (at, item) in recording
            .items
            .iter()
            .enumerate()
            .skip(begin)
            .take(2 * AROUND + 1)
        {
            let mark = if at == place { '>' } else { ' ' };
            let _ = writeln!(text, " {mark} {}", line(item));
        }
    }
    if !units.is_empty() {
        let offset = offset(&recordings[0].items, places[0]);
        let _ = writeln!(
            text,
            "the trace around {offset:#x}:\n{}",
            units::text(units, Some(offset))
        );
    }
}

fn line(item: &Item) -> String {
    match item {
        Item::Instruction { at, len, cofi } => format!("{at} {cofi:?}, {len} bytes"),
        Item::Event(event) => format!("{event:x?}"),
        Item::Panic(text) => format!("panic: {text}"),
    }
}

/// Returns the offset in the trace that the items around an index have.
fn offset(items: &[Item], place: usize) -> u64 {
    let known = |item: &Item| match *item {
        Item::Event(
            Event::Sync { offset }
            | Event::FlowBegins { offset }
            | Event::Overflow { offset }
            | Event::Lost { offset, .. },
        ) => Some(offset),
        _ => None,
    };
    let place = place.min(items.len());
    let after = items[place..].iter().take(200).find_map(known);
    let before = items[..place].iter().rev().find_map(known);
    after.or(before).unwrap_or(0)
}

/// Writes the instructions of the recordings, and some after the last.
fn code(text: &mut String, trace: &Trace, recordings: &[Recording; 2]) {
    let image = compare::image(&trace.code);
    let mut places: BTreeSet<u64> = recordings.iter().flat_map(Recording::pcs).collect();
    for recording in recordings {
        for item in recording.items.iter().rev().take(4) {
            if let Item::Instruction { at, len, .. } = item {
                places.insert(at.0 + u64::from(*len));
            }
        }
    }
    for at in places.iter().take(60) {
        let mut bytes = [0; 15];
        let read = image.read(Avma(*at), &mut bytes);
        let found = CodeInstruction::decode(&bytes[..read], Avma(*at));
        let len = found.map_or(read, |found| found.len.into());
        let kind = found.map_or_else(String::new, |found| format!("{:?}", found.cofi));
        let _ = writeln!(text, "  {at:#x} {:02x?} {kind}", &bytes[..len]);
    }
    if places.len() > 60 {
        let _ = writeln!(text, "  and {} more", places.len() - 60);
    }
}
