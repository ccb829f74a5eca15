//! Source files that travel in a bundle: of allowed directories, and those of the build alone.

use super::{User, outcome};
use backtrail_bundle::{Bundle, CancelToken, unpack};
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::hub_process::{HubProcess, token, until};
use backtrail_tests::hub_server::HubServer;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns whether a program is installed.
fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A program with a source file and a header in another directory.
struct Project {
    source: PathBuf,
    header: PathBuf,
    text: String,
    bundle: PathBuf,
}

/// Builds a program, and records its crash.
fn project(folder: &Path, compiler: &str) -> Project {
    let folder = folder.canonicalize().unwrap();
    let (work, elsewhere) = (folder.join("work"), folder.join("elsewhere"));
    for directory in [&work, &elsewhere] {
        fs::create_dir(directory).unwrap();
    }
    let (source, header) = (work.join("ledger.c"), elsewhere.join("account.h"));
    fs::write(
        &header,
        "static inline int balance(int *account)\n{\n    return *account;\n}\n",
    )
    .unwrap();
    let text = format!(
        "#include \"{}\"\n/* An unmistakable comment. */\nint main(int count, char **words)\n{{\n    (void)words;\n    return balance(count > 5 ? &count : 0);\n}}\n",
        header.display()
    );
    fs::write(&source, &text).unwrap();
    let program = folder.join("ledger");
    let built = Command::new(compiler)
        .args(["-gdwarf-5", "-O0", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let bundle = folder.join("ledger.bundle");
    let mut record = command().unwrap();
    record
        .args(["record", "--exit-zero", "-o"])
        .arg(&bundle)
        .arg("--")
        .arg(&program);
    let _ = outcome(&mut record).exited(0);
    Project {
        source,
        header,
        text,
        bundle,
    }
}

/// Pushes a bundle to a scripted hub, and returns the unpacked bundle that came, and the messages.
fn pushed(user: &User, project: &Project, allowed: &[&Path]) -> (PathBuf, String) {
    let hub = HubServer::start().unwrap();
    user.login(&hub);
    let mut push = user.command(&["push".as_ref(), project.bundle.as_os_str()]);
    for directory in allowed {
        push.arg("--sources").arg(directory);
    }
    let run = outcome(&mut push).exited(0);
    let id = run.stdout.trim().rsplit('/').next().unwrap().to_owned();
    let folder = tempfile::tempdir_in(user.home()).unwrap().keep();
    let packed = folder.join("received.btz");
    fs::write(&packed, &hub.state().bundles[&id]).unwrap();
    let unpacked = folder.join("bundle");
    unpack(&packed, &unpacked, &CancelToken::default()).unwrap();
    (unpacked, run.stderr)
}

/// Runs commands of the debugger.
fn debug(bundle: &Path, commands: &[&str]) -> String {
    let mut arguments: Vec<&OsStr> = vec!["debug".as_ref(), bundle.as_ref()];
    for command in commands {
        arguments.extend(["-e", *command].map(OsStr::new));
    }
    backtrail(arguments).unwrap().stdout
}

#[test]
fn sources_of_allowed_directories_travel_and_are_shown() {
    let (user, folder) = (User::new(), tempfile::tempdir().unwrap());
    let project = project(folder.path(), "cc");
    let (plain, _) = pushed(&user, &project, &[]);
    assert!(!plain.join("sources.json").exists() && !plain.join("sources").exists());
    let (bundle, _) = pushed(&user, &project, &[project.source.parent().unwrap()]);
    // LLDB's file is the same, and nothing of another directory is there.
    for name in ["trace.json", "meta.json"] {
        assert_eq!(
            fs::read(bundle.join(name)).unwrap(),
            fs::read(project.bundle.join(name)).unwrap()
        );
    }
    let sources = Bundle::open(&bundle).unwrap().sources().unwrap();
    let [source] = sources.as_slice() else {
        panic!("{sources:?}");
    };
    assert_eq!(source.path, project.source.to_str().unwrap());
    assert_eq!(
        fs::read_to_string(bundle.join(&source.file)).unwrap(),
        project.text
    );
    assert_eq!(source.md5.len(), 32);
    let checked = backtrail(["check".as_ref(), bundle.as_os_str()])
        .unwrap()
        .exited(0);
    assert!(checked.stdout.contains("no faults"), "{}", checked.stdout);

    // Without the files, the debugger has the text of the bundle.
    fs::remove_file(&project.source).unwrap();
    fs::remove_file(&project.header).unwrap();
    let output = debug(&bundle, &["up", "list", "info source"]);
    for wanted in ["An unmistakable comment", "count > 5", "(from the bundle"] {
        assert!(output.contains(wanted), "{wanted}: {output}");
    }
    let output = debug(&plain, &["up", "list", "info source"]);
    assert!(
        !output.contains("unmistakable") && output.contains("not found"),
        "{output}"
    );
    // A reader ignores a newer list and the files with it, and refuses a damaged list.
    let index = bundle.join("sources.json");
    fs::write(&index, "{\"version\": 3, \"pages\": []}").unwrap();
    assert_eq!(Bundle::open(&bundle).unwrap().sources().unwrap(), []);
    assert!(!debug(&bundle, &["up", "list"]).contains("unmistakable"));
    fs::write(
        &index,
        "{\"version\": 1, \"files\": [{\"path\": \"/a\", \"file\": \"../a\", \"md5\": \"\", \"verified\": true}]}",
    )
    .unwrap();
    assert!(Bundle::open(&bundle).unwrap().sources().is_err());
}

#[test]
fn md5_of_the_line_table_confirms_or_refuses_a_source() {
    let Some(clang) = ["clang", "clang-16", "clang-19"]
        .into_iter()
        .find(|name| has(name))
    else {
        eprintln!("left out: clang is missing, which writes the MD5 of sources");
        return;
    };
    let (user, folder) = (User::new(), tempfile::tempdir().unwrap());
    let project = project(folder.path(), clang);
    let allowed = folder.path().canonicalize().unwrap();
    let (bundle, _) = pushed(&user, &project, &[&allowed]);
    let sources = Bundle::open(&bundle).unwrap().sources().unwrap();
    assert_eq!(sources.len(), 2, "{sources:?}");
    assert!(sources.iter().all(|source| source.verified), "{sources:?}");
    let sum = Command::new("md5sum").arg(&project.source).output().unwrap();
    let own = sources
        .iter()
        .find(|source| source.path.ends_with("ledger.c"))
        .unwrap();
    assert!(
        String::from_utf8_lossy(&sum.stdout).starts_with(&own.md5),
        "{own:?}"
    );
    // A file that was edited after the build is not sent.
    fs::write(&project.source, project.text.replace('5', "6")).unwrap();
    let (bundle, messages) = pushed(&user, &project, &[&allowed]);
    let sources = Bundle::open(&bundle).unwrap().sources().unwrap();
    assert!(
        sources.len() == 1 && sources[0].path.ends_with("account.h"),
        "{sources:?}"
    );
    assert!(
        messages.contains("1 source files are not those of the build"),
        "{messages}"
    );
}

#[test]
fn page_of_a_crash_has_the_source_of_the_bundle() {
    let (user, folder) = (User::new(), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let token = token(&data, &["ingest", "read"]).unwrap();
    let hub = HubProcess::start(&data, &[]).unwrap();
    let file = user.home().join("token");
    fs::write(&file, &token).unwrap();
    let _ = user
        .run(&["login", &hub.address, "--token-file", file.to_str().unwrap()])
        .exited(0);
    let project = project(user.home(), "cc");
    let mut push = user.command(&["push".as_ref(), project.bundle.as_os_str(), "--sources".as_ref()]);
    let run = outcome(push.arg(user.home())).exited(0);
    // The hub does not read the file of this machine.
    fs::write(&project.header, "wrong\n".repeat(9)).unwrap();
    let id = run.stdout.trim().rsplit('/').next().unwrap().to_owned();
    let page = until("the page", || {
        let path = format!("/c/{id}");
        let page = hub.request("GET", &path, Some(&token), b"").unwrap().text();
        page.contains("Reverse debug in VS Code").then_some(page)
    });
    assert!(page.contains("return *account;"), "{page}");
    assert!(
        page.contains("from the bundle") && !page.contains("wrong"),
        "{page}"
    );
}
