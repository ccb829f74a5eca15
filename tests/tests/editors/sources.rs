//! Source files by the paths that editors know, whatever path the compiler got.

use crate::adapter::Adapter;
use backtrail_tests::bundle::Bundle;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Line 4 crashes, in code that a header has too.
const SOURCE: &str = "\
#include \"part.h\"
__attribute__((noinline)) static int dig(int n, int *hole)
{
    return part(n) + *hole;
}
int main(int argc, char **argv)
{
    return dig(argc, argc > 3 ? (int *)argv : 0);
}
";
const HEADER: &str = "\
__attribute__((noinline)) static int part(int n)
{
    return n * 3;
}
";

/// A source tree, and what was built of it elsewhere.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for folder in ["src", "build/deep"] {
            fs::create_dir_all(tree.at(folder)).unwrap();
        }
        fs::write(tree.at("src/work.c"), SOURCE).unwrap();
        fs::write(tree.at("src/part.h"), HEADER).unwrap();
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    /// Compiles in a directory, and records the crash.
    #[track_caller]
    fn recorded(&self, directory: &str, arguments: &[&str]) -> Bundle {
        let program = self.at("program");
        let mut command = Command::new("gcc");
        command
            .current_dir(self.at(directory))
            .args(["-g", "-O1"])
            .args(arguments);
        let output = command.arg("-o").arg(&program).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Bundle::made(&["record"], &["--".as_ref(), program.as_ref()]).0
    }
}

/// Sets a breakpoint on line 4 by a path, as an editor does. Returns the path in the answer, and
/// that of the crash's innermost frame.
#[track_caller]
fn paths(bundle: &Bundle, file: &Path, launch: Value) -> [String; 2] {
    let mut adapter = Adapter::start();
    let succeeded = |answer: Value| {
        assert_eq!(answer["success"], true, "{answer}");
        answer["body"].clone()
    };
    let mut arguments = json!({"bundle": bundle.path});
    for (key, value) in launch.as_object().unwrap() {
        arguments[key] = value.clone();
    }
    succeeded(adapter.ask("initialize", json!({"adapterID": "x", "pathFormat": "path"})));
    succeeded(adapter.ask("launch", arguments));
    let asked = json!({"source": {"path": file}, "breakpoints": [{"line": 4}]});
    let set = succeeded(adapter.ask("setBreakpoints", asked));
    let set = &set["breakpoints"][0];
    assert_eq!(
        (&set["verified"], &set["line"]),
        (&json!(true), &json!(4)),
        "{set}"
    );
    succeeded(adapter.ask("configurationDone", json!({})));
    let threads = succeeded(adapter.ask("threads", json!({})));
    let stack = json!({"threadId": threads["threads"][0]["id"]});
    let stack = succeeded(adapter.ask("stackTrace", stack));
    let top = &stack["stackFrames"][0];
    assert_eq!(top["line"], 4, "{top}");
    assert!(top["source"]["sourceReference"].is_null(), "{top}");
    adapter.end();
    [&set["source"]["path"], &top["source"]["path"]].map(|path| path.as_str().unwrap().to_owned())
}

#[track_caller]
fn are_paths(found: &[String; 2], wanted: &Path) {
    let wanted = wanted.display().to_string();
    assert!(
        found.iter().all(|path| *path == wanted),
        "{found:?}, not {wanted}"
    );
}

#[test]
fn paths_with_dots_are_the_files_that_editors_know() {
    let tree = Tree::new();
    let file = tree.at("src/work.c");
    for (directory, argument) in [
        ("build", "../src/work.c"),
        ("build/deep", "../../src/./work.c"),
        ("src", "./work.c"),
        ("", "build/../src/work.c"),
    ] {
        let bundle = tree.recorded(directory, &[argument]);
        are_paths(&paths(&bundle, &file, json!({})), &file);
    }
}

