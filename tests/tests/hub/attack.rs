//! Hostile crashes, bundles, files and connections: the hub lives, and refuses in one sentence.

use super::filled::Filled;
use backtrail_tests::backtrail::command;
use backtrail_tests::hub_process::until;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use regex::Regex;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The identifier of a report that these tests send.
const ID: &str = "0123456789abcdefghjk";
/// Markup that would act on a page, and a change of the writing direction.
const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u{202e}txt";

/// Sends a report with a bundle, and returns its receipt.
fn report(hub: &Filled, change: impl FnOnce(&mut Value)) -> Value {
    let mut report = json!({
        "version": 1, "id": ID, "time": 1, "host": "web-17", "service": "ledger", "build": "1.0",
        "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1, "tid": 1, "bundle_size": 7,
        "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16}],
    });
    change(&mut report);
    let answer = hub.post("/api/v1/reports", &json!([report]).to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()[0].clone()
}

/// Checks that the hub works.
#[track_caller]
fn assert_alive(hub: &Filled) {
    assert_eq!(hub.get("/healthz").status, 200);
}

/// Checks that a page shows the hostile texts, and shows them as text.
#[track_caller]
fn assert_harmless(path: &str, text: &str) {
    for markup in ["<script>alert", "<img src=x", "onerror=alert(2)>\""] {
        assert!(!text.contains(markup), "{path} has {markup}:\n{text}");
    }
    let odd = text
        .chars()
        .find(|&char| char == '\u{202e}' || (char.is_control() && !"\n\r\t".contains(char)));
    assert_eq!(odd, None, "{path}:\n{text}");
}

/// A receiver of webhooks, which sends their bodies to the test.
fn receiver() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let _ = reader
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if sender.send(String::from_utf8_lossy(&body).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, bodies)
}

/// Records a crash whose program, functions, source file, thread and arguments have markup.
fn hostile_bundle(folder: &Path) -> PathBuf {
    let source = folder.join("hostile.c");
    let name = MARKUP.replace('"', "").replace('/', "\u{2215}");
    let text = format!(
        "#include <sys/prctl.h>\n\
         #line 1 \"/src/{name}.c\"\n\
         __attribute__((noinline)) int post(int *account) __asm__(\"\\\"{name}post\\\"\");\n\
         __attribute__((noinline)) int post(int *account) {{ return *account + 1; }}\n\
         __attribute__((noinline)) int settle(int *account) {{ return post(account) + 1; }}\n\
         int main(int count, char **words) {{ (void)words; prctl(PR_SET_NAME, \"<img src=x>\\033[2J\");\n\
         return settle(count > 9 ? &count : 0); }}\n"
    );
    fs::write(&source, text).unwrap();
    let program = folder.join(&name);
    let built = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let bundle = folder.join("hostile.bundle");
    let recorded = command()
        .unwrap()
        .args([
            "record".as_ref(),
            "-o".as_ref(),
            bundle.as_os_str(),
            "--".as_ref(),
        ])
        .arg(&program)
        .args([MARKUP, "\u{1b}[2J"])
        .output()
        .unwrap();
    assert!(bundle.is_dir(), "{recorded:?}");
    bundle
}

