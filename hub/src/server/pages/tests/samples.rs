//! Sample views, and a test that writes their pages to files.

use super::*;
use crate::analysis::{
    Access, CallEdge, ExecutedLine, FrameView, GapView, InterruptedBy, KnownValue, LastCall, ModuleView,
    Snapshot, StackView, SymbolState, ValueKind,
};
use backtrail_debugger::timeline::chart::{
    ColumnState, TimeUnit, Timeline, TimelineCall, TimelineCrash, TimelineState, TimelineThread,
};
use std::path::Path;

/// Texts of an analysis that are names of kinds.
pub(super) const KEYWORDS: [&str; 12] = [
    "read",
    "write",
    "argument",
    "local",
    "no-file",
    "none",
    "symbol-table",
    "debug-information",
    "ns",
    "ran",
    "gap",
    "instructions",
];
/// The time of the samples, in microseconds since 1970.
const NOW: i64 = 1_795_788_000_000_000;
/// Microseconds in an hour.
const HOUR: i64 = 3_600_000_000;

/// An analysis with something in each list.
pub(super) fn analysis() -> Analysis {
    let frame = |function: &str, line| FrameView {
        frame: Frame {
            function: Some(function.to_owned()),
            file: Some("/src/bank/ledger.c".to_owned()),
            line: Some(line),
            inlined: line == 41,
            module: Some("/srv/bank/ledger".to_owned()),
            build_id: Some("a1b2".to_owned()),
            offset: Some(0x1204),
        },
        pc: Some(0x40_1204),
        values: vec![
            value(ValueKind::Argument, "account", "0x0"),
            value(ValueKind::Local, "sum", "41"),
        ],
        ..FrameView::default()
    };
    let stack = |thread, name: &str| StackView {
        thread,
        name: Some(name.to_owned()),
        position: format!("t{thread}#-0"),
        instructions: 12_345,
        frames: vec![frame("balance_of(account const*)", 41), frame("main", 80)],
        more: true,
        unknown_beyond: Some("the stack is cut".to_owned()),
    };
    Analysis {
        version: VERSION,
        program: Some("/srv/bank/ledger".to_owned()),
        cause: cause(),
        crashed: stack(7, "worker"),
        threads: vec![stack(8, "timer")],
        more_threads: 2,
        source: Some(SourceView {
            file: "/src/bank/ledger.c".to_owned(),
            first: 40,
            current: 41,
            lines: Some(vec![
                "int balance(account *a) {".to_owned(),
                "  return a->sum;".to_owned(),
            ]),
            bundled: None,
            executions: vec![None, Some(3)],
        }),
        calls: vec![LastCall {
            function: "balance_of".to_owned(),
            depth: 3,
            file: Some("/src/bank/ledger.c".to_owned()),
            line: Some(40),
            position: "t7#-12".to_owned(),
            inlined: true,
            left: Some("history ends".to_owned()),
            duration: Some("3 ns".to_owned()),
        }],
        lines: vec![ExecutedLine {
            function: Some("balance_of".to_owned()),
            depth: 40,
            file: Some("/src/bank/ledger.c".to_owned()),
            line: Some(41),
            text: Some("  return a->sum;".to_owned()),
            count: Some(3),
            position: "t7#-2".to_owned(),
            inlined: true,
        }],
        before_lines: Some("gap: the buffer was full".to_owned()),
        exact_calls: Vec::new(),
        branches: Vec::new(),
        edges: vec![CallEdge {
            caller: Some("main".to_owned()),
            callee: "balance_of".to_owned(),
            position: "t7#-12".to_owned(),
        }],
        gaps: vec![GapView {
            position: "t7#-900".to_owned(),
            cause: "overflow".to_owned(),
        }],
        more_gaps: 1,
        modules: vec![
            module("/srv/bank/ledger", SymbolState::DebugInformation),
            module("/lib/x86_64-linux-gnu/libc.so.6", SymbolState::SymbolTable),
            module("/opt/vendor.so", SymbolState::None),
            module("/opt/gone.so", SymbolState::NoFile),
        ],
        timelines: vec![timeline()],
        labels: BTreeMap::from([("route".to_owned(), "/transfer".to_owned())]),
        resource: BTreeMap::from([("service.name".to_owned(), "ledger".to_owned())]),
        snapshot: snapshot(),
        notes: vec!["the kernel is not traced".to_owned()],
        command_line: Some(vec!["/srv/bank/ledger".to_owned(), "--verbose".to_owned()]),
    }
}

