//! `skip`: the code that steps pass over, beside libraries.

use super::{Context, error};
use crate::output::{Output, SkipView};
use backtrail_debugger::skip::{FileRule, FunctionRule, SkipRule};
use backtrail_debugger::{Error, Result};
use regex::Regex;

/// The usage of `skip`.
pub(super) const USAGE: &str = "[function [NAME] | file [NAME] | -gfi GLOB | -fu NAME | -fi NAME | -rfu REGEX | \
     delete|enable|disable [N]…]";

/// Does `skip`.
pub(super) fn skip(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (first, rest) = super::split_word(arguments);
    match first {
        "delete" => change(context, rest, Change::Delete),
        "enable" => change(context, rest, Change::Enable),
        "disable" => change(context, rest, Change::Disable),
        "file" => {
            let name = match rest {
                "" => here(context, |frame| frame.file.clone(), "file")?,
                name => name.to_owned(),
            };
            add(
                context,
                SkipRule {
                    file: Some(FileRule::Name(name)),
                    function: None,
                },
            )
        }
        "" | "function" => {
            let name = match rest {
                "" => here(context, |frame| frame.function.clone(), "function")?,
                name => name.to_owned(),
            };
            add(context, named(name))
        }
        option if option.starts_with('-') => {
            let rule = options(arguments)?;
            add(context, rule)
        }
        _ => add(context, named(arguments.to_owned())),
    }
}

/// Does `info skip`.
pub(super) fn info(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let skips = context.navigator.skips.entries().iter();
    Ok(Output::Skips {
        skips: skips.map(SkipView::from).collect(),
    })
}

/// The rule for a function.
fn named(name: String) -> SkipRule {
    SkipRule {
        file: None,
        function: Some(FunctionRule::Name(name)),
    }
}

/// Returns a property of the selected frame.
fn here(
    context: &Context<'_>,
    find: impl Fn(&backtrail_debugger::stack::StackFrame) -> Option<String>,
    missing: &str,
) -> Result<String> {
    let number = context.navigator.selected_frame();
    let stack = context.navigator.stack(number.saturating_add(1), context.watch)?;
    let found = stack.frames.get(number).and_then(find);
    found.ok_or_else(|| {
        Error::Cannot(format!(
            "the {missing} of the selected frame is unknown; name one"
        ))
    })
}

fn add(context: &mut Context<'_>, rule: SkipRule) -> Result<Output> {
    let number = context.navigator.skips.add(rule)?;
    answer(context, &[number])
}

/// The answer that shows some rules.
fn answer(context: &Context<'_>, numbers: &[u32]) -> Result<Output> {
    let entries = context.navigator.skips.entries().iter();
    let shown = entries.filter(|entry| numbers.contains(&entry.number));
    Ok(Output::Skips {
        skips: shown.map(SkipView::from).collect(),
    })
}

/// Returns the rule of options such as `-gfi *.h -fu size`.
fn options(arguments: &str) -> Result<SkipRule> {
    let mut rule = SkipRule::default();
    let mut words = arguments.split_whitespace();
    while let Some(option) = words.next() {
        let value = words.next();
        let missing = || error::misuse(&format!("{option} requires a value"), &format!("skip {USAGE}"));
        match option {
            "-fi" | "-file" => rule.file = Some(FileRule::Name(value.ok_or_else(missing)?.to_owned())),
            "-gfi" | "-gfile" => rule.file = Some(FileRule::Glob(value.ok_or_else(missing)?.to_owned())),
            "-fu" | "-function" => {
                rule.function = Some(FunctionRule::Name(value.ok_or_else(missing)?.to_owned()));
            }
            "-rfu" | "-rfunction" => {
                let text = value.ok_or_else(missing)?;
                let regex = Regex::new(text).map_err(|problem| {
                    Error::Cannot(format!("\"{text}\" is not a regular expression: {problem}"))
                })?;
                rule.function = Some(FunctionRule::Pattern(regex));
            }
            _ => {
                return Err(error::misuse(
                    &format!("\"{option}\" is not an option of skip"),
                    &format!("skip {USAGE}"),
                ));
            }
        }
    }
    Ok(rule)
}

/// A change of rules.
#[derive(Clone, Copy)]
enum Change {
    Delete,
    Enable,
    Disable,
}

/// Changes the rules of some numbers or ranges of numbers; without any, all.
fn change(context: &mut Context<'_>, arguments: &str, change: Change) -> Result<Output> {
    let skips = &mut context.navigator.skips;
    let all: Vec<u32> = skips.entries().iter().map(|entry| entry.number).collect();
    let mut numbers = Vec::new();
    for word in arguments.split_whitespace() {
        let (first, last) = range(word)?;
        let found = all.iter().filter(|&&number| (first..=last).contains(&number));
        let before = numbers.len();
        numbers.extend(found);
        if numbers.len() == before {
            return Err(Error::Cannot(format!(
                "there is no skip rule {word}; `info skip` lists them"
            )));
        }
    }
    if arguments.is_empty() {
        numbers = all;
    }
    numbers.sort_unstable();
    numbers.dedup();
    for &number in &numbers {
        match change {
            Change::Delete => skips.delete(number)?,
            Change::Enable => skips.set_enabled(number, true)?,
            Change::Disable => skips.set_enabled(number, false)?,
        }
    }
    match change {
        Change::Delete => {
            let names = numbers.iter().map(u32::to_string).collect::<Vec<_>>();
            Ok(Output::message(match names.is_empty() {
                true => "There are no skip rules.".to_owned(),
                false => format!("Deleted skip {}.", names.join(", ")),
            }))
        }
        Change::Enable | Change::Disable => answer(context, &numbers),
    }
}

/// Reads `N` or `N-M`.
fn range(word: &str) -> Result<(u32, u32)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(Error::Cannot(format!(
            "\"{word}\" is not a number of a skip rule; `info skip` lists them"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_make_one_rule() {
        let rule = options("-gfi *.h -fu size").unwrap();
        assert_eq!(rule.file, Some(FileRule::Glob("*.h".to_owned())));
        assert_eq!(rule.function, Some(FunctionRule::Name("size".to_owned())));
        for wrong in ["-gfi", "-x y", "-rfu (", "-fu f g"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!(range("3").unwrap(), (3, 3));
        assert_eq!(range("2-4").unwrap(), (2, 4));
        assert!(range("x").is_err() && range("1-").is_err());
    }
}
