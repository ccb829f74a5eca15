//! A proxy with faults, between a client and a hub, or between a hub and its bucket.

use backtrail_tests::random::Random;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most bytes of a head.
const HEAD: usize = 64 << 10;
/// The longest time without a byte.
const SILENCE: Duration = Duration::from_secs(60);

/// The faults of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// All connections are passed on.
    None,
    /// One in this number of HTTP requests fails: it is answered with 500 or 503, not passed on, or
    /// its answer is lost or cut.
    Requests {
        /// 2 for every other one.
        one_in: usize,
    },
    /// Connections are slow, and cut after a random number of bytes.
    Line {
        /// The bytes in a second.
        speed: usize,
        /// The most bytes until a cut. 0: none is cut.
        cut: usize,
    },
}

struct State {
    target: Mutex<SocketAddr>,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
    failed: Mutex<usize>,
    /// The clients of connections without faults, which last.
    open: Mutex<Vec<TcpStream>>,
}

/// A running proxy. It ends with the tests.
#[derive(Clone)]
pub struct Proxy {
    /// Its address.
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a proxy of a server.
    pub fn start(target: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(State {
                target: Mutex::new(target),
                faults: Mutex::new(Faults::None),
                random: Mutex::new(Random::new(seed)),
                failed: Mutex::new(0),
                open: Mutex::new(Vec::new()),
            }),
        };
        let state = proxy.state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || {
                    let _ = state.serve(client);
                });
            }
        });
        proxy
    }

    /// Passes new connections to another server.
    pub fn set_target(&self, target: SocketAddr) {
        *self.state.target.lock().unwrap() = target;
    }

    /// Changes the faults, and ends the connections that have none.
    pub fn set_faults(&self, faults: Faults) {
        *self.state.faults.lock().unwrap() = faults;
        for client in self.state.open.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Returns the number of requests or connections that failed.
    pub fn failed(&self) -> usize {
        *self.state.failed.lock().unwrap()
    }

    /// Returns the address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl State {
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(SILENCE))?;
        let faults = *self.faults.lock().unwrap();
        match faults {
            Faults::None => {
                self.open.lock().unwrap().push(client.try_clone()?);
                self.connect(client, usize::MAX, usize::MAX)
            }
            Faults::Line { speed, cut } => {
                let end = match cut {
                    0 => usize::MAX,
                    cut => 1 + self.random.lock().unwrap().below(cut),
                };
                self.connect(client, speed, end)
            }
            Faults::Requests { one_in } => self.request(client, one_in),
        }
    }

    /// Copies bytes in both directions, `end` of them at most.
    fn connect(&self, client: TcpStream, speed: usize, end: usize) -> io::Result<()> {
        let target = *self.target.lock().unwrap();
        let server = TcpStream::connect(target)?;
        let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
        let back = std::thread::spawn(move || copy(back_from, back_to, speed, usize::MAX));
        let sent = copy(client, server, speed, end)?;
        if sent == end {
            *self.failed.lock().unwrap() += 1;
        }
        let _ = back.join();
        Ok(())
    }

    /// Passes one request of a connection, or fails it.
    fn request(&self, mut client: TcpStream, one_in: usize) -> io::Result<()> {
        let request = read_request(&mut client)?;
        let fault = {
            let mut random = self.random.lock().unwrap();
            random.once_in(one_in).then(|| random.below(5))
        };
        if fault.is_some() {
            *self.failed.lock().unwrap() += 1;
        }
        let answer =
            |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        match fault {
            Some(0) => return client.write_all(answer("500 Internal Server Error").as_bytes()),
            Some(1) => return client.write_all(answer("503 Slow Down").as_bytes()),
            Some(2) => return Ok(()),
            _ => {}
        }
        let target = *self.target.lock().unwrap();
        let mut server = TcpStream::connect(target)?;
        server.set_read_timeout(Some(SILENCE))?;
        server.write_all(&request)?;
        let mut answer = Vec::new();
        let _ = server.read_to_end(&mut answer)?;
        match fault {
            // The server did it, and the client does not know.
            Some(3) => Ok(()),
            Some(_) => client.write_all(&answer[..answer.len() / 2]),
            None => client.write_all(&answer),
        }
    }
}

/// Reads a request with its body, and asks for the end of the connection after it.
fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        request.push(byte[0]);
        if request.len() > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    request.truncate(request.len() - 2);
    request.extend(b"Connection: close\r\n\r\n");
    request.extend(body);
    Ok(request)
}

/// Copies bytes at a speed until the end of the stream, or until `end` of them are copied. Returns
/// their number.
fn copy(mut from: TcpStream, mut to: TcpStream, speed: usize, end: usize) -> io::Result<usize> {
    let mut buffer = vec![0; 16 << 10];
    let mut copied = 0;
    while copied < end {
        let room = buffer.len().min(end - copied);
        let read = match from.read(&mut buffer[..room]) {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        copied += read;
        if speed != usize::MAX {
            std::thread::sleep(Duration::from_secs_f64(read as f64 / speed as f64));
        }
    }
    let how = if copied == end {
        Shutdown::Both
    } else {
        Shutdown::Write
    };
    let _ = to.shutdown(how);
    if copied == end {
        let _ = from.shutdown(Shutdown::Both);
    }
    Ok(copied)
}
