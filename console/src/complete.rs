//! Completion of a command line, out of the command table and the symbols.

mod expression;

use crate::commands::{self, Completion, commands};
use backtrail_debugger::navigator::Navigator;
use backtrail_symbolizer::SymbolFile;
use expression::ExpressionEnd;
use std::collections::BTreeSet;

/// No more candidates are given.
const MAX_CANDIDATES: usize = 200;

/// Returns the start of the word to replace in `line`, and its completions.
#[must_use]
pub fn complete(navigator: &Navigator, line: &str) -> (usize, Vec<String>) {
    let mut found = command_names(line);
    if !found.is_empty() {
        found.truncate(MAX_CANDIDATES);
        return (line.len() - line.trim_start().len(), found);
    }
    let begin = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = line.get(begin..).unwrap_or("");
    let Ok((command, _)) = commands::parse(line) else {
        return (begin, Vec::new());
    };
    let is_condition = command.name.ends_with("break") && line.contains(" if ");
    if command.completion == Completion::Expression || is_condition {
        let end = ExpressionEnd::of(line);
        let mut found = expression::candidates(navigator, &end, MAX_CANDIDATES);
        if end.object.is_none() && !end.word.is_empty() {
            found.extend(functions(navigator, end.word));
        }
        found.truncate(MAX_CANDIDATES);
        return (line.len() - end.word.len(), found);
    }
    let mut found: Vec<String> = match command.completion {
        Completion::None | Completion::Expression => Vec::new(),
        Completion::Location => locations(navigator, word),
        Completion::Function => functions(navigator, word).into_iter().collect(),
        Completion::Thread => {
            let threads = navigator.session().threads().iter();
            with_prefix(threads.map(|thread| thread.tid.to_string()), word)
        }
        Completion::Position => {
            let fixed = ["start", "end", "crash", "panic"].into_iter().map(str::to_owned);
            with_prefix(fixed.chain(navigator.bookmarks.keys().cloned()), word)
        }
        Completion::Command => with_prefix(commands().map(|command| command.name.to_owned()), word),
    };
    found.truncate(MAX_CANDIDATES);
    (begin, found)
}

/// Commands that begin with the whole line; none when the line is a command already and more.
fn command_names(line: &str) -> Vec<String> {
    let typed = line.trim_start();
    with_prefix(commands().map(|command| command.name.to_owned()), typed)
}

fn with_prefix(all: impl Iterator<Item = String>, prefix: &str) -> Vec<String> {
    all.filter(|candidate| candidate.starts_with(prefix)).collect()
}

/// Returns functions whose names begin with `word`, also those that are only inlined.
fn functions(navigator: &Navigator, word: &str) -> BTreeSet<String> {
    let pattern = regex::Regex::new(&format!("^{}", regex::escape(word)));
    let (Ok(process), Ok(pattern)) = (navigator.process(), pattern) else {
        return BTreeSet::new();
    };
    let found = process.functions_in_all(|symbols| symbols.functions_matching(&pattern));
    let mut names: BTreeSet<String> = found
        .into_iter()
        .map(|function| function.name.to_string())
        .collect();
    for file in symbol_files(navigator) {
        let inlined = file.inlined_names(word, MAX_CANDIDATES);
        names.extend(inlined.iter().map(|name| name.to_string()));
    }
    names
}

/// Returns the files with symbols of the process.
fn symbol_files(navigator: &Navigator) -> Vec<&SymbolFile> {
    let Ok(process) = navigator.process() else {
        return Vec::new();
    };
    let modules = process.epochs().iter().flat_map(|epoch| epoch.symbols.modules());
    modules.filter_map(|module| module.file.as_deref()).collect()
}

/// Returns functions and source files that begin with `word`.
fn locations(navigator: &Navigator, word: &str) -> Vec<String> {
    let mut found = functions(navigator, word);
    for file in symbol_files(navigator) {
        let files = file.source_files();
        let short = files.iter().map(|file| backtrail_debugger::source::short(file));
        found.extend(
            short
                .filter(|file| file.starts_with(word))
                .map(|file| format!("{file}:")),
        );
    }
    found.into_iter().collect()
}
