//! Traces of real processors decode to the same result as by libipt.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::captures::{CAPTURES, folder};

/// Returns a bundle of LLDB's tests, or `None` without the captures.
fn lldb(trace: &str) -> Option<Bundle> {
    let trace = folder()?.join("pt/lldb").join(trace);
    let import = ["import".as_ref(), "lldb".as_ref(), trace.as_os_str()];
    Some(Bundle::made(&import, &[]).0)
}

#[test]
fn every_capture_gives_its_count_errors_and_digest() {
    for capture in CAPTURES {
        let Some(import) = capture.import_arguments() else {
            return;
        };
        let (bundle, _) = Bundle::made(&import, &[]);
        let info = bundle.run(&["info"], &["--digest"]);
        assert_eq!(info.stdout, capture.digest_line(), "{}", capture.trace);
    }
}

#[test]
fn an_lldb_bundle_gives_the_same_as_its_raw_trace() {
    let Some(bundle) = lldb("intelpt-trace/trace.json") else {
        return;
    };
    assert_eq!(
        bundle.run(&["info"], &["--digest"]).stdout,
        "thread 3842849 instructions 21 errors 0 digest a9fe0721b4730d26\n"
    );
}

#[test]
fn processors_are_split_into_threads_as_lldb_does() {
    let Some(bundle) = lldb("intelpt-multi-core-trace/trace.json") else {
        return;
    };
    let info = bundle.info();
    let cpus = info["cpus"].as_array().unwrap();
    let sum = |key: &str| cpus.iter().filter_map(|cpu| cpu[key].as_u64()).sum::<u64>();
    assert_eq!((sum("executions"), sum("psb_blocks")), (153, 5));
    let transcript = bundle.debug(&["thread 3497497", "goto end", "backtrace"]);
    assert!(transcript.contains("bar()"), "{transcript}");
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
