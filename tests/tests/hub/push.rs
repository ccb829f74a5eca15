//! `push` and `login`: reports, uploads, and every fault on the way.

use super::{User, crash, outcome};
use backtrail_bundle::{Bundle, CancelToken, unpack_partial};
use backtrail_tests::hub_server::{Fault, HubServer, TOKEN};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the offsets in the program's file of the frames that GDB finds in the core.
fn offsets_by_gdb(folder: &Path, bundle: &Path) -> Option<Vec<u64>> {
    let output = Command::new("gdb")
        .args(["--batch", "-nx", "-ex", "bt", "-ex", "info proc mappings"])
        .arg(folder.join("ledger"))
        .arg(bundle.join("core"))
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let mappings: Vec<(u64, u64, u64)> = text
        .lines()
        .filter(|line| line.ends_with("/ledger"))
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(hexadecimal);
            let (start, end) = (words.next()??, words.next()??);
            // The size comes before the offset.
            Some((start, end, words.nth(1)??))
        })
        .collect();
    // GDB prints the address of a frame, except that of the innermost one at the start of a line.
    let frames = Command::new("gdb")
        .args([
            "--batch", "-nx", "-ex", "p/x $pc", "-ex", "up", "-ex", "p/x $pc", "-ex", "up", "-ex", "p/x $pc",
        ])
        .arg(folder.join("ledger"))
        .arg(bundle.join("core"))
        .output()
        .ok()?;
    let frames = String::from_utf8_lossy(&frames.stdout).into_owned();
    let addresses = frames
        .lines()
        .filter_map(|line| hexadecimal(line.split_once(" = ")?.1));
    let offsets = addresses.filter_map(|address| {
        let (start, _, offset) = mappings
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&address))?;
        Some(address - start + offset)
    });
    Some(offsets.collect())
}

#[test]
fn pushed_crash_has_gdbs_stack_and_a_link() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    let path = bundle.to_str().unwrap();
    let run = user
        .run(&["push", path, "--build", "2026.11.3", "--json"])
        .exited(0);
    let pushed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(pushed["schema"], "backtrail-push/1");
    assert_eq!(pushed["sent"], true);
    let state = hub.state();
    let id = pushed["id"].as_str().unwrap();
    let report = &state.reports[id];
    assert_eq!(pushed["link"], format!("{}/c/{id}", hub.address));
    assert_eq!(
        (&report["service"], &report["build"]),
        (&"ledger".into(), &"2026.11.3".into())
    );
    assert_eq!(
        (&report["signal"], &report["fault_address"]),
        (&11.into(), &0.into())
    );
    let frames = report["frames"].as_array().unwrap();
    let own: Vec<u64> = frames
        .iter()
        .filter(|frame| frame["module"].as_str().unwrap().ends_with("/ledger"))
        .map(|frame| frame["offset"].as_u64().unwrap())
        .collect();
    assert!(
        frames.iter().all(|frame| frame["build_id"].is_string()),
        "{frames:?}"
    );
    match offsets_by_gdb(user.home(), &bundle) {
        // Callers are reported by the last byte of their call.
        Some(gdb) if gdb.len() == 3 => {
            assert_eq!(own.get(..3).unwrap(), [gdb[0], gdb[1] - 1, gdb[2] - 1]);
        }
        found => eprintln!("left out: gdb does not show the stack ({found:?})"),
    }
    assert!(own.len() >= 3, "{frames:?}");
    // The bundle that came is complete.
    let received = user.home().join("received.btz");
    fs::write(&received, &state.bundles[id]).unwrap();
    assert_eq!(
        Bundle::open(&received).unwrap().manifest(),
        Bundle::open(&bundle).unwrap().manifest()
    );
}

#[test]
fn modules_that_the_hub_has_are_left_out() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    let opened = Bundle::open(&bundle).unwrap();
    let modules = &opened.manifest().processes[0].modules;
    let libc = modules
        .iter()
        .find(|module| module.path.contains("libc.so"))
        .unwrap();
    hub.state()
        .modules
        .insert(libc.build_id.as_ref().unwrap().to_string());
    let run = user.run(&["push", bundle.to_str().unwrap()]).exited(0);
    let id = run.stdout.trim().rsplit('/').next().unwrap().to_owned();
    let packed = user.home().join("received.btz");
    fs::write(&packed, &hub.state().bundles[&id]).unwrap();
    let target = user.home().join("unpacked");
    let file = File::open(&packed).unwrap();
    let missing = unpack_partial(&file, &target, 1 << 30, &CancelToken::default()).unwrap();
    assert_eq!(missing.len(), 1);
    assert_eq!(Some(&missing[0].file), libc.file.as_ref());
}

