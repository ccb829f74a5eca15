//! A receiver of webhooks, which keeps the requests and the times at which they came.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The longest body in bytes.
const MAX_BODY: u64 = 1 << 20;

/// A received message.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The header with the signature.
    pub signature: String,
    /// The body.
    pub body: Vec<u8>,
    /// The time of its arrival.
    pub time: SystemTime,
}

/// A running receiver.
#[derive(Debug)]
pub struct Receiver {
    /// Its URL.
    pub url: String,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

impl Receiver {
    /// Starts a receiver on a free port.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&deliveries);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(delivery) = receive(&stream) {
                    shared
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(delivery);
                }
            }
        });
        Ok(Self { url, deliveries })
    }

    /// Returns what came so far.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Reads one request, and answers that it was taken.
fn receive(mut stream: &TcpStream) -> Option<Delivery> {
    let time = SystemTime::now();
    let mut reader = BufReader::new(stream);
    let (mut signature, mut length, mut line) = (String::new(), 0, String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "x-backtrail-signature" => signature = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; usize::try_from(MAX_BODY.min(length)).ok()?];
    reader.read_exact(&mut body).ok()?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .ok()?;
    Some(Delivery {
        signature,
        body,
        time,
    })
}

impl Delivery {
    /// Returns whether the signature is that of the body, by the receiver of `docs/hub-alerts.md`.
    ///
    /// # Errors
    /// Fails if Python cannot be started.
    pub fn is_genuine(&self, key: &str) -> io::Result<bool> {
        const CHECK: &str = "import hashlib, hmac, sys, time\n\
            key, header = (text.encode() for text in sys.argv[1:3])\n\
            fields = dict(part.split('=', 1) for part in header.decode().split(','))\n\
            body = bytes.fromhex(sys.argv[3])\n\
            digest = hmac.new(key, fields['t'].encode() + b'.' + body, hashlib.sha256)\n\
            recent = abs(time.time() - int(fields['t'])) < 300\n\
            sys.exit(not (recent and hmac.compare_digest(digest.hexdigest(), fields['v1'])))\n";
        let body: String = self.body.iter().map(|byte| format!("{byte:02x}")).collect();
        let status = Command::new("python3")
            .args(["-c", CHECK, key, &self.signature, &body])
            .status()?;
        Ok(status.success())
    }
}
