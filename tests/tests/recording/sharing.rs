//! Bundles for other people: with source files, and without secrets.

use backtrail_bundle::{Bundle, CancelToken, unpack};
use backtrail_tests::backtrail::{Run, command};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOKEN: &str = "tok-5e81f0c29a7d";
const KEY: &str = "key-93b1d24f60aa";
const PATH: &str = "/srv/customers/karlsson";
/// The number of the line that crashes.
const LINE: usize = 72;

/// A program in a folder with its sources.
struct Project {
    folder: PathBuf,
    work: PathBuf,
    header: PathBuf,
    program: PathBuf,
}

impl Project {
    fn build(folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap();
        let (work, elsewhere) = (folder.join("work"), folder.join("elsewhere"));
        for directory in [&work, &elsewhere] {
            fs::create_dir(directory).unwrap();
        }
        let header = elsewhere.join("account.h");
        let account = "static inline int balance(int *account)\n{\n    return *account;\n}\n";
        fs::write(&header, account).unwrap();
        let mut lines = vec![
            format!("#include \"{}\"", header.display()),
            "/* An unmistakable comment. */".to_owned(),
        ];
        lines.extend((3..58).map(|number| format!("/* filler {number} */")));
        let code = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nchar memory_secret[40];\n\
            char *copies[3];\n\
            int main(int count, char **words)\n{\n\
            \x20   for (int i = 0; i < 24; i++)\n\
            \x20       memory_secret[i] = 'A' + (i * 7 + 3) % 26;\n\
            \x20   fputs(memory_secret, stderr);\n\
            \x20   copies[0] = strdup(getenv(\"API_TOKEN\"));\n\
            \x20   copies[1] = strdup(words[1] + strlen(\"--key=\"));\n\
            \x20   copies[2] = strdup(words[2]);\n\
            \x20   /* The crash. */\n\
            \x20   return balance(count > 50 ? &count : 0);\n}\n";
        let text = format!("{}\n{code}", lines.join("\n"));
        assert!(text.lines().nth(LINE - 1).unwrap().contains("count > 50"));
        fs::write(work.join("ledger.c"), text).unwrap();
        let program = folder.join("ledger");
        let built = Command::new("cc")
            .current_dir(&work)
            .args(["-g", "-O0", "-o"])
            .args([program.as_os_str(), "ledger.c".as_ref()])
            .status();
        assert!(built.unwrap().success());
        Self {
            folder,
            work,
            header,
            program,
        }
    }

    /// Records the crash with these options.
    fn record(&self, name: &str, options: &[&str]) -> (PathBuf, Run) {
        let bundle = self.folder.join(name);
        let mut record = command().unwrap();
        record
            .args(["record", "--exit-zero", "-o"])
            .arg(&bundle)
            .args(options)
            .arg(&self.program)
            .args([&format!("--key={KEY}"), PATH, "ab"])
            .env("API_TOKEN", TOKEN);
        let run = outcome(&mut record);
        (bundle, run)
    }

    /// Packs a bundle with these options, and unpacks it.
    fn pack(&self, bundle: &Path, name: &str, options: &[&str]) -> PathBuf {
        let (packed, target) = (self.folder.join(format!("{name}.btz")), self.folder.join(name));
        let mut pack = command().unwrap();
        pack.arg("pack").arg(bundle).arg("-o").arg(&packed).args(options);
        let _ = outcome(&mut pack);
        unpack(&packed, &target, &CancelToken::default()).unwrap();
        target
    }

    fn remove_sources(&self) {
        fs::remove_dir_all(&self.work).unwrap();
        fs::remove_file(&self.header).unwrap();
    }
}

fn outcome(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let run = Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    run.exited(0)
}

/// Runs commands of the debugger.
fn debug(bundle: &Path, options: &[&str], commands: &[&str]) -> String {
    let mut debug = command().unwrap();
    debug.arg("debug").arg(bundle).arg("--batch").args(options);
    for command in commands {
        debug.args(["-e", command]);
    }
    outcome(&mut debug).stdout
}

/// Returns the files of a bundle that have a text.
fn files_with(bundle: &Path, text: &str) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![bundle.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                let name = path.strip_prefix(bundle).unwrap();
                found.push(name.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Returns the text that the program computes.
fn memory_secret() -> String {
    (0..24).map(|i| char::from(b'A' + (i * 7 + 3) % 26)).collect()
}

#[test]
fn recorded_lines_are_shown_without_the_sources() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::build(folder.path());
    let (bundle, run) = project.record("lines.bundle", &["--sources"]);
    assert!(
        run.stderr.contains("the bundle has 1 source file(s)"),
        "{}",
        run.stderr
    );
    // The header is outside of the directory in which the program was compiled.
    let outside = "1 source files are outside of the directory in which they were compiled";
    assert!(run.stderr.contains(outside), "{}", run.stderr);
    let sources = Bundle::open(&bundle).unwrap().sources().unwrap();
    let [source] = sources.as_slice() else {
        panic!("{sources:?}");
    };
    // Ten lines before the brace of the function, and one after the crash, which is the last.
    assert_eq!(source.lines, Some(vec![(54, LINE as u32 + 1)]));
    assert!(files_with(&bundle, "unmistakable").is_empty());
    project.remove_sources();
    // The first screen has the line.
    let screen = debug(&bundle, &[], &["crash"]);
    assert!(screen.contains("→72\t    return balance(count > 50"), "{screen}");
    assert!(screen.contains("copies[2] = strdup(words[2]);"), "{screen}");
    let listed = debug(&bundle, &[], &["up", "list 53,55", "info source"]);
    for wanted in [
        "53\t(not in the bundle)",
        "54\t/* filler 54 */",
        "(from the bundle), some lines only",
    ] {
        assert!(listed.contains(wanted), "{wanted}: {listed}");
    }
    let answers = debug(&bundle, &["--json"], &["list ledger.c:53,54"]);
    let answer: Value = serde_json::from_str(answers.lines().last().unwrap()).unwrap();
    assert_eq!(answer["result"]["kept"], serde_json::json!([false, true]));
    assert_eq!(answer["result"]["lines"][0], "");
    // The header was left out, and a file of its name is not its text.
    fs::create_dir_all(bundle.join("sources/other")).unwrap();
    fs::write(bundle.join("sources/other/account.h"), "wrong\n".repeat(9)).unwrap();
    let mut list = command().unwrap();
    list.arg("debug")
        .arg(&bundle)
        .args(["--batch", "-e", "list account.h:3"]);
    let output = list.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("cannot find the source file") && !text.contains("wrong"),
        "{text}"
    );
    let mut check = command().unwrap();
    let checked = outcome(check.arg("check").arg(&bundle));
    assert!(checked.stdout.contains("no faults"), "{}", checked.stdout);
}

#[test]
fn packing_adds_whole_files_of_named_directories() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::build(folder.path());
    let (bundle, _) = project.record("plain.bundle", &[]);
    assert!(!bundle.join("sources").exists());
    let elsewhere = project.header.parent().unwrap().to_str().unwrap();
    let with_header = project.pack(&bundle, "header", &["--sources=files", "--source-dir", elsewhere]);
    let sources = Bundle::open(&with_header).unwrap().sources().unwrap();
    let paths: Vec<_> = sources.iter().map(|source| Path::new(&source.path)).collect();
    assert_eq!(paths, [&project.header]);
    // Files that the bundle has stay.
    fs::remove_file(&project.header).unwrap();
    let both = project.pack(&with_header, "both", &["--sources=files"]);
    assert_eq!(Bundle::open(&both).unwrap().sources().unwrap().len(), 2);
    fs::remove_dir_all(&project.work).unwrap();
    let shown = debug(
        &both,
        &[],
        &["list account.h:3", "list ledger.c:2", "info source"],
    );
    for wanted in ["return *account;", "An unmistakable comment", "(from the bundle)"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert!(!shown.contains("some lines only"), "{shown}");
    // A damaged list is refused in one sentence.
    fs::write(both.join("sources.json"), "{\"version\": 2, \"files\": [[]]}").unwrap();
    for verb in ["debug", "check"] {
        let mut damaged = command().unwrap();
        let output = damaged.arg(verb).arg(&both).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{verb}: {output:?}");
    }
}

#[test]
fn redacted_bundle_lacks_secrets_and_keeps_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::build(folder.path());
    let (bundle, _) = project.record("whole.bundle", &[]);
    let memory = memory_secret();
    let secrets = [TOKEN, KEY, PATH, &memory];
    for secret in secrets {
        assert!(
            files_with(&bundle, secret).contains(&"core".to_owned()),
            "{secret}"
        );
    }
    let digest = |bundle: &Path| {
        let mut info = command().unwrap();
        outcome(info.args(["info", "--digest"]).arg(bundle)).stdout
    };
    for (data, removed) in [
        ("env", &[TOKEN][..]),
        ("args", &[KEY, PATH]),
        ("memory", &[TOKEN, &memory]),
        ("env,args,memory", &secrets),
    ] {
        let name = data.replace(',', "-");
        let redacted = project.pack(&bundle, &name, &["--redact", data]);
        for secret in secrets {
            let is_removed = files_with(&redacted, secret).is_empty();
            assert_eq!(is_removed, removed.contains(&secret), "{data}: {secret}");
        }
        assert_eq!(digest(&redacted), digest(&bundle), "{data}");
    }
    // Each word of the command line is gone, also a short one.
    let all = project.folder.join("env-args-memory");
    let opened = Bundle::open(&all).unwrap();
    assert_eq!(opened.manifest().meta.command_line, Vec::<String>::new());
    let core = opened.core().unwrap().unwrap();
    assert!(core.contents().process.arguments.bytes().all(|byte| byte == b'x'));
    let arguments = Bundle::open(&project.folder.join("args"))
        .unwrap()
        .core()
        .unwrap();
    assert!(arguments.unwrap().saved().all(|(_, bytes)| {
        let text = format!("{}\0xx\0", "x".repeat(PATH.len()));
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        !has(&format!("{PATH}\0ab\0")) && (!has("API_TOKEN=") || has(&text))
    }));
    // The trace has the calls, and values are unknown for a stated reason.
    let shown = debug(&all, &[], &["crash", "print memory_secret", "backtrace"]);
    for wanted in [
        "Note: the memory of the process was removed",
        "in balance (account=?) at account.h:3",
        "in main (count=?, words=?) at ledger.c:72",
        "<unknown: the core does not have the memory at",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
}