#[test]
fn links_and_mapped_prefixes_are_the_editors_file() {
    let tree = Tree::new();
    let file = tree.at("src/work.c");
    // The compiler saw a link; the editor has the file, or the link.
    std::os::unix::fs::symlink(tree.at("src"), tree.at("link")).unwrap();
    std::os::unix::fs::symlink(tree.at("src/work.c"), tree.at("build/other.c")).unwrap();
    let linked = tree.at("link/work.c");
    let bundle = tree.recorded("build", &["../link/work.c"]);
    are_paths(&paths(&bundle, &file, json!({})), &file);
    are_paths(&paths(&bundle, &linked, json!({})), &linked);
    // A link with another name.
    let include = format!("-I{}", tree.at("src").display());
    let bundle = tree.recorded("build", &["other.c", &include]);
    are_paths(&paths(&bundle, &file, json!({})), &file);
    // A build machine's prefix: a rule, or the folder of the sources.
    let map = format!(
        "-fdebug-prefix-map={}=/gone/away",
        tree.at("").display().to_string().trim_end_matches('/')
    );
    let bundle = tree.recorded("build", &["../src/work.c", &map]);
    let root = tree.at("").display().to_string();
    let root = root.trim_end_matches('/');
    for launch in [
        json!({"sourceMap": {"/gone/away": root}}),
        json!({"sourceMap": [["/gone/away/src", tree.at("src")]]}),
        json!({"sourcePaths": [root]}),
    ] {
        are_paths(&paths(&bundle, &file, launch), &file);
    }
}

#[test]
fn breakpoint_is_set_under_all_names_of_a_file() {
    let tree = Tree::new();
    fs::write(
        tree.at("src/second.c"),
        "#include \"part.h\"\nint second(int n) { return part(n); }\n",
    )
    .unwrap();
    fs::write(
        tree.at("src/work.c"),
        SOURCE
            .replace("part(n) +", "second(part(n)) +")
            .replace("h\"\n", "h\"\nint second(int n);\n"),
    )
    .unwrap();
    std::os::unix::fs::symlink(tree.at("src"), tree.at("link")).unwrap();
    // The header is recorded as `../src/part.h` and as `../link/part.h`.
    let bundle = tree.recorded("build", &["../src/work.c", "../link/second.c"]);
    for path in ["src/part.h", "link/part.h", "build/../src/part.h"] {
        let location = format!("break {}:3", tree.at(path).display());
        let results = bundle.results(&[&location, "reverse-continue", "reverse-continue"]);
        let places = results[0]["breakpoint"]["places"].as_array().unwrap();
        assert_eq!(places.len(), 2, "{path}: {places:?}");
        for stop in &results[1..] {
            assert_eq!(stop["place"]["frame"]["function"], "part", "{path}: {stop}");
        }
    }
}

/// Launches a core, and returns the innermost function and the notes of the trace.
#[track_caller]
fn core_in_editor(core: &Path) -> (String, String) {
    let mut adapter = Adapter::start();
    for (command, arguments) in [
        ("initialize", json!({"adapterID": "x"})),
        ("launch", json!({"bundle": core})),
        ("configurationDone", json!({})),
    ] {
        let answer = adapter.ask(command, arguments);
        assert_eq!(answer["success"], true, "{answer}");
    }
    let threads = adapter.ask("threads", json!({}));
    let stack = json!({"threadId": threads["body"]["threads"][0]["id"]});
    let stack = adapter.ask("stackTrace", stack);
    let notes = adapter.ask("backtrail/trace", json!({}));
    adapter.end();
    let name = stack["body"]["stackFrames"][0]["name"].as_str().unwrap();
    (name.to_owned(), notes["body"]["notes"].to_string())
}

#[test]
fn other_build_than_that_of_a_core_is_noted_in_the_editor() {
    let tree = Tree::new();
    let bundle = tree.recorded("src", &["work.c"]);
    let core = tree.at("core");
    fs::copy(bundle.path.join("core"), &core).unwrap();
    let (function, notes) = core_in_editor(&core);
    assert!(function.starts_with("dig"), "{function}");
    assert!(!notes.contains("another build"), "{notes}");
    let _ = tree.recorded("src", &["work.c", "-Wl,--build-id=md5", "-O2"]);
    let (function, notes) = core_in_editor(&core);
    assert!(
        !function.contains("dig") && !function.contains("main"),
        "{function}"
    );
    assert!(notes.contains("another build"), "{notes}");
}
