//! VS Code with our extension, driven as by a user in a headless browser.
//!
//! `tests/vscode/` has the steps and the expected views. This file records a crash and starts the
//! server. `cargo xtask vscode` installs the dependencies and prints the variables that name them.
//! Screenshots are written to `vscode-shots` of the cargo target directory, and after a failure the
//! text of the page.

use crate::bakery::{bakery, record, variable};
use crate::profiles;
use backtrail_tests::backtrail::{backtrail, binary, repository};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The path of VS Code within the packages.
const SERVER: &str = "node_modules/code-server/lib/vscode/out/server-main.js";
/// The time limits of the server's start and of all steps together.
const START: Duration = Duration::from_secs(60);
const STEPS: Duration = Duration::from_secs(540);

/// A process and its children, which end when this is dropped.
pub struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id() as i32);
        let _ = killpg(group, Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if matches!(self.0.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// One VS Code at a time: two are too slow on a small machine.
static TURN: Mutex<()> = Mutex::new(());

/// The installed tools; `None`, with a message, if something is missing.
pub struct Installed {
    node: PathBuf,
    packages: PathBuf,
    extension: PathBuf,
    browser: PathBuf,
}

impl Installed {
    /// Finds the tools.
    pub fn find() -> Option<Self> {
        let browser = std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join("chromium"))
            .find(|program| program.is_file());
        let found = || {
            Some(Self {
                node: variable("BACKTRAIL_NODE")?,
                packages: variable("BACKTRAIL_VSCODE")?,
                extension: variable("BACKTRAIL_VSIX")?,
                browser: browser?,
            })
        };
        let found = found();
        if found.is_none() {
            eprintln!(
                "skipped: VS Code, a browser or our extension is missing; cargo xtask vscode installs and names them"
            );
        }
        found
    }

    /// Returns VS Code's server with its own folders below `home`.
    fn server(&self, home: &Path) -> Command {
        let mut server = Command::new(&self.node);
        server
            .arg(self.packages.join(SERVER))
            .args(["--host", "127.0.0.1", "--port", "0"])
            .args(["--without-connection-token", "--accept-server-license-terms"])
            .args(["--telemetry-level", "off", "--disable-workspace-trust"])
            .arg("--server-data-dir")
            .arg(home.join("server"))
            .arg("--user-data-dir")
            .arg(home.join("user"))
            .arg("--extensions-dir")
            .arg(home.join("extensions"))
            // A separate user without an extension gallery.
            .env("HOME", home)
            .env("EXTENSIONS_GALLERY", "{}")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .process_group(0);
        server
    }

    /// Installs our extension for the user at `home`, and writes the settings.
    pub fn prepare(&self, home: &Path, machine: &serde_json::Value) {
        let installation = self
            .server(home)
            .arg("--install-extension")
            .arg(&self.extension)
            .output()
            .unwrap();
        assert!(installation.status.success(), "{installation:?}");
        write_json(&home.join("user/Machine/settings.json"), machine);
        write_json(
            &home.join("user/User/settings.json"),
            &json!({
                "chat.disableAIFeatures": true,
                // Keys pressed during a stop would go into the source.
                "debug.focusEditorOnBreak": false,
                "editor.minimap.enabled": false,
                "extensions.ignoreRecommendations": true,
                "files.autoSave": "off",
                "security.workspace.trust.enabled": false,
                "telemetry.telemetryLevel": "off",
                "workbench.startupEditor": "none",
                "workbench.secondarySideBar.defaultVisibility": "hidden",
                "workbench.tips.enabled": false,
            }),
        );
    }
}

fn write_json(file: &Path, value: &serde_json::Value) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, serde_json::to_vec_pretty(value).unwrap()).unwrap();
}

