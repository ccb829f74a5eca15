//! A program's folder, its inputs, and its commands with every placeholder filled in.

use super::child::{Child, Limit};
use super::{RealProgram, Run};
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The program folders of distributions. They are searched first, so that a private build does not
/// replace the packaged program.
const SYSTEM_PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// A folder in which a program can run.
#[derive(Debug)]
pub struct Workspace {
    folder: PathBuf,
    size: u32,
    port: u16,
    /// Runs commands as this user, when we are root.
    user: Option<&'static str>,
}

impl Workspace {
    /// Creates `folder` with the program's inputs, and runs the preparing commands.
    ///
    /// # Errors
    ///
    /// A file cannot be written, or a preparing command fails.
    pub fn make(program: &RealProgram, folder: &Path, size: u32, limit: Limit) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let user = match program.run {
            Run::Server(server) if is_root() => server.instead_of_root,
            _ => None,
        };
        let workspace = Self {
            folder: folder.to_path_buf(),
            size,
            port: free_port()?,
            user,
        };
        for input in program.inputs {
            input.make(folder, size, workspace.port)?;
        }
        if let Some(user) = user {
            let mut own = Command::new("chown");
            own.arg("-R").arg(format!("{user}:")).arg(folder);
            let _ = workspace.run(own, "chown", limit)?.succeeded("chown")?;
        }
        for command in program.prepare {
            let _ = workspace
                .run(workspace.command(command)?, "prepare", limit)?
                .succeeded(&command.join(" "))?;
        }
        Ok(workspace)
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the program's port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the words of a command, beginning with the program's path.
    ///
    /// # Errors
    ///
    /// The program is not installed.
    pub fn words(&self, command: &[&str]) -> io::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = command.iter().map(|word| self.filled(word).into()).collect();
        if let Some(program) = words.first_mut() {
            let path = resolve(&program.to_string_lossy());
            *program = path
                .ok_or_else(|| io::Error::other(format!("{} is not installed", program.to_string_lossy())))?
                .into();
        }
        Ok(words)
    }

    /// Returns a command as it runs without the recorder.
    ///
    /// # Errors
    ///
    /// The program is not installed.
    pub fn command(&self, command: &[&str]) -> io::Result<Command> {
        Ok(self.command_of(self.words(command)?))
    }

    /// Returns a command in the folder, with an environment that is the same everywhere.
    #[must_use]
    pub fn command_of(&self, words: impl IntoIterator<Item = OsString>) -> Command {
        let mut all: Vec<OsString> = Vec::new();
        if let Some(user) = self.user {
            all.extend([
                "setpriv".into(),
                format!("--reuid={user}").into(),
                format!("--regid={user}").into(),
            ]);
            all.extend(["--clear-groups".into(), "--".into()]);
        }
        all.extend(words);
        let mut all = all.into_iter();
        let mut command = Command::new(all.next().unwrap_or_default());
        command
            .args(all)
            .current_dir(&self.folder)
            .env("PATH", search_path())
            .env("HOME", &self.folder)
            .env("TMPDIR", &self.folder)
            .env("LC_ALL", "C")
            .env("GOCACHE", self.folder.join("go-cache"))
            .env("GO111MODULE", "off");
        // rustup finds its toolchains through HOME.
        if let (None, Some(home)) = (env::var_os("RUSTUP_HOME"), env::var_os("HOME")) {
            command.env("RUSTUP_HOME", Path::new(&home).join(".rustup"));
        }
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// The command cannot be started or takes longer than `limit`.
    pub fn run(&self, command: Command, name: &str, limit: Limit) -> io::Result<super::Ended> {
        Child::run(command, &self.folder, name, limit)
    }

    /// Returns a path through which the program's user can run the binary at `path`.
    ///
    /// # Errors
    ///
    /// The binary cannot be copied.
    pub fn runnable(&self, path: &Path) -> io::Result<PathBuf> {
        if self.user.is_none() {
            return Ok(path.to_path_buf());
        }
        let copy = self.folder.join("backtrail");
        if !copy.exists() {
            let _ = fs::copy(path, &copy)?;
        }
        Ok(copy)
    }

    fn filled(&self, word: &str) -> String {
        word.replace("{n}", &self.size.to_string())
            .replace("{port}", &self.port.to_string())
            .replace("{folder}", &self.folder.to_string_lossy())
    }
}

/// Finds a program, first among the distribution's and then in `PATH`.
pub(super) fn resolve(program: &str) -> Option<PathBuf> {
    if program.starts_with('.') {
        // In the program's folder, which is the working directory of its commands.
        return Some(program.into());
    }
    env::split_paths(&search_path())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn search_path() -> OsString {
    let mut path = OsString::from(SYSTEM_PATH);
    if let Some(inherited) = env::var_os("PATH") {
        path.push(":");
        path.push(inherited);
    }
    path
}

pub(super) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Returns a free port. The kernel does not return the same port twice in a row.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
