//! Locations as they are typed: FUNCTION, FILE:LINE, LINE, *ADDRESS.

mod asked;

pub use asked::AskedFrame;

use crate::breakpoint::Hits;
use crate::error::{Error, Result};
use crate::lines::CopyCode;
use crate::session::Process;
use backtrail_decoder::{PcSet, Version};
use backtrail_pt::Avma;
use backtrail_symbolizer::{Function, LineMatch, Symbolizer};
use std::collections::BTreeSet;
use std::ops::Range;

/// A location, not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A function, by its name or the end of it (`foo` for `ns::foo`).
    Function(String),
    /// A line of a file; the file may be any end of the path.
    Line {
        /// `None`: the file of the current position.
        file: Option<String>,
        /// From 1.
        line: u32,
    },
    /// An address, as it was typed after `*`.
    Address(String),
}

/// The resolved addresses of a location, with their descriptions.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// Where.
    pub hits: Hits,
    /// `main at main.c:3`, a place a part.
    pub places: Vec<String>,
    /// The next line with code, if the requested line has none.
    pub nearest: Option<u32>,
    /// The frame that it asks for.
    pub asked: AskedFrame,
}

impl Location {
    /// Reads a location.
    ///
    /// # Errors
    /// When it is empty, or its line is no number.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::BadLocation(text.to_owned()));
        }
        if let Some(address) = text.strip_prefix('*') {
            return Ok(Self::Address(address.trim().to_owned()));
        }
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let line = |text: &str| text.parse().map_err(|_| Error::BadLocation(text.to_owned()));
        if digits(text) {
            return Ok(Self::Line {
                file: None,
                line: line(text)?,
            });
        }
        match text.rsplit_once(':') {
            Some((file, number)) if digits(number) && !file.ends_with(':') => match line(number)? {
                0 => Err(Error::BadLocation(text.to_owned())),
                line => Ok(Self::Line {
                    file: Some(file.to_owned()),
                    line,
                }),
            },
            _ => Ok(Self::Function(text.to_owned())),
        }
    }

    /// Looks it up in a process; `here` is the file for a line without one, and `pc` is `$pc`.
    /// `names` are further names of the file in the debug information.
    ///
    /// # Errors
    /// When there is no such function, line or address.
    pub fn resolve(
        &self,
        process: &Process,
        here: Option<&str>,
        pc: Option<Avma>,
        names: &[String],
    ) -> Result<Resolved> {
        match self {
            Self::Function(name) => function(process, name),
            Self::Line { file, line } => {
                let file = file
                    .as_deref()
                    .or(here)
                    .ok_or_else(|| Error::Cannot(format!("no source file is known here; use FILE:{line}")))?;
                lines(process, file, names, *line)
            }
            Self::Address(text) => {
                let at = address(process, None, text, pc)?;
                Ok(Resolved {
                    hits: Hits {
                        addresses: at.into(),
                        ..Hits::default()
                    },
                    places: vec![at.to_string()],
                    nearest: None,
                    asked: AskedFrame::Innermost,
                })
            }
        }
    }
}

fn function(process: &Process, name: &str) -> Result<Resolved> {
    let (mut hits, mut places, mut inlined) = (Vec::new(), Vec::new(), Vec::new());
    let asked = AskedFrame::Function(name.to_owned());
    for epoch in process.epochs() {
        let functions = epoch.symbols.functions_named(name);
        let starts: BTreeSet<Avma> = functions
            .iter()
            .map(|function| process.after_prologue(epoch, function))
            .collect();
        places.extend(starts.iter().map(|&at| place(&epoch.symbols, at, &asked)));
        let copies = epoch.symbols.inlined_copies_named(name);
        inlined.extend(
            copies
                .iter()
                .map(|copy| format!("{} inlined at {}", copy.name, copy.begin)),
        );
        let copies = copies.into_iter().map(|copy| CopyCode {
            code: PcSet::from_ranges(copy.ranges),
            begin: copy.begin,
        });
        let here = Hits {
            addresses: starts.into_iter().collect(),
            copies: copies.collect(),
            ..Hits::default()
        };
        hits.push((epoch.from, here));
    }
    let hits = Hits::over_time(hits);
    if hits.is_empty() {
        return Err(Error::NoSymbol {
            name: name.to_owned(),
            modules: process.describe_modules(),
        });
    }
    places.extend(inlined);
    Ok(Resolved {
        hits,
        places: distinct(places),
        nearest: None,
        asked,
    })
}

