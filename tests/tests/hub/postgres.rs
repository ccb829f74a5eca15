//! A server of PostgreSQL in a directory of its own, on a Unix socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A running server with an empty database. It ends with this value.
pub struct Postgres {
    programs: PathBuf,
    folder: TempDir,
}

impl Postgres {
    /// Starts a server. `None`: it is not installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("left out: install the package postgresql to run this test");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // The server's user must reach its directory.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let server = Self { programs, folder };
        let mut init = server.command("initdb");
        init.args([
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
        .arg(server.data());
        let output = init.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let options = format!(
            "-c listen_addresses='' -c fsync=off -c unix_socket_directories='{}'",
            server.folder.path().display()
        );
        // The server keeps the descriptors of its starter, so its output is not a pipe.
        let mut start = server.command("pg_ctl");
        start
            .args(["-w", "-s", "-D"])
            .arg(server.data())
            .arg("-o")
            .arg(&options);
        start.arg("-l").arg(server.folder.path().join("log")).arg("start");
        let status = start
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "cannot start PostgreSQL");
        Some(server)
    }

    /// Returns the address of the database for a hub.
    pub fn address(&self) -> String {
        let socket = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://hub@{socket}/postgres")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// Returns a command of the server, which does not run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match nix::unistd::geteuid().is_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(Path::new("/")).stdin(Stdio::null());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        stop.args(["-m", "immediate", "-s", "-D"])
            .arg(self.data())
            .arg("stop");
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
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
