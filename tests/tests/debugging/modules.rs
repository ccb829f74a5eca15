//! Modules that are mapped at one address one after the other: each position has the names of the
//! module that was there.

use crate::gdb_answers::ours;
use backtrail_tests::bundle::Bundle;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The engines of the recorder.
const ENGINES: [&str; 2] = ["translate", "step"];

/// A folder with compiled programs and plugins.
struct Plugins(TempDir);

impl Plugins {
    /// Compiles plugins, and a program that loads them.
    fn compiled(plugins: &[&str], program: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for plugin in plugins {
            let output = format!("{plugin}.so");
            folder.compile(
                &["-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", &output],
                plugin,
            );
        }
        folder.compile(&["-pthread", "-o", "main"], program);
        folder
    }

    fn compile(&self, arguments: &[&str], source: &str) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/values/plugins");
        let output = Command::new("cc")
            .current_dir(&self.0)
            .args(["-g", "-O1", "-foptimize-sibling-calls", "-w"])
            .args(arguments)
            .arg(fixtures.join(source).with_extension("c"))
            .arg("-ldl")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }

    /// Records the program. Returns `None` if a plugin came to another address than the first one.
    fn recorded(&self, engine: &str, arguments: &[&str]) -> Option<Bundle> {
        let bundle = Bundle::empty();
        let output = backtrail_tests::backtrail::command()
            .unwrap()
            .current_dir(&self.0)
            .args(["record", "--full", "--engine", engine, "-o"])
            .arg(&bundle.path)
            .args(["--", "./main"])
            .args(arguments)
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut addresses: Vec<&str> = text.lines().filter(|line| line.starts_with("0x")).collect();
        addresses.dedup();
        if addresses.len() > 1 {
            eprintln!("skipped: the plugins are at different addresses");
            return None;
        }
        Some(bundle)
    }
}

/// The number of calls of a function in the list of all calls.
fn calls(list: &str, function: &str) -> usize {
    let named = format!(" {function}  [");
    list.lines().filter(|line| line.contains(&named)).count()
}

#[test]
fn names_are_those_of_the_module_at_the_position() {
    let plugins = Plugins::compiled(&["first", "second"], "main");
    for engine in ENGINES {
        let Some(bundle) = plugins.recorded(engine, &[]) else {
            return;
        };
        let list = bundle.run(&["dump", "calls"], &[]).stdout;
        let names = ["first_work", "second_work", "second_crash", "second_tail"];
        assert_eq!(
            names.map(|name| calls(&list, name)),
            [2, 3, 1, 1],
            "{engine}\n{list}"
        );
        let commands = [
            "bt",
            "count first_work",
            "count second_work",
            "count first.c:7",
            "break first_work",
            "rc",
            "bt",
            "info source",
            "print n",
            "rc",
            "bt 1",
            "rc",
            "delete",
            "break second.c:7",
            "continue",
            "bt 1",
            "callers first_work",
            "info functions ^first_work$",
        ];
        let answers = ours(&bundle, &commands);
        let text = |number: usize| answers[number].1.join("\n");
        assert!(
            text(0).contains("second_crash") && text(0).contains("second.c"),
            "{}",
            text(0)
        );
        assert!(text(1).contains("2 calls"), "{}", text(1));
        assert!(text(2).contains("3 calls"), "{}", text(2));
        assert!(text(4).contains("first_work"), "{}", text(4));
        for number in [6, 10] {
            let stack = text(number);
            assert!(
                stack.contains("first_work") && stack.contains("first.c"),
                "{stack}"
            );
            assert!(!stack.contains("second"), "{stack}");
        }
        assert!(text(7).contains("first.c"), "{}", text(7));
        // Both calls were visited; there is no third.
        assert!(text(11).contains("No more"), "{}", text(11));
        let stack = text(15);
        assert!(
            stack.contains("second_work") && stack.contains("second.c"),
            "{stack}"
        );
        assert!(text(16).contains("use"), "{}", text(16));
        assert!(text(17).contains("first_work"), "{}", text(17));
    }
}

#[test]
fn stepping_and_code_are_those_of_the_module_at_the_position() {
    let plugins = Plugins::compiled(&["first", "second"], "main");
    for engine in ENGINES {
        let Some(bundle) = plugins.recorded(engine, &[]) else {
            return;
        };
        let commands = [
            "break first_work",
            "rc",
            "next",
            "next",
            "bt 1",
            "disassemble",
            "disassemble /s first_work",
            "reverse-next",
            "bt 1",
            "finish",
            "bt 1",
            "delete",
            "goto start",
            "break second_tail",
            "continue",
            "step",
            "step",
            "bt 2",
            "reverse-step",
            "bt 1",
        ];
        let answers = ours(&bundle, &commands);
        let text = |number: usize| answers[number].1.join("\n");
        for number in [4, 8] {
            assert!(
                text(number).contains("first_work") && text(number).contains("first.c:"),
                "{engine} {number}: {answers:#?}"
            );
        }
        for number in [5, 6] {
            let code = text(number);
            assert!(
                code.contains("first_work") && !code.contains("second"),
                "{engine}: {code}"
            );
            assert!(code.contains("ret"), "{engine}: {code}");
        }
        assert!(text(6).contains("for (int i = 0;"), "{engine}: {}", text(6));
        assert!(text(10).contains("main.c:"), "{engine}: {}", text(10));
        assert!(
            text(17).contains("second_work") && text(17).contains("second.c:"),
            "{engine}: {answers:#?}"
        );
        assert!(text(19).contains("second.c:"), "{engine}: {}", text(19));
    }
}

#[test]
fn pages_that_only_the_second_module_executes_have_its_names() {
    let plugins = Plugins::compiled(&["near", "far"], "threads");
    for engine in ENGINES {
        let Some(bundle) = plugins.recorded(engine, &[]) else {
            return;
        };
        let list = bundle.run(&["dump", "calls"], &[]).stdout;
        let names = ["near_start", "far_start", "far_work", "near_work"];
        assert_eq!(
            names.map(|name| calls(&list, name)),
            [1, 1, 1, 0],
            "{engine}\n{list}"
        );
    }
}

#[test]
fn reloaded_plugin_has_the_names_of_both_files() {
    let plugins = Plugins::compiled(&["version1", "version2"], "reload");
    for engine in ENGINES {
        for way in ["rename", "overwrite"] {
            let Some(bundle) = plugins.recorded(engine, &[way]) else {
                continue;
            };
            let list = bundle.run(&["dump", "calls"], &[]).stdout;
            let names = ["old_helper", "new_helper", "work"];
            assert_eq!(
                names.map(|name| calls(&list, name)),
                [1, 1, 2],
                "{engine} {way}\n{list}"
            );
            let answers = ours(
                &bundle,
                &[
                    "break work",
                    "rc",
                    "info source",
                    "rc",
                    "info source",
                    "count version1.c:5",
                ],
            );
            let text = |number: usize| answers[number].1.join("\n");
            assert!(text(0).contains("(2 places)"), "{engine} {way}: {answers:#?}");
            assert!(text(2).contains("version2.c"), "{engine} {way}: {answers:#?}");
            assert!(text(4).contains("version1.c"), "{engine} {way}: {answers:#?}");
        }
    }
}

#[test]
fn generated_code_has_no_names_of_an_unloaded_plugin() {
    let plugins = Plugins::compiled(&["first"], "generated");
    let bundle = plugins.recorded("translate", &[]).unwrap();
    let list = bundle.run(&["dump", "calls"], &[]).stdout;
    assert_eq!(calls(&list, "first_work"), 1, "{list}");
}
