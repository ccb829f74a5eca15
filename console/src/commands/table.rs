//! Every command, in the order of help.

mod looking;
mod moving;
mod telling;

use super::Command;

/// Every command.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    let tables = [moving::MOVING, looking::LOOKING, telling::TELLING];
    tables.into_iter().flatten()
}
