//! The requests that move backward: `stepBack`, `reverseContinue`, and the adapter's own reverse
//! steps.

use super::stepping::{MoveArguments, schedule};
use crate::failure::Result;
use crate::session::ClientSession;
use backtrail_debugger::{Direction, Motion};
use backtrail_decoder::Watch;

/// Handles `stepBack` and `backtrail/reverseNext`: steps back over calls.
pub fn step_back(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Next, Motion::NextInstruction],
        Direction::Backward,
    )
}

/// Handles `reverseContinue`.
pub fn reverse_continue(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Continue, Motion::Continue],
        Direction::Backward,
    )
}

/// Handles `backtrail/reverseStepIn`: steps back into the preceding call.
pub fn reverse_step_in(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Step, Motion::Instruction],
        Direction::Backward,
    )
}

/// Handles `backtrail/reverseStepOut`: steps back to the call instruction.
pub fn reverse_step_out(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Finish, Motion::Finish],
        Direction::Backward,
    )
}
