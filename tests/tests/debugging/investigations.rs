//! The programs of `docs/investigations.md`: the cause of each is found in a few commands, and the
//! page shows the real answers.

use crate::transcript::{answers, differences, shown};
use backtrail_tests::backtrail::{command, repository};
use backtrail_tests::bundle::Bundle;
use std::process::Command;

/// The most commands of an investigation, with `crash`, which the debugger runs by itself.
const MOST: usize = 8;

/// A program of the page, and how it is built and recorded.
struct Investigation {
    /// The heading of its section.
    heading: &'static str,
    source: &'static str,
    compiler: &'static [&'static str],
    options: &'static [&'static str],
    /// The texts that the answers must have, whatever the page shows.
    cause: &'static [&'static str],
}

const INVESTIGATIONS: [Investigation; 3] = [
    Investigation {
        heading: "## A use after free",
        source: "dispatch.cpp",
        compiler: &["c++", "-std=c++17", "-O1", "-g", "-pthread"],
        options: &["--heap"],
        cause: &[
            "use after free: freed by thread \"reaper\" in Dispatcher::close_idle at dispatch.cpp:57, \
             allocated by Dispatcher::open at dispatch.cpp:37",
        ],
    },
    Investigation {
        heading: "## A panic",
        source: "sensors.rs",
        compiler: &["rustc", "--edition=2021", "-g", "-Copt-level=1"],
        options: &[],
        cause: &["low=14, high=140"],
    },
    Investigation {
        heading: "## A slow request and a crash",
        source: "kitchen.c",
        compiler: &["cc", "-O1", "-g"],
        options: &[],
        cause: &[
            "read_recipe, called only by the second",
            "close_without(\"soup\")",
        ],
    },
];

impl Investigation {
    fn recorded(&self) -> Bundle {
        let folder = tempfile::tempdir().unwrap();
        let source = repository()
            .join("tests/fixtures/investigations")
            .join(self.source);
        let (name, _) = self.source.split_once('.').unwrap();
        let program = folder.path().join(name);
        let (compiler, flags) = self.compiler.split_first().unwrap();
        let mut compile = Command::new(compiler);
        compile.args(flags).arg(&source).arg("-o").arg(&program);
        let output = compile.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let bundle = folder.path().join("bundle");
        let mut record = command().unwrap();
        // The times of calls depend on what is translated while they run.
        record
            .args(["record", "--full", "--translations", "0", "-o"])
            .arg(&bundle);
        let output = record.args(self.options).arg(&program).output().unwrap();
        assert!(bundle.exists(), "{}", String::from_utf8_lossy(&output.stderr));
        Bundle::in_folder(folder, bundle)
    }

    fn check(&self) {
        let page = std::fs::read_to_string(repository().join("docs/investigations.md")).unwrap();
        let (_, section) = page.split_once(self.heading).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let shown = shown(section);
        assert!(!shown.is_empty() && shown.len() <= MOST, "{}", shown.len());
        let commands: Vec<&str> = shown.iter().map(|(command, _)| command.as_str()).collect();
        let said = self.recorded().debug(&commands);
        for cause in self.cause {
            assert!(said.contains(cause), "{cause} is not in\n{said}");
        }
        let wrong = differences(&shown, &answers(&said));
        assert!(wrong.is_empty(), "{wrong}");
    }
}

#[test]
fn use_after_free_is_explained_at_once() {
    INVESTIGATIONS[0].check();
}

#[test]
fn panic_leads_to_the_wrong_configuration() {
    INVESTIGATIONS[1].check();
}

#[test]
fn slow_request_and_crash_have_their_causes() {
    INVESTIGATIONS[2].check();
}
