//! Completion of a command line, out of the command table and the symbols.

use crate::commands::{self, Completion, commands};
use backtrail_debugger::navigator::Navigator;
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
    let mut found: Vec<String> = match command.completion {
        Completion::None => Vec::new(),
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

fn functions(navigator: &Navigator, word: &str) -> BTreeSet<String> {
    let pattern = regex::Regex::new(&format!("^{}", regex::escape(word)));
    let (Ok(process), Ok(pattern)) = (navigator.process(), pattern) else {
        return BTreeSet::new();
    };
    let found = process.functions_in_all(|symbols| symbols.functions_matching(&pattern));
    let mut names: BTreeSet<String> = found.iter().map(|function| function.name.to_string()).collect();
    // Without a word, these would be most of the names.
    if !word.is_empty() {
        for epoch in process.epochs() {
            let copies = epoch.symbols.inlined_copies_matching(&pattern).into_iter();
            names.extend(copies.map(|copy| copy.name.to_string()));
        }
    }
    names
}

fn locations(navigator: &Navigator, word: &str) -> Vec<String> {
    let Ok(process) = navigator.process() else {
        return Vec::new();
    };
    let mut found = functions(navigator, word);
    let modules = process.epochs().iter().flat_map(|epoch| epoch.symbols.modules());
    for module in modules {
        let files = module
            .file
            .as_ref()
            .map(|file| file.source_files())
            .unwrap_or_default();
        let short = files.iter().map(|file| backtrail_debugger::source::short(file));
        found.extend(
            short
                .filter(|file| file.starts_with(word))
                .map(|file| format!("{file}:")),
        );
    }
    found.into_iter().collect()
}
