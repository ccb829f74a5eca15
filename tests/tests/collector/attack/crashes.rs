//! Hostile users, and the daemon that reads their crashes.

use crate::collector::{Collector, CorePattern, cannot, core_pattern, quiet, until};
use backtrail_tests::build;
use backtrail_tests::programs::{Ending, Program, Variant};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An ordinary user, and another one.
const ATTACKER: u32 = 65_534;
const VICTIM: u32 = 54_321;
/// The limit in the daemon's own unit (`MemoryMax=` without traces).
const MEMORY_MAX: u64 = 528 << 20;

fn binary(name: &'static str, source: &'static str) -> PathBuf {
    let program = Program {
        name,
        source,
        flags: &["-O1", "-g"],
        variants: &[Variant::Pie],
        ending: Ending::Signal(11),
        deterministic: false,
    };
    build(&program, Variant::Pie).unwrap()
}

/// A folder that ordinary users may enter, with programs copied into it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("bt").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let to = self.path(name);
        fs::copy(program, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    }
}

/// A command of a user.
pub fn by(user: u32, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(user).gid(user).current_dir("/");
    command
}

pub fn memory() -> PathBuf {
    binary("memory", "../attack/memory.c")
}

pub fn storm_program() -> PathBuf {
    binary("storm", "../attack/storm.c")
}

/// Returns the peak memory of the daemon.
pub fn peak(collector: &Collector) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", collector.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn held(crash: &Value) -> Duration {
    Duration::from_secs_f64(crash["held_us"].as_f64().unwrap() / 1e6)
}

fn blocks(path: &Path) -> u64 {
    let metadata = path.symlink_metadata().unwrap();
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    fs::read_dir(path)
        .unwrap()
        .map(|entry| blocks(&entry.unwrap().path()))
        .sum()
}

#[test]
fn untouched_executable_memory_costs_nothing() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\n");
    let place = Place::new();
    let program = place.copy(&memory(), "memory");
    let crash = collector.crash(by(ATTACKER, &program).args(["code", "12", "250"]));
    assert_eq!(crash["complete"], true, "{crash}");
    assert!(held(&crash) < Duration::from_secs(2), "{crash}");
    assert!(peak(&collector) < MEMORY_MAX / 2, "{}", peak(&collector));
    let bundle = PathBuf::from(crash["bundle"].as_str().unwrap());
    assert!(blocks(&bundle) < 64 << 20, "{}", blocks(&bundle));
}

#[test]
fn a_sparse_binary_stays_sparse() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\n");
    let place = Place::new();
    let program = place.copy(&memory(), "sparse");
    File::options()
        .write(true)
        .open(&program)
        .unwrap()
        .set_len(4 << 30)
        .unwrap();
    let crash = collector.crash(&mut by(ATTACKER, &program));
    assert_eq!(crash["complete"], true, "{crash}");
    assert!(held(&crash) < Duration::from_secs(2), "{crash}");
    let bundle = PathBuf::from(crash["bundle"].as_str().unwrap());
    assert!(blocks(&bundle) < 64 << 20, "{}", blocks(&bundle));
    assert!(collector.debug(&crash, &["backtrace"]).contains("main"));
}

#[test]
fn pages_of_files_count_against_core_limit() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\ncore_limit = \"16M\"\n");
    let place = Place::new();
    let program = place.copy(&memory(), "memory");
    let file = place.path("file");
    File::create(&file).unwrap().set_len(1 << 40).unwrap();
    for mebibytes in ["300", "1048576"] {
        let crash = collector.crash(by(ATTACKER, &program).arg("pages").arg(&file).arg(mebibytes));
        let missing = crash["missing"][0].as_str().unwrap();
        assert!(missing.contains("core_limit (16M)"), "{crash}");
        assert!(held(&crash) < Duration::from_secs(2), "{crash}");
        let core = Path::new(crash["bundle"].as_str().unwrap()).join("core");
        assert!(blocks(&core) < 17 << 20, "{}", blocks(&core));
        assert!(collector.debug(&crash, &["backtrace"]).contains("main"));
    }
}

#[test]
fn thirty_thousand_mappings_are_saved_in_time() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"10s\"\n");
    let place = Place::new();
    let program = place.copy(&memory(), "memory");
    let crash = collector.crash(by(ATTACKER, &program).args(["mappings", "32000"]));
    let missing = crash["missing"].to_string();
    assert!(missing.contains("mappings of binaries are left out"), "{crash}");
    assert!(held(&crash) < Duration::from_secs(5), "{crash}");
    assert!(peak(&collector) < MEMORY_MAX / 2, "{}", peak(&collector));
    assert!(collector.debug(&crash, &["backtrace"]).contains("main"));
}