/// Returns the places without those that are repeated in a later period.
fn distinct(mut places: Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    places.retain(|place| known.insert(place.clone()));
    places
}

/// Hits for all functions given, as `rbreak` wants.
pub fn functions(process: &Process, functions: &[Function<Avma>]) -> Vec<(Hits, String)> {
    let hits = functions.iter().map(|function| {
        let (mut hits, mut found) = (Vec::new(), None);
        for epoch in process.epochs() {
            // The function may be of a module that was mapped for a time.
            let is_mapped = process.has_one_epoch() || {
                let named = epoch.symbols.functions_named(&function.linkage_name);
                named.iter().any(|named| named.entry == function.entry)
            };
            let at = is_mapped.then(|| process.after_prologue(epoch, function));
            let here = Hits {
                addresses: at.into_iter().collect(),
                ..Hits::default()
            };
            hits.push((epoch.from, here));
            let asked = AskedFrame::Function(function.name.to_string());
            found = found.or_else(|| at.map(|at| place(&epoch.symbols, at, &asked)));
        }
        let place = found.unwrap_or_else(|| function.entry.to_string());
        (Hits::over_time(hits), place)
    });
    hits.collect()
}

/// Returns the code of a line under each name of its file.
fn matches(symbols: &Symbolizer, file: &str, names: &[String], line: u32) -> Vec<LineMatch<Avma>> {
    let names = std::iter::once(file).chain(names.iter().map(String::as_str));
    let mut found: Vec<_> = names
        .flat_map(|name| symbols.addresses_of_line(name, line))
        .collect();
    let nearest = found.iter().map(|found| found.line).min();
    found.retain(|found| Some(found.line) == nearest);
    let key = |found: &LineMatch<Avma>| {
        (
            found.address,
            found.function.as_ref().map(|function| function.entry),
        )
    };
    found.sort_by_key(key);
    found.dedup_by_key(|found| key(found));
    found
}

fn lines(process: &Process, file: &str, names: &[String], line: u32) -> Result<Resolved> {
    let epochs = process.epochs().iter();
    let found: Vec<Vec<LineMatch<Avma>>> = epochs
        .map(|epoch| matches(&epoch.symbols, file, names, line))
        .collect();
    let Some(nearest) = found.iter().flatten().map(|found| found.line).min() else {
        return Err(Error::NoLine {
            file: file.to_owned(),
            line,
        });
    };
    let (mut hits, mut places) = (Vec::new(), Vec::new());
    let asked = AskedFrame::Line {
        file: file.to_owned(),
        line: nearest,
    };
    for (epoch, matches) in process.epochs().iter().zip(&found) {
        let mut addresses = Vec::new();
        let mut ranges: Vec<Range<Avma>> = Vec::new();
        for found in matches.iter().filter(|found| found.line == nearest) {
            let opening = found.function.as_ref().filter(|function| {
                let prologue = function.entry..process.after_prologue(epoch, function);
                prologue.contains(&found.address) || function.entry == found.address
            });
            match opening {
                // The line that opens a function means its body, as a breakpoint on the function
                // does.
                Some(function) => {
                    let at = process.after_prologue(epoch, function);
                    addresses.push(at);
                    places.push(place(&epoch.symbols, at, &asked));
                }
                None => {
                    ranges.extend(code_of_line(&epoch.symbols, found));
                    places.push(place(&epoch.symbols, found.address, &asked));
                }
            }
        }
        let here = Hits {
            addresses: addresses.into_iter().collect(),
            line: PcSet::from_ranges(ranges),
            ..Hits::default()
        };
        hits.push((epoch.from, here));
    }
    Ok(Resolved {
        hits: Hits::over_time(hits),
        places: distinct(places),
        nearest: Some(nearest).filter(|&nearest| nearest != line),
        asked,
    })
}

