//! Repository tasks, run as `cargo xtask TASK`. Without a task, the list is printed.
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod cachegrind;
mod demo;
mod deps;
mod dist;
mod extension;
mod fuzz;
mod guard;
mod node;
mod packages;
mod portable;
mod protocol;
mod query;
mod readers;
mod screenshots;
mod shell;
mod test;
mod tidy;
mod vm;
mod vscode;
mod web;

use std::process::ExitCode;

/// The reason why a task failed, as one or more lines for the terminal.
type Failure = String;

const USAGE: &str = "\
cargo xtask demo [--program c|rust]   build Backtrail, record a crash, and walk back to its cause
cargo xtask test [--times] [--again]  install the tests' requirements, and run every check and test
                                      but those that passed with the same inputs; --again runs
                                      these too; --times prints the time of each step
cargo xtask test-all [--times]        the same with long fuzzing, all programs, and real programs
cargo xtask test-vm [SERIES…]         tests in virtual machines with Debian's kernels 6.1 and 6.12,
                                      or only these; `systemd`: the units of `backtrail install`
                                      [--only TEST]: tests with this prefix
                                      [--power-losses N]: number of power losses
cargo xtask readers                   install the programs that read exports in tests, and print
                                      the variables for cargo test
cargo xtask package-extension         check, test and package the extension: target/backtrail.vsix
cargo xtask web                       check and test the views of profiles, and bundle them into the
                                      page that the binary contains
cargo xtask dist                      make the packages: .deb, .tar.zst, .vsix, in target/dist
cargo xtask test-package              install the Debian packages in a bare Debian, run the README's
                                      example and a hub, and remove the packages (root)
cargo xtask test-query                lint and test the SQL over profiles, also beside DuckDB; its engine
                                      compiles for a quarter of an hour
cargo xtask protocol [--check]        generate the types of the Debug Adapter Protocol
cargo xtask bpf [--check]             compile the eBPF programs, or compare them with the objects
cargo xtask vscode                    install VS Code for the tests, and print the variables for
                                      cargo test
cargo xtask screenshots               make the pictures of docs/images
cargo xtask tidy                      check the invariants of ARCHITECTURE.md
cargo xtask tidy --survey [FOLDER]    count violations of names, prose and cycles, or list those of
                                      one folder
cargo xtask portable                  compile the crates that read traces for macOS and Windows
cargo xtask deps                      check sources, licenses, duplicates, advisories and minimum
                                      Rust version of dependencies, and THIRD-PARTY.txt
cargo xtask notices                   write THIRD-PARTY.txt: licenses of everything in the binary
cargo xtask fuzz [--seconds N]        mutate all kinds of input, N seconds per target (60)
cargo xtask fuzz --hours N [--seed N] [TARGET…]
                                      the same for long, at the lowest priority, in turns of a
                                      minute; failing cases are stored with a command to repeat
cargo xtask guard [--accept]          compare decoding's machine instructions with the bounds, or
                                      write new bounds
cargo xtask bench record [PROGRAM…]   cost of recording, next to qemu and valgrind, and of recorded
                                      values; [--values] measures only these
cargo xtask bench programs [PROGRAM…] cost of recording real programs, and a comparison of output
                                      both: [--quick] [--json] [--runs N] [--ring MIB] [--engine E]
cargo xtask bench processes           cost of recording short processes, next to qemu and valgrind
cargo xtask bench heap                cost of recording with heap events, next to plain recording
cargo xtask bench decode [PROGRAM…]   decoding speed of our engines, libipt and iptr-edge-analyzer
                                      [--quick] [--json] [--fresh] [--cpu] [--seconds N] [--runs N]
                                      [--limit N] [--no-whole] [--no-open] [--instructions]
                                      [--searches] [--threads]
cargo xtask bench debug               times of the debugger's commands on a history of 100 million
                                      instructions [--quick] [--json] [--fresh] [--places N]
cargo xtask bench adapter [BUNDLE]    times of the debug adapter on the last 64 MiB of a trace
cargo xtask bench fdo                 lua, rebuilt with the branches of a recording by clang and BOLT
cargo xtask bench profile [--seconds N]
                                      the cost of sampling all processes of a busy machine, next to
                                      perf (root)
cargo xtask bench symbolize           20 000 addresses with inlined calls, next to llvm-symbolizer,
                                      addr2line and blazesym
cargo xtask bench zoom [--seconds N]  pictures a second of a flame graph with 100 000 frames that
                                      zooms in Chromium
cargo xtask bench hub                 reports, pages and bundles at a hub, next to Bugsink
                                      [--crashes N] [--groups N] [--peer-events N] [--minutes N]
                                      [--rate N]
cargo xtask bench store               sizes, ingestion and queries of the profile store, next to
                                      DuckDB and chdb (root) [--seconds N] [--recording FILE]
                                      [--ingest SECONDS] [--samples N] [--services N] [--days N]
cargo xtask bench collect             a thousand crashes under the collector, and its cost when idle
                                      (root)";

fn run_tests(extent: test::Extent, options: &[&str]) -> Result<(), Failure> {
    test::Options::parse(extent, options).and_then(test::run)
}

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
        ["test", options @ ..] => run_tests(test::Extent::Usual, options),
        ["test-all", options @ ..] => run_tests(test::Extent::All, options),
        ["test-vm", options @ ..] => {
            vm::VmOptions::parse(options).and_then(|options| vm::run(&options, None))
        }
        ["readers"] => readers::run(),
        ["package-extension"] => extension::run(),
        ["dist"] => dist::run(),
        ["test-package"] => dist::test(),
        ["test-query"] => query::test(),
        ["protocol"] => protocol::run(),
        ["protocol", "--check"] => protocol::check(),
        ["bpf"] => bpf::run(),
        ["bpf", "--check"] => bpf::check(),
        ["vscode"] => vscode::run(),
        ["web"] => web::run(),
        ["screenshots"] => screenshots::run(),
        ["tidy"] => tidy::run(),
        ["tidy", "--survey"] => tidy::survey(None),
        ["tidy", "--survey", folder] => tidy::survey(Some(folder)),
        ["portable"] => portable::check(),
        ["deps"] => deps::check(),
        ["notices"] => deps::write_notices(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => fuzz::run(seconds),
            Err(_) => Err(format!("'{seconds}' is not a number of seconds")),
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
        ["bench", "hub", options @ ..] => {
            bench::HubOptions::parse(options).and_then(|options| bench::hub(&options))
        }
        ["bench", "store", options @ ..] => {
            bench::StoreOptions::parse(options).and_then(|options| bench::store(&options))
        }
        ["bench", "collect"] => bench::collect(),
        ["bench", "fdo"] => bench::fdo(),
        ["bench", "heap"] => bench::heap(),
        ["bench", "processes"] => bench::processes(),
        ["bench", "symbolize"] => bench::symbolize(),
        ["bench", "profile"] => bench::profile(60),
        ["bench", "profile", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => bench::profile(seconds),
            Err(_) => Err(format!("'{seconds}' is not a number of seconds")),
        },
        ["bench", "zoom"] => bench::zoom(10),
        ["bench", "zoom", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => bench::zoom(seconds),
            Err(_) => Err(format!("'{seconds}' is not a number of seconds")),
        },
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
