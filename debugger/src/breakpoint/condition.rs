//! Conditions of breakpoints: what can be known at any position of a trace.

use super::Hit;
use crate::error::{Error, Result};
use std::fmt;

/// A condition: comparisons of `$hits`, `$thread` and `$caller`, joined by `&&`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Hits(Comparison, u64),
    Thread(Comparison, u64),
    Caller { name: String, equal: bool },
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
        })
    }
}

fn parse_term(term: &str) -> Result<Term> {
    let refuse = || {
        Error::Cannot(format!(
            "the condition \"{term}\" needs a value that the trace does not have at every position; \
             use $hits, $thread or $caller, for example `$hits >= 3 && $caller == main`"
        ))
    };
    let (operator, comparison) = OPERATORS
        .into_iter()
        .find(|(operator, _)| term.contains(operator))
        .ok_or_else(refuse)?;
    let (left, right) = term.split_once(operator).ok_or_else(refuse)?;
    let (left, right) = (left.trim(), right.trim().trim_matches('"'));
    let number = || right.parse().map_err(|_| refuse());
    match (left, comparison) {
        ("$hits", _) => Ok(Term::Hits(comparison, number()?)),
        ("$thread" | "$_thread", _) => Ok(Term::Thread(comparison, number()?)),
        ("$caller", Comparison::Equal) => Ok(Term::Caller {
            name: right.to_owned(),
            equal: true,
        }),
        ("$caller", Comparison::NotEqual) => Ok(Term::Caller {
            name: right.to_owned(),
            equal: false,
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
        };
        assert!(condition.holds(&hit(2, Some("main"))));
        assert!(!condition.holds(&hit(1, Some("main"))));
        assert!(!condition.holds(&hit(2, Some("start"))));
        assert!(Condition::parse("$thread != 7").unwrap().holds(&hit(1, None)));
    }

    #[test]
    fn values_of_the_program_are_refused_with_a_way_out() {
        let error = Condition::parse("x == 3").unwrap_err().to_string();
        assert!(error.contains("$hits"), "{error}");
        assert!(Condition::parse("").is_err());
    }
}
