//! The symbol service of a real hub: debug files that come late, debuginfod, and foreign clients.

mod frames;
mod pushed;

use super::crash;
use backtrail_tests::backtrail::command;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time from a debug file's upload to the group by functions.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub of the built program.
struct Hub {
    child: Child,
    address: String,
    token: String,
    /// Tokens that may only upload, and only read.
    wrong_tokens: [String; 2],
    folder: tempfile::TempDir,
}

/// An answer of the hub.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the hub under test. `None`: the variable that names it is not set.
fn program() -> Option<PathBuf> {
    let found = std::env::var_os("BACKTRAIL_HUB_BIN");
    if found.is_none() {
        eprintln!("left out: BACKTRAIL_HUB_BIN names no hub");
    }
    found.map(|path| backtrail_tests::backtrail::repository().join(path))
}

impl Hub {
    fn start(program: &Path, symbols: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = folder.path().join("hub.toml");
        fs::write(&config, format!("listen = \"{free}\"\n[symbols]\n{symbols}\n")).unwrap();
        let data = folder.path().join("data");
        let hub = |arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).arg("--config").arg(&config);
            command.arg("--data").arg(&data).stdin(Stdio::null());
            command
        };
        let token = |scopes: &[&str]| {
            let made = hub(&[&["token", "tests"], scopes].concat()).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            String::from_utf8(made.stdout).unwrap().trim().to_owned()
        };
        let wrong_tokens = [token(&["--scope", "ingest"]), token(&["--scope", "read"])];
        let token = token(&["--scope", "ingest", "--scope", "read"]);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut child = hub(&[]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self {
            child,
            address,
            token,
            wrong_tokens,
            folder,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Sends a request with these lines in its head.
    fn request(&self, method: &str, path: &str, head: &[String], body: &[u8]) -> Answer {
        let place = self.address.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = head.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n{head}\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        // A hub that refuses a large body closes the connection early.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            body: answer[end + 4..].to_vec(),
            head,
        }
    }

    fn authorization(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[self.authorization()], b"")
    }

    /// Returns the title of the only group, and whether it comes from addresses only.
    fn title(&self) -> Option<String> {
        let groups = self.get("/api/v1/groups").json();
        let text = groups.to_string();
        let list = groups["groups"].as_array().unwrap_or_else(|| panic!("{text}"));
        assert!(list.len() <= 1, "{text}");
        Some(list.first()?["title"].as_str().unwrap().to_owned())
    }

    /// Waits until the crash is stored, and returns the title of its group.
    fn title_of_stored(&self, crash: &str) -> String {
        let start = Instant::now();
        loop {
            let found = self.get(&format!("/api/v1/crashes/{crash}")).json();
            if found["bundle"] == "stored" {
                return self.title().unwrap();
            }
            assert_ne!(found["bundle"], "refused", "{found}");
            assert!(start.elapsed() < PATIENCE, "{found}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the group's title has a word.
    fn wait_for_title(&self, word: &str) {
        let start = Instant::now();
        while !self.title().is_some_and(|title| title.contains(word)) {
            assert!(start.elapsed() < PATIENCE, "{:?}\n{}", self.title(), self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn push(&self, bundle: &Path) -> String {
        let output = command()
            .unwrap()
            .args([
                "push".as_ref(),
                bundle.as_os_str(),
                "--hub".as_ref(),
                self.address.as_ref(),
            ])
            .env("BACKTRAIL_HUB_TOKEN", &self.token)
            .env("HOME", self.folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text.trim().rsplit('/').next().unwrap().to_owned()
    }

    /// Uploads a file by TUS, and returns the status.
    fn upload(&self, file: &Path, build_id: &str) -> u16 {
        let content = fs::read(file).unwrap();
        let digest = output("sha256sum", &[file.as_os_str()]);
        let digest = digest.split(' ').next().unwrap();
        let pairs = [("kind", "debug"), ("subject", build_id), ("sha256", digest)];
        let metadata: Vec<_> = pairs
            .iter()
            .map(|(key, value)| format!("{key} {}", base64(value)))
            .collect();
        let head = [
            self.authorization(),
            "Tus-Resumable: 1.0.0".to_owned(),
            format!("Upload-Length: {}", content.len()),
            format!("Upload-Metadata: {}", metadata.join(",")),
            "Content-Type: application/offset+octet-stream".to_owned(),
        ];
        self.request("POST", "/api/v1/uploads", &head, &content).status
    }

    /// Waits for the status of an address.
    fn wait_for(&self, path: &str, status: u16) -> Answer {
        let start = Instant::now();
        loop {
            let answer = self.get(path);
            if answer.status == status {
                return answer;
            }
            assert!(start.elapsed() < PATIENCE, "{}\n{}", answer.head, self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn output(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}");
    String::from_utf8(output.stdout).unwrap()
}

fn base64(text: &str) -> String {
    let mut child = Command::new("base64")
        .arg("-w0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// A crash of a stripped program, and the program's debug file.
struct Stripped {
    folder: tempfile::TempDir,
    bundle: PathBuf,
    build_id: String,
}

impl Stripped {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The first recording only builds the program.
        let _ = crash(folder.path());
        let path = |name: &str| folder.path().join(name).into_os_string();
        let (program, debug) = (path("ledger"), path("ledger.debug"));
        let _ = output("objcopy", &["--only-keep-debug".as_ref(), &program, &debug]);
        let _ = output("strip", &[&program]);
        let notes = output("readelf", &["-n".as_ref(), &program]);
        let build_id = notes.split("Build ID: ").nth(1).unwrap();
        let build_id = build_id.split_whitespace().next().unwrap().to_owned();
        let bundle = folder.path().join("stripped.bundle");
        let recorded = command()
            .unwrap()
            .args([
                "record".as_ref(),
                "--exit-zero".as_ref(),
                "-o".as_ref(),
                bundle.as_os_str(),
                "--".as_ref(),
            ])
            .arg(&program)
            .output()
            .unwrap();
        assert!(recorded.status.success(), "{recorded:?}");
        Self {
            folder,
            bundle,
            build_id,
        }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    fn debug(&self) -> PathBuf {
        self.folder.path().join("ledger.debug")
    }
}

#[test]
fn late_debug_file_regroups_within_a_minute() {
    let Some(program) = program() else { return };
    let (hub, stripped) = (Hub::start(&program, ""), Stripped::new());
    let id = hub.push(&stripped.bundle);
    let title = hub.title_of_stored(&id);
    assert!(!title.contains("post"), "{title}");
    let path = format!("/buildid/{}/debuginfo", stripped.build_id);
    // The stripped program came with the bundle, and is no debug information.
    assert_eq!(hub.get(&path).status, 404);
    let executable = hub.get(&format!("/buildid/{}/executable", stripped.build_id));
    assert_eq!(executable.body, fs::read(stripped.program()).unwrap());
    assert_eq!(hub.upload(&stripped.program(), &stripped.build_id), 201);
    assert_eq!(hub.upload(&stripped.debug(), &stripped.build_id), 201);
    hub.wait_for_title("post");
    assert_eq!(hub.get(&path).body, fs::read(stripped.debug()).unwrap());
    let page = hub.get(&format!("/c/{id}"));
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("ledger.c"), "{page}");
    assert!(page.contains("New symbols were applied"), "{page}");
    // A second crash finds the symbols at once.
    let again = tempfile::tempdir().unwrap();
    let bundle = again.path().join("again.bundle");
    let _ = output(
        "cp",
        &["-r".as_ref(), stripped.bundle.as_os_str(), bundle.as_os_str()],
    );
    assert_eq!(hub.title_of_stored(&hub.push(&bundle)), hub.title().unwrap());
}

#[test]
fn rebuilt_index_has_uploaded_debug_files() {
    let Some(program) = program() else { return };
    let (mut hub, stripped) = (Hub::start(&program, ""), Stripped::new());
    let path = format!("/buildid/{}/debuginfo", stripped.build_id);
    assert_eq!(hub.upload(&stripped.debug(), &stripped.build_id), 201);
    let _ = hub.wait_for(&path, 200);
    hub.child.kill().unwrap();
    let _ = hub.child.wait().unwrap();
    let (config, data) = (hub.folder.path().join("hub.toml"), hub.folder.path().join("data"));
    let command = || {
        let mut command = Command::new(&program);
        command.arg("--config").arg(&config).arg("--data").arg(&data);
        command
    };
    let rebuilt = command().arg("rebuild-index").output().unwrap();
    assert!(
        rebuilt.status.success(),
        "{}",
        String::from_utf8_lossy(&rebuilt.stderr)
    );
    let mut child = command().stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    hub.child = child;
    assert_eq!(hub.get(&path).body, fs::read(stripped.debug()).unwrap());
}

#[test]
fn sentry_cli_uploads_debug_files() {
    let Some(program) = program() else { return };
    let Some(client) = sentry_cli() else { return };
    let (hub, stripped) = (Hub::start(&program, ""), Stripped::new());
    let id = hub.push(&stripped.bundle);
    let title = hub.title_of_stored(&id);
    assert!(!title.contains("post"), "{title}");
    let upload = |file: &Path, more: &[&str]| {
        let output = Command::new(&client)
            .args([
                "debug-files",
                "upload",
                "--org",
                "team",
                "--project",
                "ledger",
                "--wait",
            ])
            .args(more)
            .arg(file)
            .env("SENTRY_URL", &hub.address)
            .env("SENTRY_AUTH_TOKEN", &hub.token)
            .env("HOME", hub.folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (is_done, text) = upload(&stripped.debug(), &[]);
    assert!(is_done && text.contains("OK"), "{text}\n{}", hub.log());
    hub.wait_for_title("post");
    // A file that is there already is not sent again.
    let (is_done, text) = upload(&stripped.debug(), &[]);
    assert!(is_done && !text.contains("Uploaded 1"), "{text}");
    // The hub takes no source files, and says so.
    let (_, text) = upload(
        &stripped.folder.path().join("ledger.debug"),
        &["--include-sources"],
    );
    assert!(!text.contains("panicked"), "{text}");
    let page = hub.get(&format!("/buildid/{}/debuginfo", stripped.build_id));
    assert_eq!(page.body, fs::read(stripped.debug()).unwrap());
}

/// Returns `sentry-cli`, if it is installed.
fn sentry_cli() -> Option<PathBuf> {
    let named = std::env::var_os("BACKTRAIL_SENTRY_CLI").map(PathBuf::from);
    let python = std::env::var_os("PYTHONPATH").map(|path| PathBuf::from(path).join("bin/sentry-cli"));
    let mut candidates = [named, python, Some("sentry-cli".into())].into_iter().flatten();
    let found = candidates.find(|path| {
        let version = Command::new(path).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("left out: sentry-cli is not installed; see docs/hub-symbols.md");
    }
    found
}

#[test]
fn debuginfod_clients_get_equal_bytes() {
    let Some(program) = program() else { return };
    let (hub, stripped) = (Hub::start(&program, "public = true"), Stripped::new());
    assert_eq!(hub.upload(&stripped.debug(), &stripped.build_id), 201);
    let base = format!("/buildid/{}", stripped.build_id);
    let debug = fs::read(stripped.debug()).unwrap();
    let answer = hub.wait_for(&format!("{base}/debuginfo"), 200);
    assert_eq!(answer.body, debug);
    assert_eq!(
        answer.header("x-debuginfod-size"),
        Some(&*debug.len().to_string())
    );
    assert_eq!(
        answer.header("x-debuginfod-file"),
        Some(&*format!("{}.debug", stripped.build_id))
    );
    assert_eq!(hub.get(&format!("{base}/executable")).status, 404);
    let ranged = [hub.authorization(), "Range: bytes=4-7".to_owned()];
    let part = hub.request("GET", &format!("{base}/debuginfo"), &ranged, b"");
    assert_eq!((part.status, &part.body[..]), (206, &debug[4..8]));
    let section = hub.get(&format!("{base}/section/.debug_info"));
    let copy = stripped.folder.path().join("section");
    let dump = format!("--dump-section=.debug_info={}", copy.display());
    let discard = stripped.folder.path().join("discard");
    let _ = output(
        "objcopy",
        &[dump.as_ref(), stripped.debug().as_os_str(), discard.as_os_str()],
    );
    assert_eq!((section.status, section.body), (200, fs::read(copy).unwrap()));
    with_debuginfod_find(&hub.address, &stripped, &debug, None);
    with_gdb(&hub, &stripped);
}

/// Fetches the debug file with elfutils' client, which sends the headers of a file.
fn with_debuginfod_find(address: &str, stripped: &Stripped, debug: &[u8], headers: Option<&Path>) {
    let home = tempfile::tempdir().unwrap();
    let mut client = Command::new("debuginfod-find");
    client
        .args(["debuginfo", &stripped.build_id])
        .env("DEBUGINFOD_URLS", address)
        .env("HOME", home.path());
    if let Some(headers) = headers {
        client.env("DEBUGINFOD_HEADERS_FILE", headers);
    }
    let Ok(found) = client.output() else {
        eprintln!("left out: debuginfod-find is not installed (Debian package debuginfod)");
        return;
    };
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    let path = String::from_utf8(found.stdout).unwrap();
    assert_eq!(fs::read(path.trim()).unwrap(), debug);
}

fn with_gdb(hub: &Hub, stripped: &Stripped) {
    let features = Command::new("gdb").arg("--configuration").output();
    let has_client =
        features.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--with-debuginfod"));
    if !has_client {
        eprintln!("left out: gdb has no debuginfod");
        return;
    }
    let gdb = Command::new("gdb")
        .args([
            "--batch",
            "-nx",
            "-iex",
            "set debuginfod enabled on",
            "-ex",
            "info line post",
        ])
        .arg(stripped.program())
        .env("DEBUGINFOD_URLS", &hub.address)
        .env("HOME", hub.folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&gdb.stdout).into_owned();
    assert!(
        text.contains("Line 1 of"),
        "{text}{}",
        String::from_utf8_lossy(&gdb.stderr)
    );
}

#[test]
fn strangers_and_traversal_get_nothing() {
    let Some(program) = program() else { return };
    let (hub, stripped) = (Hub::start(&program, ""), Stripped::new());
    assert_eq!(hub.upload(&stripped.debug(), &stripped.build_id), 201);
    let base = format!("/buildid/{}", stripped.build_id);
    let _ = hub.wait_for(&format!("{base}/debuginfo"), 200);
    for path in [
        format!("{base}/debuginfo"),
        format!("{base}/executable"),
        format!("{base}/section/.text"),
        format!("{base}/source/a.c"),
        "/api/0/organizations/team/chunk-upload/".to_owned(),
    ] {
        assert_eq!(hub.request("GET", &path, &[], b"").status, 401, "{path}");
        let wrong = [format!("Authorization: Bearer bthub_{}", "0".repeat(64))];
        assert_eq!(hub.request("GET", &path, &wrong, b"").status, 401, "{path}");
    }
    let [uploads, reads] = &hub.wrong_tokens;
    for (path, token) in [
        (format!("{base}/debuginfo"), uploads),
        (format!("{base}/section/.text"), uploads),
        ("/api/0/organizations/team/chunk-upload/".to_owned(), reads),
    ] {
        let wrong = [format!("Authorization: Bearer {token}")];
        assert_eq!(hub.request("GET", &path, &wrong, b"").status, 403, "{path}");
    }
    let headers = hub.folder.path().join("headers");
    fs::write(&headers, format!("{}\n", hub.authorization())).unwrap();
    let debug = fs::read(stripped.debug()).unwrap();
    with_debuginfod_find(&hub.address, &stripped, &debug, Some(&headers));
    for path in [
        "/buildid/../../etc/passwd/debuginfo".to_owned(),
        "/buildid/..%2f..%2fetc%2fpasswd/debuginfo".to_owned(),
        "/buildid/ABCD/debuginfo".to_owned(),
        format!("/buildid/{}/debuginfo", "a".repeat(4000)),
        format!("{base}/source/../../../etc/passwd"),
        format!("{base}/source/%2e%2e/%2e%2e/etc/passwd"),
        format!("{base}/source/..%2f..%2fetc%2fpasswd"),
        format!("{base}/source//etc/passwd"),
        format!("{base}/section/..%2f..%2fetc%2fpasswd"),
        format!("{base}/section/--target=%2ftmp%2fx"),
        format!("{base}/section/.text"),
        format!("{base}/section/{}", "x".repeat(500)),
    ] {
        let answer = hub.get(&path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.head);
    }
    assert_eq!(hub.get(&format!("{base}/source/a%00b")).status, 400);
    // Uploads with a foreign build id, or without a valid one, are refused.
    assert_eq!(hub.upload(&stripped.debug(), "../../x"), 400);
    assert_eq!(hub.upload(&stripped.debug(), "abcdef01"), 400);
    assert_eq!(hub.get("/buildid/abcdef01/debuginfo").status, 404);
}

#[test]
fn damaged_chunks_and_bombs_are_refused() {
    let Some(program) = program() else { return };
    let hub = Hub::start(&program, "");
    let send = |name: &str, sha1: &str, content: &[u8]| {
        let mut body =
            format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{sha1}\"\r\n\r\n")
                .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--x--\r\n");
        let head = [
            hub.authorization(),
            "Content-Type: multipart/form-data; boundary=x".to_owned(),
        ];
        hub.request("POST", "/api/0/organizations/team/chunk-upload/", &head, &body)
    };
    let zeros = hub.folder.path().join("zeros");
    fs::write(&zeros, vec![0; 256 << 20]).unwrap();
    let _ = output("gzip", &[zeros.as_os_str()]);
    let bomb = fs::read(zeros.with_extension("gz")).unwrap();
    let digest = "0".repeat(40);
    let answer = send("file_gzip", &digest, &bomb);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 400, "{text}");
    assert!(
        text.contains("\"detail\":\"a chunk has 1 to 4194304 bytes"),
        "{text}"
    );
    assert_eq!(send("file", &digest, b"other").status, 400);
    assert_eq!(send("file", "../../etc/passwd", b"other").status, 400);
    assert_eq!(send("other", &digest, b"other").status, 400);
    assert_eq!(send("file", &digest, &vec![0; 30 << 20]).status, 413);
    // An archive is a file like others, until the child process reads it.
    let archive = b"PK\x03\x04 an archive of sources";
    let path = hub.folder.path().join("archive");
    fs::write(&path, archive).unwrap();
    let sha1 = output("sha1sum", &[path.as_os_str()]);
    let sha1 = sha1.split(' ').next().unwrap();
    let assemble = |chunk: &str| {
        let head = [hub.authorization(), "Content-Type: application/json".to_owned()];
        let body = format!("{{\"{sha1}\": {{\"name\": \"a\", \"chunks\": [\"{chunk}\"]}}}}");
        let path = "/api/0/projects/team/ledger/files/difs/assemble/";
        hub.request("POST", path, &head, body.as_bytes())
    };
    assert_eq!(assemble("../x").status, 400);
    assert_eq!(assemble(sha1).json()[sha1]["state"], "not_found");
    assert_eq!(assemble(sha1).json()[sha1]["missingChunks"][0], sha1);
    assert_eq!(send("file", sha1, archive).status, 200);
    let start = Instant::now();
    let refused = loop {
        let state = assemble(sha1).json()[sha1].clone();
        if state["state"] == "error" {
            break state;
        }
        assert!(start.elapsed() < PATIENCE, "{state}\n{}", hub.log());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(
        refused["detail"].as_str().unwrap().contains("without sources"),
        "{refused}"
    );
}

#[test]
fn upstream_files_are_fetched_checked_and_kept() {
    let Some(program) = program() else { return };
    let (upstream, stripped) = (Hub::start(&program, "public = true"), Stripped::new());
    let symbols = format!(
        "upstream = [\"{}\"]\nallowed_addresses = [\"127.0.0.1\"]",
        upstream.address
    );
    let hub = Hub::start(&program, &symbols);
    let path = format!("/buildid/{}/debuginfo", stripped.build_id);
    let id = hub.push(&stripped.bundle);
    let title = hub.title_of_stored(&id);
    assert!(!title.contains("post"), "{title}");
    assert_eq!(hub.get(&path).status, 404);
    assert_eq!(upstream.upload(&stripped.debug(), &stripped.build_id), 201);
    let _ = upstream.wait_for(&path, 200);
    // The absence is remembered.
    assert_eq!(hub.get(&path).status, 404);
    let other = Hub::start(&program, &symbols);
    let id = other.push(&stripped.bundle);
    let _ = other.title_of_stored(&id);
    // The hub asks for missing symbols by itself.
    other.wait_for_title("post");
    drop(upstream);
    assert_eq!(other.get(&path).body, fs::read(stripped.debug()).unwrap());
    let start = Instant::now();
    assert_eq!(other.get("/buildid/abcd/debuginfo").status, 404);
    assert_eq!(other.get("/buildid/abce/debuginfo").status, 404);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}