fn cause() -> Cause {
    Cause {
        signal: 11,
        code: 1,
        name: "SIGSEGV".to_owned(),
        description: "SIGSEGV (segmentation fault) at address 0x28".to_owned(),
        meaning: Some("no memory is mapped at the address".to_owned()),
        fault_address: Some(0x28),
        pc: Some(0x40_1204),
        stack_pointer: Some(0x7fff_0000),
        access: Some(Access::Read),
        message: None,
        handler: Some(InterruptedBy {
            handler: Some("on_signal".to_owned()),
            position: "t7#-40".to_owned(),
            interrupted: Some("main".to_owned()),
        }),
    }
}

fn value(kind: ValueKind, name: &str, value: &str) -> KnownValue {
    KnownValue {
        kind,
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn module(path: &str, symbols: SymbolState) -> ModuleView {
    ModuleView {
        path: path.to_owned(),
        build_id: Some("8f3c6e2a".repeat(5)),
        start: 0x40_0000,
        end: 0x50_0000,
        symbols,
        problem: (symbols != SymbolState::DebugInformation).then(|| "the file has no DWARF".to_owned()),
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        source: "hardware".to_owned(),
        created_by: Some("backtrail collect".to_owned()),
        created_at: Some(1_795_788_000),
        host: Some("web-17".to_owned()),
        kernel: Some("6.12.9".to_owned()),
        cpu: Some("6/151/2".to_owned()),
        trigger: Some("crash".to_owned()),
        probe: Some("raw_tracepoint".to_owned()),
        crash_to_reader: Some(38_000),
        crash_to_stop: Some(51_000),
        crash_to_held: Some(1_900_000),
        held: Some(142_000_000),
        overwritten: Some(64 << 10),
        history: Some(16 << 20),
        missing: vec!["a mapped file was not found".to_owned()],
    }
}

fn timeline() -> Timeline {
    Timeline {
        unit: TimeUnit::Ns,
        begin: -1000,
        end: 0,
        from: -1000,
        to: 0,
        here: None,
        crash: Some(TimelineCrash {
            thread_id: 7,
            at: 0,
            signal: "SIGSEGV".to_owned(),
        }),
        threads: vec![TimelineThread {
            thread_id: 7,
            name: "worker".to_owned(),
            current: true,
            crashed: true,
            timed: true,
            states: vec![TimelineState {
                state: ColumnState::Ran,
                from: -1000,
                to: 0,
                cause: None,
            }],
            calls: vec![TimelineCall {
                level: 0,
                from: -900,
                to: 0,
                function: "main".to_owned(),
                call: Some("c1".to_owned()),
                position: "t7#-900".to_owned(),
                several: false,
            }],
            levels: 1,
        }],
    }
}

fn sample_frame(title: &str) -> PageFrame {
    PageFrame {
        title: title.to_owned(),
        viewer: Some(Viewer {
            name: "token “payments”".to_owned(),
            is_admin: true,
            csrf: "token".to_owned(),
        }),
        search: String::new(),
    }
}

/// Groups: title, head, place, state and service.
const SAMPLE_GROUPS: [[&str; 5]; 7] = [
    [
        "balance_of | post_entry | Ledger::commit",
        "SIGSEGV read",
        "ledger.cc:41",
        "regressed",
        "ledger",
    ],
    [
        "core::option::unwrap_failed | bank::transfer::route | bank::transfer::handle",
        "SIGABRT panic",
        "transfer.rs:210",
        "new",
        "transfer",
    ],
    [
        "std::vector<T>::operator[] | cache::Shard::evict",
        "SIGSEGV write",
        "shard.hh:88",
        "escalating",
        "cache",
    ],
    [
        "vendor.so+0x12f40 | vendor.so+0x9c1",
        "SIGSEGV exec",
        "",
        "ongoing",
        "scoring",
    ],
    [
        "malloc: corrupted top size | json_parse",
        "SIGABRT heap corruption",
        "json.c:1033",
        "ongoing",
        "gateway",
    ],
    [
        "parse_frame | read_loop",
        "stack overflow",
        "frame.c:77",
        "resolved",
        "gateway",
    ],
    [
        "Scheduler::run | main",
        "SIGFPE",
        "sched.cc:12",
        "archived",
        "batch",
    ],
];

fn sample_groups() -> GroupsPage {
    let row = |number: u64, title: &str, head: &str, place: &str, state: &str, service: &str| {
        let wave = |at: u64| (number * 7 + at * at * (number + 3)) % (11 + number * 3);
        GroupRow {
            id: format!("{number:04x}"),
            title: title.to_owned(),
            head: head.to_owned(),
            place: Some(place.to_owned()).filter(|place| !place.is_empty()),
            state: state.to_owned(),
            service: service.to_owned(),
            is_provisional: place.is_empty(),
            day: (0..24).map(wave).collect(),
            month: (0..28)
                .map(|day| if number == 1 && day < 25 { 0 } else { wave(day) })
                .collect(),
            reports: number.pow(4) * 131 + 12,
            hosts: number * 9,
            hosts_reporting: Some(10_000),
            first_seen: NOW - HOUR * (number.pow(3) as i64 * 5 + 2),
            first_build: format!("2026.11.{number}"),
            last_seen: NOW - HOUR / 60 * (number.pow(2) as i64 * 4),
            assignee: number.is_multiple_of(2).then(|| "payments on call".to_owned()),
        }
    };
    let filter = |name: &str, label: &str, choices: &[&str]| Filter {
        name: name.to_owned(),
        label: label.to_owned(),
        choices: choices
            .iter()
            .map(|choice| ((*choice).to_owned(), (*choice).to_owned()))
            .collect(),
        chosen: choices[0].to_owned(),
    };
    GroupsPage {
        frame: sample_frame("Crashes"),
        groups: (1..)
            .zip(SAMPLE_GROUPS)
            .map(|(number, [title, head, place, state, service])| {
                row(number, title, head, place, state, service)
            })
            .collect(),
        filters: vec![
            filter(
                "service",
                "Service",
                &["all services", "ledger", "transfer", "cache"],
            ),
            filter("build", "Build", &["all builds", "2026.11.4", "2026.11.3"]),
            filter(
                "state",
                "State",
                &["open", "new", "escalating", "regressed", "resolved", "archived"],
            ),
            filter("host", "Host", &["all hosts", "web-17", "web-18"]),
            filter("time", "Time", &["28 days", "24 hours", "90 days"]),
            filter(
                "sort",
                "Sort by",
                &["last seen", "reports", "hosts", "first seen"],
            ),
        ],
        total: Some(132),
        next: Some("/?after=x".to_owned()),
        first: None,
        now: NOW,
    }
}

fn sample_group() -> GroupPage {
    let builds = ["2026.11.1", "2026.11.2", "2026.11.3", "2026.11.4"];
    let counts = |build: u64| {
        (0..168_u64)
            .map(|hour| {
                let peak = (hour as f64 / 7.6).sin().abs() * 9.0 * (build + 1) as f64;
                if hour >= build * 40 && hour < build * 40 + 70 {
                    peak as u64 + (hour * 13 + build) % 5
                } else {
                    0
                }
            })
            .collect()
    };
    GroupPage {
        frame: sample_frame("balance_of | post_entry | Ledger::commit"),
        id: "0001".to_owned(),
        title: "balance_of | post_entry | Ledger::commit".to_owned(),
        head: "SIGSEGV read near null".to_owned(),
        place: Some("ledger.cc:41".to_owned()),
        service: "ledger".to_owned(),
        state: "regressed".to_owned(),
        state_detail: Some("was fixed in 2026.11.3, is back in 2026.11.4".to_owned()),
        state_since: NOW - 2 * HOUR,
        assignee: None,
        reports: 14_233,
        hosts: 97,
        hosts_reporting: Some(10_000),
        bundles: 8,
        first_seen: NOW - 160 * HOUR,
        first_build: "2026.11.1".to_owned(),
        first_build_ran: Some(NOW - 161 * HOUR),
        last_seen: NOW - HOUR / 30,
        last_build: "2026.11.4".to_owned(),
        trend: Trend {
            start: NOW - 168 * HOUR,
            step: HOUR,
            builds: builds
                .iter()
                .zip(0..)
                .map(|(build, number)| ((*build).to_owned(), counts(number)))
                .collect(),
        },
        values: sample_values(),
        builds: builds
            .iter()
            .zip(0..)
            .map(|(build, number)| BuildRow {
                build: (*build).to_owned(),
                address: format!("/?service=ledger&build={build}"),
                first_ran: (number != 2).then(|| NOW - (161 - number * 40) * HOUR),
                reports: 900 + 4000 * (3 - number.unsigned_abs().min(3)),
                hosts: 20 + number.unsigned_abs() * 9,
                hosts_ran: Some(10_000),
                is_first: number == 0,
            })
            .collect(),
        explanation: sample_explanation(),
        ways: sample_ways(),
        similar: vec![SimilarGroup {
            id: "0007".to_owned(),
            title: "balance_of | statement_of | Ledger::report".to_owned(),
            similarity: 0.82,
        }],
        moves: vec![KeyMove {
            time: NOW - 30 * HOUR,
            from: ("0009".to_owned(), "ledger+0x1204 | ledger+0x9f0".to_owned()),
            to: ("0001".to_owned(), "balance_of | post_entry".to_owned()),
            reason: "symbols".to_owned(),
            reports: 310,
        }],
        changes: sample_changes(),
        comments: vec![Comment {
            time: NOW - 40 * HOUR,
            author: "payments on call".to_owned(),
            text: "The account is closed while its entry is still queued.\nSee the second way.".to_owned(),
        }],
        crashes: sample_crashes(),
        missing_symbols: vec!["8f3c6e2a".repeat(5)],
        now: NOW,
    }
}

fn sample_values() -> Vec<OverValue> {
    let over = |field: &str, value: &str, inside, outside| OverValue {
        field: field.to_owned(),
        value: value.to_owned(),
        inside,
        inside_all: 1000,
        outside,
        outside_all: 5000,
    };
    vec![
        over("route", "/transfer/batch", 912, 340),
        over("cpu", "6/151/2", 740, 1900),
        over("kernel", "6.12.9-amd64", 520, 2400),
    ]
}

fn sample_explanation() -> Explanation {
    let explained = |frame: &str, kept: Option<&str>, reason: &str| ExplainedFrame {
        frame: frame.to_owned(),
        kept_as: kept.map(str::to_owned),
        reason: reason.to_owned(),
        rule: None,
    };
    Explanation {
        version: 1,
        next: None,
        signature: "SIGSEGV read | balance_of | post_entry | Ledger::commit".to_owned(),
        frames: vec![
            explained("__memcpy_avx_unaligned_erms", Some("memcpy"), "prefix"),
            explained("balance_of(account const*)", Some("balance_of"), "prefix"),
            explained(
                "std::function<void (entry&)>::operator()(entry&) const",
                None,
                "irrelevant",
            ),
            explained("post_entry(entry&)", Some("post_entry"), "end"),
            explained("Ledger::commit()", None, "after the end"),
        ],
    }
}

fn sample_ways() -> Vec<CrashWay> {
    let way = |edges: &[(&str, &str)], bundles| CrashWay {
        edges: edges
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
            .collect(),
        bundles,
        crash: "0123456789abcdefghjk".to_owned(),
    };
    vec![
        way(
            &[
                ("post_entry", "balance_of"),
                ("Ledger::commit", "post_entry"),
                ("close_account", "free"),
            ],
            5,
        ),
        way(
            &[
                ("post_entry", "balance_of"),
                ("Ledger::replay", "post_entry"),
                ("read_journal", "parse_entry"),
            ],
            3,
        ),
    ]
}

fn sample_changes() -> Vec<StateChange> {
    ["regressed", "resolved", "new"]
        .iter()
        .zip(0..)
        .map(|(event, number)| StateChange {
            time: NOW - (2 + 50 * number) * HOUR,
            event: (*event).to_owned(),
            build: Some(format!("2026.11.{}", 4 - number)),
            actor: (number == 1).then(|| "payments on call".to_owned()),
            report: (number != 1).then(|| "0123456789abcdefghjk".to_owned()),
        })
        .collect()
}

fn sample_crashes() -> Vec<CrashRow> {
    ["stored", "uploading", "none", "refused"]
        .iter()
        .zip(0..)
        .map(|(bundle, number)| CrashRow {
            id: "0123456789abcdefghjk".to_owned(),
            time: NOW - (2 + number * 55) * HOUR / 60,
            host: format!("web-{}", 17 + number),
            build: "2026.11.4".to_owned(),
            bundle: (*bundle).to_owned(),
            is_pinned: number == 0,
            labels: vec!["route=/transfer/batch".to_owned(), "region=eu-2".to_owned()],
        })
        .collect()
}

fn sample_settings() -> SettingsPage {
    let mut view = settings_of("ledger");
    view.frame = sample_frame("Settings");
    view.now = NOW;
    view.tokens[0].created = NOW - 900 * HOUR;
    view.tokens[0].last_used = Some(NOW - HOUR);
    view.deliveries[0].time = NOW - HOUR;
    view.hosts[0].last_seen = NOW - HOUR / 60;
    view
}

fn sample_crash(analysis: Option<Analysis>, bundle: BundleState) -> CrashPage {
    let mut view = crash_of("ledger", analysis, bundle);
    view.frame = sample_frame("balance_of | post_entry");
    view.report.time = NOW.unsigned_abs() - 7_200_000_000;
    view.report.signal = 11;
    view.report.fault_address = Some(0x28);
    view.report.host = "web-17".to_owned();
    view.report.build = "2026.11.4".to_owned();
    view.report.thread = Some("worker-3".to_owned());
    view.report.kernel = Some("6.12.9-amd64".to_owned());
    view.report.cpu = Some("6/151/2".to_owned());
    view.report.labels = BTreeMap::from([
        ("route".to_owned(), "/transfer/batch".to_owned()),
        (
            "trace id".to_owned(),
            "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        ),
    ]);
    view.group = Some((
        "0001".to_owned(),
        "balance_of | post_entry | Ledger::commit".to_owned(),
        "regressed".to_owned(),
    ));
    view.stack = vec![
        Frame {
            module: Some("/srv/bank/ledger".to_owned()),
            offset: Some(0x1204),
            ..Frame::default()
        };
        4
    ];
    view.link = "https://crash.example.com/c/0123456789abcdefghjk".to_owned();
    view.download = view
        .analysis
        .is_some()
        .then(|| ("/crash/1.btz".to_owned(), 3 << 20));
    view.analysis_problem = None;
    view.symbolized = None;
    view.now = NOW;
    view
}

/// Writes the pages of samples to the directory `BACKTRAIL_TEST_PAGES`. The crash is that of the
/// analysis in the file `BACKTRAIL_TEST_ANALYSIS`.
#[test]
#[ignore = "writes pages for a person to look at"]
fn sample_pages_are_written() {
    let Some(folder) = std::env::var_os("BACKTRAIL_TEST_PAGES") else {
        return;
    };
    let folder = Path::new(&folder);
    let recorded = std::env::var_os("BACKTRAIL_TEST_ANALYSIS").map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str::<Analysis>(&text).unwrap()
    });
    let analysis = recorded.unwrap_or_else(analysis);
    let timelines = serde_json::to_string(&analysis.timelines).unwrap();
    let write =
        |name: &str, html: maud::Markup| std::fs::write(folder.join(name), html.into_string()).unwrap();
    write("groups.html", groups::render(&sample_groups()));
    write(
        "empty.html",
        groups::render(&GroupsPage {
            frame: sample_frame("Crashes"),
            ..GroupsPage::default()
        }),
    );
    write("group.html", group::render(&sample_group()));
    write("settings.html", settings::render(&sample_settings()));
    write("sign-in.html", sign_in::render(&SignInPage::default()));
    write(
        "error.html",
        error::render(&sample_frame("x"), 404, "There is no crash with this id.", None),
    );
    write(
        "crash.html",
        crash::render(&sample_crash(Some(analysis), BundleState::Stored)),
    );
    let uploading = BundleState::Uploading {
        received: 2 << 20,
        total: 7 << 20,
    };
    write("uploading.html", crash::render(&sample_crash(None, uploading)));
    let refused = BundleState::Refused("trace.json: it describes no trace".to_owned());
    write("refused.html", crash::render(&sample_crash(None, refused)));
    std::fs::create_dir_all(folder.join("c/0123456789abcdefghjk")).unwrap();
    std::fs::write(folder.join("c/0123456789abcdefghjk/timeline"), timelines).unwrap();
}
