//! Traces out of real processors decode into exactly what libipt says.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::captures::{CAPTURES, folder};

#[test]
fn every_capture_gives_its_count_errors_and_digest() {
    let temporary = tempfile::tempdir().unwrap();
    for (at, capture) in CAPTURES.iter().enumerate() {
        let Some(mut arguments) = capture.import_arguments() else {
            return;
        };
        let bundle = temporary.path().join(at.to_string());
        arguments.extend(["-o".into(), bundle.clone().into()]);
        let _ = backtrail(arguments).unwrap().exited(0);
        let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--digest".as_ref()])
            .unwrap()
            .exited(0);
        assert_eq!(info.stdout, capture.digest_line(), "{}", capture.trace);
    }
}

#[test]
fn an_lldb_bundle_gives_the_same_as_its_raw_trace() {
    let Some(folder) = folder() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let bundle = temporary.path().join("bundle");
    let trace = folder.join("pt/lldb/intelpt-trace/trace.json");
    let import = [
        "import".as_ref(),
        "lldb".as_ref(),
        trace.as_os_str(),
        "-o".as_ref(),
        bundle.as_os_str(),
    ];
    let _ = backtrail(import).unwrap().exited(0);
    let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--digest".as_ref()])
        .unwrap()
        .exited(0);
    assert_eq!(
        info.stdout,
        "thread 3842849 instructions 21 errors 0 digest a9fe0721b4730d26\n"
    );
}

#[test]
fn processors_are_split_into_threads_as_lldb_does() {
    let Some(folder) = folder() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let bundle = temporary.path().join("bundle");
    let trace = folder.join("pt/lldb/intelpt-multi-core-trace/trace.json");
    let import = [
        "import".as_ref(),
        "lldb".as_ref(),
        trace.as_os_str(),
        "-o".as_ref(),
        bundle.as_os_str(),
    ];
    let _ = backtrail(import).unwrap().exited(0);
    let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--json".as_ref()])
        .unwrap()
        .exited(0);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
    let cpus = info["cpus"].as_array().unwrap();
    let sum = |key: &str| cpus.iter().filter_map(|cpu| cpu[key].as_u64()).sum::<u64>();
    assert_eq!((sum("executions"), sum("psb_blocks")), (153, 5));
    let debug = ["debug".as_ref(), bundle.as_os_str(), "--batch".as_ref()];
    let commands = ["-e", "thread 3497497", "-e", "goto end", "-e", "backtrace"].map(AsRef::as_ref);
    let debug = backtrail(debug.into_iter().chain(commands)).unwrap().exited(0);
    assert!(debug.stdout.contains("bar()"), "{}", debug.stdout);
}

#[test]
fn malformed_lldb_bundles_are_refused_in_one_sentence() {
    let Some(folder) = folder() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let malformed = [
        "intelpt-trace/trace_bad.json",
        "intelpt-trace/trace_bad2.json",
        "intelpt-trace/trace_bad3.json",
        "intelpt-trace/trace_bad4.json",
        "intelpt-trace/trace_bad5.json",
        "intelpt-trace/trace_wrong_cpu.json",
    ];
    for name in malformed {
        let trace = folder.join("pt/lldb").join(name);
        let bundle = temporary.path().join("refused");
        let import = [
            "import".as_ref(),
            "lldb".as_ref(),
            trace.as_os_str(),
            "-o".as_ref(),
            bundle.as_os_str(),
        ];
        let run = backtrail(import).unwrap().exited(3);
        assert!(
            run.sentence().starts_with("backtrail: "),
            "{name}: {}",
            run.stderr
        );
        assert!(!bundle.exists(), "{name} left half a bundle behind");
    }
}
