//! The command table, which has every command.
//!
//! The table feeds the REPL, its help and completion, `--batch`, `--json`, and the debug adapter.

mod arguments;
mod breakpoints;
mod calls;
mod compare;
mod count;
mod crash;
mod display;
mod error;
mod evaluate;
mod examples;
mod format_argument;
mod frame_info;
mod goto;
mod heap;
mod help;
mod info;
mod latency;
pub mod latency_query;
mod list;
mod motion;
mod printf;
mod ptwrites;
mod search;
mod settings;
mod show;
mod skip;
mod stack;
mod table;
mod thread;
mod thread_apply;
mod timeline;
mod unsupported_gdb;
mod values;
mod watch;
mod x;

pub use error::LineError;
pub use goto::position_in;

use crate::output::Output;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{Stage, Watch};

/// The state that a command works on.
pub struct Context<'a> {
    /// The navigator.
    pub navigator: &'a mut Navigator,
    /// Cancels the command, and reports its progress.
    pub watch: &'a Watch<'a>,
}

/// The groups of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Verbs that move forward.
    Forward,
    /// Verbs that move backward.
    Backward,
    /// Moving anywhere.
    Positions,
    /// Breakpoints.
    Breakpoints,
    /// The stack, source and code at a position.
    Looking,
    /// The path to a position.
    Flow,
    /// The latency of calls.
    Latency,
    /// The session.
    Session,
}

impl Group {
    /// All of them, in the order of help.
    pub const ALL: [Self; 8] = [
        Self::Forward,
        Self::Backward,
        Self::Positions,
        Self::Breakpoints,
        Self::Looking,
        Self::Flow,
        Self::Latency,
        Self::Session,
    ];

    /// Its heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Forward => "Forward",
            Self::Backward => "Backward",
            Self::Positions => "Positions",
            Self::Breakpoints => "Breakpoints",
            Self::Looking => "Stack, source and code",
            Self::Flow => "History",
            Self::Latency => "Latency",
            Self::Session => "Session",
        }
    }
}

/// The completion of a command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Nothing.
    None,
    /// Functions and files.
    Location,
    /// Functions.
    Function,
    /// Variables of the selected frame, their members, globals and functions.
    Expression,
    /// Thread ids.
    Thread,
    /// Positions: `start`, `end`, `crash`, bookmarks.
    Position,
    /// Commands.
    Command,
}

/// A command.
pub struct Command {
    /// Its full name; two words for `info threads`.
    pub name: &'static str,
    /// GDB's abbreviations, beside every unambiguous prefix.
    pub aliases: &'static [&'static str],
    /// Its arguments, for help.
    pub args: &'static str,
    /// The group in which help lists it.
    pub group: Group,
    /// A sentence that describes it.
    pub help: &'static str,
    /// The completion of its arguments.
    pub completion: Completion,
    /// An empty line in the REPL does it again.
    pub repeats: bool,
    /// Does it.
    pub run: fn(&mut Context<'_>, &str) -> Result<Output>,
}

impl Command {
    /// `NAME ARGS`.
    #[must_use]
    pub fn usage(&self) -> String {
        format!("{} {}", self.name, self.args).trim_end().to_owned()
    }

    /// The error for arguments that it does not take.
    #[must_use]
    pub fn misuse(&self, problem: impl Into<String>) -> Error {
        error::misuse(&problem.into(), &self.usage())
    }
}

/// Returns every command, in the order of help.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    table::commands()
}

/// A line as typed, split into its command and arguments.
///
/// # Errors
/// When there is no such command, or the abbreviation is of several.
pub fn parse(line: &str) -> std::result::Result<(&'static Command, &str), LineError> {
    let line = line.trim();
    let (first, rest) = split_name(line);
    let (second, arguments) = split_word(rest);
    if exact(first).is_none()
        && let Some(error) = unsupported_gdb::instead(first, second, line)
    {
        return Err(error);
    }
    let two_words = commands().any(|command| is_prefixed(command.name, first));
    if two_words && exact(first).is_none() {
        if second.is_empty() {
            return Err(LineError::Ambiguous {
                name: first.to_owned(),
                candidates: subcommands(first),
            });
        }
        let full = commands().find(|command| is_prefixed(command.name, first));
        let first = full
            .and_then(|command| command.name.split(' ').next())
            .unwrap_or(first);
        let found = find(&format!("{first} {second}"));
        let found = found.map_err(|error| unsupported_gdb::instead(first, second, line).unwrap_or(error));
        return Ok((found?, arguments));
    }
    Ok((find(first)?, rest))
}

