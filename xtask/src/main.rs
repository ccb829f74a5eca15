//! Repository chores: `cargo xtask demo`, `test`, `test-all`, `test-vm`, `readers`, `package-extension`, `protocol`, `bpf`, `vscode`, `screenshots`, `tidy`, `deps`, `notices`, `fuzz`, `guard`, `bench`.
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod cachegrind;
mod demo;
mod deps;
mod extension;
mod fuzz;
mod guard;
mod node;
mod packages;
mod protocol;
mod readers;
mod screenshots;
mod shell;
mod test;
mod tidy;
mod vm;
mod vscode;

use std::process::ExitCode;

/// What stopped a chore, as one or more lines for the terminal.
type Failure = String;

const USAGE: &str = "\
cargo xtask demo [--program c|rust]   build Backtrail, record a crash, and walk back to its cause
cargo xtask test                      install what the tests need, and run every check and test
cargo xtask test-all                  the same with the long fuzzing, the whole program matrix, and real programs
cargo xtask test-vm [SERIES…]         what needs other kernels, in virtual machines: of Debian's 6.1 and 6.12, or of these alone;
                                      `systemd`: the units that `backtrail install` writes, under systemd (test-all has it)
                                      [--only TEST]: the tests whose names begin so; [--power-losses N]: of the power, N times
cargo xtask readers                   install what the tests open exports and drive the adapter with, and print how cargo test finds it
cargo xtask package-extension         check, test and package the extension for VS Code: target/backtrail.vsix
cargo xtask protocol [--check]        the schema of the Debug Adapter Protocol anew, and the Rust types out of it
cargo xtask bpf [--check]             the eBPF programs compiled anew, or compared with what is checked in
cargo xtask vscode                    install the VS Code that the tests drive, package our extension, and print how cargo test finds them
cargo xtask screenshots               the pictures of docs/images anew
cargo xtask tidy                      check the invariants of ARCHITECTURE.md
cargo xtask tidy --survey [FOLDER]    count where names, prose and cycles break the rules, or list the lines of one folder
cargo xtask deps                      sources, licences, doubles and advisories of all crates and npm packages, and THIRD-PARTY.txt
cargo xtask notices                   THIRD-PARTY.txt anew: the licences of what is linked into the binary
cargo xtask fuzz [--seconds N]        mutate bundles, perf.data files and PT bytes for N seconds each (60)
cargo xtask fuzz --hours N [--seed N] [TARGET…]
                                      the same for long, at the lowest priority: targets in turns of a minute, each with a new seed;
                                      what fails is kept with the command that repeats it, and a table comes at the end or Ctrl-C
cargo xtask guard [--accept]          machine instructions that decoding costs: no more than the bounds, or new bounds
cargo xtask bench record [PROGRAM…]   what recording costs, beside qemu and valgrind
cargo xtask bench programs [PROGRAM…] real programs: recorded, the same as not recorded?
                                      both: [--quick] [--json] [--runs N] [--ring MIB] [--engine E]
cargo xtask bench decode [PROGRAM…]   recorded streams decoded by our engines, libipt, and iptr-edge-analyzer
                                      [--quick] [--json] [--fresh] [--cpu] [--seconds N] [--runs N] [--limit N]
                                      [--no-whole] [--no-open] [--instructions] [--searches] [--threads]
cargo xtask bench debug               how long the debugger's commands take on a history of 100 million instructions
                                      [--quick] [--json] [--fresh] [--places N]
cargo xtask bench adapter [BUNDLE]    how long the debug adapter takes to open the last 64 MiB of a trace, and to answer
cargo xtask bench collect             a thousand crashes under the collector, idle and loaded, and what it costs when nothing crashes (root)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(message) = shell::enter_root() {
        eprintln!("xtask: {message}");
        return ExitCode::FAILURE;
    }
    let result = match arguments.as_slice() {
        ["demo"] => demo::run(demo::Demo::C),
        ["demo", "--program", name] => demo::Demo::named(name).and_then(demo::run),
        ["test"] => test::run(test::Extent::Usual),
        ["test-all"] => test::run(test::Extent::All),
        ["test-vm", options @ ..] => vm::Options::parse(options).and_then(|options| vm::run(&options, None)),
        ["readers"] => readers::run(),
        ["package-extension"] => extension::run(),
        ["protocol"] => protocol::run(),
        ["protocol", "--check"] => protocol::check(),
        ["bpf"] => bpf::run(),
        ["bpf", "--check"] => bpf::check(),
        ["vscode"] => vscode::run(),
        ["screenshots"] => screenshots::run(),
        ["tidy"] => tidy::run(),
        ["tidy", "--survey"] => tidy::survey(None),
        ["tidy", "--survey", folder] => tidy::survey(Some(folder)),
        ["deps"] => deps::check(),
        ["notices"] => deps::write_notices(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => fuzz::run(seconds),
            Err(_) => Err(format!("'{seconds}' is no number of seconds")),
        },
        ["fuzz", "--hours", options @ ..] => fuzz::Long::parse(options).and_then(|long| fuzz::long(&long)),
        ["guard"] => guard::run(false),
        ["guard", "--accept"] => guard::run(true),
        ["bench", "record", options @ ..] => {
            bench::Options::parse(options).and_then(|options| bench::record(&options))
        }
        ["bench", "programs", options @ ..] => {
            bench::Options::parse(options).and_then(|options| bench::programs(&options))
        }
        ["bench", "decode", options @ ..] => {
            bench::DecodeOptions::parse(options).and_then(|options| bench::decode(&options))
        }
        ["bench", "collect"] => bench::collect(),
        ["bench", "adapter"] => bench::adapter(None),
        ["bench", "adapter", bundle] => bench::adapter(Some(bundle)),
        ["bench", "debug", options @ ..] => {
            bench::DebugOptions::parse(options).and_then(|options| bench::debug(&options))
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
