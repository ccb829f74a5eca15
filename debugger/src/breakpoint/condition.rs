//! Conditions of breakpoints: of what a trace knows at any position, and of values of the program.

use crate::error::{Error, Result};
use crate::latency::Span;
use crate::time::parse_nanos;
use std::fmt;

/// The properties of a hit that a condition can compare.
#[derive(Clone, Debug)]
pub struct Hit<'a> {
    /// The thread.
    pub tid: u32,
    /// The number of hits of the breakpoint, including this one.
    pub count: u64,
    /// The calling function, if the condition needs it.
    pub caller: Option<&'a str>,
    /// The duration of the call, in nanoseconds; `None` if it is unknown or not needed.
    pub duration: Option<Span>,
    /// The number of instructions of the call; `None` if it is unknown or not needed.
    pub instructions: Option<Span>,
    /// The call of an allocator function.
    pub heap: HeapHit,
}

/// The call of an allocator function at a hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeapHit {
    /// No such call runs, or it is not needed.
    #[default]
    Elsewhere,
    /// A call runs.
    Call(HeapBlock),
    /// A call runs, and its block is unknown for this reason.
    Unknown(String),
}

/// The block of a call of an allocator function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapBlock {
    /// The block that the call frees, resizes or returns.
    pub address: Option<u64>,
    /// The requested size in bytes.
    pub size: Option<u64>,
}

/// A condition of a breakpoint.
///
/// A condition joins comparisons of `hits`, `thread`, `caller`, `duration` and `instructions`, and
/// expressions of the program, by `&&`. The words can be written with GDB's `$`. In allocator
/// functions of a trace with heap events, `address` and `size` are those of the block.
///
/// `duration` and `instructions` are those of the whole call that was hit. A duration has
/// two bounds, and a comparison is true only if it is true for all values between them. `hits % 3`
/// is true at every third hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Hits(Comparator, u64),
    Thread(Comparator, u64),
    Caller {
        name: String,
        equal: bool,
    },
    /// In nanoseconds.
    Duration(Comparator, u64),
    Instructions(Comparator, u64),
    Heap {
        is_size: bool,
        comparator: Comparator,
        number: u64,
        /// The expression of the program, where the hit is in no allocator function.
        expression: Option<String>,
    },
    /// An expression of the program.
    Value(String),
}

/// The truth value of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The condition is true or false.
    Known(bool),
    /// The condition is unknown, for this reason.
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
    /// A multiple of it.
    Every,
}

/// Longer operators first, so that `>=` is not read as `>`.
const OPERATORS: [(&str, Comparator); 7] = [
    ("==", Comparator::Equal),
    ("!=", Comparator::NotEqual),
    (">=", Comparator::AtLeast),
    ("<=", Comparator::AtMost),
    (">", Comparator::Above),
    ("<", Comparator::Below),
    ("%", Comparator::Every),
];

impl Comparator {
    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
            Self::Above => left > right,
            Self::Below => left < right,
            Self::Every => left.is_multiple_of(right),
        }
    }

    /// Returns whether the comparison is true for every possible length.
    fn is_certain(self, left: Option<Span>, right: u64) -> bool {
        let Some(Span { least, most }) = left else {
            return false;
        };
        match self {
            Self::NotEqual => right < least || most < right,
            Self::Every => least == most && self.holds(least, right),
            _ => self.holds(least, right) && self.holds(most, right),
        }
    }
}

impl Condition {
    /// Parses a condition. Expressions of the program are not checked.
    ///
    /// # Errors
    ///
    /// If a part is missing, or is not a number or duration where one is required.
    pub fn parse(text: &str) -> Result<Self> {
        let terms = match has_alternatives(text) {
            true => vec![alternative(text)?],
            false => terms(text).map(parse_term).collect::<Result<_>>()?,
        };
        Ok(Self {
            text: text.trim().to_owned(),
            terms,
        })
    }

