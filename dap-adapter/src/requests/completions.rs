//! `completions`, in the console.

use crate::failure::Result;
use crate::protocol::types::{CompletionItem, CompletionsArguments, CompletionsResponseBody};
use crate::session::ClientSession;
use backtrail_console::complete::complete;
use backtrail_decoder::Watch;

/// The completions of the word before the cursor.
pub fn completions(
    client: &mut ClientSession,
    arguments: CompletionsArguments,
    _: &Watch<'_>,
) -> Result<CompletionsResponseBody> {
    let first = i64::from(client.features.columns_start_at1 != Some(false));
    let first_line = i64::from(client.features.lines_start_at1 != Some(false));
    let debuggee = client.debuggee()?;
    let column = usize::try_from(arguments.column.saturating_sub(first)).unwrap_or(0);
    // Of several lines, the line with the cursor is completed.
    let line = arguments.line.map_or(0, |line| {
        usize::try_from(line.saturating_sub(first_line)).unwrap_or(0)
    });
    let text = arguments.text.split('\n').nth(line).unwrap_or(&arguments.text);
    let before = cut(text, column);
    let (begin, found) = complete(&debuggee.navigator, before);
    let start = before.get(..begin).map_or(0, units);
    let length = units(before).saturating_sub(start);
    let targets = found.into_iter().map(|label| CompletionItem {
        label,
        start: Some(start as i64 + first),
        length: Some(length as i64),
        ..CompletionItem::default()
    });
    Ok(CompletionsResponseBody {
        targets: targets.collect(),
    })
}

/// Returns the length of a text in the protocol's unit, UTF-16 code units.
fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The text before a column, from 0.
fn cut(text: &str, column: usize) -> &str {
    let mut length = 0;
    let end = text.char_indices().find(|&(_, letter)| {
        length += letter.len_utf16();
        length > column
    });
    text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_units_of_utf16() {
        for (column, before) in [(0, ""), (1, "a"), (2, "a"), (3, "a🧪"), (4, "a🧪b"), (9, "a🧪b")] {
            assert_eq!(cut("a🧪b", column), before);
        }
        assert_eq!(units("a🧪b"), 4);
    }
}
