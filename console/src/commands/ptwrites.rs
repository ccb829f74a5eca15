//! The values that the program wrote into its trace by PTWRITE.

use super::{Context, number};
use crate::output::{Output, PtwriteView};
use crate::views;
use backtrail_debugger::Result;

/// The default number of values.
const COUNT: u64 = 20;

/// `info ptwrites [N]`: the last N values before the position.
pub(super) fn info(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let count = usize::try_from(number(arguments, COUNT)?).unwrap_or(usize::MAX);
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    let here = navigator.index();
    let before: Vec<_> = thread
        .history
        .ptwrites()
        .filter(|write| write.index <= here)
        .collect();
    let skipped = before.len().saturating_sub(count);
    if before.len() < count {
        thread.needs_beginning()?;
    }
    let session = navigator.session();
    let view = |write: &backtrail_decoder::Ptwrite| {
        let frames = write.index.checked_sub(1).and_then(|by| {
            let symbols = session.symbols_at(thread, by)?;
            Some(symbols.frames_at(thread.history.pc(by)?))
        });
        let frames = frames.unwrap_or_default();
        PtwriteView {
            position: thread.position(write.index).to_string(),
            time: views::time(navigator, thread, write.index),
            value: write.value,
            function: frames.first().map(|frame| frame.function.to_string()),
        }
    };
    Ok(Output::Ptwrites {
        writes: before.iter().skip(skipped).map(view).collect(),
        older: skipped,
    })
}