#[test]
fn binary_truncated_during_saving_kills_no_process() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let place = Place::new();
    let program = place.copy(&memory(), "memory");
    let bare = place.path("bare");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/attack/memory.c");
    let built = Command::new("cc")
        .arg("-Wl,--build-id=none")
        .arg("-o")
        .arg(&bare)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    for _ in 0..4 {
        let file = File::options().write(true).open(&bare).unwrap();
        file.set_len(2 << 30).unwrap();
        let cut = std::thread::spawn(move || {
            for size in (0..200u64).rev() {
                file.set_len(16_384 + size * 4096).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let crash = collector.crash(by(ATTACKER, &program).arg("elf").arg(&bare));
        assert_eq!(crash["signal"], 11, "{crash}");
        cut.join().unwrap();
    }
    // The same daemon has written all bundles. It counts one shortly after it is listed.
    until("all bundles are counted", || {
        collector.metric("bundles_written_total") == 4.0
    });
}

/// Starts a file system that never returns data, and processes of the attacker that crash with one
/// of its files mapped. The server answers `opens` open requests, or all. Returns `None` if the
/// kernel does not let ordinary users mount one.
pub fn silent(place: &Place, user: u32, seconds: u32, count: u32, opens: Option<u32>) -> Option<Child> {
    let device = place.path("fuse");
    let made = Command::new("mknod")
        .arg(&device)
        .args(["-m", "666", "c", "10", "229"])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return None;
    }
    let program = place.copy(&binary("silent", "../attack/silent.c"), "silent");
    let mount = place.path("mount");
    fs::create_dir(&mount).unwrap();
    let mut server = by(user, &program)
        .arg(&device)
        .arg(&mount)
        .args([seconds.to_string(), count.to_string()])
        .args(opens.map(|opens| opens.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    if said.trim() == "ready" {
        return Some(server);
    }
    server.wait().unwrap();
    None
}

#[test]
fn hanging_file_system_delays_no_other_user() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\n");
    let place = Place::new();
    let victim = place.copy(&memory(), "victim");
    let Some(mut server) = silent(&place, ATTACKER, 12, 4, None) else {
        return eprintln!("left out: no user can mount a FUSE file system here");
    };
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..3 {
        let begun = Instant::now();
        let crash = collector.crash(&mut by(VICTIM, &victim));
        assert_eq!(crash["complete"], true, "{crash}");
        assert!(held(&crash) < Duration::from_secs(2), "{crash}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    until("the attacker's crashes are saved, too", || {
        let listed = collector.list();
        let silent = listed.iter().filter(|crash| {
            crash["executable"]
                .as_str()
                .is_some_and(|path| path.ends_with("silent"))
        });
        silent
            .filter(|crash| crash["missing"].to_string().contains("may not answer"))
            .count()
            == 4
    });
    for crash in collector.list() {
        assert!(held(&crash) < Duration::from_secs(6), "{crash}");
    }
    server.wait().unwrap();
}

#[test]
fn processes_blocked_in_open_count_for_their_user() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\n");
    let place = Place::new();
    let victim = place.copy(&memory(), "victim");
    // The processes open the file themselves; any later open blocks.
    let Some(mut server) = silent(&place, ATTACKER, 15, 5, Some(5)) else {
        return eprintln!("left out: no user can mount a FUSE file system here");
    };
    until("two processes hang", || collector.metric("workers_stuck") == 2.0);
    let crash = collector.crash(&mut by(VICTIM, &victim));
    assert_eq!(crash["complete"], true, "{crash}");
    until("the attacker's crashes are saved as the probe saw them", || {
        let listed = collector.list();
        let refused = listed.iter().filter(|crash| {
            let missing = crash["missing"].to_string();
            missing.contains("are stuck in a file system that does not answer")
        });
        refused.count() >= 2
    });
    assert_eq!(
        collector.metric("workers_stuck"),
        2.0,
        "no more are started for it"
    );
    server.wait().unwrap();
    until("they end with their file system", || {
        collector.metric("workers_stuck") == 0.0
    });
}

/// Crashes programs of one user during another user's storm of crashes.
fn storm(processes: u32, seconds: u32, crashes: usize) {
    let mut collector = Collector::new("[crash]\nhold_limit = \"5s\"\n");
    let _before = CorePattern::set("core");
    collector.start();
    let place = Place::new();
    let storm = place.copy(&storm_program(), "storm");
    let victim = place.copy(&memory(), "victim");
    let mut storming = quiet(&mut by(ATTACKER, &storm))
        .args([processes.to_string(), seconds.to_string()])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut pids = Vec::new();
    for _ in 0..crashes {
        let mut child = quiet(&mut by(VICTIM, &victim)).spawn().unwrap();
        let begun = Instant::now();
        child.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        pids.push(child.id());
    }
    assert!(storming.try_wait().unwrap().is_none(), "the storm goes on");
    storming.wait().unwrap();
    let mut saved = Vec::new();
    until("all crashes of the victim are saved", || {
        saved = collector.list();
        let of_victim = saved
            .iter()
            .filter(|crash| pids.iter().any(|pid| crash["pid"] == *pid));
        of_victim.count() == crashes
    });
    for crash in saved
        .iter()
        .filter(|crash| pids.iter().any(|pid| crash["pid"] == *pid))
    {
        assert_eq!(crash["complete"], true, "{crash}");
    }
    assert!(peak(&collector) < MEMORY_MAX, "{}", peak(&collector));
    collector.stop();
    assert_eq!(core_pattern(), "core");
}

#[test]
fn crash_storm_loses_no_crash_of_another_user() {
    if !cannot() {
        storm(300, 8, 10);
    }
}

/// `cargo xtask test-all`: the storm of the design.
#[test]
#[ignore = "takes minutes"]
fn a_long_storm_loses_none_of_a_hundred_crashes() {
    if !cannot() {
        storm(300, 90, 100);
    }
}

#[test]
fn recorder_cannot_claim_another_users_program() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let place = Place::new();
    let claim = place.copy(&binary("claim", "../attack/claim.c"), "claim");
    let elevated = place.copy(&memory(), "elevated");
    fs::set_permissions(&elevated, fs::Permissions::from_mode(0o4755)).unwrap();
    // Cores of set-user-ID programs are dumped to handlers where this says so (proc_sys_fs(5)).
    let socket = collector.folder().join("run/recorder.socket");
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = by(ATTACKER, &claim)
        .arg(&socket)
        .arg(&elevated)
        .arg("20")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    let pid: u32 = said
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()
        .unwrap();
    let begun = Instant::now();
    until("the crash of the program that became root's is saved", || {
        collector.list().iter().any(|crash| crash["pid"] == pid)
    });
    assert!(
        begun.elapsed() < Duration::from_secs(18),
        "while its recorder still kept the connection"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
