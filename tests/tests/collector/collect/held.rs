//! The data kept from a crashing process.

use crate::collect::{example, program};
use crate::collector::{Collector, cannot};
use std::path::Path;
use std::process::Command;

#[test]
fn crashes_of_every_kind_are_complete() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    for (name, signal, place) in [
        ("crash_null", 11, "main"),
        ("crash_abort", 6, "main"),
        ("crash_bus", 7, "main"),
        ("crash_ud2", 4, "main"),
        ("crash_div", 8, "main"),
        ("crash_stack", 11, "main"),
        ("thread_crash", 11, "start_thread"),
    ] {
        let crash = collector.crash(&mut example(name));
        assert_eq!(crash["signal"], signal, "{crash}");
        assert_eq!(crash["complete"], true, "{crash}");
        assert!(crash["executable"].as_str().unwrap().contains(name), "{crash}");
        assert!(
            crash["crash_to_reader_us"]
                .as_f64()
                .is_some_and(|time| time > 0.0),
            "{crash}"
        );
        assert!(
            crash["held_us"].as_f64().is_some_and(|time| time > 0.0),
            "{crash}"
        );
        assert_eq!(
            (&crash["history_bytes"], &crash["crash_to_stop_us"]),
            (&0.into(), &None::<f64>.into())
        );
        let stack = collector.debug(&crash, &["backtrace -20", "backtrace 5"]);
        assert!(stack.contains(place), "{name}: {stack}");
        let checked =
            backtrail_tests::backtrail::backtrail(["check", crash["bundle"].as_str().unwrap()]).unwrap();
        assert!(checked.exited(0).stdout.contains("no faults"));
    }
    assert_eq!(collector.metric("bundles_written_total"), 7.0);
    assert_eq!(collector.metric("bundles_failed_total"), 0.0);
}

#[test]
fn crash_has_the_request_that_its_thread_worked_on() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    for name in ["request_context", "request_context_rust"] {
        let crash = collector.crash(&mut example(name));
        let context = serde_json::json!({
            "resource": {"service.name": "shop"},
            "threads": [{
                "tid": crash["tid"],
                "trace_id": "4bf92f74726163652d6f662d63617274",
                "span_id": "017370616e2d6964",
                "trace_flags": 1,
                "attributes": {"route.id": "/cart"},
            }],
        });
        assert_eq!(crash["context"], context, "{crash}");
        assert_eq!(crash["complete"], true, "{crash}");
        let shown = collector.crashes(&["show", "latest"]).exited(0).stdout;
        let request = "trace id 4bf92f74726163652d6f662d63617274, span id 017370616e2d6964, route.id /cart\n";
        assert!(shown.contains(&format!("\nrequest    {request}")), "{shown}");
        assert!(shown.contains("\nresource   service.name shop\n"), "{shown}");
        let opened = collector.debug(&crash, &["crash"]);
        assert!(opened.contains(&format!("\nrequest: {request}")), "{opened}");
    }
    let crash = collector.crash(&mut example("crash_null"));
    assert!(crash.get("context").is_none(), "{crash}");
}

#[test]
fn every_thread_is_there_with_its_name() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let crash = collector.crash(program("crowd", "../collect/crowd.c").arg("40"));
    let threads = collector.debug(&crash, &["info threads"]);
    // The first thread has ended, so the process's memory is not readable by its process id.
    assert_eq!(threads.matches(" instructions").count(), 40, "{threads}");
    assert_eq!(threads.matches("crashed").count(), 1, "{threads}");
}

#[test]
fn process_in_a_container_is_saved_completely() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    // Private namespaces, and a root that no other process sees. The program's file exists only
    // there.
    let binary = backtrail_tests::built("crash_null", backtrail_tests::programs::Variant::Static).unwrap();
    let script =
        "mount -t tmpfs none /mnt && mkdir /mnt/app && cp \"$0\" /mnt/app/inside && chroot /mnt /app/inside";
    let mut run = Command::new("unshare");
    run.args(["--mount", "--pid", "--fork", "sh", "-c", script])
        .arg(binary);
    crate::collector::quiet(&mut run).status().unwrap();
    let mut listed = Vec::new();
    crate::collector::until("it is listed", || {
        listed = collector.list();
        !listed.is_empty()
    });
    let crash = &listed[0];
    assert_eq!(crash["complete"], true, "{crash}");
    assert!(
        crash["executable"].as_str().unwrap().ends_with("/app/inside"),
        "{crash}"
    );
    assert!(crash["pid"].as_u64().unwrap() > 10, "an id of outside: {crash}");
    let stack = collector.debug(crash, &["backtrace", "info sharedlibrary"]);
    assert!(stack.contains(" in main "), "{stack}");
}

