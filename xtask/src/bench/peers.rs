//! Other tools that follow a program without trace hardware: qemu's user-mode emulator and
//! valgrind.

use super::{sentence, version};
use crate::{Failure, shell};
use backtrail_tests::real::{Child, Workspace};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A program that runs another and follows it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The column's name.
    pub name: &'static str,
    /// Which version, and what it does.
    pub about: String,
    /// The words before the program's.
    words: Vec<OsString>,
}

/// Those that are installed.
pub fn installed(folder: &Path) -> Result<Vec<Peer>, Failure> {
    let mut peers = Vec::new();
    if shell::in_path("qemu-x86_64") {
        peers.push(qemu(folder)?);
    }
    if shell::in_path("valgrind") {
        peers.push(Peer {
            name: "valgrind",
            about: format!(
                "`valgrind --tool=none` ({}): translates and records nothing",
                version("valgrind").unwrap_or_default()
            ),
            words: ["valgrind", "-q", "--tool=none"].map(Into::into).into(),
        });
    }
    Ok(peers)
}

impl Peer {
    /// The words that run `command` under it.
    pub fn words(&self, command: Vec<OsString>) -> Vec<OsString> {
        self.words.iter().cloned().chain(command).collect()
    }
}

/// With the counting plugin where it can be built and loads, else plain.
fn qemu(folder: &Path) -> Result<Peer, Failure> {
    let version = version("qemu-x86_64").unwrap_or_default();
    let plain = vec!["qemu-x86_64".into()];
    Ok(match plugin(folder).and_then(|plugin| check(&plugin, folder)) {
        Ok(plugin) => Peer {
            name: "qemu",
            about: format!(
                "`qemu-x86_64` ({version}) with a plugin that counts blocks and instructions inline"
            ),
            words: [plain, vec!["-plugin".into(), plugin.into()]].concat(),
        },
        Err(why) => Peer {
            name: "qemu",
            about: format!(
                "`qemu-x86_64` ({version}) without a plugin, for the counting plugin does not work: {why}"
            ),
            words: plain,
        },
    })
}

fn plugin(folder: &Path) -> Result<PathBuf, Failure> {
    let plugin = folder.join("count.so");
    shell::run(
        Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&plugin)
            .arg("xtask/src/bench/count.c"),
    )?;
    Ok(plugin)
}

/// Whether this qemu takes the plugin.
fn check(plugin: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let plugin = plugin
        .canonicalize()
        .map_err(|error| sentence("the plugin", &error))?;
    let mut command = Command::new("qemu-x86_64");
    command.arg("-plugin").arg(&plugin).arg("/bin/true");
    let ended = Child::run(command, folder, "qemu-check", Duration::from_secs(60))
        .map_err(|error| sentence("qemu-x86_64", &error))?;
    if ended.stderr.contains("qemu counted") {
        Ok(plugin)
    } else {
        Err(ended.told())
    }
}

/// The fastest of `runs` runs in seconds, or why there is none.
pub fn fastest(
    workspace: &Workspace,
    words: &[OsString],
    name: &str,
    runs: u32,
    limit: Duration,
    expected: Option<&[u8]>,
) -> Result<f64, Failure> {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let command = workspace.command_of(words.iter().cloned());
        let ended = workspace
            .run(command, name, limit)
            .and_then(|ended| ended.succeeded(name))
            .map_err(|error| error.to_string())?;
        if expected.is_some_and(|expected| expected != ended.stdout) {
            return Err(format!("{name}: the output differs"));
        }
        best = best.min(ended.seconds);
    }
    Ok(best)
}
