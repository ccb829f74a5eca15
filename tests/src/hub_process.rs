//! A running `backtrail-hub` of its own, with a directory and a port of its own.

use crate::backtrail::{cargo, repository};
use crate::build::target_directory;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time for a start, and for the checks of a bundle on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running hub. The end of this value kills it.
#[derive(Debug)]
pub struct HubProcess {
    child: Child,
    /// The address, such as `http://127.0.0.1:40123`.
    pub address: String,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The lines of the head.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON; a text if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Value::String(self.text()))
    }
}

impl HubProcess {
    /// Starts a hub that keeps its files in a directory.
    ///
    /// # Errors
    /// Fails if the binary cannot be built or started, or prints no address.
    pub fn start(data: &Path, arguments: &[&str]) -> io::Result<Self> {
        Self::start_with(data, arguments, &[])
    }

    /// Starts a hub of another build.
    ///
    /// # Errors
    /// Fails if the binary cannot be started, or prints no address.
    pub fn start_binary(binary: &Path, data: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(arguments);
        Self::of_command(&mut command)
    }

    /// Starts a hub as [`Self::start`] does, with more variables of the environment.
    ///
    /// # Errors
    /// Fails as [`Self::start`] does.
    pub fn start_with(data: &Path, arguments: &[&str], environment: &[(String, String)]) -> io::Result<Self> {
        let mut command = Command::new(binary()?);
        command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(arguments);
        Self::of_command(&mut command)
    }

    /// Starts a hub by a command that becomes it.
    ///
    /// # Errors
    /// Fails if the command cannot be started, or prints no address.
    pub fn of_command(command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let address = address.ok_or_else(|| io::Error::other(format!("no address: {line}")))?;
        Ok(Self { child, address })
    }

    /// Returns the process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Kills the hub, as a crash of its machine would.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Asks the hub to end, and returns its exit status.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub fn stop(&mut self) -> io::Result<Option<i32>> {
        kill(self.pid(), Signal::SIGTERM)?;
        Ok(self.child.wait()?.code())
    }

    /// Sends a request with a token, and returns the answer.
    ///
    /// # Errors
    /// Fails if the hub does not answer.
    pub fn request(&self, method: &str, path: &str, token: Option<&str>, body: &[u8]) -> io::Result<Answer> {
        self.request_with(method, path, token, &[], body)
    }

    /// Sends a request with a token and more headers, and returns the answer.
    ///
    /// # Errors
    /// Fails if the hub does not answer.
    pub fn request_with(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let host = self.address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let authorization =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let length = body.len();
        let more: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{authorization}{more}Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.ok_or_else(|| io::Error::other("the answer has no end of its head"))?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Answer {
            status: status.ok_or_else(|| io::Error::other("the answer has no status"))?,
            body: answer.split_off(end + 4),
            head,
        })
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a token of a hub that does not run.
///
/// # Errors
/// Fails if the command fails.
pub fn token(data: &Path, scopes: &[&str]) -> io::Result<String> {
    token_of_binary(binary()?, data, scopes)
}

/// Makes a token of a hub of another build.
///
/// # Errors
/// Fails if the command fails.
pub fn token_of_binary(binary: &Path, data: &Path, scopes: &[&str]) -> io::Result<String> {
    named_token(binary, data, "tests", scopes)
}

/// Makes a token of a person.
///
/// # Errors
/// Fails if the command fails.
pub fn token_of_person(data: &Path, name: &str, scopes: &[&str]) -> io::Result<String> {
    named_token(binary()?, data, name, scopes)
}

fn named_token(binary: &Path, data: &Path, name: &str, scopes: &[&str]) -> io::Result<String> {
    let mut command = Command::new(binary);
    command.arg("--data").arg(data).args(["token", name]);
    for scope in scopes {
        command.args(["--scope", scope]);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a command of the hub's binary to its end, such as `gc`.
///
/// # Errors
/// Fails if the binary cannot be built or started.
pub fn run(data: &Path, arguments: &[&str], environment: &[(String, String)]) -> io::Result<Output> {
    Command::new(binary()?)
        .arg("--data")
        .arg(data)
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("RUST_BACKTRACE", "0")
        .output()
}

/// Repeats a query until its result is there.
///
/// # Panics
///
/// The result is not there in time.
#[track_caller]
pub fn until<T>(what: &str, mut query: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = query() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the binary under test: `BACKTRAIL_HUB_BIN`, or the result of `cargo build`.
///
/// # Errors
/// Fails if the build does.
pub fn binary() -> io::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| match std::env::var_os("BACKTRAIL_HUB_BIN") {
        Some(path) => Ok(repository().join(path)),
        None => build().map_err(|error| error.to_string()),
    });
    built
        .as_deref()
        .map_err(|message| io::Error::other(message.clone()))
}

fn build() -> io::Result<PathBuf> {
    let mut cargo = cargo();
    let status = cargo
        .args(["build", "--quiet", "--package", "backtrail-hub"])
        .current_dir(repository())
        .status()?;
    if !status.success() {
        return Err(io::Error::other("`cargo build --package backtrail-hub` failed"));
    }
    Ok(target_directory().join("debug/backtrail-hub"))
}
