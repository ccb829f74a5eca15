//! The debug adapter, driven as by an editor. Every message is checked against the protocol's
//! schema. The scenarios are in `tests/dap/`.
//!
//! `cargo xtask test` installs their dependencies (`xtask/src/readers.rs`).

use backtrail_tests::backtrail::{backtrail, binary};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded_with;
use backtrail_tests::programs::{Ending, Program, Variant, find};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns `node` and the folder with its packages, or `None` if they are not installed.
fn node() -> Option<(OsString, PathBuf)> {
    let found = std::env::var_os("BACKTRAIL_NODE").zip(std::env::var_os("BACKTRAIL_DAP_CLIENT"));
    if found.is_none() {
        eprintln!(
            "skipped: no BACKTRAIL_NODE and BACKTRAIL_DAP_CLIENT; cargo xtask readers installs and names them"
        );
    }
    found.map(|(node, packages)| (node, packages.into()))
}

/// Records a program of the table, once for all scenarios.
fn recorded(name: &'static str, bundle: &'static OnceLock<Bundle>) -> &'static Path {
    let record = || Bundle::recorded(find(name).unwrap(), Variant::Pie, &["--full"]).0;
    &bundle.get_or_init(record).path
}

/// Records a program that only one file of scenarios uses.
fn recorded_beside(name: &'static str, source: &'static str) -> Bundle {
    let program = Program {
        name,
        source,
        flags: &["-O1"],
        variants: &[Variant::Pie],
        ending: Ending::Signal(11),
        deterministic: true,
    };
    Bundle::recorded(&program, Variant::Pie, &["--full"]).0
}

/// Runs a file of scenarios, with bundles in environment variables.
#[track_caller]
fn run(file: &str, bundles: &[(&str, &Path)]) {
    let Some((node, packages)) = node() else { return };
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("dap").join(file);
    let output = Command::new(node)
        .arg(packages.join("node_modules/mocha/bin/mocha.js"))
        .args([
            "--no-config",
            "--no-package",
            "--timeout",
            "120000",
            "--reporter",
            "spec",
            // A failed test may leave a session open.
            "--exit",
        ])
        .arg(scenarios)
        .env("NODE_PATH", packages.join("node_modules"))
        .env("BACKTRAIL_BIN", binary().unwrap())
        .env("RUST_BACKTRACE", "0")
        .envs(bundles.iter().copied())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    println!("{told}");
}

static LEDGER: OnceLock<Bundle> = OnceLock::new();
static VALUES: OnceLock<Bundle> = OnceLock::new();
static THREADS: OnceLock<Bundle> = OnceLock::new();
static SMASH: OnceLock<Bundle> = OnceLock::new();
static DEEP: OnceLock<Bundle> = OnceLock::new();

fn run_on_ours(file: &str) {
    if node().is_none() {
        return;
    }
    let bundles = [
        ("LEDGER", recorded("ledger", &LEDGER)),
        ("VALUES", recorded("values", &VALUES)),
        ("THREADS", recorded("thread_crash", &THREADS)),
        ("SMASH", recorded("crash_smash", &SMASH)),
        ("DEEP", recorded("crash_stack", &DEEP)),
    ];
    run(file, &bundles);
}

#[test]
fn messages_are_checked() {
    run("messages.test.js", &[]);
}

#[test]
fn adapter_survives_odd_packets_and_requests() {
    run_on_ours("wire.test.js");
}

#[test]
fn session_starts_and_ends_by_the_protocol() {
    run_on_ours("session.test.js");
}

#[test]
fn every_input_kind_can_be_opened() {
    if node().is_none() {
        return;
    }
    let ledger = recorded("ledger", &LEDGER);
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("ledger.btz");
    let pack = [
        "pack".as_ref(),
        ledger.as_os_str(),
        "-o".as_ref(),
        packed.as_os_str(),
    ];
    let _ = backtrail(pack).unwrap().exited(0);
    run("opened.test.js", &[("LEDGER", ledger), ("PACKED", &packed)]);
}

#[test]
fn stacks_and_variables_are_shown() {
    run_on_ours("stack.test.js");
}

#[test]
fn other_threads_are_shown_without_moving() {
    run_on_ours("threads.test.js");
}

#[test]
fn moves_go_in_both_directions() {
    run_on_ours("moves.test.js");
}

#[test]
fn breakpoints_of_all_kinds_are_hit() {
    run_on_ours("breakpoints.test.js");
}

#[test]
fn a_position_can_be_inspected() {
    run_on_ours("inspect.test.js");
}

#[test]
fn requests_of_our_own_are_answered_as_documented() {
    run_on_ours("own.test.js");
}

#[test]
fn long_request_can_be_canceled() {
    if node().is_none() {
        return;
    }
    let bundle = recorded_beside("busy", "../../dap/busy.c");
    run("cancel.test.js", &[("BUSY", &bundle.path)]);
}

#[test]
fn end_of_a_long_trace_is_available_at_once() {
    if node().is_none() {
        return;
    }
    let bundle = recorded_beside("large", "../../dap/large.c");
    run("partial.test.js", &[("LARGE", &bundle.path)]);
}

#[test]
fn a_crash_from_hardware_is_debugged() {
    if node().is_none() {
        return;
    }
    let Some(bundle) = Bundle::of_hase("control_flow", "control_flow-20180404T163033") else {
        return;
    };
    run("hase.test.js", &[("HASE", &bundle.path)]);
}

#[test]
fn heap_history_is_in_the_adapter() {
    if node().is_none() {
        return;
    }
    let flags = ["-std=c++17", "-O1", "-g", "-pthread"];
    let bundle = compiled_and_recorded_with(&["--heap"], "c++", &flags, "heap/dispatch.cpp");
    run("heap.test.js", &[("HEAP", &bundle.path)]);
}

#[test]
fn recorded_values_are_shown_and_watched() {
    if node().is_none() {
        return;
    }
    let bundle = compiled_and_recorded_with(&["--values"], "cc", &["-g", "-O0"], "recorded_values/changes.c");
    let unseen = compiled_and_recorded_with(&["--values"], "cc", &["-g", "-O0"], "recorded_values/unseen.c");
    let without = recorded("ledger", &LEDGER);
    run(
        "values.test.js",
        &[
            ("CHANGES", &bundle.path),
            ("UNSEEN", &unseen.path),
            ("LEDGER", without),
        ],
    );
}
