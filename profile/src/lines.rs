//! The weights of source lines.

use crate::Result;
use crate::function_profile::{FunctionProfile, Site, SiteSample, Symbol};
use crate::stacks::StackId;
use crate::table::Id;
use crate::top::top;
use crate::tree::CallTree;
use std::collections::HashMap;

/// A source line with its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineWeight {
    /// The source file. Empty: all code whose line is unknown.
    pub file: Box<str>,
    /// The line. 0: unknown.
    pub line: u32,
    /// The weight of the samples that were in the line itself.
    pub own: i64,
    /// The weight of the samples with the line on the stack. A stack counts once.
    pub total: i64,
}

/// Returns the lines with a weight, the largest own weight first. Inlined code belongs to its own
/// lines, and to those of its callers.
///
/// ```
/// use backtrail_profile::{FunctionProfile, format::folded, line_weights};
///
/// let profile = folded::read("main;parse 30\n".as_bytes())?;
/// let rows = line_weights(&FunctionProfile::new(&profile)?)?;
/// // Folded stacks have no lines.
/// assert_eq!((rows[0].line, rows[0].own, rows[0].total), (0, 30, 30));
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
pub fn line_weights(profile: &FunctionProfile) -> Result<Vec<LineWeight>> {
    let (by_line, places) = by_lines(profile)?;
    let tree = CallTree::<1>::new(&by_line, |sample: &SiteSample| Some((0, sample.weight)));
    let row = |row: crate::FunctionWeight<1>| {
        let (file, line) = places.get(row.symbol.index()).cloned().unwrap_or_default();
        LineWeight {
            file,
            line,
            own: row.own[0],
            total: row.total[0],
        }
    };
    Ok(top(&tree).into_iter().map(row).collect())
}

/// A file and a line.
type Place = (Box<str>, u32);

/// Returns the profile with lines instead of functions, and the place of each.
fn by_lines(profile: &FunctionProfile) -> Result<(FunctionProfile, Vec<Place>)> {
    let mut lines = FunctionProfile::default();
    let mut places: Vec<Place> = Vec::new();
    let mut known: HashMap<Site, Site> = HashMap::new();
    let mut stacks = vec![StackId::EMPTY];
    for (_, caller, site) in profile.stacks.iter() {
        let line = match known.get(&site) {
            Some(line) => *line,
            None => {
                let place = place_of(profile, site);
                let symbol = lines.symbols.intern(Symbol {
                    name: format!("{}:{}", place.0, place.1).into(),
                    file: place.0.clone(),
                    module: "".into(),
                    build_id: None,
                    is_function: false,
                })?;
                if symbol.index() == places.len() {
                    places.push(place);
                }
                let line = Site {
                    symbol,
                    file: None,
                    line: 0,
                    is_inlined: false,
                };
                known.insert(site, line);
                line
            }
        };
        let caller = stacks.get(caller.index()).copied().unwrap_or(StackId::EMPTY);
        stacks.push(lines.stacks.push(caller, line)?);
    }
    lines.samples.clone_from(&profile.samples);
    for sample in &mut lines.samples {
        let stack = stacks.get(sample.stack.index()).copied();
        sample.stack = stack.unwrap_or(StackId::EMPTY);
    }
    Ok((lines, places))
}

fn place_of(profile: &FunctionProfile, site: Site) -> Place {
    let file = profile.file(site);
    match site.line > 0 && !file.is_empty() {
        true => (file.into(), site.line),
        false => Place::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Function};
    use crate::profile::Profile;

    /// Returns a profile of stacks as `main:7;work:9`, all in one file. Line 0 is unknown.
    fn profile(samples: &[(&str, i64)]) -> FunctionProfile {
        let mut profile = Profile::default();
        let event = profile.event("cpu", "count", 1).unwrap();
        let file = Some(profile.string("server.c").unwrap());
        for (frames, weight) in samples {
            let mut stack = StackId::EMPTY;
            for frame in frames.split(';') {
                let (name, line) = frame.split_once(':').unwrap();
                let name = profile.string(name).unwrap();
                let function = Function {
                    name,
                    linkage_name: name,
                    file,
                    start_line: 0,
                };
                let function = profile.functions.intern(function).unwrap();
                let line = line.parse().unwrap();
                let frame = profile.frames.intern(Frame::Function { function, line });
                stack = profile.stacks.push(stack, frame.unwrap()).unwrap();
            }
            profile.add(event, *weight, stack).unwrap();
        }
        FunctionProfile::new(&profile).unwrap()
    }

    #[test]
    fn recursion_counts_once_and_unknown_lines_are_one_row() {
        let profile = profile(&[
            ("main:7;walk:9;walk:9", 10),
            ("main:7;walk:9;walk:11", 5),
            ("main:8;other:0", 3),
        ]);
        let rows = line_weights(&profile).unwrap();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (&*row.file, row.line, row.own, row.total))
            .collect();
        assert_eq!(
            rows,
            [
                ("server.c", 9, 10, 15),
                ("server.c", 11, 5, 5),
                ("", 0, 3, 3),
                ("server.c", 7, 0, 15),
                ("server.c", 8, 0, 3),
            ]
        );
    }

    #[test]
    fn functions_of_one_line_are_added_up() {
        let rows = line_weights(&profile(&[("a:4", 2), ("b:4", 3), ("b:4;a:4", 1)])).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].own, rows[0].total), (6, 6));
    }
}
