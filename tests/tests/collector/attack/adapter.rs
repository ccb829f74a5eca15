//! `backtrail dap --listen`: who can connect, attacks by web pages, files read, addresses fetched.

use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit of a response.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listening adapter.
pub struct Server {
    child: Child,
    /// The address that it prints.
    address: String,
}

impl Server {
    pub fn start(address: &str, options: &[&str]) -> Self {
        let mut command = command().unwrap();
        command.args(["dap", "--listen", address]).args(options);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn client(&self) -> Client<TcpStream> {
        Client::new(self.connect())
    }

    /// Returns its memory in kB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Ends it, and returns its stderr.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let mut errors = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        errors
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that speaks the protocol.
pub struct Client<S> {
    stream: BufReader<S>,
    seq: u64,
    /// All received messages.
    pub heard: Vec<Value>,
}

fn message(seq: u64, command: &str, arguments: &Value) -> String {
    let body = json!({"seq": seq, "type": "request", "command": command, "arguments": arguments}).to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

impl<S: Read + Write> Client<S> {
    fn new(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
            seq: 0,
            heard: Vec::new(),
        }
    }

    fn read(&mut self) -> Value {
        let mut header = String::new();
        self.stream.read_line(&mut header).unwrap();
        let length = header.strip_prefix("Content-Length: ").unwrap();
        self.stream.read_line(&mut header.clone()).unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    pub fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        self.seq += 1;
        let text = message(self.seq, command, arguments);
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        loop {
            let message = self.read();
            self.heard.push(message.clone());
            if message["type"] == "response" && message["request_seq"] == self.seq {
                return message;
            }
        }
    }

    fn launch(&mut self, arguments: &Value) -> Value {
        self.ask("initialize", &json!({"adapterID": "attack"}));
        let launched = self.ask("launch", arguments);
        self.ask("configurationDone", &json!({}));
        launched
    }
}

/// Reads until the peer closes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    all
}

/// Records a program whose debug information names a secret file as its source.
fn spying(folder: &Path) -> (Bundle, PathBuf) {
    let secret = folder.join("secret");
    std::fs::write(&secret, "TOP SECRET LINE 1\nand 2\nand 3\nand 4\n").unwrap();
    let code = format!(
        "#line 1 \"{}\"\nint f(int x){{ if(x==2) *(volatile int*)0=1; return x; }}\n\
         int main(void){{ for(int i=0;i<4;i++) f(i); return 0; }}\n",
        secret.display()
    );
    let (source, program) = (folder.join("spy.c"), folder.join("spy"));
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let bundle = Bundle::made(&["record"], &["--".as_ref(), program.as_ref()]).0;
    (bundle, secret)
}

/// Returns a server that does not respond, and its address. The listener shows whether a client
/// connected.
fn watched() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

#[test]
fn a_web_page_cannot_drive_the_adapter() {
    let server = Server::start("127.0.0.1:0", &["--allow-origin", "http://127.0.0.1"]);
    let (internal, address) = watched();
    let body = [
        message(1, "initialize", &json!({"adapterID": "x"})),
        message(
            2,
            "launch",
            &json!({"bundle": format!("{address}/internal/action?do=it")}),
        ),
    ]
    .concat();
    let length = body.len();
    for head in [
        format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n\
             Content-Length: {length}\r\n\r\n",
            server.address
        ),
        format!("PUT / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"),
        // Requests of WebSocket, TURN and TLS, which a page can also open.
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n".to_owned(),
        "\0\u{3}\0\u{8}".to_owned(),
        "\u{16}\u{3}\u{1}".to_owned(),
        // A name that a page may give to a field of a form.
        "--Content-Length: 9\r\n".to_owned(),
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        assert_eq!(
            String::from_utf8_lossy(&rest(&mut stream)),
            "",
            "{head:?} was answered"
        );
    }
    assert!(
        internal.accept().is_err(),
        "the adapter asked the internal service"
    );
    // An editor that connects is served as before.
    assert_eq!(server.client().ask("initialize", &json!({}))["success"], true);
    let errors = server.end();
    assert!(errors.contains("refused a client"), "{errors}");
    assert!(errors.lines().count() < 4, "{errors}");
}

