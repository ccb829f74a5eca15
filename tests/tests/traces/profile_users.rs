//! `backtrail profile record` by users without privileges.

use crate::profile_recordings::{WORK, build, report, share};
use backtrail_tests::backtrail::binary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A user without privileges, its folder, and its copies of the binary and of a program.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = build(&folder, "work", WORK, &[]);
        let recorder = folder.path().join("backtrail");
        fs::copy(binary().unwrap(), &recorder).unwrap();
        for path in [folder.path(), &program, &recorder] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A command of this user. If the tests run as root, the user is another one.
    fn command(&self, program: &Path) -> Command {
        let mut command = match geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", "60001", "--regid", "60001", "--clear-groups"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn record(&self, output: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(&self.path("backtrail"));
        command.args(["profile", "record", "--json", "--freq", "999", "-o", output]);
        command.args(arguments).output().unwrap()
    }
}

fn paranoid() -> i32 {
    let setting = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    setting.trim().parse().unwrap()
}

#[test]
fn users_without_privileges_sample_their_own_programs() {
    if paranoid() > 2 {
        println!("This kernel lets no user sample programs; nothing is tested.");
        return;
    }
    let user = User::new();
    let work = user.path("work");
    let started = user.record("started", &["--", work.to_str().unwrap(), "30000"]);
    assert!(started.status.success(), "{started:?}");
    let mut program = user.command(&work).arg("100000000").spawn().unwrap();
    let pid = program.id().to_string();
    // The user changes before the program starts.
    let is_work = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == "work";
    while !is_work() {
        std::thread::yield_now();
    }
    let attached = user.record("attached", &["--pid", &pid, "--duration", "1s"]);
    assert!(attached.status.success(), "{attached:?}");
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    program.wait().unwrap();
    for name in ["started", "attached"] {
        let report = report(&user.path(name), &[]);
        let (main, a) = (share(&report, "main"), share(&report, "a"));
        assert!(main > 0.95 && a > 0.55 && a < 0.95, "{name}: {main} {a} {report}");
        if paranoid() > 1 {
            let text = report.to_string();
            assert!(text.contains("the kernel was not sampled"), "{text}");
        }
    }
}

#[test]
fn processes_of_other_users_are_refused_with_the_reason() {
    if !geteuid().is_root() {
        println!("Only root can start programs of two users; nothing is tested.");
        return;
    }
    let user = User::new();
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = program.id().to_string();
    let refused = user.record("refused", &["--pid", &pid, "--duration", "1s"]);
    program.kill().unwrap();
    program.wait().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{text}");
    assert!(
        text.contains(&format!("process {pid} is another user's")),
        "{text}"
    );
    assert!(!user.path("refused").exists());
}
