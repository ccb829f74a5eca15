//! Bundles without a crash: on request, by a signal, when a function takes too long.

use crate::collect::program;
use crate::collector::{Collector, cannot, quiet, until};
use backtrail_tests::backtrail::backtrail;
use nix::sys::signal::Signal;

#[test]
fn a_process_is_saved_on_request_and_goes_on() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let mut child = quiet(program("slow", "../collect/slow.c").arg("200"))
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let config = collector.config();
    let config = config.to_str().unwrap();
    let pid = child.id().to_string();
    let made = backtrail(["snapshot", "--pid", &pid, "--json", "--config", config])
        .unwrap()
        .exited(0);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let stack = collector.debug(&made, &["backtrace"]);
    assert!(stack.contains("main"), "{stack}");
    assert!(child.wait().unwrap().success(), "it went on to its end");
    let listed = collector.list();
    assert_eq!(
        (&listed[0]["trigger"], &listed[0]["signal"]),
        (&"snapshot".into(), &None::<i32>.into())
    );
    // An impossible request fails with one sentence.
    let gone = backtrail(["snapshot", "--pid", &pid, "--config", config])
        .unwrap()
        .exited(1);
    assert!(gone.sentence().contains(&format!("no process {pid}")), "{gone:?}");
    let all = backtrail(["snapshot", "--config", config]).unwrap().exited(1);
    assert!(all.sentence().contains("--pid"), "{all:?}");
    assert_eq!(collector.http("POST", "/snapshot?pid=x").0, 400);
    collector.signal(Signal::SIGUSR1);
    until("the signal is answered", || {
        collector.log().contains("SIGUSR1: this machine does not trace")
    });
    assert_eq!(collector.list().len(), 1);
}

#[test]
fn missing_daemon_error_names_the_fix() {
    let collector = Collector::new("");
    let config = collector.config();
    let run = backtrail(["snapshot", "--pid", "1", "--config", config.to_str().unwrap()]).unwrap();
    assert!(run.exited(1).sentence().contains("backtrail collect"));
}

#[test]
fn slow_function_call_writes_a_bundle() {
    if cannot() {
        return;
    }
    let mut slow = program("slow", "../collect/slow.c");
    let settings = format!(
        "[[function]]\nbinary = {:?}\nsymbol = \"handle\"\nlonger_than = \"30ms\"\n",
        slow.get_program()
    );
    let collector = Collector::started(&settings);
    if collector.log().contains("ERROR") {
        eprintln!("left out: uprobes cannot be had here");
        return;
    }
    // Three calls: 1 ms, 60 ms, 1 ms.
    quiet(slow.args(["1", "60", "1", "200"])).status().unwrap();
    until("it is saved", || !collector.list().is_empty());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let listed = collector.list();
    // The process may have ended at the end of the last call, of 200 ms.
    assert!(
        listed.len() <= 2 && listed[0]["trigger"] == "function",
        "{listed:?}"
    );
    let info = backtrail(["info", listed[0]["bundle"].as_str().unwrap()])
        .unwrap()
        .exited(0);
    assert!(info.stdout.contains("a call of handle"), "{}", info.stdout);
}
