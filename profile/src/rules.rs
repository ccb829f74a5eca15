//! Rules that select samples by their functions, and hide or join frames.

use crate::Result;
use crate::function_profile::{FunctionProfile, Site, SiteSample, Symbol, SymbolId};
use crate::stacks::StackId;
use crate::table::Id;
use regex::Regex;

/// Rules on the functions of stacks. A pattern is searched in the name, the file and the module of
/// a function.
///
/// `focus` and `ignore` see whole stacks. Then `show_from`, `hide` and `collapse` change them, in
/// this order. Weights do not change.
///
/// ```
/// use backtrail_profile::{FunctionProfile, Rules, format::folded};
/// use regex::Regex;
///
/// let profile = folded::read("main;memcpy 3\nmain;idle 9\n".as_bytes())?;
/// let rules = Rules {
///     ignore: Some(Regex::new("^idle$").unwrap()),
///     hide: Some(Regex::new("^mem").unwrap()),
///     ..Rules::default()
/// };
/// let selected = rules.apply(&FunctionProfile::new(&profile)?)?;
/// assert_eq!(selected.samples.len(), 1);
/// assert_eq!(selected.folded(selected.samples[0].stack), "main");
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Keep only samples with such a function on the stack.
    pub focus: Option<Regex>,
    /// Remove samples with such a function on the stack.
    pub ignore: Option<Regex>,
    /// Remove the callers of the outermost such function. Stacks without one become empty.
    pub show_from: Option<Regex>,
    /// Remove these functions from stacks. Their weight is that of their callers.
    pub hide: Option<Regex>,
    /// Show runs of these functions as one frame.
    pub collapse: Vec<Collapse>,
}

/// Functions that are shown as one frame where they call each other.
#[derive(Clone, Debug)]
pub struct Collapse {
    /// The functions.
    pub pattern: Regex,
    /// The name of the frame.
    pub name: String,
}

/// The answers of the rules for a function.
#[derive(Clone, Copy, Default)]
struct Verdict {
    is_focus: bool,
    is_ignored: bool,
    starts: bool,
    is_hidden: bool,
    /// The symbol of the first collapse rule that matches.
    collapsed: Option<SymbolId>,
}

/// A stack under the rules.
#[derive(Clone, Copy)]
struct State {
    stack: StackId,
    has_focus: bool,
    is_ignored: bool,
    is_shown: bool,
    /// The frame of the collapse rule that the innermost frame belongs to.
    collapsed: Option<SymbolId>,
}

impl Rules {
    /// Returns whether the rules change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let patterns = [&self.focus, &self.ignore, &self.show_from, &self.hide];
        patterns.iter().all(|pattern| pattern.is_none()) && self.collapse.is_empty()
    }

    /// Returns the profile under these rules.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn apply(&self, profile: &FunctionProfile) -> Result<FunctionProfile> {
        let mut new = FunctionProfile {
            symbols: profile.symbols.clone(),
            files: profile.files.clone(),
            ..FunctionProfile::default()
        };
        let names = self.collapse.iter().map(|rule| {
            new.symbols.intern(Symbol {
                name: rule.name.as_str().into(),
                file: "".into(),
                module: "".into(),
                build_id: None,
                is_function: false,
            })
        });
        let names = names.collect::<Result<Vec<_>>>()?;
        let symbols = profile.symbols.iter();
        let verdicts: Vec<_> = symbols.map(|(_, symbol)| self.verdict(symbol, &names)).collect();
        let first = State {
            stack: StackId::EMPTY,
            has_focus: self.focus.is_none(),
            is_ignored: false,
            is_shown: self.show_from.is_none(),
            collapsed: None,
        };
        let mut states = vec![first];
        for (_, caller, site) in profile.stacks.iter() {
            let caller = states.get(caller.index()).copied().unwrap_or(first);
            let verdict = verdicts.get(site.symbol.index()).copied().unwrap_or_default();
            states.push(next_state(&mut new, caller, site, verdict)?);
        }
        let samples = profile.samples.iter().filter_map(|sample| {
            let state = states.get(sample.stack.index())?;
            (state.has_focus && !state.is_ignored).then_some(SiteSample {
                stack: state.stack,
                ..*sample
            })
        });
        new.samples = samples.collect();
        Ok(new)
    }

    fn verdict(&self, symbol: &Symbol, names: &[SymbolId]) -> Verdict {
        let texts = [&symbol.name, &symbol.file, &symbol.module];
        let matches = |pattern: &Regex| texts.iter().any(|text| pattern.is_match(text));
        let is = |pattern: &Option<Regex>| pattern.as_ref().is_some_and(matches);
        let mut collapse = self.collapse.iter().zip(names);
        Verdict {
            is_focus: is(&self.focus),
            is_ignored: is(&self.ignore),
            starts: is(&self.show_from),
            is_hidden: is(&self.hide),
            collapsed: collapse
                .find(|(rule, _)| matches(&rule.pattern))
                .map(|(_, name)| *name),
        }
    }
}

/// Returns the state of a stack from that of its caller's stack.
fn next_state(new: &mut FunctionProfile, caller: State, site: Site, verdict: Verdict) -> Result<State> {
    let mut state = State {
        has_focus: caller.has_focus || verdict.is_focus,
        is_ignored: caller.is_ignored || verdict.is_ignored,
        is_shown: caller.is_shown || verdict.starts,
        ..caller
    };
    if !state.is_shown || verdict.is_hidden {
        return Ok(state);
    }
    state.collapsed = verdict.collapsed;
    state.stack = match verdict.collapsed {
        None => new.stacks.push(caller.stack, site)?,
        Some(name) if caller.collapsed == Some(name) => caller.stack,
        Some(symbol) => new.stacks.push(
            caller.stack,
            Site {
                symbol,
                file: None,
                line: 0,
                is_inlined: false,
            },
        )?,
    };
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;

    const FOLDED: &str = "start;main;std::a;std::b;work 5\nstart;main;idle 2\nstart;other 1\n";

    fn apply(rules: &Rules) -> Vec<(String, i64)> {
        let profile = FunctionProfile::new(&folded::read(FOLDED.as_bytes()).unwrap()).unwrap();
        let selected = rules.apply(&profile).unwrap();
        let samples = selected.samples.iter();
        samples
            .map(|sample| (selected.folded(sample.stack), sample.weight))
            .collect()
    }

    fn pattern(text: &str) -> Option<Regex> {
        Some(Regex::new(text).unwrap())
    }

    #[test]
    fn focus_and_ignore_select_samples() {
        let rules = Rules {
            focus: pattern("^main$"),
            ignore: pattern("^idle$"),
            ..Rules::default()
        };
        assert_eq!(apply(&rules), [("start;main;std::a;std::b;work".into(), 5)]);
    }

    #[test]
    fn hidden_and_collapsed_frames_keep_their_weight() {
        let rules = Rules {
            show_from: pattern("^main$"),
            hide: pattern("^idle$"),
            collapse: vec![Collapse {
                pattern: Regex::new("^std::").unwrap(),
                name: "[std]".into(),
            }],
            ..Rules::default()
        };
        assert_eq!(
            apply(&rules),
            [
                ("main;[std];work".into(), 5),
                ("main".into(), 2),
                (String::new(), 1)
            ]
        );
    }
}
