//! Two servers of S3 for tests: `s3s-fs` in this process, and `moto` in its own.

use backtrail_tests::hub_process::{HubProcess, run, until};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The keys of both servers.
const KEY: &str = "tests-key";
const SECRET: &str = "tests-secret";
/// The bucket of all tests.
const BUCKET: &str = "crashes";

/// A server of S3 with one bucket.
pub struct Bucket {
    /// Its address and port.
    pub address: SocketAddr,
    server: Option<Child>,
    /// The objects of `s3s-fs`, for as long as the server runs.
    _folder: TempDir,
}

impl Bucket {
    /// Starts `s3s-fs`, which checks signatures. It runs until the tests end.
    pub fn s3s() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    let served =
                        http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
                    tokio::spawn(async move {
                        let _ = served.await;
                    });
                }
            });
        });
        Self {
            address,
            server: None,
            _folder: folder,
        }
    }

    /// Starts `moto`. `None`: it is not installed.
    pub fn moto() -> Option<Self> {
        let start = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])";
        let found = Command::new("python3")
            .args(["-c", "import moto.server, flask_cors"])
            .output();
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("left out: moto is not installed; `cargo xtask readers` installs it");
            return None;
        }
        let mut server = Command::new("python3")
            .args(["-u", "-c", start])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, place) = line.split_once("Running on http://")?;
            place.trim().parse().ok()
        });
        // The pipe must not fill.
        std::thread::spawn(move || lines.for_each(drop));
        let bucket = Self {
            address: address.expect("moto prints its address"),
            server: Some(server),
            _folder: tempfile::tempdir().unwrap(),
        };
        until("the bucket is made", || {
            let mut stream = TcpStream::connect(bucket.address).ok()?;
            let head = format!(
                "PUT /{BUCKET} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                bucket.address
            );
            stream.write_all(head.as_bytes()).ok()?;
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        });
        Some(bucket)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A hub on a bucket: its configuration and its keys.
pub struct Site {
    /// The directory of the hub's own files.
    pub data: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// The keys of the bucket.
    pub environment: Vec<(String, String)>,
}

impl Site {
    /// Writes the configuration of a hub whose bucket is at an address. `more` comes before tables.
    pub fn new(folder: &Path, name: &str, bucket: SocketAddr, more: &str) -> Self {
        let data = folder.join(name);
        let config = folder.join(format!("{name}.toml"));
        let text = format!(
            "objects = \"s3://{BUCKET}/hub\"\n{more}\n[s3]\nendpoint = \"http://{bucket}\"\nallow_http = true\n"
        );
        std::fs::write(&config, text).unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Self {
            data,
            config,
            environment: vec![
                variable("AWS_ACCESS_KEY_ID", KEY),
                variable("AWS_SECRET_ACCESS_KEY", SECRET),
            ],
        }
    }

    /// Starts the hub.
    pub fn start(&self) -> HubProcess {
        let arguments = ["--config", self.config.to_str().unwrap()];
        HubProcess::start_with(&self.data, &arguments, &self.environment).unwrap()
    }

    /// Runs a command of the hub.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["--config", self.config.to_str().unwrap()];
        all.extend(arguments);
        run(&self.data, &all, &self.environment).unwrap()
    }

    /// Runs a command of the hub that must succeed, and returns its output.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
        if stdout.is_empty() {
            stderr
        } else {
            stdout.trim().to_owned()
        }
    }

    /// Makes a token.
    #[track_caller]
    pub fn token(&self, scopes: &[&str]) -> String {
        let mut arguments = vec!["token", "tests"];
        arguments.extend(scopes.iter().flat_map(|scope| ["--scope", *scope]));
        self.done(&arguments)
    }
}
