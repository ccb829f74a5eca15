//! The debug adapter answers every message of a client, and the session continues.

use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use backtrail_tests::random::Random;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of requests that are sent before their responses are read.
const AT_ONCE: usize = 40;

const COMMANDS: &[&str] = &[
    "initialize",
    "configurationDone",
    "restart",
    "terminate",
    "cancel",
    "pause",
    "setBreakpoints",
    "setFunctionBreakpoints",
    "setInstructionBreakpoints",
    "setExceptionBreakpoints",
    "setDataBreakpoints",
    "breakpointLocations",
    "threads",
    "stackTrace",
    "scopes",
    "variables",
    "source",
    "continue",
    "next",
    "stepIn",
    "stepOut",
    "stepBack",
    "reverseContinue",
    "restartFrame",
    "gotoTargets",
    "goto",
    "disassemble",
    "readMemory",
    "evaluate",
    "completions",
    "exceptionInfo",
    "modules",
    "loadedSources",
    "backtrail/reverseStepIn",
    "backtrail/reverseNext",
    "backtrail/reverseStepOut",
    "backtrail/goto",
    "backtrail/back",
    "backtrail/forward",
    "backtrail/runToCall",
    "backtrail/trace",
    "backtrail/where",
    "backtrail/calls",
    "backtrail/callPath",
    "backtrail/timeline",
    "backtrail/latency",
    "backtrail/compare",
    "backtrail/bookmarks",
    "backtrail/functions",
    "backtrail/coverage",
    "backtrail/locals",
    "no such thing",
    "",
];

const NAMES: &[&str] = &[
    "threadId",
    "frameId",
    "variablesReference",
    "startFrame",
    "levels",
    "start",
    "count",
    "source",
    "breakpoints",
    "line",
    "endLine",
    "lines",
    "path",
    "sourceReference",
    "memoryReference",
    "instructionReference",
    "instructionOffset",
    "instructionCount",
    "offset",
    "expression",
    "context",
    "text",
    "column",
    "granularity",
    "targetId",
    "to",
    "from",
    "width",
    "depth",
    "function",
    "direction",
    "parent",
    "calls",
    "set",
    "remove",
    "name",
    "position",
    "condition",
    "hitCondition",
    "logMessage",
    "filter",
    "format",
    "filters",
    "sort",
    "requestId",
    "progressId",
    "hex",
];

const TEXTS: &[&str] = &[
    "",
    "main",
    "post",
    "ledger.c",
    "/nowhere/ledger.c",
    "c0",
    "c99999999999",
    "c#-5",
    "t1#1",
    "t4294967295#18446744073709551615",
    "#-3",
    "@-1ms",
    "crash",
    "start",
    "end",
    "0x0",
    "0xffffffffffffffff",
    "0x1",
    "-1",
    "repl",
    "watch",
    "hover",
    "instruction",
    "backward",
    "forward",
    "length",
    "reverse-step",
    "goto start",
    "print *account",
    "account->",
    "((((((((((",
    "{account} {",
    "break main if hits % 0",
    "timeline --columns 10000",
    "> 3",
    "% 0",
    "ä\u{0}\u{202e}\n\r\t",
    "x/4096xb $sp",
    "info registers",
    "list 999999999",
    "bookmark a",
    "indexed",
];

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth > 2 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.once_in(2)),
        2 => json!(random.below(300)),
        3 => json!(random.pick(&[
            -1i64,
            0,
            1,
            1 << 20,
            1 << 31,
            i64::MAX,
            i64::MIN,
            1048577,
            1048578
        ])),
        4 => json!(random.pick(&[0.5, -1e9, 1e300, f64::MAX])),
        5 => json!(random.pick(TEXTS)),
        6 | 7 => object(random, depth + 1),
        _ => (0..random.below(4)).map(|_| value(random, depth + 1)).collect(),
    }
}