    /// Returns whether the hit counts; `value` evaluates an expression of the program.
    ///
    /// # Errors
    ///
    /// Those of `value`, which is called only if the rest of the condition is true.
    pub fn holds(&self, hit: &Hit<'_>, value: &mut dyn FnMut(&str) -> Result<Truth>) -> Result<Truth> {
        let rest = self.terms.iter().all(|term| match term {
            Term::Hits(comparison, number) => comparison.holds(hit.count, *number),
            Term::Thread(comparison, number) => comparison.holds(u64::from(hit.tid), *number),
            Term::Caller { name, equal } => (hit.caller == Some(name.as_str())) == *equal,
            Term::Duration(comparison, ns) => comparison.is_certain(hit.duration, *ns),
            Term::Instructions(comparison, number) => comparison.is_certain(hit.instructions, *number),
            Term::Heap { .. } | Term::Value(_) => true,
        });
        let mut all = Truth::Known(rest);
        for term in self.terms.iter().filter(|_| rest) {
            let truth = match term {
                Term::Heap { .. } => term.heap_truth(&hit.heap, value)?,
                Term::Value(expression) => value(expression)?,
                _ => continue,
            };
            match truth {
                Truth::Known(true) => {}
                Truth::Known(false) => return Ok(Truth::Known(false)),
                unknown => all = unknown,
            }
        }
        Ok(all)
    }

    /// The expressions of the program in it.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|term| match term {
            Term::Value(expression) => Some(expression.as_str()),
            _ => None,
        })
    }

    /// Returns whether the condition compares the caller.
    #[must_use]
    pub fn asks_caller(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Caller { .. }))
    }

    /// Returns whether the condition compares the block of an allocator function.
    #[must_use]
    pub fn asks_heap(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Heap { .. }))
    }

    /// Returns whether the condition compares the duration of the call.
    #[must_use]
    pub fn asks_duration(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Duration(..)))
    }

    /// Returns whether the condition compares the number of instructions of the call.
    #[must_use]
    pub fn asks_instructions(&self) -> bool {
        self.terms
            .iter()
            .any(|term| matches!(term, Term::Instructions(..)))
    }
}

impl Term {
    /// Returns the truth of a comparison of a block; `value` evaluates an expression of the
    /// program.
    fn heap_truth(&self, hit: &HeapHit, value: &mut dyn FnMut(&str) -> Result<Truth>) -> Result<Truth> {
        let Self::Heap {
            is_size,
            comparator,
            number,
            expression,
        } = self
        else {
            return Ok(Truth::Known(true));
        };
        let (name, left) = match (hit, expression) {
            (HeapHit::Call(block), _) if *is_size => ("size", block.size),
            (HeapHit::Call(block), _) => ("address", block.address),
            (HeapHit::Unknown(why), _) => return Ok(Truth::Unknown(why.clone())),
            (HeapHit::Elsewhere, Some(expression)) => return value(expression),
            (HeapHit::Elsewhere, None) => (if *is_size { "size" } else { "address" }, None),
        };
        Ok(match left {
            Some(left) => Truth::Known(comparator.holds(left, *number)),
            None => Truth::Unknown(format!(
                "the trace has no {name} of a block here (`record --heap`)"
            )),
        })
    }
}

/// The characters outside of parentheses and quotes, each with where it is and the one before it.
fn outside(text: &str) -> impl Iterator<Item = (usize, char, char)> {
    let (mut depth, mut quote, mut last) = (0usize, None, ' ');
    text.char_indices().filter_map(move |(at, c)| {
        let before = last;
        // Two signs that are one are not the beginning of another.
        last = if before == c && matches!(c, '&' | '|') {
            ' '
        } else {
            c
        };
        match (quote, c) {
            (Some(open), _) if c == open && before != '\\' => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 => return Some((at, before, c)),
            _ => {}
        }
        None
    })
}

/// `||` or `?` joins more loosely than `&&` does.
fn has_alternatives(text: &str) -> bool {
    outside(text).any(|(_, before, c)| c == '?' || (before, c) == ('|', '|'))
}

/// All of it is an expression of the program.
fn alternative(text: &str) -> Result<Term> {
    let ends = |c: char| matches!(c, '|' | '?' | ':' | '&');
    let parts = text.split(ends).map(str::trim).filter(|part| !part.is_empty());
    for part in parts {
        let part = part.trim_matches(|c: char| matches!(c, '(' | ')' | '!') || c.is_whitespace());
        if !part.is_empty() && !matches!(parse_term(part)?, Term::Value(_)) {
            return Err(Error::Cannot(format!(
                "\"{part}\" can be joined by && only; set one breakpoint for each alternative"
            )));
        }
    }
    Ok(Term::Value(text.trim().to_owned()))
}

