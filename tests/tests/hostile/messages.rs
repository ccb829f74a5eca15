//! Hostile messages of clients to the debug adapter and to the collector.

use crate::harness::fuzz;
use crate::{mutate, seeds};
use backtrail_collector::control;
use backtrail_collector::wire::{Connection, Listener, Reply, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A message with its header.
fn framed(sequence: usize, command: &str, arguments: Value) -> Vec<u8> {
    let body = json!({
        "seq": sequence,
        "type": "request",
        "command": command,
        "arguments": arguments,
    });
    let body = body.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A session of the debug adapter ends when the client closes its end, after any input.
#[test]
fn debug_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = seeds::bundle(folder.path());
    let session = [
        (
            "initialize",
            json!({"adapterID": "backtrail", "linesStartAt1": true}),
        ),
        ("launch", json!({"bundle": bundle})),
        ("configurationDone", json!({})),
        ("threads", json!({})),
        ("stackTrace", json!({"threadId": 1})),
        ("scopes", json!({"frameId": 1})),
        ("variables", json!({"variablesReference": 1})),
        ("evaluate", json!({"expression": "info gaps", "context": "repl"})),
        (
            "setInstructionBreakpoints",
            json!({"breakpoints": [{"instructionReference": "0x1000"}]}),
        ),
        ("stepBack", json!({"threadId": 1})),
        ("reverseContinue", json!({"threadId": 1})),
        (
            "disassemble",
            json!({"memoryReference": "0x1000", "instructionCount": 8}),
        ),
        ("readMemory", json!({"memoryReference": "0x1000", "count": 8})),
        ("disconnect", json!({})),
    ];
    let messages: Vec<Vec<u8>> = session
        .into_iter()
        .enumerate()
        .map(|(number, (command, arguments))| framed(number + 1, command, arguments))
        .collect();
    let seeds = [messages.concat(), messages[..3].concat(), messages[0].clone()];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    fuzz("debug_adapter", &seeds, mutate::bytes, |bytes| {
        // Nothing is fetched, so inputs with a URL are skipped.
        if bytes.windows(4).any(|word| word.eq_ignore_ascii_case(b"http")) {
            return false;
        }
        let output = tokio::io::sink();
        let (decoder, access) = (
            backtrail_dap::Decoder::lenient(),
            backtrail_dap::Access::default(),
        );
        let served = runtime.block_on(backtrail_dap::serve(bytes, output, decoder, access));
        served.unwrap();
        bytes.starts_with(b"Content-Length: ")
    });
}

/// HTTP to the collector's control socket: each connection ends, after any input.
#[test]
fn control_socket() {
    let head = "Host: localhost\r\nConnection: close\r\n";
    let seeds: Vec<Vec<u8>> = [
        format!("GET /metrics HTTP/1.1\r\n{head}\r\n"),
        format!("GET /health HTTP/1.1\r\nHost: x\r\n\r\nPOST /snapshot?pid=7 HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n"),
        format!("POST /snapshot HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
    ]
    .map(String::into_bytes)
    .to_vec();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    fuzz("control_socket", &seeds, mutate::bytes, |bytes| {
        let answered = std::cell::Cell::new(false);
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(64 << 10);
            let answer = |request| {
                answered.set(true);
                async move { control::ControlResponse::json(&json!({ "asked": format!("{request:?}") })) }
            };
            let ask = async {
                // The server may have closed its end.
                let _ = client.write_all(bytes).await;
                let _ = client.shutdown().await;
                let mut answers = Vec::new();
                let _ = client.read_to_end(&mut answers).await;
            };
            tokio::join!(control::serve(server, answer), ask);
        });
        answered.get()
    });
}

/// Messages to the collector's sockets, and its answers.
#[test]
fn recorder_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let client = Connection::open(&path).unwrap();
    let server = listener.accept().unwrap();
    let seeds: Vec<Vec<u8>> = [
        json!({"mind": {"pid": 7}}),
        json!({"crashed": {"pid": 7, "executable": "/bin/true"}}),
        json!({"deposit": {"pid": 7, "name": "true", "size": 77}}),
    ]
    .iter()
    .map(|message| message.to_string().into_bytes())
    .collect();
    fuzz("recorder_messages", &seeds, mutate::json, |bytes| {
        // An empty packet ends the connection.
        if bytes.is_empty() || client.send_chunk(bytes).is_err() {
            return false;
        }
        let request = server.receive::<Request>().is_ok();
        if client.send_chunk(bytes).is_ok() {
            let _ = server.receive::<Reply>();
        }
        request
    });
}
