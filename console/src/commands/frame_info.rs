//! `info frame`: how the selected frame was called, and where it returns to.

use super::{Context, stack};
use crate::output::{CalledView, Output};
use backtrail_debugger::Result;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::stack::{Origin, StackFrame};
use backtrail_debugger::virtual_call::virtual_call;
use backtrail_decoder::{Entered, Watch};

/// `info frame`.
pub(super) fn info(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let shown = stack::frame(context, arguments)?;
    let Output::Frame {
        number,
        frame,
        source,
        called: _,
    } = shown
    else {
        return Ok(shown);
    };
    let called = called(context.navigator, number, &frame, context.watch)?;
    Ok(Output::Frame {
        number,
        frame,
        source,
        called,
    })
}

/// Returns how a frame was called; `None` if that is unknown, or the frame is inlined.
fn called(
    navigator: &Navigator,
    number: usize,
    frame: &StackFrame,
    watch: &Watch<'_>,
) -> Result<Option<CalledView>> {
    if frame.inlined {
        return Ok(None);
    }
    let thread = navigator.thread()?;
    let outer = navigator
        .stack(number.saturating_add(2), watch)?
        .frames
        .into_iter()
        .nth(number + 1);
    let returns = |frame: &StackFrame| (frame.origin == Origin::Core).then_some(frame.pc?);
    let by_the_core = CalledView {
        returns_to: outer.as_ref().and_then(returns),
        ..CalledView::default()
    };
    let Some(name) = frame.call.as_deref().and_then(|name| name.parse().ok()) else {
        return Ok(by_the_core.returns_to.is_some().then_some(by_the_core));
    };
    let forest = navigator.session().forest(thread, watch)?;
    let Some(call) = thread.call_named(forest, name)? else {
        return Ok(None);
    };
    let call = forest.call(call);
    let (site, jumped) = match call.entered {
        Entered::Call { site } => (site, false),
        Entered::TailCall { site } => (site, true),
        _ => return Ok(by_the_core.returns_to.is_some().then_some(by_the_core)),
    };
    let returns_to = thread.history.instruction(site).filter(|_| !jumped);
    let returns_to = returns_to.map(|call| call.next().0);
    let symbols = navigator.symbols()?;
    let following = returns_to.and_then(|pc| backtrail_values::code_symbol(symbols, backtrail_pt::Avma(pc)));
    Ok(Some(CalledView {
        position: Some(thread.position(site).to_string()),
        jumped,
        returns_to,
        returns_into: following,
        virtual_call: virtual_call(navigator.session(), navigator.process()?, thread, site),
    }))
}
