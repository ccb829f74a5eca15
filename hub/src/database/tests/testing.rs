//! Databases for tests: SQLite, and a private server of PostgreSQL if it is installed.

use super::Database;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A database of a test. It ends with this value.
pub struct TestDatabase {
    /// The database.
    pub database: Database,
    /// Its address.
    pub address: String,
    server: Option<Server>,
    folder: TempDir,
}

impl TestDatabase {
    /// Returns an empty database of SQLite.
    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite://{}?mode=rwc", folder.path().join("hub.db").display());
        Self {
            database: Database::open(&address).await.unwrap(),
            address,
            server: None,
            folder,
        }
    }

    /// Returns an empty database of PostgreSQL. `None`: it is not installed.
    pub async fn postgres() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path())?;
        let address = server.address.clone();
        Some(Self {
            database: Database::open(&address).await.unwrap(),
            address,
            server: Some(server),
            folder,
        })
    }

    /// Returns one database of each kind that this machine has.
    pub async fn all() -> Vec<Self> {
        let mut all = vec![Self::sqlite().await];
        all.extend(Self::postgres().await);
        all
    }

    /// Returns a directory of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the name of the kind, for messages.
    pub fn name(&self) -> &'static str {
        if self.server.is_some() {
            "PostgreSQL"
        } else {
            "SQLite"
        }
    }
}

/// A server of PostgreSQL in a directory, on a Unix socket.
struct Server {
    programs: PathBuf,
    data: PathBuf,
    address: String,
}

/// Returns the directory of the newest installed server's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|path| path.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// Returns a command of the server, which does not run as root.
fn command(program: &Path) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

impl Server {
    fn start(folder: &Path) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped with PostgreSQL: install the package postgresql to run this test with it");
            return None;
        };
        // The server's user must reach its directory.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        let data = folder.join("server");
        let run = |command: &mut Command| {
            let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {text}");
        };
        run(command(&programs.join("initdb"))
            .args([
                "--no-sync",
                "--no-instructions",
                "-A",
                "trust",
                "-U",
                "hub",
                "-E",
                "UTF8",
            ])
            .args(["--locale", "C", "-D"])
            .arg(&data));
        let options = format!(
            "-c listen_addresses='' -c fsync=off -c unix_socket_directories='{}'",
            folder.display()
        );
        // The server keeps the descriptors of its starter, so its output is not a pipe.
        let status = command(&programs.join("pg_ctl"))
            .args(["-w", "-s", "-D"])
            .arg(&data)
            .arg("-o")
            .arg(&options)
            .arg("-l")
            .arg(folder.join("log"))
            .arg("start")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "cannot start PostgreSQL");
        let socket = folder.display().to_string().replace('/', "%2F");
        Some(Self {
            programs,
            data,
            address: format!("postgres://hub@{socket}/postgres"),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = command(&self.programs.join("pg_ctl"))
            .args(["-m", "immediate", "-s", "-D"])
            .arg(&self.data)
            .arg("stop")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let _ = stopped;
    }
}
