//! Rules that select samples by their functions, and hide or join frames.

use crate::Result;
use crate::frame::FrameId;
use crate::function_profile::{FunctionProfile, Site, SiteSample, Symbol, SymbolId};
use crate::profile::Profile;
use crate::sample::Sample;
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

/// The frames that rules match, by their indexes. `None`: there is no such rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchedFrames {
    /// A sample needs one of these on its stack.
    pub focus: Option<Vec<bool>>,
    /// A sample with one of these on its stack is left out.
    pub ignored: Option<Vec<bool>>,
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

    /// Returns whether the rules leave samples out.
    #[must_use]
    pub fn select_samples(&self) -> bool {
        self.focus.is_some() || self.ignore.is_some()
    }

    /// Returns whether the rules change the frames of stacks.
    #[must_use]
    pub fn change_frames(&self) -> bool {
        self.show_from.is_some() || self.hide.is_some() || !self.collapse.is_empty()
    }

    /// Returns the frames of a profile that `focus` and `ignore` match. A frame matches with any of
    /// the functions that are inlined into it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn matched_frames(&self, profile: &Profile) -> Result<MatchedFrames> {
        let (functions, sites) = FunctionProfile::of_frames(profile)?;
        let symbols = functions.symbols.iter();
        let verdicts: Vec<_> = symbols.map(|(_, symbol)| self.verdict(symbol, &[])).collect();
        let has = |is: fn(&Verdict) -> bool| {
            let verdict = |site: &Site| verdicts.get(site.symbol.index());
            let any = |sites: &Vec<Site>| sites.iter().filter_map(verdict).any(is);
            sites.iter().map(any).collect()
        };
        Ok(MatchedFrames {
            focus: self.focus.as_ref().map(|_| has(|verdict| verdict.is_focus)),
            ignored: self.ignore.as_ref().map(|_| has(|verdict| verdict.is_ignored)),
        })
    }

    /// Removes the samples of a profile that `focus` and `ignore` leave out. Frames stay as they
    /// are.
    ///
    /// # Errors
    ///
    /// As [`Rules::matched_frames`].
    pub fn retain_samples(&self, profile: &mut Profile) -> Result<()> {
        if !self.select_samples() {
            return Ok(());
        }
        let matched = self.matched_frames(profile)?;
        let is = |frames: &Option<Vec<bool>>, frame: FrameId| {
            let frames = frames.as_ref();
            frames.is_some_and(|frames| frames.get(frame.index()) == Some(&true))
        };
        // Whether a stack has a frame of the focus, and one that is ignored.
        let mut states = vec![(matched.focus.is_none(), false)];
        for (_, caller, frame) in profile.stacks.iter() {
            let (has_focus, is_ignored) = states.get(caller.index()).copied().unwrap_or_default();
            states.push((
                has_focus || is(&matched.focus, frame),
                is_ignored || is(&matched.ignored, frame),
            ));
        }
        let stays = |sample: &Sample| states.get(sample.stack.index()) == Some(&(true, false));
        profile.samples.retain(stays);
        Ok(())
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
    fn retained_samples_are_those_of_the_rules() {
        let rules = [
            (pattern("^main$"), pattern("^idle$")),
            (pattern("std::|other"), None),
            (None, pattern("main")),
            (pattern("nothing"), None),
        ];
        for (focus, ignore) in rules {
            let rules = Rules {
                focus,
                ignore,
                ..Rules::default()
            };
            let mut profile = folded::read(FOLDED.as_bytes()).unwrap();
            rules.retain_samples(&mut profile).unwrap();
            let functions = FunctionProfile::new(&profile).unwrap();
            let samples = functions.samples.iter();
            let retained: Vec<_> = samples
                .map(|sample| (functions.folded(sample.stack), sample.weight))
                .collect();
            assert_eq!(retained, apply(&rules));
        }
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
