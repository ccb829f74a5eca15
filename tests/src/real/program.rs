//! What a row of the table says of a program.

use super::{Input, Mask};

/// A program, what it is given to do, and what of its output may differ between two runs.
///
/// In every argument, `{n}` stands for the size of the work and `{port}` for a free TCP port of 127.0.0.1;
/// commands run in the row's own folder, where the inputs are.
#[derive(Clone, Copy, Debug)]
pub struct RealProgram {
    /// The row's name.
    pub name: &'static str,
    /// What it does, for the table in the documentation.
    pub about: &'static str,
    /// What must be installed.
    pub requires: &'static [Requirement],
    /// The files made in its folder beforehand.
    pub inputs: &'static [Input],
    /// Commands run beforehand without the recorder: compilers, database initialization.
    pub prepare: &'static [&'static [&'static str]],
    /// What is recorded.
    pub run: Run,
    /// Files that it writes, to be the same with the recorder as without.
    pub outputs: &'static [&'static str],
    /// What differs between any two runs, in this order.
    pub masks: &'static [Mask],
    /// How fast it was.
    pub pace: Pace,
    /// The size `{n}` of the work.
    pub size: Size,
}

/// A file that a package provides.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    /// A program's name, or a path.
    pub tool: &'static str,
    /// Debian's name of the package that has it.
    pub package: &'static str,
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// A command that ends by itself.
    Command(&'static [&'static str]),
    /// A server with clients.
    Server(Server),
}

/// A server, recorded while clients, which are not, work it.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The server, in the foreground, listening on `{port}`.
    pub command: &'static [&'static str],
    /// A command that succeeds once the server serves, for those that listen before; may be empty.
    pub ready: &'static [&'static str],
    /// Commands run one after the other once the port accepts; their output is what is compared.
    pub clients: &'static [&'static [&'static str]],
    /// The command that asks the server to end.
    pub stop: &'static [&'static str],
    /// The user to run as instead of root, for servers that refuse root.
    pub instead_of_root: Option<&'static str>,
}

/// What a slowdown is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Wall-clock time, from the start of the command to its end.
    Time,
    /// A rate that the program prints for itself: the last number of lines that begin so.
    Rate(&'static str),
}

/// The size of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// A second or two of native time.
    pub full: u32,
    /// As little as shows that it works.
    pub small: u32,
}

impl RealProgram {
    /// A row with nothing but a command; the others are built on it.
    #[must_use]
    pub const fn command(name: &'static str, about: &'static str, command: &'static [&'static str]) -> Self {
        Self {
            name,
            about,
            requires: &[],
            inputs: &[],
            prepare: &[],
            run: Run::Command(command),
            outputs: &[],
            masks: &[],
            pace: Pace::Time,
            size: Size { full: 1, small: 1 },
        }
    }
}
