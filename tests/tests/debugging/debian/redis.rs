//! redis-server, which crashes on request: it catches the signal, writes its own report, and kills
//! itself.

use crate::debian::walk::{Crash, Step, present};
use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time limit, far above the real time.
const LIMIT: Duration = Duration::from_secs(60);

/// Records one run of Debian's redis-server. Returns `None`, with a message on stderr, if it is not
/// installed.
pub fn crash() -> Option<&'static Crash> {
    static CRASH: OnceLock<Option<Crash>> = OnceLock::new();
    CRASH
        .get_or_init(|| Some(recorded(present("/usr/bin/redis-server")?)))
        .as_ref()
}

/// A recorder that ends, with its program, when the test ends.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Records a server that handles several requests and then crashes on request.
pub fn recorded(server: &Path) -> Crash {
    let bundle = Bundle::empty();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let recorder = command()
        .unwrap()
        .args(["record", "--exit-zero", "--full", "-o"])
        .arg(&bundle.path)
        .arg("--")
        .arg(server)
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes"])
        .args(["--crash-memcheck-enabled", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(folder.path())
        .stdout(File::create(folder.path().join("log")).unwrap())
        .stderr(File::create(folder.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let mut recorder = Recorder(recorder);
    let mut stream = connected(&socket, &mut recorder.0);
    for request in ["SET greeting hello", "RPUSH list a b c", "LRANGE list 0 -1"] {
        assert!(asked(&mut stream, request), "{request}");
    }
    for _ in 0..20 {
        assert!(asked(&mut stream, "INCR visits"));
    }
    assert!(!asked(&mut stream, "DEBUG SEGFAULT"));
    assert!(recorder.0.wait().unwrap().success());
    let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
    assert!(said.contains("SIGSEGV killed"), "{said}");
    Crash {
        bundle,
        executable: server.to_path_buf(),
    }
}

fn connected(socket: &Path, recorder: &mut Child) -> UnixStream {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                return stream;
            }
            Err(error) if began.elapsed() > LIMIT || recorder.try_wait().unwrap().is_some() => {
                panic!("no server listens: {error}");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends a request, and returns whether an answer came.
fn asked(stream: &mut UnixStream, request: &str) -> bool {
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    // No answer is longer than this.
    stream.read(&mut [0; 256]).is_ok_and(|length| length > 0)
}

/// From the handler that wrote the report to the request that was served.
pub const WALK: &[Step] = &[
    (
        "crash",
        &[
            "SIGSEGV (segmentation fault): sent by kill",
            "sigsegvHandler has been handling a signal since t",
            "goes to debugCommand",
            "<signal handler called>",
        ],
    ),
    (
        "backtrace",
        &[
            "kill",
            "in sigsegvHandler ()",
            "in debugCommand ()",
            "in processCommand ()",
            "in aeMain ()",
            "in main ()",
        ],
    ),
    ("info threads", &["* ", "\"redis-server\"", "crashed"]),
    ("thread apply all backtrace 1", &["Thread ", "#0  "]),
    ("info sharedlibrary", &["/usr/bin/redis-"]),
    ("info ptwrites", &["executed no PTWRITE"]),
    ("count debugCommand", &["debugCommand: 1 call\n"]),
    ("count incrCommand", &["incrCommand: 20 calls\n"]),
    ("break debugCommand", &["in debugCommand"]),
    ("reverse-continue", &["Breakpoint 1, ", "in debugCommand ()"]),
    ("reverse-finish", &["in call ()", "call "]),
    ("back", &["in debugCommand ()"]),
    ("calls --depth 1", &["→ debugCommand  ["]),
    ("last sigsegvHandler", &["in sigsegvHandler ()"]),
    (
        "backtrace 2",
        &[
            "#0  ",
            "in sigsegvHandler ()",
            "<signal handler called>",
            "in debugCommand ()",
        ],
    ),
    ("reverse-stepi", &["mmap", "ret"]),
    ("backtrace 2", &["mmap", "in debugCommand ()"]),
    ("print $rip", &["mmap"]),
    ("x/2i $rip", &["=> 0x", ":\tret"]),
    ("callers incrCommand", &["      20  call"]),
    (
        "latency processCommand",
        &["processCommand: 24 calls\n", "p50", "off-CPU"],
    ),
    (
        "slowest processCommand 3",
        &["processCommand from processInputBuffer"],
    ),
    (
        "timeline incrCommand",
        &[
            "\"redis-server\"",
            "░",
            "incrCommand: 20 calls",
            "S signal",
            "X SIGSEGV",
        ],
    ),
    (
        "search ^(rpush|set|lrange)Command$",
        &[
            "       1  lrangeCommand",
            "       1  rpushCommand",
            "       1  setCommand",
        ],
    ),
    ("goto start", &["_start"]),
    ("break incrCommand if $hits == 20", &["incrCommand"]),
    ("continue", &["Breakpoint 2, ", "in incrCommand ()"]),
    ("finish", &["in call ()"]),
    (
        "info registers rip rax",
        &["rax            0x0", "implied by the branch at t", "rip "],
    ),
];

#[test]
fn crash_is_found_through_its_signal_handler() {
    let Some(crash) = crash() else { return };
    crash.walk(WALK);
    // The handler's own position, and steps over the signal in both directions.
    let view = &crash.ask(&["crash"])[0];
    let handler = view["handler"]["position"].as_str().unwrap();
    assert_eq!(view["handler"]["handler"], "sigsegvHandler");
    assert_eq!(view["handler"]["interrupted"], "debugCommand");
    crash.comes_back(&format!("goto {handler}"), "reverse-stepi", "stepi", 5);
    crash.comes_back("last processCommand", "reverse-stepi", "stepi", 10);
}

#[test]
fn function_without_lines_keeps_its_name() {
    let Some(crash) = crash() else { return };
    let arguments = [
        OsStr::new("debug"),
        crash.bundle.path.as_ref(),
        "--batch".as_ref(),
        "-e".as_ref(),
        "list debugCommand".as_ref(),
    ];
    let refused = backtrail(arguments).unwrap().exited(1).stdout;
    assert!(
        refused.contains("debugCommand has no line information"),
        "{refused}"
    );
}

#[test]
fn stacks_and_registers_are_gdbs() {
    let Some(crash) = crash().filter(|_| have_gdb()) else {
        return;
    };
    let commands = [
        "x/4xg $rsp",
        "x/2i $rip",
        "print $rip",
        "print/x $rsp",
        "print/x $rdi",
    ];
    let ours = ours(&crash.bundle, &commands);
    let theirs = by_gdb(&crash.executable, &crash.bundle, &commands);
    assert_eq!(ours, theirs);
    crash.stack_is_gdbs();
}
