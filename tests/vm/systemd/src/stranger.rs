//! A hostile user may talk to the daemon, but only about own processes, and cannot prevent that
//! crashes of others are saved.

use crate::systemd::{crash, crash_of, daemon, is_whole, still_runs};
use crate::{Outcome, Test};
use backtrail_collector::pattern::Specifiers;
use backtrail_collector::runtime::Runtime;
use backtrail_collector::wire::{BUNDLE_CHUNK, Connection, Reply, Request};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test {
        name: "systemd/stranger-is-refused",
        run: is_refused,
    },
    Test {
        name: "systemd/stranger-holds-nobody-up",
        run: holds_nobody_up,
    },
];

const RUNTIME: &str = "/run/backtrail";
/// `bank` of `xtask/src/vm/systemd.rs`.
const STRANGER: u32 = 1001;
/// More than the daemon serves at once and than the accept queue holds.
const CONNECTIONS: usize = 1500;

/// Each request about root's process is refused, and so is a crash that the user made up.
fn is_refused() -> Outcome {
    let pid = daemon()?;
    let victim = sleeper(0)?;
    let own = sleeper(STRANGER)?;
    let mut wrong = Vec::new();
    for (what, of, expected) in [
        ("mind", victim.0.id(), "the process belongs to another user"),
        ("mind", own.0.id(), "the recorder does not trace the process"),
        ("mind", 4_000_000, "there is no such process"),
        (
            "crashed",
            victim.0.id(),
            "no recorder of this user claims the process",
        ),
        (
            "deposit",
            victim.0.id(),
            "no recorder of this user claims the process",
        ),
        ("crash", victim.0.id(), "only the kernel may report crashes"),
        ("handler", victim.0.id(), "Permission denied"),
    ] {
        let mut stranger = stranger(what, of)?;
        let mut told = String::new();
        let read = stranger.1.read_to_string(&mut told);
        read.map_err(|error| format!("the stranger says nothing: {error}"))?;
        if !told.contains(expected) {
            wrong.push(format!("{what} of {of}: {told}"));
        }
    }
    still_runs(pid)?;
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

/// The user holds all available connections open in silence: a crash is still saved.
fn holds_nobody_up() -> Outcome {
    let pid = daemon()?;
    let mut stranger = stranger("hold", 0)?;
    let mut told = String::new();
    let read = stranger.1.read_line(&mut told);
    read.map_err(|error| format!("the stranger says nothing: {error}"))?;
    if told.trim() != "held" {
        return Err(format!("he could not connect: {told}"));
    }
    is_whole(&crash_of(crash()?)?)?;
    still_runs(pid)
}

/// A process that ends with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper(user: u32) -> Result<Ended, String> {
    let child = Command::new("sleep").arg("300").uid(user).gid(user).spawn();
    child.map(Ended).map_err(|error| format!("sleep: {error}"))
}

fn stranger(what: &str, pid: u32) -> Result<(Ended, BufReader<ChildStdout>), String> {
    let failed = |error: std::io::Error| format!("the stranger does not start: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(["stranger", what, &pid.to_string()])
        .uid(STRANGER)
        .gid(STRANGER)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let said = child.stdout.take().ok_or("the stranger has no output")?;
    Ok((Ended(child), BufReader::new(said)))
}

/// The hostile user's program: sends requests, and prints the responses.
pub fn run(what: &str, pid: &str) -> ExitCode {
    let pid = pid.parse().unwrap_or_default();
    match what {
        "hold" => hold(),
        _ => match ask(what, pid) {
            Ok(reply) => println!("{}", reply.refused.as_deref().unwrap_or("granted")),
            Err(error) => println!("{error}"),
        },
    }
    ExitCode::SUCCESS
}

fn ask(what: &str, pid: u32) -> std::io::Result<Reply> {
    let runtime = Runtime::new(RUNTIME);
    let socket = match what {
        "handler" => runtime.crash_socket(),
        _ => runtime.recorder_socket(),
    };
    let request = match what {
        "mind" => Request::Claim { pid },
        "crashed" => Request::Crashed {
            pid,
            executable: None,
        },
        "deposit" => Request::Deposit {
            pid,
            name: "../../etc/passwd".into(),
            size: BUNDLE_CHUNK as u64,
        },
        _ => Request::Crash(Specifiers {
            pid,
            ..Specifiers::default()
        }),
    };
    let connection = Connection::open_within(&socket, Duration::from_secs(20))?;
    connection.send(&request, None)?;
    Ok(connection.receive::<Reply>()?.0)
}

fn hold() {
    let socket = Runtime::new(RUNTIME).recorder_socket();
    let limit = Duration::from_secs(5);
    let held: Vec<Connection> = (0..CONNECTIONS)
        .map_while(|_| Connection::open_within(&socket, limit).ok())
        .collect();
    println!("{}", if held.len() > 100 { "held" } else { "no" });
    loop {
        // Each freed connection is taken again.
        let again = Connection::open_within(&socket, limit);
        std::thread::sleep(Duration::from_millis(20));
        drop(again);
    }
}
