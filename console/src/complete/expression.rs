//! Completion of the last name in an expression.

use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_values::{EvalContext, member_names, parse};
use std::collections::BTreeSet;

/// The name at the end of a line, and what it is a member of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpressionEnd<'l> {
    /// The object before `.` or `->`.
    pub(super) object: Option<&'l str>,
    /// The name as far as it is typed.
    pub(super) word: &'l str,
}

impl<'l> ExpressionEnd<'l> {
    /// Splits the end of a line.
    pub(super) fn of(line: &'l str) -> Self {
        let (before, word) = line.split_at(line.len() - name_length(line));
        let before = before.trim_end();
        let object = before.strip_suffix("->").or_else(|| before.strip_suffix('.'));
        let object = object.map(postfix_expression);
        Self {
            object: object.filter(|object| !object.is_empty()),
            word,
        }
    }
}

/// Returns the length of the qualified name that ends a text.
fn name_length(text: &str) -> usize {
    let name = text.trim_end_matches(|char: char| char.is_alphanumeric() || matches!(char, '_' | ':' | '$'));
    text.len() - name.len()
}

/// Returns the expression of names, members, indexes and calls that ends a text.
fn postfix_expression(text: &str) -> &str {
    let mut begin = text.trim_end();
    loop {
        let before = begin;
        if let Some(open) = opening_bracket(begin) {
            begin = begin.get(..open).unwrap_or_default();
            // A bracket without a name before is the whole operand.
            if name_length(begin) == 0 && !begin.ends_with([']', ')']) {
                break;
            }
            continue;
        }
        begin = begin.get(..begin.len() - name_length(begin)).unwrap_or_default();
        if begin.len() == before.len() {
            break;
        }
        match begin.strip_suffix("->").or_else(|| begin.strip_suffix('.')) {
            Some(object) => begin = object,
            None => break,
        }
    }
    text.get(begin.len()..).unwrap_or_default().trim()
}

/// Returns where the bracket opens that closes at the end of a text.
fn opening_bracket(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, char) in text.char_indices().rev() {
        match char {
            ')' | ']' => depth += 1,
            '(' | '[' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at + char.len_utf8() < text.len()).then_some(at);
        }
    }
    None
}

/// Returns the members, or variables of the selected frame and globals, that the end can mean.
pub(super) fn candidates(navigator: &Navigator, end: &ExpressionEnd<'_>, limit: usize) -> Vec<String> {
    let found = with_context(navigator, &Watch::none(), |context| {
        Ok(match end.object {
            Some(object) => members(context, object),
            None => variables(context, end.word, limit),
        })
    });
    // Without a frame there are no candidates.
    let mut found = found.unwrap_or_default();
    found.retain(|name| name.starts_with(end.word));
    found.truncate(limit);
    found
}

/// Returns the members of an object.
fn members(context: &EvalContext<'_>, object: &str) -> Vec<String> {
    let value = parse(object, context)
        .ok()
        .map(|parsed| context.evaluate(&parsed));
    let Some(Ok(value)) = value else {
        return Vec::new();
    };
    let names = member_names(&value.ty);
    names.iter().map(|name| name.to_string()).collect()
}

/// Returns the variables of the frame, the members of `this`, and the globals that begin with
/// `word`.
fn variables(context: &EvalContext<'_>, word: &str, limit: usize) -> Vec<String> {
    let mut names = BTreeSet::new();
    if let Some(scope) = &context.scope {
        let all = scope.blocks.iter().flatten().chain(&scope.parameters);
        let visible = all.filter(|variable| !variable.is_internal());
        names.extend(visible.map(|variable| variable.name.to_string()));
    }
    if names.contains("this") {
        names.extend(members(context, "this"));
    }
    let mut found: Vec<String> = names.into_iter().collect();
    if !word.is_empty() {
        for module in &context.modules {
            found.extend(module.file.global_names(word, limit));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn splits(line: &str, object: Option<&str>, word: &str) {
        assert_eq!(ExpressionEnd::of(line), ExpressionEnd { object, word }, "{line}");
    }

    #[test]
    fn last_name_is_split_from_its_object() {
        splits("print ", None, "");
        splits("print co", None, "co");
        splits("print/x 1+co", None, "co");
        splits("print *ent", None, "ent");
        splits("print item.na", Some("item"), "na");
        splits("print 2 * item->next->", Some("item->next"), "");
        splits("print table[i + 1].na", Some("table[i + 1]"), "na");
        splits("print (*item).na", Some("(*item)"), "na");
        splits("print a.b[f(1)].c.d", Some("a.b[f(1)].c"), "d");
        splits("print ns::value.x", Some("ns::value"), "x");
        splits("print $3.x", Some("$3"), "x");
        splits("print ).x", None, "x");
        splits("break f if item.n", Some("item"), "n");
        splits("print \u{20ac}\u{e4}.x", Some("\u{e4}"), "x");
    }
}