fn object(random: &mut Random, depth: usize) -> Value {
    let fields = (0..random.below(7)).map(|_| (random.pick(NAMES).to_owned(), value(random, depth)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// A running adapter.
pub struct Adapter {
    child: Child,
    messages: Receiver<Value>,
    seq: u64,
}

impl Adapter {
    pub fn start() -> Self {
        Self::start_with(|command| command)
    }

    fn start_with(prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = command().unwrap();
        prepare(&mut command);
        command.arg("dap").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || read(output, &sender));
        Self {
            child,
            messages,
            seq: 0,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, command: &str, arguments: &Value) -> u64 {
        self.seq += 1;
        let body = json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments});
        let body = body.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        self.seq
    }

    /// Returns the responses to requests. None may report an internal error.
    fn answers(&mut self, mut asked: BTreeMap<u64, String>) -> Vec<Value> {
        let mut answers = Vec::new();
        while !asked.is_empty() {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{error}: no answer to {asked:?}"));
            let text = message.to_string();
            assert!(!text.contains("mistake in Backtrail"), "{text}");
            if message["type"] == "response" {
                let number = message["request_seq"].as_u64().unwrap();
                assert!(asked.remove(&number).is_some(), "answered twice: {text}");
                answers.push(message);
            }
        }
        answers
    }

    pub fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, &arguments);
        self.answers(BTreeMap::from([(seq, command.to_owned())]))
            .remove(0)
    }

    pub fn end(mut self) {
        assert_eq!(self.ask("disconnect", json!({}))["success"], true);
        assert!(self.child.wait().unwrap().success());
    }
}

fn read(mut output: BufReader<ChildStdout>, sender: &std::sync::mpsc::Sender<Value>) {
    loop {
        let mut header = String::new();
        output.read_line(&mut header).unwrap();
        let Some(length) = header.strip_prefix("Content-Length: ") else {
            return;
        };
        output.read_line(&mut header.clone()).unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        output.read_exact(&mut body).unwrap();
        if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
            return;
        }
    }
}

#[test]
fn any_request_is_answered() {
    let bundle = Bundle::recorded(find("ledger").unwrap(), Variant::Pie, &["--full"]).0;
    let mut adapter = Adapter::start();
    adapter.ask("initialize", json!({"adapterID": "any"}));
    let launched = adapter.ask("launch", json!({"bundle": bundle.path.to_str().unwrap()}));
    assert_eq!(launched["success"], true, "{launched}");
    adapter.ask("configurationDone", json!({}));
    let thread = adapter.ask("threads", json!({}))["body"]["threads"][0]["id"].clone();
    let mut random = Random::new(0xdab);
    let mut succeeded = 0;
    for _ in 0..100 {
        let mut asked = BTreeMap::new();
        for _ in 0..AT_ONCE {
            let mut arguments = object(&mut random, 0);
            if random.once_in(2) {
                arguments["threadId"] = thread.clone();
            }
            if random.once_in(9) {
                arguments = value(&mut random, 0);
            }
            let command = random.pick(COMMANDS);
            let seq = adapter.send(command, &arguments);
            asked.insert(seq, format!("{command} {arguments}"));
        }
        let answers = adapter.answers(asked);
        succeeded += answers.iter().filter(|answer| answer["success"] == true).count();
    }
    assert!(
        succeeded > 500,
        "{succeeded}: nearly nothing was understood, so nearly nothing was tried"
    );
    let threads = adapter.ask("threads", json!({}));
    assert_eq!(threads["body"]["threads"][0]["id"], thread);
    adapter.end();
}

