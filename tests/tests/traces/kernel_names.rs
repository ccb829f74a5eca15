//! Names of the functions of the kernel and of its vDSO, in recordings and for perf.data.

use crate::profile_recordings::{build, json, record, report, share};
use backtrail_profile::format;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Returns the functions of the kernel in a report. Without symbols, a name has an offset.
fn kernel_functions(top: &Value) -> Vec<&str> {
    let rows = top["functions"].as_array().unwrap().iter();
    rows.filter(|row| row["module"] == "[kernel.kallsyms]")
        .map(|row| row["name"].as_str().unwrap())
        .collect()
}

fn has_kernel_addresses() -> bool {
    let list = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let is_hidden = !list
        .lines()
        .any(|line| line.ends_with(" T _text") && !line.starts_with("0000000000000000"));
    if is_hidden {
        eprintln!("skipped: /proc/kallsyms has no addresses for this user");
    }
    !is_hidden
}

const COPY: [&str; 5] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000000"];

#[test]
fn kernel_functions_are_in_the_recording() {
    if !has_kernel_addresses() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    record(&output, &["--freq", "499"], &COPY);
    let top = report(&output, &["--limit", "1000"]);
    let functions = kernel_functions(&top);
    assert!(functions.len() > 3, "{top}");
    assert!(
        functions.iter().all(|name| !name.contains("+0x")),
        "{functions:?}"
    );
    for name in ["vfs_read", "vfs_write"] {
        assert!(share(&top, name) > 0.02, "{name}: {top}");
    }
    // The names are in the file, and not looked up when it is read.
    let bytes = fs::read(&output).unwrap();
    let profile = format::read(&bytes).unwrap();
    let names = profile.functions.iter();
    assert!(
        names
            .into_iter()
            .any(|(_, function)| profile.text(function.name) == "vfs_read")
    );
}

#[test]
fn kernel_functions_of_perf_data_are_those_of_this_machine() {
    if !has_kernel_addresses() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-g", "-e", "cpu-clock", "-F", "499", "-o"]);
    perf.arg(&data).arg("--").args(COPY);
    match perf.output() {
        Ok(output) if output.status.success() => {}
        _ => return eprintln!("skipped: perf is missing or may not sample"),
    }
    let top = json(&["report", data.to_str().unwrap(), "--json", "--limit", "1000"]);
    assert!(share(&top, "vfs_read") > 0.02, "{top}");
}

/// Spends its time in the vDSO.
const READ_CLOCK: &str = "
#include <time.h>
int main() { struct timespec t; for (int i = 0; i < 30000000; i++) clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec == 0; }
";

/// Returns the share of the samples in functions of the vDSO with this name.
fn share_of_vdso(top: &Value, name: &str) -> f64 {
    let rows = top["functions"].as_array().unwrap().iter();
    let own = |row: &Value| row["own"].as_f64().unwrap();
    let all: f64 = rows.clone().map(own).sum();
    let named = rows.filter(|row| row["module"] == "[vdso]" && row["name"] == name);
    named.map(own).sum::<f64>() / all
}

#[test]
fn vdso_functions_are_named_as_perf_names_them() {
    const FUNCTION: &str = "__vdso_clock_gettime";
    let folder = tempfile::tempdir().unwrap();
    let program = build(&folder, "read-clock", READ_CLOCK, &[]);
    let output = folder.path().join("recording");
    record(&output, &["--freq", "499"], &[program.to_str().unwrap()]);
    let top = report(&output, &["--limit", "1000"]);
    let ours = share_of_vdso(&top, FUNCTION);
    assert!(ours > 0.3, "{top}");
    let bytes = fs::read(&output).unwrap();
    let recorded = format::read(&bytes).unwrap();
    assert!(
        recorded
            .functions
            .iter()
            .any(|(_, function)| recorded.text(function.name) == FUNCTION)
    );

    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "499", "-o"]);
    perf.arg(&data).arg("--").arg(&program);
    match perf.output() {
        Ok(output) if output.status.success() => {}
        _ => return eprintln!("skipped: perf is missing or may not sample"),
    }
    let top = json(&["report", data.to_str().unwrap(), "--json", "--limit", "1000"]);
    let imported = share_of_vdso(&top, FUNCTION);
    let mut script = Command::new("perf");
    script.args(["script", "-F", "ip,sym", "-i"]).arg(&data);
    let text = String::from_utf8(script.output().unwrap().stdout).unwrap();
    let samples = text.lines().filter_map(|line| line.trim().split_once(' '));
    let named = samples
        .clone()
        .filter(|(_, name)| name.trim() == FUNCTION)
        .count();
    let by_perf = named as f64 / samples.count() as f64;
    assert!((imported - by_perf).abs() < 0.02, "{imported} {by_perf}: {top}");
    assert!((imported - ours).abs() < 0.2, "{imported} {ours}");
}
