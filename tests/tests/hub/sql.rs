//! SQL of a hub, with a program in the place of `backtrail-query`: its end, and workers.

use backtrail_tests::hub_process::{HubProcess, binary, token, until};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a shell script that is the program, and a configuration that names it.
pub(super) fn configuration(folder: &Path, script: &str, more: &str) -> PathBuf {
    let program = folder.join("engine");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.join("hub.toml");
    let text = format!("query.program = \"{}\"\n{more}\n", program.display());
    std::fs::write(&config, text).unwrap();
    config
}

/// Returns whether a process runs. One that its parent has not waited for does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn query_ends_with_its_http_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let pid = file.display();
    let script = format!("echo $$ >{pid}.new\nmv {pid}.new {pid}\nexec sleep 1000");
    let config = configuration(folder.path(), &script, "");
    let data = folder.path().join("hub");
    let token = token(&data, &["read"]).unwrap();
    let hub = HubProcess::start(&data, &["--config", config.to_str().unwrap()]).unwrap();
    let host = hub.address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    let body = r#"{"sql":"SELECT 1","seconds":600}"#;
    let length = body.len();
    let request = format!(
        "POST /api/v1/profiles/sql HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let pid = until("the program runs", || std::fs::read_to_string(&file).ok());
    let pid = pid.trim();
    assert!(runs(pid));
    drop(stream);
    until("the program ends", || (!runs(pid)).then_some(()));
    // The hub answers others.
    assert_eq!(hub.request("GET", "/healthz", None, b"").unwrap().status, 200);
}

#[test]
fn worker_joins_with_the_configuration_of_the_hub() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(
        folder.path(),
        "echo \"$@\"; echo \"$AWS_ENDPOINT\"",
        "objects = \"s3://crashes/hub\"\n[s3]\nendpoint = \"http://127.0.0.1:9\"",
    );
    let output = Command::new(binary().unwrap())
        .args([
            "worker",
            "--listen",
            "127.0.0.1:8476",
            "--memory",
            "64",
            "--config",
        ])
        .arg(&config)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "worker --objects s3://crashes/hub/profiles --listen 127.0.0.1:8476 --memory 64\nhttp://127.0.0.1:9\n"
    );
}