/// Splits a condition at `&&` outside of parentheses and quotes.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut cuts = vec![0];
    let joins = outside(text).filter(|&(_, before, c)| (before, c) == ('&', '&'));
    cuts.extend(joins.flat_map(|(at, ..)| [at - 1, at + 1]));
    cuts.push(text.len());
    let pieces: Vec<&str> = cuts
        .chunks(2)
        .filter_map(|piece| text.get(*piece.first()?..*piece.last()?))
        .collect();
    pieces.into_iter().map(str::trim)
}

fn parse_term(term: &str) -> Result<Term> {
    if term.is_empty() {
        return Err(Error::Cannot(
            "the condition is incomplete; an example is `$caller == main && $duration > 5ms`".to_owned(),
        ));
    }
    let value = || Ok(Term::Value(term.to_owned()));
    let found = OPERATORS
        .into_iter()
        .find(|(operator, _)| term.contains(operator));
    let Some((left, comparison, right)) = found
        .and_then(|(operator, comparison)| Some((term.split_once(operator)?, comparison)))
        .map(|((left, right), comparison)| (left.trim(), comparison, right.trim().trim_matches('"')))
    else {
        return value();
    };
    let number = || {
        right.parse().map_err(|_| {
            Error::Cannot(format!(
                "\"{right}\" is not a number; \"{left}\" is compared with a number"
            ))
        })
    };
    match (left.trim_start_matches('$'), comparison) {
        (_, Comparator::Every) if left.trim_start_matches('$') != "hits" => value(),
        ("hits", _) => Ok(Term::Hits(comparison, number()?)),
        ("thread" | "_thread", _) => Ok(Term::Thread(comparison, number()?)),
        ("instructions", _) => Ok(Term::Instructions(comparison, number()?)),
        ("duration", _) => {
            let ns = parse_nanos(right).and_then(|ns| u64::try_from(ns).ok());
            let no_time = || {
                Error::Cannot(format!(
                    "\"{right}\" is not a duration; use one like 5ms: `$duration > 5ms`"
                ))
            };
            Ok(Term::Duration(comparison, ns.ok_or_else(no_time)?))
        }
        (word @ ("address" | "size"), _) if parse_number(right).is_some() => Ok(Term::Heap {
            is_size: word == "size",
            comparator: comparison,
            number: parse_number(right).unwrap_or_default(),
            expression: (!left.starts_with('$')).then(|| term.to_owned()),
        }),
        ("caller", Comparator::Equal | Comparator::NotEqual) => Ok(Term::Caller {
            name: right.to_owned(),
            equal: comparison == Comparator::Equal,
        }),
        ("caller", _) => Err(Error::Cannot(
            "$caller is compared by == or !=: `$caller == main`".to_owned(),
        )),
        _ => value(),
    }
}