/// All code of a found line in its function.
fn code_of_line(symbols: &Symbolizer, found: &LineMatch<Avma>) -> Vec<Range<Avma>> {
    let parts = match &found.function {
        Some(function) => symbols.parts_of(function),
        None => vec![found.address..found.address + 1],
    };
    let rows = parts.into_iter().flat_map(|part| symbols.lines_in(part));
    let of_line = rows.filter(|row| row.is_stmt && row.line == found.line && row.file == found.file);
    of_line
        .map(|row| row.range)
        .chain([found.address..found.address + 1])
        .collect()
}

/// An address as it is typed: a number, a symbol, or either with `+` and a number. The symbol is
/// one of the modules that were mapped in `version` of the code; `None` means at any time.
///
/// # Errors
/// When it is none of these, or the symbol is unknown.
pub fn address(process: &Process, version: Option<Version>, text: &str, pc: Option<Avma>) -> Result<Avma> {
    let text = text.trim();
    let bad = || Error::BadAddress(text.to_owned());
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    };
    let base = |text: &str| -> Result<Avma> {
        if let Some(number) = number(text) {
            return Ok(Avma(number));
        }
        if matches!(text, "$pc" | "$rip") {
            return pc.ok_or_else(bad);
        }
        let named = |symbols: &Symbolizer| symbols.functions_named(text);
        let at_any_time = || process.functions_in_all(named);
        let found = match version {
            Some(version) => named(process.symbols_at(version)),
            None => at_any_time(),
        };
        let first = found.into_iter().next();
        first
            .map(|function| function.entry)
            .ok_or_else(|| match at_any_time().is_empty() {
                true => Error::NoSymbol {
                    name: text.to_owned(),
                    modules: process.describe_modules(),
                },
                false => Error::Cannot(format!(
                    "the module of {text} was not mapped at this position; `break {text}` finds calls of it"
                )),
            })
    };
    if text.is_empty() {
        return Err(bad());
    }
    match text.rsplit_once('+') {
        Some((symbol, offset)) if number(offset).is_some() => {
            Ok(base(symbol.trim())? + number(offset).ok_or_else(bad)?)
        }
        _ => base(text),
    }
}

/// Returns the place of an address in the frame asked for: `main at main.c:3 (0x401136)`.
fn place(symbols: &Symbolizer, at: Avma, asked: &AskedFrame) -> String {
    let frames = symbols.frames_at(at);
    let number = asked.number(&frames);
    let frame = frames.into_iter().nth(number);
    match frame {
        Some(frame) => match frame.location.filter(|location| location.line != 0) {
            Some(location) => {
                let file = crate::source::short(&location.file);
                format!("{at} in {} at {file}:{}", frame.function, location.line)
            }
            None => format!("{at} in {}", frame.function),
        },
        None => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_distinguished() {
        let line = |file: Option<&str>, line| Location::Line {
            file: file.map(str::to_owned),
            line,
        };
        assert_eq!(
            Location::parse("main").unwrap(),
            Location::Function("main".into())
        );
        assert_eq!(
            Location::parse("ns::main").unwrap(),
            Location::Function("ns::main".into())
        );
        assert_eq!(Location::parse("a.c:12").unwrap(), line(Some("a.c"), 12));
        assert_eq!(Location::parse("12").unwrap(), line(None, 12));
        assert_eq!(
            Location::parse("*0x12").unwrap(),
            Location::Address("0x12".into())
        );
        assert!(Location::parse(" ").is_err());
        assert!(Location::parse("a.c:99999999999").is_err());
        assert!(Location::parse("a.c:0").is_err());
    }
}
