//! The types of the table of real programs.

use super::{Input, Mask};

/// A program, its work, and the parts of its output that may differ between two runs.
///
/// In every argument, `{n}` is the size of the work and `{port}` is a free TCP port of 127.0.0.1.
/// Commands run in the row's own folder, which has the inputs.
#[derive(Clone, Copy, Debug)]
pub struct RealProgram {
    /// The name of the row.
    pub name: &'static str,
    /// A description for the table in the documentation.
    pub about: &'static str,
    /// The programs that must be installed.
    pub requires: &'static [Requirement],
    /// The files that are created in the folder before the run.
    pub inputs: &'static [Input],
    /// Commands that run first, without the recorder: compilers, database initialization.
    pub prepare: &'static [&'static [&'static str]],
    /// The command or server to record.
    pub run: Run,
    /// Output files, which must be the same with and without the recorder.
    pub outputs: &'static [&'static str],
    /// Masks for what differs between any two runs, in this order.
    pub masks: &'static [Mask],
    /// How the speed is measured.
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

/// A server. The recorder runs it while unrecorded clients send requests.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The server, in the foreground, with a listening socket on `{port}`.
    pub command: &'static [&'static str],
    /// A command that succeeds when the server is ready, for servers that listen earlier; may be
    /// empty.
    pub ready: &'static [&'static str],
    /// Commands that run in turn after the port accepts connections. Their output is compared.
    pub clients: &'static [&'static [&'static str]],
    /// The command that asks the server to end.
    pub stop: &'static [&'static str],
    /// The user to run as instead of root, for servers that refuse root.
    pub instead_of_root: Option<&'static str>,
}

/// The measure of a slowdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Wall-clock time, from the start of the command to its end.
    Time,
    /// A rate that the program prints: the last number of the lines with this prefix.
    Rate(&'static str),
}

/// The size of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// A second or two of native time.
    pub full: u32,
    /// The smallest size that shows success.
    pub small: u32,
}

impl RealProgram {
    /// A row with a command only; the others extend it.
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
