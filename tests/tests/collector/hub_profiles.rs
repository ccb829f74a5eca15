//! The profiler in the daemon: profiles of the host reach the hub, and it lives and ends with the
//! daemon.

use crate::collector::{Collector, cannot, until};
use backtrail_tests::hub_process::{HubProcess, token};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program whose samples are recognized by its name.
const WORK: &str = "
__attribute__((noinline)) void whirl(void) { for (volatile long i = 0; i < 100000000; i++) ; }
int main(void) { for (;;) whirl(); }
";

fn built(folder: &Path) -> PathBuf {
    let (program, source) = (folder.join("whirler"), folder.join("whirler.c"));
    fs::write(&source, WORK).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    program
}

/// Returns the process id of the profiler of a collector, if it runs.
fn profiler(collector: &Collector) -> Option<u32> {
    let parent = format!("PPid:\t{}\n", collector.pid());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        read("cmdline").contains("--attached") && read("status").contains(&parent)
    })
}

fn configure(collector: &Collector, hub: &HubProcess, enabled: bool) {
    let file = collector.folder().join("token");
    let settings = format!(
        "[hub]\nurl = {:?}\ntoken_file = {file:?}\nsend = \"none\"\n\
         [profile]\nenabled = {enabled}\ninterval = \"1s\"\nregion = \"north\"\n",
        hub.address
    );
    collector.configure(&settings);
}

/// Returns the folded stacks of the program, as the hub has them.
fn stored(hub: &HubProcess, token: &str) -> String {
    let path = "/api/v1/profiles/merge?format=folded&service=whirler&region=north&from=1d";
    let answer = hub.request("GET", path, Some(token), b"").unwrap();
    match answer.status {
        200 => answer.text(),
        404 => String::new(),
        status => panic!("{status}: {}", answer.text()),
    }
}

#[test]
fn profiler_of_the_daemon_sends_profiles_and_ends_with_it() {
    if cannot() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("hub");
    let token = token(&data, &["ingest", "admin"]).unwrap();
    let hub = HubProcess::start(&data, &[]).unwrap();
    let mut collector = Collector::new("");
    fs::write(collector.folder().join("token"), &token).unwrap();
    configure(&collector, &hub, true);
    let mut work = Command::new(built(folder.path())).spawn().unwrap();
    collector.start();
    until("a profile is stored", || stored(&hub, &token).contains("whirl"));
    let first = profiler(&collector).unwrap();

    // A killed profiler is started again.
    kill(Pid::from_raw(first.cast_signed()), Signal::SIGKILL).unwrap();
    until("another profiler runs", || {
        profiler(&collector).is_some_and(|pid| pid != first)
    });
    assert!(
        collector.log().contains("the profiler has ended"),
        "{}",
        collector.log()
    );

    // The configuration ends the profiler, which starts again only with the daemon.
    configure(&collector, &hub, false);
    collector.signal(Signal::SIGHUP);
    until("the profiler ends", || profiler(&collector).is_none());
    configure(&collector, &hub, true);
    collector.stop();
    collector.start();
    until("the profiler runs", || profiler(&collector).is_some());
    let last = profiler(&collector).unwrap();
    collector.stop();
    assert!(!fs::exists(format!("/proc/{last}")).unwrap());
    work.kill().unwrap();
    work.wait().unwrap();
}
