//! The last lines of standard error: in the bundle, on the first screen, and as without recorder.

use backtrail_tests::backtrail::repository;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use backtrail_tests::terminal::Terminal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Returns the program that writes its arguments.
fn says() -> &'static str {
    static PROGRAM: OnceLock<(TempDir, String)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("says").to_str().unwrap().to_owned();
        let source = repository().join("tests/fixtures/standard_error/says.c");
        let compiled = Command::new("cc")
            .arg("-g")
            .arg(source)
            .args(["-o", &path])
            .status();
        assert!(compiled.unwrap().success());
        (folder, path)
    });
    path
}

/// Records the program. Returns the bundle, and what it and the recorder wrote to standard error.
fn recorded(options: &[&str], arguments: &[&str]) -> (Bundle, String) {
    let command = [&["record", "--full"], options].concat();
    let program = [&["--", says()], arguments].concat();
    let program: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
    let (bundle, run) = Bundle::made(&command, &program);
    (bundle, run.stderr)
}

/// Returns the text in the bundle.
fn kept(bundle: &Bundle) -> Value {
    let meta = fs::read_to_string(bundle.path.join("meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    meta["standardError"].clone()
}

/// Returns the lines in the JSON of the first screen.
fn lines(bundle: &Bundle) -> Value {
    bundle.results(&["crash"])[0]["standard_error"].clone()
}

#[test]
fn last_lines_are_on_the_first_screen() {
    let (bundle, errors) = recorded(&[], &["-11", "-o", "out", "one", "two", "three", "four"]);
    assert!(errors.contains("one\ntwo\nthree\nfour\n"), "{errors}");
    assert_eq!(kept(&bundle), "one\ntwo\nthree\nfour\n");
    assert_eq!(lines(&bundle), serde_json::json!(["one", "two", "three", "four"]));
    let screen = bundle.debug(&["crash"]);
    assert!(
        screen.contains("Standard error:\n  two\n  three\n  four\n"),
        "{screen}"
    );
    let full = bundle.debug(&["crash full"]);
    assert!(full.contains("Standard error:\n  one\n"), "{full}");
}

#[test]
fn message_of_the_runtime_is_on_the_first_screen() {
    let (bundle, run) = Bundle::recorded(find("terminate").unwrap(), Variant::Pie, &["--full"]);
    let message = "terminate called after throwing an instance of";
    assert!(run.stderr.contains(message), "{}", run.stderr);
    let screen = bundle.debug(&["crash"]);
    assert!(
        screen.contains(&format!("Standard error:\n  {message}")),
        "{screen}"
    );
}

#[test]
fn failure_without_a_signal_shows_its_message() {
    let (bundle, _) = recorded(&[], &["3", "broken"]);
    assert_eq!(lines(&bundle), serde_json::json!(["broken"]));
    let (bundle, _) = recorded(&[], &["0", "fine"]);
    assert_eq!((kept(&bundle), lines(&bundle)), ("fine\n".into(), Value::Null));
}

#[test]
fn output_of_another_descriptor_is_not_kept() {
    let (bundle, _) = recorded(&[], &["-11", "-o", "out"]);
    assert_eq!((kept(&bundle), lines(&bundle)), (Value::Null, Value::Null));
    let (bundle, _) = recorded(&["--no-stderr"], &["-11", "error"]);
    assert_eq!(kept(&bundle), Value::Null);
}

#[test]
fn long_output_is_bounded_and_controls_nothing() {
    let (bundle, errors) = recorded(&[], &["-11", "-n", "x\x1b[31m\u{85}red"]);
    assert!(errors.contains("line 0\n") && errors.contains("line 899\n"));
    let text = kept(&bundle);
    let text = text.as_str().unwrap();
    assert!(text.len() <= 4096 && text.len() > 3000, "{}", text.len());
    assert!(text.starts_with("line ") && text.contains("line 899\n"), "{text}");
    let screen = bundle.debug(&["crash"]);
    assert!(screen.contains("  x\u{fffd}[31m\u{fffd}red\n"), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen:?}");
}

/// The program has the descriptor that it would have without the recorder.
#[test]
fn program_sees_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    let arguments = [
        "record",
        "--full",
        "-o",
        path.to_str().unwrap(),
        says(),
        "-11",
        "-t",
    ];
    let (status, text) = Terminal::open(&arguments, 50, &[]).finish();
    assert_eq!(status, Some(128 + 11), "{text}");
    assert!(text.contains("a terminal\r\n"), "{text}");
    let bundle = Bundle::in_folder(folder, path);
    assert_eq!(kept(&bundle), "a terminal\n");
}

#[test]
fn children_keep_lines_of_their_own() {
    let (bundle, errors) = recorded(&[], &["-11", "parent", "-c", "child"]);
    assert!(errors.contains("parent\nchild\n"), "{errors}");
    assert_eq!(kept(&bundle), "child\n");
}