#[test]
fn hostile_crash_is_text_on_pages_and_in_messages() {
    let ((webhook, alerts), (chat, messages)) = (receiver(), receiver());
    let hub = Filled::empty(&format!(
        "allowed_addresses = [\"127.0.0.1\"]\n\
         [[alert]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"{webhook}\"\n\
         [[alert]]\nname = \"b\"\nkind = \"slack\"\nurl = \"{chat}\"\n"
    ));
    let stored = hub.pushed(&hostile_bundle(hub.user.home()));
    assert_eq!(stored["bundle"], "stored", "{stored}");
    let crash = stored["id"].as_str().unwrap();
    let group = stored["group"].as_str().unwrap();
    // Every text of a report that may have control characters, and all names.
    let hostile = format!("{MARKUP}\u{1b}[2J\u{0}\r\n\u{85}");
    let receipt = report(&hub, |report| {
        for field in ["host", "service", "build"] {
            report[field] = MARKUP.into();
        }
        for field in ["executable", "thread", "kernel", "cpu", "frames_end"] {
            report[field] = hostile.clone().into();
        }
        report["labels"] = json!({ &hostile: &hostile });
        report["frames"][0]["module"] = hostile.clone().into();
        report["modules"] = json!([{ "path": &hostile, "size": 1 }]);
    });
    assert_eq!(receipt["id"], ID);
    let beat = json!({
        "version": 1, "host": MARKUP, "collector": MARKUP,
        "running": [{ "service": MARKUP, "build": MARKUP, "since": 1 }],
    });
    assert_eq!(hub.post("/api/v1/heartbeat", &beat.to_string()).status, 204);
    let other = hub.get(&format!("/api/v1/crashes/{ID}")).json();
    let other = other["group"].as_str().unwrap().to_owned();
    let values = Regex::new("<option value=\"[^\"<>]*\"").unwrap();
    for path in [
        "/".to_owned(),
        "/?q=%3Cscript%3Ealert(1)%3C/script%3E&service=%E2%80%AE%1b".to_owned(),
        format!("/g/{group}"),
        format!("/g/{other}"),
        format!("/c/{crash}"),
        format!("/c/{ID}"),
        "/settings".to_owned(),
        "/audit".to_owned(),
        "/sign-in?then=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E".to_owned(),
        "/%3Cscript%3Ealert(1)%3C/script%3E".to_owned(),
    ] {
        let answer = hub.get(&path);
        assert!(answer.status < 500, "{path}: {}", answer.status);
        // The value of a filter is sent back as it is. It is escaped, and not shown.
        let text = answer.text();
        assert_harmless(&path, &values.replace_all(&text, "<option"));
    }
    // The texts are there, so that the test cannot pass by their absence.
    for path in [format!("/g/{other}"), format!("/c/{ID}"), format!("/c/{crash}")] {
        let page = hub.get(&path).text();
        assert!(page.contains("&lt;script&gt;alert"), "{path}: {page}");
        assert!(page.contains("U+202E"), "{path}: {page}");
    }
    // JSON is data, and no browser takes it for a page.
    for path in [format!("/api/v1/crashes/{ID}"), format!("/c/{crash}/timeline")] {
        let answer = hub.get(&path);
        let head = answer.head.to_lowercase();
        assert!(head.contains("content-type: application/json"), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
    }
    let alert = alerts.recv_timeout(Duration::from_secs(60)).unwrap();
    let alert: Value = serde_json::from_str(&alert).unwrap();
    assert_eq!(alert["event"], "new", "{alert}");
    assert!(
        alert["group"]["title"].as_str().unwrap().contains("null read in"),
        "{alert}"
    );
    let message = messages.recv_timeout(Duration::from_secs(60)).unwrap();
    let message: Value = serde_json::from_str(&message).unwrap();
    assert_harmless("Slack", message["text"].as_str().unwrap());
    for block in message["blocks"].as_array().unwrap() {
        assert_harmless("Slack", block["text"]["text"].as_str().unwrap());
    }
}

/// Returns an entry of a tar archive without its content.
fn entry(name: &str, size: u64, kind: u8, link: &str) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[148..156].fill(b' ');
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Returns a frame of zstd with these bytes, and then zeros: four bytes for each 128 KiB.
fn compressed(content: &[u8], zeros: u64) -> Vec<u8> {
    let block = |kind: u32, size: usize| (kind << 1 | (size as u32) << 3).to_le_bytes()[..3].to_vec();
    // The descriptor of a frame without size and checksum, and a window of 128 KiB.
    let mut frame = b"\x28\xb5\x2f\xfd\x00\x38".to_vec();
    for part in content.chunks(64 << 10) {
        frame.extend(block(0, part.len()));
        frame.extend(part);
    }
    for _ in 0..zeros.div_ceil(128 << 10) {
        frame.extend(block(1, 128 << 10));
        frame.push(0);
    }
    // The last block has no byte.
    frame.extend([1, 0, 0]);
    frame
}

#[test]
fn archives_that_escape_or_explode_are_refused() {
    let hub = Filled::empty("[limits]\nunpacked_bytes = 67108864\nbundle_bytes = 1048576\n");
    let outside = tempfile::tempdir().unwrap();
    let absolute = outside.path().join("escaped");
    let file = |name: &str| [entry(name, 5, b'0', ""), b"owned".to_vec(), vec![0; 507]].concat();
    let link = |name: &str, kind: u8, to: &str| entry(name, 0, kind, to);
    let target = outside.path().to_str().unwrap();
    let archives = [
        ("parent", compressed(&file("../../../escaped"), 1024)),
        ("absolute", compressed(&file(absolute.to_str().unwrap()), 1024)),
        ("inside", compressed(&file("a/../../escaped"), 1024)),
        (
            "symbolic link",
            compressed(&[link("a", b'2', target), file("a/escaped")].concat(), 1024),
        ),
        ("hard link", compressed(&link("a", b'1', "/etc/passwd"), 1024)),
        ("device", compressed(&link("a", b'3', ""), 1024)),
        (
            "twice",
            compressed(&[file("a"), file("a/escaped")].concat(), 1024),
        ),
        // 8 GiB of zeros in 256 KiB.
        (
            "bomb",
            compressed(&entry("core", (8 << 30) - 1, b'0', ""), 8 << 30),
        ),
        ("endless", compressed(&[], 16 << 30)),
        ("claim", compressed(&entry("core", (8 << 30) - 1, b'0', ""), 1024)),
        ("no archive", b"PK\x03\x04 something else".to_vec()),
    ];
    for (at, (name, content)) in archives.into_iter().enumerate() {
        let id = format!("0123456789abcdefgh{}{}", at / 10, at % 10);
        let _ = report(&hub, |report| report["id"] = id.clone().into());
        assert_eq!(hub.upload("bundle", &id, &content), Some(201), "{name}");
        let crash = hub.checked(&id);
        assert_eq!(crash["bundle"], "refused", "{name}: {crash}");
        let problem = crash["bundle_problem"].as_str().unwrap();
        assert!(
            problem.starts_with("the bundle is refused: "),
            "{name}: {problem}"
        );
        assert!(
            !problem.contains('\n') && problem.len() < 400,
            "{name}: {problem}"
        );
        let page = hub.get(&format!("/c/{id}"));
        assert!(page.text().contains("the bundle is refused"), "{name}");
    }
    assert!(!absolute.exists());
    let data = hub.folder.path().join("data");
    let found = Command::new("find")
        .arg(hub.folder.path())
        .args(["-name", "escaped"])
        .output()
        .unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
    until("the work directory is empty", || {
        let left = fs::read_dir(data.join("work")).ok()?.count();
        (left == 0).then_some(())
    });
    assert_alive(&hub);
    // A larger upload than allowed is refused before its first byte.
    let _ = report(&hub, |report| report["id"] = ID.into());
    assert_eq!(hub.upload("bundle", ID, &vec![0; (1 << 20) + 1]), Some(413));
}

#[test]
fn debug_file_that_explodes_harms_no_analysis() {
    let hub = Filled::empty("[limits]\nanalysis_mib = 1024\n");
    let bundle = super::crash(hub.user.home());
    let program = hub.user.home().join("ledger");
    let packed = hub.user.home().join("packed");
    let done = Command::new("objcopy")
        .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
        .args([&program, &packed])
        .status();
    assert!(done.unwrap().success());
    // The compressed sections claim 2^60 bytes each.
    let mut content = fs::read(&packed).unwrap();
    let word =
        |content: &[u8], at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap()) as usize;
    let sections = word(&content, 40);
    let count = usize::from(u16::from_le_bytes(content[60..62].try_into().unwrap()));
    let mut changed = 0;
    for number in 0..count {
        let header = sections + 64 * number;
        if word(&content, header + 8) & 0x800 != 0 {
            let at = word(&content, header + 24);
            content[at + 8..at + 16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0, "{changed}");
    let notes = Command::new("readelf").arg("-n").arg(&program).output().unwrap();
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let id = notes.split("Build ID: ").nth(1).unwrap();
    let id = id.split_whitespace().next().unwrap();
    let status = hub.upload("debug", id, &content);
    assert!(matches!(status, Some(201 | 400)), "{status:?}");
    // A section that explodes is sent as it is stored, or not at all.
    let section = hub.get(&format!("/buildid/{id}/section/.debug_info"));
    assert!(section.body.len() < content.len(), "{}", section.body.len());
    let stored = hub.pushed(&bundle);
    assert_eq!(stored["bundle"], "stored", "{stored}");
    assert_alive(&hub);
}

#[test]
fn analysis_is_killed_at_its_limits_and_the_page_says_so() {
    for (limits, wanted) in [
        ("analysis_mib = 32", "memory limit of 32 MiB"),
        ("analysis_seconds = 0", "time limit of 0 seconds"),
    ] {
        let hub = Filled::empty(&format!("[limits]\n{limits}\n"));
        let refused = hub.pushed(&super::crash(hub.user.home()));
        assert_eq!(refused["bundle"], "refused", "{refused}");
        let problem = refused["bundle_problem"].as_str().unwrap();
        assert!(problem.contains(wanted), "{problem}");
        let page = hub.get(&format!("/c/{}", refused["id"].as_str().unwrap()));
        assert_eq!(page.status, 200);
        assert!(page.text().contains(wanted), "{}", page.text());
        assert_alive(&hub);
    }
}

#[test]
fn huge_heads_and_bodies_are_refused_early() {
    let hub = Filled::empty("");
    let authorization = format!("Authorization: Bearer {}\r\n", hub.token);
    let long = "x".repeat(200 << 10);
    assert_eq!(
        hub.send("GET /healthz", &format!("X-A: {long}\r\n"), b""),
        Some(431)
    );
    let many: String = (0..2000).map(|at| format!("X-{at}: y\r\n")).collect();
    assert_eq!(hub.send("GET /healthz", &many, b""), Some(431));
    let status = hub.send(&format!("GET /{long}"), "", b"");
    assert!(matches!(status, Some(414 | 431)), "{status:?}");
    for head in ["GET", "GET /", "\0\0\0\0", "GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = hub.connect().unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        drop(stream);
    }
    // A body that is announced, and one without an end, stop at the limit.
    let start = Instant::now();
    for path in ["/api/v1/reports", "/api/v1/heartbeat", "/api/v1/tokens"] {
        let head = format!("{authorization}Content-Length: 109951162777600\r\n");
        assert_eq!(hub.send(&format!("POST {path}"), &head, b""), Some(413), "{path}");
        let head = format!("{authorization}Transfer-Encoding: chunked\r\n");
        let piece = [b"100000\r\n".to_vec(), vec![b'['; 1 << 20], b"\r\n".to_vec()].concat();
        let status = hub.send(&format!("POST {path}"), &head, &piece.repeat(4));
        assert_eq!(status, Some(413), "{path}");
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    // JSON that nests deeply ends no stack.
    let deep = "[".repeat(1 << 20);
    for path in ["/api/v1/reports", "/api/v1/heartbeat"] {
        assert_eq!(hub.post(path, &deep).status, 400, "{path}");
    }
    assert_eq!(hub.post("/api/v1/groups/x/state", &deep).status, 400);
    assert_alive(&hub);
}

/// Opens connections that send the beginning of a request and no more.
fn stalled(hub: &Filled, count: usize, beginning: &str) -> Vec<TcpStream> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let open = |_| {
        let mut stream = hub.connect().unwrap();
        stream.write_all(beginning.as_bytes()).unwrap();
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn stalled_connections_hold_up_no_other() {
    let hub = Filled::empty("");
    let host = hub.hub.address.trim_start_matches("http://").to_owned();
    let head = stalled(&hub, 400, &format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-"));
    let body = stalled(
        &hub,
        400,
        &format!(
            "POST /sign-in HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="
        ),
    );
    let silent = stalled(&hub, 400, "");
    let start = Instant::now();
    for _ in 0..20 {
        assert_alive(&hub);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    drop((head, body, silent));
}

#[test]
#[ignore = "waits for time limits of half a minute"]
fn stalled_connections_are_closed() {
    let hub = Filled::empty("");
    let host = hub.hub.address.trim_start_matches("http://").to_owned();
    let start = Instant::now();
    // More than the hub takes at once. The last ones get their turn when the first ones end.
    let mut all = stalled(&hub, 700, &format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-"));
    all.extend(stalled(
        &hub,
        700,
        &format!(
            "POST /sign-in HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="
        ),
    ));
    all.extend(stalled(&hub, 700, ""));
    assert_alive(&hub);
    println!("another request was answered after {:?}", start.elapsed());
    for stream in &mut all {
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
    }
    println!("all were closed after {:?}", start.elapsed());
    assert_alive(&hub);
}
