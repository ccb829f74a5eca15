//! Storms, full and read-only disks, reloads, second daemons.

use crate::collect::{example, program};
use crate::collector::{Collector, cannot, quiet, until};
use backtrail_tests::backtrail::backtrail;
use nix::sys::signal::Signal;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn crash_storm_is_limited_and_counted() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[limit]\nburst = 3\nper_second = 0\n");
    let mut children: Vec<_> = (0..40)
        .map(|_| quiet(&mut example("crash_null")).spawn().unwrap())
        .collect();
    until("all have ended", || {
        children
            .iter_mut()
            .all(|child| child.try_wait().unwrap().is_some())
    });
    until("all are counted", || {
        collector.metric("bundles_written_total") + collector.metric("crashes_limited_total") >= 40.0
    });
    assert_eq!(collector.list().len(), 3);
    assert_eq!(collector.metric("crashes_limited_total"), 37.0);
    // Another executable of the same user has no allowance left; another user has a separate one.
    quiet(&mut example("crash_abort")).status().unwrap();
    until("it is counted", || {
        collector.metric("crashes_limited_total") == 38.0
    });
    let other = collector.crash(example("crash_abort").uid(65_534));
    assert_eq!(other["signal"], 6);
}

#[test]
fn storm_of_one_user_loses_no_crash_of_another() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold_limit = \"5s\"\n");
    let mut storm = program("storm", "../collect/storm.c");
    let mut storm = quiet(storm.args(["300", "3"]).uid(65_534)).spawn().unwrap();
    until("it rages", || collector.metric("crashes_limited_total") > 0.0);
    let crashed: Vec<u32> = (0..3)
        .map(|_| {
            let mut child = quiet(&mut example("crash_null")).spawn().unwrap();
            child.wait().unwrap();
            child.id()
        })
        .collect();
    storm.wait().unwrap();
    let is_saved = |pid: &u32| {
        let mut all = collector.list().into_iter();
        all.any(|crash| crash["pid"] == *pid && crash["bundle"].to_string().contains("crash_null"))
    };
    until("the crashes of root are saved", || crashed.iter().all(is_saved));
}

#[test]
fn reload_changes_limits_and_keeps_crashes() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[limit]\nburst = 0\nper_second = 0\n");
    quiet(&mut example("crash_null")).status().unwrap();
    until("it is counted", || {
        collector.metric("crashes_limited_total") == 1.0
    });
    collector.configure("[limit]\nburst = 0.5\n");
    collector.signal(Signal::SIGHUP);
    until("the mistake is told", || {
        collector.log().contains("configuration is unchanged")
    });
    assert!(collector.log().contains("line 5"), "{}", collector.log());
    collector.configure("[limit]\nburst = 10\nper_second = 1000\n");
    collector.signal(Signal::SIGHUP);
    until("it is reloaded", || collector.log().contains("reloaded"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    collector.crash(&mut example("crash_null"));
    until("it is counted", || {
        collector.metric("bundles_written_total") == 1.0
    });
}

#[test]
fn a_second_daemon_refuses_in_one_sentence() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let config = collector.config();
    let second = backtrail(["collect", "--config", config.to_str().unwrap()])
        .unwrap()
        .exited(1);
    assert!(
        second
            .sentence()
            .contains(&format!("process {}", collector.pid())),
        "{second:?}"
    );
    let restored = backtrail(["collect", "--restore", "--config", config.to_str().unwrap()]).unwrap();
    assert!(restored.exited(1).sentence().contains("is running at"));
    let (status, health) = collector.http("GET", "/health");
    assert_eq!(status, 200);
    assert!(health.contains("\"status\":\"ok\""), "{health}");
    assert_eq!(collector.http("GET", "/nowhere").0, 404);
}

#[test]
fn full_disk_loses_only_that_crash() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("spool_free = 0\n");
    let spool = collector.spool();
    std::fs::create_dir(&spool).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "none"])
        .arg(&spool)
        .status();
    assert!(mounted.unwrap().success());
    struct Mount(std::path::PathBuf);
    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _mount = Mount(spool.clone());
    collector.start();
    let ballast = spool.join("ballast");
    std::fs::write(&ballast, vec![1; 6 << 20]).unwrap_or(());
    quiet(&mut example("crash_null")).status().unwrap();
    until("it is told", || collector.metric("bundles_failed_total") >= 1.0);
    assert!(collector.list().is_empty());
    std::fs::remove_file(&ballast).unwrap();
    let crash = collector.crash(&mut example("crash_null"));
    assert_eq!(crash["complete"], true, "{crash}");
    // A read-only file system is like a full one.
    let remounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&spool)
        .status();
    assert!(remounted.unwrap().success());
    quiet(&mut example("crash_null")).status().unwrap();
    until("it is told", || collector.metric("bundles_failed_total") >= 2.0);
    assert_eq!(collector.list().len(), 1);
}

#[test]
fn full_spool_removes_the_oldest_crashes() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    for _ in 0..3 {
        collector.crash(&mut example("crash_null"));
    }
    collector.configure("spool_limit = 1\n");
    collector.signal(Signal::SIGHUP);
    until("it is reloaded", || collector.log().contains("reloaded"));
    collector.crash(&mut example("crash_abort"));
    until("the oldest are gone", || collector.list().len() == 1);
    assert_eq!(collector.list()[0]["signal"], 6);
    until("all are counted", || {
        let listed = collector.crashes(&["list"]).exited(0).stdout;
        listed.contains("3 older crashes were removed")
    });
}