/// Starts the server, and waits until it prints its port.
fn start(installed: &Installed, home: &Path) -> (Group, String) {
    let log = home.join("server.log");
    let output = File::create(&log).unwrap();
    let child = installed
        .server(home)
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let group = Group(child);
    let end = Instant::now() + START;
    loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let port = said
            .split_once("agent listening on ")
            .and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((port, _)) = port {
            return (group, format!("http://127.0.0.1:{}", port.trim()));
        }
        assert!(Instant::now() < end, "VS Code does not start:\n{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Creates a collector's spool with one crash, and returns it with the link that `backtrail crashes
/// link` prints.
fn collected(home: &Path, bundle: &Path) -> (PathBuf, String) {
    let spool = home.join("spool");
    fs::create_dir(&spool).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(bundle)
        .arg(spool.join("000007-bakery-42"))
        .status()
        .unwrap();
    assert!(copied.success());
    let arguments: [&OsStr; 4] = [
        "crashes".as_ref(),
        "link".as_ref(),
        "--spool".as_ref(),
        spool.as_ref(),
    ];
    let printed = backtrail(arguments).unwrap().exited(0);
    let link = printed.stdout.trim();
    // The server is built from the sources, which use another scheme.
    let rest = link.strip_prefix("vscode://").unwrap();
    (spool, format!("code-oss://{rest}"))
}

/// Writes a profile of the bakery. Its source is named by a path of another machine.
fn write_profile(workspace: &Path) {
    let source = fs::read_to_string(workspace.join("bakery.c")).unwrap();
    let line = |text: &str| 1 + source.lines().position(|line| line.contains(text)).unwrap();
    let sale = format!("serve:{}", line("int total = bread->price"));
    let sum = format!("checksum:{}", line("return sum & 1023;"));
    let samples = [("cpu", 0, &*sale), ("cpu", 1, &*sale), ("cpu", 2, &*sum)];
    let elsewhere = Path::new("/build/elsewhere/bakery.c");
    profiles::write(&workspace.join("bakery.otlp"), elsewhere, &samples);
}

#[test]
fn a_crash_is_walked_in_vs_code() {
    let Some(installed) = Installed::find() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let workspace = home.join("bakery");
    let bundle = bakery(&workspace);
    let values = home.join("values.bundle");
    record(&workspace.join("bakery"), &values, &["--values"]);
    for (bundle, packed) in [(&bundle, "crash.btz"), (&values, "values.btz")] {
        let packed = workspace.join(packed);
        let pack: [&OsStr; 4] = ["pack".as_ref(), bundle.as_ref(), "-o".as_ref(), packed.as_ref()];
        let _ = backtrail(pack).unwrap().exited(0);
    }

    write_profile(&workspace);
    let (spool, collected) = collected(home, &bundle);
    write_json(
        &workspace.join(".vscode/launch.json"),
        &json!({"version": "0.2.0", "configurations": [
            {"type": "backtrail", "request": "launch", "name": "Bakery", "bundle": "${workspaceFolder}/crash.btz"}
        ]}),
    );
    // Returns a free port for our listener.
    let files = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    installed.prepare(
        home,
        &json!({
            "backtrail.path": fs::canonicalize(binary().unwrap()).unwrap(),
            "backtrail.allowedOrigins": [format!("http://{files}")],
            "backtrail.spool": spool,
        }),
    );
    let walk = Walk {
        installed: &installed,
        home,
        workspace: &workspace,
        variables: vec![
            ("BACKTRAIL_FILES", files.to_string()),
            ("BACKTRAIL_COLLECTED", collected),
        ],
        shots: "vscode-shots",
    };
    walk.succeeds_within_two_tries();
}

/// All that the steps need.
pub struct Walk<'a> {
    /// The tools.
    pub installed: &'a Installed,
    /// The home of the user.
    pub home: &'a Path,
    /// The folder that VS Code opens.
    pub workspace: &'a Path,
    /// Variables of the environment for some of the steps.
    pub variables: Vec<(&'static str, String)>,
    /// The folder for screenshots, within cargo's target directory.
    pub shots: &'static str,
}

impl Walk<'_> {
    /// Runs all steps, and runs them again after a failure.
    ///
    /// A browser and an editor on a busy machine lose a key now and then. The output of the first
    /// failure is printed.
    pub fn succeeds_within_two_tries(&self) {
        let _turn: MutexGuard<'_, ()> = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
        let shots = target.join(self.shots);
        if !self.succeeds(&shots) {
            println!("once more, from the start");
            assert!(
                self.succeeds(&shots),
                "see what was printed, and {}",
                shots.display()
            );
        }
    }

    /// Starts the server, runs all steps, and returns whether they succeeded.
    fn succeeds(&self, shots: &Path) -> bool {
        let (server, address) = start(self.installed, self.home);
        let _ = fs::remove_dir_all(shots);
        fs::create_dir_all(shots).unwrap();
        let steps = Command::new(&self.installed.node)
            .arg(repository().join("tests/vscode/drive.mjs"))
            .env("BACKTRAIL_VSCODE", &self.installed.packages)
            .env("BACKTRAIL_CHROMIUM", &self.installed.browser)
            .env("BACKTRAIL_BIN", binary().unwrap())
            .env("BACKTRAIL_ADDRESS", address)
            .env("BACKTRAIL_SERVER", server.0.id().to_string())
            .env("BACKTRAIL_WORKSPACE", self.workspace)
            .envs(self.variables.iter().cloned())
            .env("BACKTRAIL_SHOTS", shots)
            .env("HOME", self.home)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut steps = Group(steps);
        let end = Instant::now() + STEPS;
        let status = loop {
            if let Some(status) = steps.0.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                eprintln!("the steps take more than {STEPS:?}");
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if !status.success() {
            let _ = fs::copy(self.home.join("server.log"), shots.join("server.log"));
        }
        status.success()
    }
}