#[test]
fn thirty_sparse_gigabytes_are_saved_quickly_and_small() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let begun = std::time::Instant::now();
    let crash = collector.crash(&mut program("sparse", "../collect/sparse.c"));
    assert_eq!(crash["complete"], true, "{crash}");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    let core = Path::new(crash["bundle"].as_str().unwrap()).join("core");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&core.metadata().unwrap());
    assert!(
        core.metadata().unwrap().len() > 30 << 30 && blocks * 512 < 8 << 20,
        "{blocks}"
    );
    let bytes = [
        ("0x200000000005", "0x61"),
        ("0x20077ffffff9", "0x7a"),
        ("0x200040000000", "0x00"),
    ];
    for (address, expected) in bytes {
        let said = collector.debug(&crash, &[&format!("x/1xb {address}")]);
        assert!(said.trim_end().ends_with(expected), "{said}");
    }
}

#[test]
fn core_contents_follow_the_policy() {
    if cannot() {
        return;
    }
    let mut collector = Collector::started("[crash]\ncore = \"stacks\"\n");
    let stacks = collector.crash(&mut example("crash_null"));
    let stack = collector.debug(&stacks, &["backtrace"]);
    assert!(stack.contains(" in main "), "{stack}");
    collector.stop();
    collector.configure("[crash]\ncore = \"none\"\n");
    collector.start();
    let none = collector.crash(&mut example("crash_null"));
    collector.stop();
    collector.configure("[crash]\ncore_limit = \"4K\"\n");
    collector.start();
    let cut = collector.crash(&mut example("crash_null"));
    assert!(
        cut["missing"][0].as_str().unwrap().contains("core_limit (4K)"),
        "{cut}"
    );
    let size = |crash: &serde_json::Value| {
        let core = Path::new(crash["bundle"].as_str().unwrap()).join("core");
        std::os::unix::fs::MetadataExt::blocks(&core.metadata().unwrap()) * 512
    };
    assert!(size(&none) < size(&stacks), "{} {}", size(&none), size(&stacks));
    assert!(collector.debug(&none, &["info registers"]).contains("rip"));
    assert!(collector.debug(&cut, &["backtrace"]).contains(" in main "));
}

#[test]
fn without_holding_the_probe_event_is_saved() {
    if cannot() {
        return;
    }
    let collector = Collector::started("[crash]\nhold = \"none\"\n");
    if !collector.log().contains("crashes are reported by") {
        eprintln!("left out: no probe works here");
        return;
    }
    let crash = collector.crash(&mut example("crash_null"));
    assert_eq!(crash["complete"], false);
    assert!(
        crash["missing"][0].as_str().unwrap().contains("not held"),
        "{crash}"
    );
    assert_eq!(crash["signal"], 11);
    assert!(collector.debug(&crash, &["info registers"]).contains("rip"));
    let shown = collector.crashes(&["show"]).exited(0).stdout;
    assert!(shown.contains("SIGSEGV") && shown.contains("missing"), "{shown}");
}

#[test]
fn kernel_core_socket_saves_processes() {
    if cannot() {
        return;
    }
    let collector = Collector::new("[crash]\nhold = \"socket\"\n");
    let mut collector = collector;
    collector.start();
    if collector.log().contains("are not held") {
        eprintln!("left out: this kernel has no sockets in core_pattern (Linux 6.17)");
        return;
    }
    for name in ["crash_null", "crash_abort", "thread_crash"] {
        let crash = collector.crash(&mut example(name));
        assert_eq!(crash["complete"], true, "{crash}");
        assert!(collector.debug(&crash, &["backtrace"]).contains("#1"));
    }
    let before = crate::collector::core_pattern();
    assert!(before.starts_with("@@"), "{before}");
    collector.stop();
    assert!(!crate::collector::core_pattern().starts_with("@@"));
}
