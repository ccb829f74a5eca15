//! Folded stacks: lines `thread;outer;inner COST`, as Brendan Gregg's `flamegraph.pl` reads them.

use crate::stacks::Stacks;
use crate::{Functions, Result, Timeline, Unit};
use backtrail_decoder::Watch;
use rustc_hash::FxHashMap;
use std::io::Write;

/// Writes the self cost of each stack, in the timeline's unit.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    // Threads with the same name are added up. Stacks are in order of their first occurrence.
    let mut lines: Vec<(String, u64)> = Vec::new();
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    for track in timeline.tracks() {
        let stacks = Stacks::of(timeline, track, &mut functions, watch)?;
        let thread = track.label();
        let mut names = Vec::new();
        for stack in stacks.iter() {
            let cost = match timeline.unit() {
                Unit::Instructions => stack.cost.instructions,
                Unit::Nanoseconds | Unit::Ticks => stack.cost.time,
            };
            if cost == 0 {
                continue;
            }
            names.clear();
            names.extend(stacks.functions(stack));
            let mut line = one_frame(&thread);
            for function in names.iter().rev().filter_map(|&id| functions.get(id)) {
                line.push(';');
                line.push_str(&one_frame(&function.name));
            }
            let next = lines.len();
            match lines.get_mut(*known.entry(line.clone()).or_insert(next)) {
                Some((_, all)) => *all = all.saturating_add(cost),
                None => lines.push((line, cost)),
            }
        }
    }
    for (line, cost) in lines {
        writeln!(out, "{line} {cost}")?;
    }
    Ok(())
}

/// Replaces the separators of frames and lines in a name.
fn one_frame(name: &str) -> String {
    name.replace(';', ":").replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::one_frame;

    #[test]
    fn name_stays_one_frame_of_one_line() {
        assert_eq!(one_frame("f<[u8; 4]>\n"), "f<[u8: 4]> ");
    }
}
