//! `completions`, in the console.

use crate::adapter::Adapter;
use crate::failure::Result;
use crate::protocol::types::{CompletionItem, CompletionsArguments, CompletionsResponseBody};
use backtrail_debugger::complete::complete;
use backtrail_decoder::Watch;

/// What the word before the cursor can become.
pub fn completions(
    adapter: &mut Adapter,
    arguments: CompletionsArguments,
    _: &Watch<'_>,
) -> Result<CompletionsResponseBody> {
    let first = i64::from(adapter.client.columns_start_at1 != Some(false));
    let debuggee = adapter.debuggee()?;
    let column = usize::try_from(arguments.column.saturating_sub(first)).unwrap_or(0);
    // Of several lines, the one with the cursor.
    let line = arguments
        .line
        .map_or(0, |line| usize::try_from(line.saturating_sub(1)).unwrap_or(0));
    let text = arguments.text.split('\n').nth(line).unwrap_or(&arguments.text);
    let before: String = text.chars().take(column).collect();
    let (begin, found) = complete(&debuggee.navigator, &before);
    let start = before.get(..begin).map_or(0, |word| word.chars().count());
    let length = before.chars().count().saturating_sub(start);
    let targets = found.into_iter().map(|label| CompletionItem {
        label,
        start: Some(start as i64),
        length: Some(length as i64),
        ..CompletionItem::default()
    });
    Ok(CompletionsResponseBody {
        targets: targets.collect(),
    })
}