/// Splits the name of a command from its arguments, which need no space between if they are no
/// word: `x/5i main`, `p*list`.
fn split_name(line: &str) -> (&str, &str) {
    let (first, rest) = split_word(line);
    let end = first.find(['/', '*', '&', '(', '$', '"', '\'']).unwrap_or(0);
    match first.get(..end) {
        Some(name) if find(name).is_ok() => (name, line.get(name.len()..).unwrap_or("")),
        _ if line.starts_with(['!', '|']) => line.split_at(1),
        _ => (first, rest),
    }
}

/// Runs a line as typed.
///
/// # Errors
/// The errors of the command.
pub fn execute(navigator: &mut Navigator, line: &str, watch: &Watch<'_>) -> Result<Output> {
    let line = line.trim();
    if thread_apply::take(navigator, line)? {
        return Ok(Output::Several { answers: Vec::new() });
    }
    let answer = execute_one(navigator, line, watch)?;
    match answer {
        Output::Stop(_) if !navigator.breakpoints.due.is_empty() => {
            thread_apply::follow(navigator, answer, watch)
        }
        answer => Ok(answer),
    }
}

/// The same, but for what is typed between `commands` and `end`, and for the commands of
/// breakpoints.
fn execute_one(navigator: &mut Navigator, line: &str, watch: &Watch<'_>) -> Result<Output> {
    let (command, arguments) = parse(line)?;
    navigator.breakpoints.due.clear();
    navigator.with_earlier(watch, |navigator| {
        let answer = (command.run)(&mut Context { navigator, watch }, arguments.trim());
        // A search can end long before its whole range is searched.
        watch.end(Stage::Search);
        let mut output = answer?;
        if let Output::Stop(view) = &mut output {
            view.displays = display::displayed(navigator, watch)?;
        }
        Ok(output)
    })
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

/// `command` has two words, of which `word` is the first or abbreviates it.
fn is_prefixed(command: &str, word: &str) -> bool {
    command
        .split_once(' ')
        .is_some_and(|(first, _)| !word.is_empty() && first.starts_with(word))
}

fn subcommands(word: &str) -> String {
    let names = commands()
        .filter(|command| is_prefixed(command.name, word))
        .map(|command| command.name);
    names.collect::<Vec<_>>().join(", ")
}

fn exact(name: &str) -> Option<&'static Command> {
    commands().find(|command| command.name == name || command.aliases.contains(&name))
}

/// The command of this name, alias or unambiguous abbreviation.
///
/// # Errors
/// When there is none, or several.
pub fn find(name: &str) -> std::result::Result<&'static Command, LineError> {
    if let Some(command) = exact(name) {
        return Ok(command);
    }
    let abbreviated = |command: &&Command| {
        let (mut full, mut short) = (command.name.split(' '), name.split(' '));
        command.name.split(' ').count() == name.split(' ').count()
            && full
                .by_ref()
                .zip(short.by_ref())
                .all(|(full, short)| !short.is_empty() && full.starts_with(short))
    };
    let found: Vec<&'static Command> = commands().filter(abbreviated).collect();
    match found.as_slice() {
        [] => Err(LineError::unknown(name, commands().map(|command| command.name))),
        [command] => Ok(command),
        several => Err(LineError::Ambiguous {
            name: name.to_owned(),
            candidates: several
                .iter()
                .map(|command| command.name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// A number of times or lines, `default` when nothing is given.
fn number(arguments: &str, default: u64) -> Result<u64> {
    if arguments.is_empty() {
        return Ok(default);
    }
    arguments
        .parse()
        .map_err(|_| Error::Cannot(format!("\"{arguments}\" is not a number; use a count like 3")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_abbreviations_are_found() {
        let name = |text| {
            parse(text)
                .map(|(command, _)| command.name)
                .map_err(|error| error.to_string())
        };
        assert_eq!(name("rs"), Ok("reverse-step"));
        assert_eq!(name("i r"), Ok("info registers"));
        assert_eq!(name("info threads"), Ok("info threads"));
        assert_eq!(name("bt 3"), Ok("backtrace"));
        assert_eq!(name("x/3i $pc"), Ok("x"));
        assert_eq!(parse("x/3i $pc").unwrap().1, "/3i $pc");
        assert_eq!(name("disas"), Ok("disassemble"));
        assert!(name("info").unwrap_err().contains("info threads"));
        assert!(name("frobnicate").unwrap_err().ends_with("try `help`"));
        let similar = name("bakctrace").unwrap_err();
        assert!(similar.ends_with("did you mean `backtrace`?"), "{similar}");
        assert!(name("").is_err());
    }

    #[test]
    fn no_two_commands_share_a_name() {
        let mut names: Vec<&str> = commands()
            .flat_map(|command| command.aliases.iter().chain([&command.name]))
            .copied()
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
