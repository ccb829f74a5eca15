//! Functions by a part of their names.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_decoder::Watch;
use serde::{Deserialize, Serialize};

/// The limit of functions in one response.
const MOST: usize = 1000;

/// The arguments of `backtrail/functions`.
#[derive(Debug, Deserialize)]
pub struct FunctionsArguments {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    count: Option<usize>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Function {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// Its answer.
#[derive(Debug, Serialize)]
pub struct MatchingFunctions {
    functions: Vec<Function>,
    more: bool,
}

/// `backtrail/functions`.
pub fn functions(
    client: &mut ClientSession,
    arguments: FunctionsArguments,
    _: &Watch<'_>,
) -> Result<MatchingFunctions> {
    let navigator = &client.debuggee()?.navigator;
    let pattern = regex::escape(&arguments.filter);
    let pattern = regex::RegexBuilder::new(&pattern).case_insensitive(true).build();
    let pattern = pattern.map_err(|_| Failure::Cannot("the filter is too long".to_owned()))?;
    let found = navigator
        .process()?
        .functions_in_all(|symbols| symbols.functions_matching(&pattern));
    let mut functions: Vec<Function> = found
        .into_iter()
        .map(|function| {
            let (file, line) = function.declared.unzip();
            Function {
                name: function.name.to_string(),
                file: file.map(|file| file.to_string()),
                line,
            }
        })
        .collect();
    // Without a filter, these would be most of the names.
    let epochs = navigator.process()?.epochs().iter();
    for epoch in epochs.filter(|_| !arguments.filter.is_empty()) {
        let copies = epoch.symbols.inlined_copies_matching(&pattern).into_iter();
        functions.extend(copies.map(|copy| {
            let (file, line) = copy.declared.unzip();
            Function {
                name: copy.name.to_string(),
                file: file.map(|file| file.to_string()),
                line,
            }
        }));
    }
    // Names that begin with the filter precede names that contain it.
    let filter = arguments.filter.to_lowercase();
    functions.sort_by_cached_key(|function| {
        let begins = function.name.to_lowercase().starts_with(&filter);
        (!begins, function.name.clone())
    });
    functions.dedup();
    let count = arguments.count.unwrap_or(MOST).min(MOST);
    let more = functions.len() > count;
    functions.truncate(count);
    Ok(MatchingFunctions { functions, more })
}