#[test]
fn adapter_survives_invalid_bytes() {
    let mut adapter = Adapter::start();
    let mut random = Random::new(7);
    for _ in 0..300 {
        let mut body = json!({"seq": 1, "type": "event", "event": "x"})
            .to_string()
            .into_bytes();
        let length = match random.below(3) {
            0 => body.len(),
            1 => random.below(100),
            _ => body.len() + random.below(50),
        };
        for _ in 0..random.below(4) {
            let at = random.below(body.len());
            body[at] = random.next() as u8;
        }
        let header = random.pick(&[
            "Content-Length",
            "content-length",
            "Content-Lengt",
            "",
            "X: y\r\nContent-Length",
        ]);
        let mut message = format!("{header}: {length}\r\n\r\n").into_bytes();
        message.extend(body);
        adapter.write(&message);
    }
    // The rest of a packet with too large a length.
    adapter.write(&[b'\n'; 500]);
    assert_eq!(adapter.ask("initialize", json!({}))["success"], true);
    adapter.end();
}

#[test]
fn other_files_than_traces_are_refused_in_a_sentence() {
    let mut adapter = Adapter::start();
    let folder = tempfile::tempdir().unwrap();
    let rubbish = folder.path().join("rubbish.btz");
    std::fs::write(&rubbish, [7; 999]).unwrap();
    for bundle in [
        json!(rubbish.to_str().unwrap()),
        json!(folder.path().to_str().unwrap()),
        json!("/nowhere/at/all.btz"),
        json!("http://example.com/a.btz"),
        json!("https://user@127.0.0.1/a.btz"),
        json!(""),
        json!(7),
        Value::Null,
    ] {
        let answer = adapter.ask("launch", json!({"bundle": bundle}));
        assert_eq!(answer["success"], false, "{bundle}");
        let sentence = answer["message"].as_str().unwrap();
        assert!(
            sentence.len() > 10 && !sentence.contains('\n'),
            "{bundle}: {sentence}"
        );
        assert_eq!(adapter.ask("threads", json!({}))["success"], false);
    }
    adapter.end();
}

/// A server for the folder over TLS, which prints its port.
const SERVER: &str = "
import http.server, ssl
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.pem', 'server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

/// A certificate authority, and a server certificate that it signed.
const CERTIFICATES: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority \
    -addext basicConstraints=critical,CA:TRUE
openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost\\nextendedKeyUsage=serverAuth\\n' > names
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names
";

#[test]
fn trace_is_fetched_over_https_from_trusted_servers() {
    let there = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if !there("openssl") || !there("python3") {
        eprintln!("skipped: no openssl or no python3");
        return;
    }
    let bundle = Bundle::recorded(find("ledger").unwrap(), Variant::Pie, &["--full"]).0;
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("ledger.btz");
    let pack = [
        "pack".as_ref(),
        bundle.path.as_os_str(),
        "-o".as_ref(),
        packed.as_os_str(),
    ];
    let _ = backtrail(pack).unwrap().exited(0);
    let made = Command::new("sh")
        .args(["-ec", CERTIFICATES])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut server = Command::new("python3");
    server.args(["-c", SERVER]).current_dir(folder.path());
    server.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut port)
        .unwrap();
    let address = format!("https://localhost:{}/ledger.btz", port.trim());
    let launch = |authority: Option<&str>, bundle: &str| {
        let mut adapter = Adapter::start_with(|command| match authority {
            Some(file) => command.env("SSL_CERT_FILE", folder.path().join(file)),
            None => command.env_remove("SSL_CERT_FILE"),
        });
        let answer = adapter.ask("launch", json!({ "bundle": bundle }));
        adapter.end();
        answer
    };
    let unknown = launch(None, &address);
    let known = launch(Some("ca.pem"), &address);
    let other = launch(Some("ca.pem"), &address.replace("localhost", "127.0.0.1"));
    let missing = launch(Some("ca.pem"), &format!("{address}.no"));
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(known["success"], true, "{known}");
    assert!(
        unknown["message"].as_str().unwrap().contains("UnknownIssuer"),
        "{unknown}"
    );
    assert!(
        other["message"].as_str().unwrap().contains("certificate"),
        "{other}"
    );
    assert!(missing["message"].as_str().unwrap().contains("404"), "{missing}");
}