/// Reads a decimal or hexadecimal number.
fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &Condition, hit: &Hit<'_>) -> bool {
        let evaluated = condition.holds(hit, &mut |expression| panic!("{expression} is a value"));
        evaluated.unwrap() == Truth::Known(true)
    }

    #[test]
    fn what_the_trace_knows_can_be_asked() {
        let condition = Condition::parse("$hits >= 2 && $caller == main").unwrap();
        let hit = |count, caller| Hit {
            tid: 1,
            count,
            caller,
            duration: None,
            instructions: None,
            heap: HeapHit::Elsewhere,
        };
        assert!(holds(&condition, &hit(2, Some("main"))));
        assert!(!holds(&condition, &hit(1, Some("main"))));
        assert!(!holds(&condition, &hit(2, Some("start"))));
        assert!(holds(&Condition::parse("thread != 7").unwrap(), &hit(1, None)));
        let third = Condition::parse("hits % 3").unwrap();
        let counts: Vec<u64> = (1..8).filter(|&count| holds(&third, &hit(count, None))).collect();
        assert_eq!(counts, [3, 6]);
        assert!(!holds(&Condition::parse("hits % 0").unwrap(), &hit(1, None)));
    }

    #[test]
    fn a_length_of_time_must_be_certain() {
        let hit = |duration: Option<(u64, u64)>| Hit {
            tid: 1,
            count: 1,
            caller: None,
            duration: duration.map(|(least, most)| Span { least, most }),
            instructions: Some(Span::exactly(100)),
            heap: HeapHit::Elsewhere,
        };
        let holds = |text: &str, duration| holds(&Condition::parse(text).unwrap(), &hit(duration));
        let five_ms = 5_000_000;
        assert!(holds("duration > 5ms", Some((five_ms + 1, five_ms + 9))));
        assert!(!holds("duration > 5ms", Some((five_ms - 1, five_ms + 9))));
        assert!(!holds("duration <= 5 ms", Some((five_ms - 1, five_ms + 9))));
        assert!(!holds("duration > 0", None) && !holds("duration < 1s", None));
        assert!(holds("$duration != 5us", Some((5001, 6000))));
        assert!(!holds("$duration != 5us", Some((4000, 6000))));
        assert!(holds("instructions == 100 && hits == 1", None));
        assert!(Condition::parse("duration > soon").is_err());
        assert!(Condition::parse("duration > -1ms").is_err());
    }

    #[test]
    fn blocks_of_allocator_functions_are_compared() {
        let condition = Condition::parse("address == 0x5010 && $size > 8").unwrap();
        assert!(condition.asks_heap() && condition.values().next().is_none());
        let hit = |heap| Hit {
            tid: 1,
            count: 1,
            caller: None,
            duration: None,
            instructions: None,
            heap,
        };
        let block = |address, size| {
            let (address, size) = (Some(address), size);
            hit(HeapHit::Call(HeapBlock { address, size }))
        };
        assert!(holds(&condition, &block(0x5010, Some(9))));
        assert!(!holds(&condition, &block(0x5010, Some(8))));
        assert!(!holds(&condition, &block(0x5020, Some(9))));
        let mut nothing = |expression: &str| -> Result<Truth> { panic!("{expression}") };
        let unknown = condition.holds(&block(0x5010, None), &mut nothing).unwrap();
        assert!(matches!(unknown, Truth::Unknown(_)), "{unknown:?}");
        // Elsewhere, the word without a dollar sign is a variable of the program.
        let mut asked = Vec::new();
        let truth = condition.holds(&hit(HeapHit::Elsewhere), &mut |expression| {
            asked.push(expression.to_owned());
            Ok(Truth::Known(true))
        });
        assert!(matches!(truth.unwrap(), Truth::Unknown(_)));
        assert_eq!(asked, ["address == 0x5010"]);
        let variable = Condition::parse("address == other").unwrap();
        assert_eq!(variable.values().collect::<Vec<_>>(), ["address == other"]);
    }

    #[test]
    fn values_of_the_program_are_asked_where_the_rest_holds() {
        let condition = Condition::parse("n == 3 && $hits > 1 && (a && b[\"&&\"]) && c").unwrap();
        let values: Vec<_> = condition.values().collect();
        assert_eq!(values, ["n == 3", "(a && b[\"&&\"])", "c"]);
        let hit = |count| Hit {
            tid: 1,
            count,
            caller: None,
            duration: None,
            instructions: None,
            heap: HeapHit::Elsewhere,
        };
        let unknown = || Truth::Unknown("why".to_owned());
        let evaluated = |n: Truth, c: bool| {
            condition.holds(&hit(2), &mut |expression| {
                Ok(match expression {
                    "n == 3" => n.clone(),
                    "c" => Truth::Known(c),
                    _ => Truth::Known(true),
                })
            })
        };
        assert_eq!(evaluated(Truth::Known(true), true).unwrap(), Truth::Known(true));
        assert_eq!(evaluated(unknown(), true).unwrap(), unknown());
        assert_eq!(evaluated(unknown(), false).unwrap(), Truth::Known(false));
        let nothing = condition.holds(&hit(1), &mut |_| panic!("the rest does not hold"));
        assert_eq!(nothing.unwrap(), Truth::Known(false));
        for whole in ["1 || 0 && 0", "a && b || c", "n ? x && y : z"] {
            let condition = Condition::parse(whole).unwrap();
            assert_eq!(condition.values().collect::<Vec<_>>(), [whole]);
        }
        let grouped = Condition::parse("(a || b) && $hits > 1").unwrap();
        assert_eq!(grouped.values().collect::<Vec<_>>(), ["(a || b)"]);
        for wrong in [
            "",
            "a &&",
            "hits == many",
            "caller > main",
            "$hits > 1 || n == 3",
            "n == 3 || ($caller == main)",
        ] {
            assert!(Condition::parse(wrong).is_err(), "{wrong}");
        }
    }
}
