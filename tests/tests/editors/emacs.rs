//! Editors other than VS Code, each with its own debug adapter client, without a screen.

use crate::bakery::bakery;
use backtrail_tests::backtrail::{binary, repository};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of an editor.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn a_crash_is_walked_in_emacs() {
    // Files of Debian's packages of Emacs and its client.
    let installed = ["/usr/bin/emacs", "/usr/share/doc/elpa-dap-mode/copyright"];
    if !installed.iter().all(|file| Path::new(file).exists()) {
        eprintln!("skipped: no Debian packages emacs-nox and elpa-dap-mode");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("bakery");
    let _ = bakery(&workspace);
    let said = folder.path().join("said");
    let output = std::fs::File::create(&said).unwrap();
    let mut emacs = Command::new("emacs")
        .args(["--batch", "--no-init-file", "--load"])
        .arg(std::fs::canonicalize(repository().join("tests/editors/walk.el")).unwrap())
        .env("BACKTRAIL_BIN", std::fs::canonicalize(binary().unwrap()).unwrap())
        .env("BACKTRAIL_HOME", folder.path())
        .env("BACKTRAIL_WORKSPACE", &workspace)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = emacs.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            let _ = emacs.kill();
            let _ = emacs.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = std::fs::read_to_string(said).unwrap();
    assert!(
        status.is_some_and(|status| status.success()) && said.contains("walked"),
        "{status:?}\n{said}"
    );
}
