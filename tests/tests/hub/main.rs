//! The clients of a hub: `push`, `login`, `open` and `debug LINK`, against a hub with faults.
#![cfg(test)]

mod attack;
mod branches;
mod bucket;
mod contract;
mod deploy;
mod faults;
mod filled;
mod fleet;
mod foreign_clients;
mod links;
mod objects;
mod operations;
mod pages;
mod postgres;
mod privacy;
mod profile_faults;
mod profile_pages;
mod profiles;
mod proxy;
mod push;
mod query_workers;
mod rules;
mod server;
mod sources;
mod sql;
mod symbols;
mod two_hubs;

use backtrail_tests::backtrail::{Run, backtrail, command};
use backtrail_tests::hub_process::HubProcess;
use backtrail_tests::hub_server::{HubServer, TOKEN};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user with a home directory of its own.
struct User(tempfile::TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn home(&self) -> &Path {
        self.0.path()
    }

    /// Returns the command of this user.
    fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = command().unwrap();
        for variable in [
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "BACKTRAIL_HUB",
            "BACKTRAIL_HUB_TOKEN",
            "http_proxy",
            "HTTP_PROXY",
        ] {
            command.env_remove(variable);
        }
        command.env("HOME", self.home()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        outcome(&mut self.command(&arguments))
    }

    /// Signs in to a hub.
    fn login(&self, hub: &HubServer) {
        let token = self.home().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let token = token.to_str().unwrap();
        let run = self
            .run(&["login", &hub.address, "--token-file", token])
            .exited(0);
        assert!(run.stdout.contains("as tests (ingest, read)"), "{}", run.stdout);
    }
}

/// Signs a user in to a hub.
fn login(user: &User, hub: &HubProcess, token: &str) {
    let file = user.home().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let file = file.to_str().unwrap();
    let _ = user.run(&["login", &hub.address, "--token-file", file]).exited(0);
}

/// Runs a command to its end.
fn outcome(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Records a program that crashes below two calls, and returns the bundle.
fn crash(folder: &Path) -> PathBuf {
    let source = folder.join("ledger.c");
    std::fs::write(
        &source,
        "__attribute__((noinline)) int post(int *account) { return *account + 1; }\n\
         __attribute__((noinline)) int settle(int *account) { return post(account) + 1; }\n\
         int main(int count, char **words) { (void)words; return settle(count > 1 ? &count : 0); }\n",
    )
    .unwrap();
    let program = folder.join("ledger");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
    let bundle = folder.join("ledger.bundle");
    let arguments = [
        "record".as_ref(),
        "--exit-zero".as_ref(),
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
        program.as_os_str(),
    ];
    let _ = backtrail(arguments).unwrap().exited(0);
    bundle
}