#[test]
fn message_inside_another_message_is_ignored() {
    let server = Server::start("127.0.0.1:0", &[]);
    let mut client = server.client();
    assert_eq!(client.ask("initialize", &json!({}))["success"], true);
    // Invalid JSON that contains a message.
    let inner = message(99, "launch", &json!({"bundle": "/nowhere"}));
    let outer = format!("Content-Length: {}\r\n\r\nno JSON {inner}", inner.len() + 8);
    client.stream.get_mut().write_all(outer.as_bytes()).unwrap();
    assert_eq!(client.read()["event"], "output");
    // The next response belongs to the next message.
    assert_eq!(client.ask("threads", &json!({}))["command"], "threads");
    for wrong in [
        "Host: a\r\n",
        "Content-Length: 2\r\nOrigin: https://evil.example\r\n\r\n{}",
    ] {
        let mut client = server.client();
        assert_eq!(client.ask("initialize", &json!({}))["success"], true);
        let text = format!("{wrong}{}", message(7, "threads", &json!({})));
        let _ = client.stream.get_mut().write_all(text.as_bytes());
        assert_eq!(rest(client.stream.get_mut()), b"", "{wrong:?} was read over");
    }
}

#[test]
fn endless_headers_end_the_connection() {
    let server = Server::start("127.0.0.1:0", &[]);
    let before = server.memory();
    for begin in ["Content-Length: ", "Content-Length: 2\r\nContent-Type: "] {
        let mut stream = server.connect();
        let _ = stream.write_all(begin.as_bytes());
        let begun = Instant::now();
        let piece = [b'1'; 1 << 16];
        let mut sent = 0;
        while sent < 40 << 20 && stream.write_all(&piece).is_ok() {
            sent += piece.len();
        }
        // The client may have sent as much as the kernel buffers.
        assert!(sent < 20 << 20, "{sent} bytes of a header were taken");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    let more = server.memory().saturating_sub(before);
    assert!(more < 8 << 10, "{more} kB more");
}

#[test]
fn addresses_of_other_machines_are_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let run = backtrail(["dap", "--listen", address]).unwrap().exited(2);
        assert!(run.stderr.contains("not a loopback address"), "{}", run.stderr);
    }
}

/// Returns whether the tests run as root, which alone can change to another user.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can try it as another user");
    }
    is_root
}

/// Runs a program as user `nobody`, and returns its output.
fn as_nobody(program: &str, arguments: &[&str]) -> String {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").uid(65534).gid(65534);
    let output = command.output().unwrap();
    assert!(output.status.code().is_some());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Connects by TCP or a Unix socket, sends a request, and prints the response. Python has both.
const ASK: &str = "
import socket, sys
where, text = sys.argv[1:]
if where.startswith('unix:'):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(where[5:])
else:
    stream = socket.create_connection(where.rsplit(':', 1))
print('connected')
try:
    stream.sendall(text.encode())
    print(stream.recv(65536).decode())
except ConnectionError:
    pass
";

#[test]
fn another_user_is_not_served() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}", dir.path().join("socket").display());
    let asked = message(1, "initialize", &json!({"adapterID": "x"}));
    for address in ["127.0.0.1:0", "127.0.0.3:0", &unix] {
        let server = Server::start(address, &[]);
        // The check must be the kernel's: the test loosens the file modes.
        if let Some(path) = server.address.strip_prefix("unix:") {
            for (path, mode) in [(dir.path(), 0o755), (Path::new(path), 0o777)] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
            }
        }
        let arguments = ["-c", ASK, &server.address, &asked];
        let answer = as_nobody("python3", &arguments);
        assert_eq!(answer.trim(), "connected", "{address}");
        let mine = Command::new("python3").args(arguments).output().unwrap();
        let mine = String::from_utf8_lossy(&mine.stdout).into_owned();
        assert!(mine.contains("\"success\":true"), "{address}: {mine}");
        assert!(server.end().contains("belongs to another user"), "{address}");
    }
}

