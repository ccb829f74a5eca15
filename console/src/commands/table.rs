//! Every command, in the order of help.

mod info;
mod inspection;
mod navigation;

use super::Command;

/// Every command.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    let tables = [navigation::MOVING, inspection::LOOKING, info::TELLING];
    tables.into_iter().flatten()
}
