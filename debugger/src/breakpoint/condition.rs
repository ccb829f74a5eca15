//! Conditions of breakpoints: what can be known at any position of a trace.

use super::Hit;
use crate::error::{Error, Result};
use crate::latency::Span;
use crate::time::parse_nanos;
use std::fmt;

/// A condition: comparisons of `hits`, `thread`, `caller`, `duration` and `instructions`, joined by `&&`; each may be written with
/// GDB's `$`.
///
/// The last two are of the call that was hit, all of it. The time that it took lies between two bounds, and a comparison
/// holds only where it does for all that is between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Hits(Comparison, u64),
    Thread(Comparison, u64),
    Caller {
        name: String,
        equal: bool,
    },
    /// In nanoseconds.
    Duration(Comparison, u64),
    Instructions(Comparison, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// Longer operators first, so that `>=` is not read as `>`.
const OPERATORS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

impl Comparison {
    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
            Self::Above => left > right,
            Self::Below => left < right,
        }
    }

    /// Whether it holds for every length that is possible.
    fn is_certain(self, left: Option<Span>, right: u64) -> bool {
        let Some(Span { least, most }) = left else {
            return false;
        };
        match self {
            Self::NotEqual => right < least || most < right,
            _ => self.holds(least, right) && self.holds(most, right),
        }
    }
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// When it asks for anything that a trace does not know at every position.
    pub fn parse(text: &str) -> Result<Self> {
        let terms = text
            .split("&&")
            .map(|term| parse_term(term.trim()))
            .collect::<Result<_>>()?;
        Ok(Self {
            text: text.trim().to_owned(),
            terms,
        })
    }

    /// Whether the hit counts.
    #[must_use]
    pub fn holds(&self, hit: &Hit<'_>) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Hits(comparison, number) => comparison.holds(hit.count, *number),
            Term::Thread(comparison, number) => comparison.holds(u64::from(hit.tid), *number),
            Term::Caller { name, equal } => (hit.caller == Some(name.as_str())) == *equal,
            Term::Duration(comparison, ns) => comparison.is_certain(hit.duration, *ns),
            Term::Instructions(comparison, number) => comparison.is_certain(hit.instructions, *number),
        })
    }

    /// It asks who called.
    #[must_use]
    pub fn asks_caller(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Caller { .. }))
    }

    /// It asks how long the call took, in time.
    #[must_use]
    pub fn asks_duration(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Duration(..)))
    }

    /// It asks how many instructions the call executed.
    #[must_use]
    pub fn asks_instructions(&self) -> bool {
        self.terms
            .iter()
            .any(|term| matches!(term, Term::Instructions(..)))
    }
}

fn parse_term(term: &str) -> Result<Term> {
    let refuse = || {
        Error::Cannot(format!(
            "the condition \"{term}\" needs a value that the trace does not have at every position; \
             use $hits, $thread, $caller, $duration or $instructions, for example `$caller == main && $duration > 5ms`"
        ))
    };
    let (operator, comparison) = OPERATORS
        .into_iter()
        .find(|(operator, _)| term.contains(operator))
        .ok_or_else(refuse)?;
    let (left, right) = term.split_once(operator).ok_or_else(refuse)?;
    let (left, right) = (left.trim(), right.trim().trim_matches('"'));
    let number = || right.parse().map_err(|_| refuse());
    match (left.trim_start_matches('$'), comparison) {
        ("hits", _) => Ok(Term::Hits(comparison, number()?)),
        ("thread" | "_thread", _) => Ok(Term::Thread(comparison, number()?)),
        ("instructions", _) => Ok(Term::Instructions(comparison, number()?)),
        ("duration", _) => {
            let ns = parse_nanos(right).and_then(|ns| u64::try_from(ns).ok());
            let no_time = || {
                Error::Cannot(format!(
                    "\"{right}\" is no length of time; give one like 5ms: `$duration > 5ms`"
                ))
            };
            Ok(Term::Duration(comparison, ns.ok_or_else(no_time)?))
        }
        ("caller", Comparison::Equal | Comparison::NotEqual) => Ok(Term::Caller {
            name: right.to_owned(),
            equal: comparison == Comparison::Equal,
        }),
        _ => Err(refuse()),
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

    #[test]
    fn what_the_trace_knows_can_be_asked() {
        let condition = Condition::parse("$hits >= 2 && $caller == main").unwrap();
        let hit = |count, caller| Hit {
            tid: 1,
            count,
            caller,
            duration: None,
            instructions: None,
        };
        assert!(condition.holds(&hit(2, Some("main"))));
        assert!(!condition.holds(&hit(1, Some("main"))));
        assert!(!condition.holds(&hit(2, Some("start"))));
        assert!(Condition::parse("thread != 7").unwrap().holds(&hit(1, None)));
    }

    #[test]
    fn a_length_of_time_must_be_certain() {
        let hit = |duration: Option<(u64, u64)>| Hit {
            tid: 1,
            count: 1,
            caller: None,
            duration: duration.map(|(least, most)| Span { least, most }),
            instructions: Some(Span::exactly(100)),
        };
        let holds = |text: &str, duration| Condition::parse(text).unwrap().holds(&hit(duration));
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
    fn values_of_the_program_are_refused_with_a_way_out() {
        let error = Condition::parse("x == 3").unwrap_err().to_string();
        assert!(error.contains("$hits"), "{error}");
        assert!(Condition::parse("").is_err());
    }
}
