//! Deliveries to a small SMTP server of this process.

use super::*;
use crate::notify::message::tests::alert;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// A session at the server.
#[derive(Debug, Default)]
struct Session {
    commands: Vec<String>,
    data: String,
}

/// Starts a server that takes one mail per connection. `recipient` is the answer to each `RCPT`.
fn server(recipient: &'static str) -> (u16, mpsc::Receiver<Session>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let session = serve(&connection.unwrap(), recipient).unwrap_or_default();
            let _ = sender.send(session);
        }
    });
    (port, receiver)
}

fn serve(connection: &TcpStream, recipient: &str) -> std::io::Result<Session> {
    let mut lines = BufReader::new(connection).lines();
    let answer = |text: &str| {
        let mut connection = connection;
        connection.write_all(format!("{text}\r\n").as_bytes())
    };
    let mut session = Session::default();
    answer("220 test")?;
    while let Some(line) = lines.next() {
        let line = line?;
        let word = line.split([' ', ':']).next().unwrap_or_default().to_uppercase();
        match word.as_str() {
            "EHLO" => answer("250-test\r\n250-AUTH PLAIN\r\n250 8BITMIME")?,
            "AUTH" => answer("235 ok")?,
            "RCPT" => answer(recipient)?,
            "DATA" => {
                answer("354 go on")?;
                for line in lines.by_ref() {
                    let line = line?;
                    if line == "." {
                        break;
                    }
                    session.data.push_str(&line);
                    session.data.push('\n');
                }
                answer("250 taken")?;
            }
            "QUIT" => {
                session.commands.push(line);
                answer("221 bye")?;
                break;
            }
            _ => answer("250 ok")?,
        }
        session.commands.push(line);
    }
    Ok(session)
}

fn settings(port: u16) -> MailServer {
    MailServer {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
        tls: MailTls::None,
        user: None,
        password_file: None,
        from: "Backtrail <hub@example.org>".to_owned(),
    }
}

async fn send(server: &MailServer, to: &[&str]) -> Result<(), DeliveryError> {
    let to: Vec<String> = to.iter().map(|address| (*address).to_owned()).collect();
    Mailer::new(server)?.send(&to, &alert().to_mail(), "d1").await
}

#[tokio::test]
async fn mail_has_both_forms_and_one_id() {
    let (port, sessions) = server("250 ok");
    send(&settings(port), &["a@example.org", "B <b@example.org>"])
        .await
        .unwrap();
    let session = sessions.recv_timeout(COMMAND).unwrap();
    let recipients: Vec<&String> = session
        .commands
        .iter()
        .filter(|line| line.starts_with("RCPT"))
        .collect();
    assert_eq!(recipients, ["RCPT TO:<a@example.org>", "RCPT TO:<b@example.org>"]);
    for part in [
        "Subject: Regression in ledger, build 2026.11.3: ",
        "Message-ID: <d1@example.org>",
        "Auto-Submitted: auto-generated",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Type: text/html; charset=utf-8",
        "Hosts: 7 of 9 812 hosts (0.07 %)",
    ] {
        assert!(session.data.contains(part), "{part}\n{}", session.data);
    }
}

#[tokio::test]
async fn password_comes_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let (port, sessions) = server("250 ok");
    let mut server = settings(port);
    server.user = Some("hub".to_owned());
    assert!(
        !send(&server, &["a@example.org"])
            .await
            .unwrap_err()
            .is_temporary()
    );
    server.password_file = Some(file);
    send(&server, &["a@example.org"]).await.unwrap();
    let session = sessions.recv_timeout(COMMAND).unwrap();
    // base64 of "\0hub\0secret".
    assert!(
        session
            .commands
            .iter()
            .any(|line| line == "AUTH PLAIN AGh1YgBzZWNyZXQ="),
        "{session:?}"
    );
    server.host = "mail.example.org".to_owned();
    let error = Mailer::new(&server).unwrap_err().to_string();
    assert_eq!(
        error,
        "mail server mail.example.org: a password needs `tls = \"starttls\"` or `\"tls\"`"
    );
}

#[tokio::test]
async fn refusals_are_temporary_or_permanent() {
    let (port, _sessions) = server("550 no such user");
    assert!(
        !send(&settings(port), &["a@example.org"])
            .await
            .unwrap_err()
            .is_temporary()
    );
    let (port, _sessions) = server("451 later");
    assert!(
        send(&settings(port), &["a@example.org"])
            .await
            .unwrap_err()
            .is_temporary()
    );
}

#[tokio::test]
async fn server_without_encryption_gets_no_mail_by_default() {
    let (port, sessions) = server("250 ok");
    let mut server = settings(port);
    server.tls = MailTls::Starttls;
    send(&server, &["a@example.org"]).await.unwrap_err();
    let session = sessions.recv_timeout(COMMAND).unwrap();
    assert!(session.data.is_empty() && !session.commands.iter().any(|line| line.starts_with("MAIL")));
}

#[tokio::test]
async fn unreachable_server_is_a_temporary_failure() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = send(&settings(port), &["a@example.org"]).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

#[tokio::test]
async fn invalid_addresses_are_refused() {
    for address in ["", "nobody", "a@b\r\nBcc: c@d"] {
        assert!(
            !send(&settings(1), &[address]).await.unwrap_err().is_temporary(),
            "{address:?}"
        );
    }
}