#[test]
fn pushing_again_counts_once() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    let packed = user.home().join("ledger.btz");
    let path = bundle.to_str().unwrap();
    let _ = user
        .run(&["pack", path, "-o", packed.to_str().unwrap()])
        .exited(0);
    let first = user.run(&["push", path]).exited(0).stdout;
    assert_eq!(
        user.run(&["push", packed.to_str().unwrap()]).exited(0).stdout,
        first
    );
    let state = hub.state();
    assert_eq!((state.reports.len(), state.received), (1, 2));
}

#[test]
fn upload_survives_cuts_errors_and_lost_answers() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    hub.state().faults = [
        Fault::None,
        Fault::Status(500, ""),
        Fault::None,
        Fault::Cut(1000),
        Fault::Status(429, "Retry-After: 1\r\n"),
        Fault::LostAnswer,
    ]
    .into();
    let _ = user.run(&["push", bundle.to_str().unwrap()]).exited(0);
    assert!(hub.state().faults.is_empty());
    assert_eq!(hub.state().bundles.len(), 1);
}

#[test]
fn failures_are_one_sentence() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    let bundle = crash(user.home());
    let path = bundle.to_str().unwrap();
    let run = user.run(&["push", path]).exited(2);
    assert!(run.sentence().contains("no hub is known"), "{}", run.stderr);
    let run = user
        .run(&["push", path, "--hub", "http://hub.example.com"])
        .exited(2);
    assert!(run.sentence().contains("use an HTTPS address"), "{}", run.stderr);
    let run = user.run(&["push", path, "--hub", &hub.address]).exited(1);
    assert!(
        run.sentence().contains("does not accept the token"),
        "{}",
        run.stderr
    );
    user.login(&hub);
    hub.state().is_down = true;
    let run = user.run(&["push", path]).exited(1);
    assert!(
        run.sentence().contains("503") && run.sentence().contains("try again later"),
        "{}",
        run.stderr
    );
    hub.state().is_down = false;
    hub.state().faults = [Fault::Status(400, "")].into();
    let run = user.run(&["push", path]).exited(1);
    assert!(run.sentence().contains("as scripted"), "{}", run.stderr);
    let healthy = user.home().join("healthy.bundle");
    let _ = user
        .run(&["record", "-o", healthy.to_str().unwrap(), "--", "/bin/true"])
        .exited(0);
    let run = user.run(&["push", healthy.to_str().unwrap()]).exited(1);
    assert!(run.sentence().contains("has no crash"), "{}", run.stderr);
    fs::write(bundle.join("trace.json"), "{").unwrap();
    let run = user.run(&["push", path]).exited(3);
    assert!(run.sentence().contains("trace.json"), "{}", run.stderr);
}

#[test]
fn hub_that_wants_no_bundle_may_refuse_it() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    hub.state().wants_nothing = true;
    hub.state().faults = [Fault::None, Fault::Status(409, "")].into();
    let run = user.run(&["push", bundle.to_str().unwrap(), "--json"]).exited(0);
    let pushed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&pushed["sent"], &pushed["bytes"]), (&false.into(), &0.into()));
    assert!(hub.state().bundles.is_empty());
}

#[test]
fn token_is_private_and_goes_to_its_hub_only() {
    let (hub, other, user) = (
        HubServer::start().unwrap(),
        HubServer::start().unwrap(),
        User::new(),
    );
    user.login(&hub);
    let file = user.home().join(".config/backtrail/hub.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bundle = crash(user.home());
    let path = bundle.to_str().unwrap();
    // The other hub gets no token, and refuses.
    let _ = user.run(&["push", path, "--hub", &other.address]).exited(1);
    let arguments = ["push", path].map(OsStr::new);
    let mut with_token = user.command(&arguments);
    with_token
        .env("BACKTRAIL_HUB", &other.address)
        .env("BACKTRAIL_HUB_TOKEN", TOKEN);
    let _ = outcome(&mut with_token).exited(0);
    assert_eq!((other.state().reports.len(), hub.state().reports.len()), (1, 0));
    let wrong = user.home().join("wrong");
    fs::write(&wrong, "bt_wrong").unwrap();
    let run = user
        .run(&["login", &hub.address, "--token-file", wrong.to_str().unwrap()])
        .exited(1);
    assert!(!run.stderr.contains("bt_wrong"), "{}", run.stderr);
    assert!(
        fs::read_to_string(&file).unwrap().contains(TOKEN),
        "the stored token stays"
    );
}

#[test]
fn interrupt_ends_a_push_to_a_hub_that_hangs() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    hub.state().faults = [Fault::Hang(20_000)].into();
    let requests = hub.state().requests.len();
    let arguments = ["push".as_ref(), bundle.as_os_str()];
    let mut child = user.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while hub.state().requests.len() == requests {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupted = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        interrupted.elapsed() < Duration::from_secs(5),
        "{:?}",
        interrupted.elapsed()
    );
}
