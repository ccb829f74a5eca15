//! `info heap`: who allocated and freed what lay at an address, and the blocks that live.

use super::{Context, x};
use crate::output::{HeapView, Output};
use backtrail_debugger::Result;
use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::heap::records::records_view;
use backtrail_debugger::heap::search::covering;
use backtrail_debugger::heap::summary::summary;

/// The maximum number of blocks that are shown.
const MAX_BLOCKS: usize = 20;

/// `info heap [ADDRESS]`.
pub(super) fn info(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (navigator, watch) = (&*context.navigator, context.watch);
    let (session, thread) = (navigator.session(), navigator.thread()?);
    if arguments.is_empty() {
        let summary = summary(session, thread, navigator.index(), watch)?;
        return Ok(Output::HeapSummary(Box::new(summary)));
    }
    let address = with_context(navigator, watch, |eval| x::address(eval, arguments))?;
    let found = covering(session, thread, &[address], watch)?;
    let older = found.blocks.len().saturating_sub(MAX_BLOCKS);
    let shown = found.blocks.iter().take(MAX_BLOCKS);
    let blocks = shown.map(|block| block.view(session, address, watch));
    Ok(Output::Heap(Box::new(HeapView {
        address,
        blocks: blocks.collect::<Result<_>>()?,
        older,
        is_cut: found.is_cut,
        records: records_view(session)?,
    })))
}
