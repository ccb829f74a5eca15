//! Stacks of Debian's programs reach the start of their threads.

use backtrail_tests::backtrail::command;
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const QUERY: &str = "
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2000000)
    INSERT INTO t SELECT x, hex(x * x % 9973) FROM c;
CREATE INDEX i ON t(b);
SELECT count(DISTINCT b), sum(a * a) FROM t WHERE b LIKE '%3%';
SELECT b, count(*) FROM t GROUP BY b ORDER BY 2 DESC LIMIT 3;
";

const SCRIPT: &str = "
import json, re
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def text(): return json.dumps([{'key': str(i), 'value': [i] * 5} for i in range(20000)])
def words(): return sorted(re.findall('[0-9]+', text()), key=lambda word: (len(word), word))
for i in range(20): fib(24); json.loads(text()); words()
";

/// The folder of a user that servers run as, because postgres refuses to run as root.
struct ServerFolder(TempDir);

impl ServerFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Begins to record a program.
fn start(folder: &ServerFolder, program: &[&str]) -> Child {
    let mut recorder = command().unwrap();
    recorder.args(["profile", "record", "--freq", "499", "--json", "-o"]);
    recorder
        .arg(folder.path("recording"))
        .arg("--overwrite")
        .arg("--");
    recorder.args(program).current_dir(folder.0.path());
    recorder
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for the end of a recording, and checks its stacks.
fn check(name: &str, mut recorder: Child) {
    let mut text = String::new();
    recorder.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(recorder.wait().unwrap().success(), "{name}: {text}");
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or(&text);
    let json = &text[text.find(line).unwrap()..];
    let recorded: Value = serde_json::from_str(json).unwrap();
    let [stacks, incomplete] = ["stacks", "incomplete"].map(|key| recorded[key].as_f64().unwrap());
    println!("{name}: {incomplete} of {stacks} stacks are incomplete; {recorded}");
    assert!(stacks > 300.0, "{name}: {recorded}");
    assert!(incomplete <= stacks / 100.0, "{name}: {recorded}");
}

fn run(program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

/// Repeats a command until it succeeds.
fn wait_for(program: &str, arguments: &[&str]) {
    let until = Instant::now() + Duration::from_secs(60);
    while !Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
    {
        assert!(Instant::now() < until, "{program} {arguments:?}");
        sleep(Duration::from_millis(50));
    }
}

/// Returns the folder of PostgreSQL's programs.
fn postgres() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("the package postgresql");
    let mut versions: Vec<_> = versions.map(|version| version.unwrap().path()).collect();
    versions.sort();
    versions.pop().expect("the package postgresql").join("bin")
}

#[test]
#[ignore = "servers under load, half a minute: cargo xtask test-all"]
fn stacks_of_debian_programs_are_complete() {
    let folder = ServerFolder::new();
    check(
        "sqlite3",
        start(&folder, &["/usr/bin/sqlite3", ":memory:", QUERY]),
    );
    check("python3", start(&folder, &["/usr/bin/python3", "-c", SCRIPT]));

    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port = port.to_string();
    let redis = ["/usr/bin/redis-server", "--port", &port, "--save", ""];
    let recorder = start(&folder, &redis);
    wait_for("redis-cli", &["-p", &port, "ping"]);
    run(
        "redis-benchmark",
        &["-p", &port, "-n", "200000", "-q", "-t", "set,get,lpush,sadd"],
    );
    let _ = Command::new("redis-cli")
        .args(["-p", &port, "shutdown", "nosave"])
        .output();
    check("redis-server", recorder);

    let bin = postgres();
    let program = |name: &str| bin.join(name).display().to_string();
    let data = folder.path("data").display().to_string();
    let sockets = folder.0.path().display().to_string();
    let user = ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"];
    let initdb = program("initdb");
    run(
        "setpriv",
        &[&user[..], &[&initdb, "-A", "trust", "-D", &data]].concat(),
    );
    let server = program("postgres");
    let options = [
        "-D",
        &data,
        "-k",
        &sockets,
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
    ];
    let recorder = start(&folder, &[&["setpriv"][..], &user, &[&server], &options].concat());
    let client = ["-h", &sockets, "-U", "postgres"];
    wait_for("pg_isready", &["-h", &sockets]);
    run("pgbench", &[&client[..], &["-i", "-s", "2", "postgres"]].concat());
    run(
        "pgbench",
        &[&client[..], &["-T", "5", "-c", "3", "postgres"]].concat(),
    );
    let pg_ctl = program("pg_ctl");
    run(
        "setpriv",
        &[&user[..], &[&pg_ctl, "stop", "-D", &data, "-m", "fast"]].concat(),
    );
    check("postgres", recorder);
}