#[test]
fn a_unix_socket_is_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let address = format!("unix:{}", path.display());
    for _ in 0..2 {
        // The second start finds the socket of the first.
        let server = Server::start(&address, &[]);
        assert_eq!(server.address, address);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = Client::new(UnixStream::connect(&path).unwrap());
        assert_eq!(client.ask("initialize", &json!({}))["success"], true);
        let run = backtrail(["dap", "--listen", &address]).unwrap().exited(1);
        assert!(run.sentence().contains("cannot listen"), "{}", run.stderr);
    }
}

/// Returns the text that a session reads from a source file outside the bundle, by each such
/// request.
fn texts<S: Read + Write>(client: &mut Client<S>, secret: &Path) -> String {
    let source = json!({"sourceReference": 0, "source": {"path": secret}});
    let evaluate = |command: &str| json!({"expression": command, "context": "repl"});
    let mut all = client.ask("source", &source).to_string();
    for command in [
        "list 1,4",
        "where",
        "frame",
        "search TOP",
        "search SECRET",
        "reverse-step",
        "disassemble /s",
    ] {
        all += &client.ask("evaluate", &evaluate(command)).to_string();
    }
    all
}

#[test]
fn clients_read_only_allowed_files() {
    let folder = TempDir::new().unwrap();
    let (bundle, secret) = spying(folder.path());
    let server = Server::start("127.0.0.1:0", &[]);
    let mut client = server.client();
    let launched = client.launch(&json!({"bundle": bundle.path}));
    assert_eq!(launched["success"], true, "{launched}");
    let source = json!({"sourceReference": 0, "source": {"path": secret}});
    let refused = client.ask("source", &source);
    assert_eq!(refused["success"], false);
    assert!(
        refused["message"].as_str().unwrap().contains("sourcePaths"),
        "{refused}"
    );
    let read = texts(&mut client, &secret);
    assert!(!read.contains("SECRET LINE"), "{read}");
    // A link in an allowed folder does not lead out of it.
    let work = TempDir::new().unwrap();
    std::os::unix::fs::symlink(&secret, work.path().join("secret")).unwrap();
    let mut client = server.client();
    client.launch(&json!({"bundle": bundle.path, "sourcePaths": [work.path()]}));
    let read = texts(&mut client, &secret);
    assert!(!read.contains("SECRET LINE"), "{read}");
    // Where the user allows it, it is read.
    let mut client = server.client();
    client.launch(&json!({"bundle": bundle.path, "sourcePaths": [folder.path()]}));
    let read = client.ask("source", &source);
    assert!(
        read["body"]["content"]
            .as_str()
            .unwrap()
            .starts_with("TOP SECRET"),
        "{read}"
    );
    assert!(texts(&mut client, &secret).matches("SECRET LINE").count() > 1);
}

#[test]
fn clients_fetch_only_from_allowed_servers() {
    let (internal, address) = watched();
    let asked = json!({"bundle": format!("{address}/internal/action?do=it")});
    for options in [
        &[][..],
        &["--allow-origin", "https://crash.example.com"],
        &["--allow-origin", "none"],
    ] {
        let server = Server::start("127.0.0.1:0", options);
        let launched = server.client().launch(&asked);
        assert_eq!(launched["success"], false, "{launched}");
        assert!(
            launched["message"].as_str().unwrap().contains("is not allowed"),
            "{launched}"
        );
    }
    assert!(internal.accept().is_err(), "it was asked");
    // The allowed one is.
    let server = Server::start("127.0.0.1:0", &["--allow-origin", &address]);
    let mut stream = server.connect();
    let text = [message(1, "initialize", &json!({})), message(2, "launch", &asked)].concat();
    stream.write_all(text.as_bytes()).unwrap();
    let begun = Instant::now();
    while internal.accept().is_err() {
        assert!(begun.elapsed() < PATIENCE, "it was not asked");
        std::thread::sleep(Duration::from_millis(20));
    }
}
