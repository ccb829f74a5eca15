//! The history of the heap: `record --heap`, `info heap`, and crashes that it explains.

use backtrail_bundle::heap::AllocatorFunction;
use backtrail_bundle::heap_records::{FILE, HeapGap, HeapInterval, HeapRecord, HeapRecords, STACK_WORDS};
use backtrail_debugger::heap::calls::calls;
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::{PcSet, Watch};
use backtrail_pt::packet::{Packet, Payload};
use backtrail_pt::{Avma, Parser, Tid, Tsc};
use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The lines of a first screen at most.
const MAX_LINES: usize = 30;

/// A program with its source.
struct Built {
    folder: tempfile::TempDir,
    source: String,
}

impl Built {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = repository().join("tests/fixtures/heap").join(name);
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1", "-g", "-pthread", "-o"]);
        compiler.args([folder.path().join("program"), path.clone()]);
        assert!(compiler.status().unwrap().success());
        let source = std::fs::read_to_string(path).unwrap();
        Self { folder, source }
    }

    fn record(&self, options: &[&str], arguments: &[&OsStr]) -> Bundle {
        let program = self.folder.path().join("program");
        let mut rest = vec!["--".as_ref(), program.as_os_str()];
        rest.extend(arguments);
        let command = [&["record", "--full", "--no-aslr"], options].concat();
        let bundle = Bundle::empty();
        let output = ["-o".as_ref(), bundle.path.as_os_str()];
        let command = command.iter().map(OsStr::new);
        backtrail(command.chain(output).chain(rest)).unwrap();
        bundle
    }

    /// Returns the number of the line with a comment.
    fn line(&self, comment: &str) -> usize {
        let end = format!("// {comment}");
        self.source.lines().position(|line| line.ends_with(&end)).unwrap() + 1
    }
}

fn crash(bundle: &Bundle) -> String {
    let screen = bundle.debug(&["crash"]);
    assert!(screen.lines().count() <= MAX_LINES + 1, "{screen}");
    // Names may have their parameters.
    let parameters = ["(Session*)", "(unsigned long)", "(Item&)"];
    parameters
        .iter()
        .fold(screen, |screen, types| screen.replace(types, ""))
}

#[test]
fn use_after_free_names_both_threads_and_lines() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let screen = crash(&bundle);
    let (freed, allocated) = (built.line("freed"), built.line("allocated"));
    let sentence = format!(
        "use after free: freed by thread \"reaper\" in drop_session at dispatch.cpp:{freed}, \
         allocated by open_session at dispatch.cpp:{allocated}\n"
    );
    assert!(screen.contains(&sentence), "{screen}");
    let evidence = "0 bytes inside the block of 120 bytes at 0x";
    assert!(screen.contains(evidence), "{screen}");
    // The shown command lists the block.
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    let (address, _) = rest.split_once('`').unwrap();
    let heap = &bundle.results(&[&format!("info heap {address}")])[0];
    let block = &heap["blocks"][0];
    assert_eq!(
        (&block["freed"]["name"], &block["freed"]["line"]),
        (&Value::from("reaper"), &Value::from(freed))
    );
    assert_eq!(block["allocated"]["line"], allocated);
    assert_eq!(block["size"], 120);
    // The position of the free is in its thread, with the caller on the stack.
    let goto = format!("goto {}", block["freed"]["position"].as_str().unwrap());
    let stack = bundle.debug(&[&goto, "backtrace"]);
    assert!(stack.contains("drop_session"), "{stack}");
}

#[test]
fn access_to_unmapped_block_is_a_use_after_free() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &["large".as_ref()]);
    let screen = crash(&bundle);
    let sentence = format!(
        "use after free: freed by thread \"reaper\" in drop_session at dispatch.cpp:{}, \
         allocated by open_session at dispatch.cpp:{}\n",
        built.line("buffer is freed"),
        built.line("buffer")
    );
    assert!(screen.contains(&sentence), "{screen}");
    assert!(screen.contains("The crash accessed 0x"), "{screen}");
    assert!(
        screen.contains("100 bytes inside the block of 4194304 bytes"),
        "{screen}"
    );
}

#[test]
fn double_free_names_both_frees() {
    let built = Built::new("twice.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let screen = crash(&bundle);
    let sentence = format!("in drop at twice.cpp:{}, allocated by", built.line("freed"));
    assert!(screen.contains("double free: freed by thread "), "{screen}");
    assert!(screen.contains(&sentence), "{screen}");
    let again = format!("drop at twice.cpp:{} frees 0x", built.line("freed"));
    assert!(screen.contains(&again), "{screen}");
    let allocated = format!("at twice.cpp:{}\n", built.line("allocated"));
    assert!(screen.contains(&allocated), "{screen}");
}

/// A block of a program's own log: address, size, whether it was freed.
type Logged = (u64, u64, bool);

fn logged(path: &Path) -> Vec<Logged> {
    let mut blocks: Vec<Logged> = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let numbers: Vec<u64> = line
            .split(' ')
            .skip(1)
            .map(|number| u64::from_str_radix(number, 16).unwrap())
            .collect();
        match numbers[..] {
            [block, size] => blocks.push((block, size, false)),
            [block] => {
                let mut live = blocks.iter_mut().rev();
                live.find(|live| live.0 == block && !live.2).unwrap().2 = true;
            }
            _ => panic!("{line}"),
        }
    }
    blocks
}

#[test]
fn blocks_of_realloc_chains_equal_the_log() {
    let built = Built::new("chain.cpp");
    let log = built.folder.path().join("log");
    let bundle = built.record(&["--heap"], &[log.as_os_str()]);
    let logged = logged(&log);
    let mut addresses: Vec<u64> = logged
        .iter()
        .step_by(9)
        .map(|(block, size, _)| block + size / 2)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() > 10);
    let commands: Vec<String> = addresses.iter().map(|at| format!("info heap {at:#x}")).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    for (address, answer) in addresses.iter().zip(bundle.results(&commands)) {
        let covers = |&(start, size, _): &Logged| (start..start + size).contains(address);
        let expected: Vec<Logged> = logged.iter().copied().filter(covers).rev().take(20).collect();
        let found: Vec<Logged> = answer["blocks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| {
                let number = |key: &str| block[key].as_u64().unwrap();
                (number("block"), number("size"), !block["freed"].is_null())
            })
            .collect();
        assert_eq!(found, expected, "{address:#x}");
    }
    let summary = &bundle.results(&["info heap"])[0];
    let live: Vec<&Logged> = logged.iter().filter(|block| !block.2).collect();
    let site = summary["sites"].as_array().unwrap().iter();
    let mut site = site.filter(|site| {
        site["function"]
            .as_str()
            .is_some_and(|name| name.starts_with("main"))
    });
    let site = site.next().unwrap();
    assert_eq!(site["blocks"], live.len());
    assert_eq!(site["bytes"], live.iter().map(|block| block.1).sum::<u64>());
}

#[test]
fn trace_without_heap_events_says_so() {
    let built = Built::new("twice.cpp");
    let bundle = built.record(&[], &[]);
    let said = &bundle.answers(&["info heap"])[0];
    assert_eq!(said["ok"], false);
    assert!(said.to_string().contains("backtrail record --heap"), "{said}");
    assert!(!crash(&bundle).contains("double free:"));
}

/// Replaces the values of all heap events of a bundle.
fn replace_values(bundle: &Bundle, mut value: impl FnMut() -> u64) -> usize {
    let mut count = 0;
    for file in std::fs::read_dir(bundle.path.join("traces")).unwrap() {
        let path = file.unwrap().path();
        let mut trace = std::fs::read(&path).unwrap();
        let packets: Vec<_> = Parser::new(&trace).map_while(Result::ok).collect();
        for (offset, packet) in packets {
            let Packet::Ptw { value: payload, .. } = packet else {
                continue;
            };
            let len = match payload {
                Payload::Four(_) => 4,
                Payload::Eight(_) => 8,
            };
            // The value follows two bytes of opcode.
            let at = offset + 2;
            trace[at..at + len].copy_from_slice(&value().to_le_bytes()[..len]);
            count += 1;
        }
        std::fs::write(path, trace).unwrap();
    }
    count
}

#[test]
fn arbitrary_payloads_are_read() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let mut state: u64 = 1;
    for bits in [64, 40, 12] {
        let values = replace_values(&bundle, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> (64 - bits)
        });
        assert!(values > 10);
        let answers = bundle.answers(&[
            "crash",
            "info heap",
            "info heap 0x10",
            "break free if address == 1",
        ]);
        for answer in &answers[..3] {
            assert_eq!(answer["ok"], true, "{answer}");
        }
    }
}

#[test]
fn break_free_stops_at_the_free_of_a_block() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let screen = crash(&bundle);
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    let (address, _) = rest.split_once('`').unwrap();
    let condition = format!("break free if address == {address}");
    let backward = bundle.results(&[&condition, "reverse-continue", "backtrace", "print/x $rdi"]);
    assert_eq!(backward[1]["reason"], "breakpoint", "{}", backward[1]);
    let frames = backward[2]["frames"].as_array().unwrap();
    let is_dropping = |frame: &Value| {
        frame["function"]
            .as_str()
            .is_some_and(|name| name.starts_with("drop_session"))
    };
    let dropping = frames.iter().find(|frame| is_dropping(frame)).unwrap();
    assert_eq!(dropping["line"], built.line("freed"));
    let position = &backward[1]["place"]["position"];
    let forward = bundle.results(&[&condition, "goto start", "continue", "continue"]);
    assert_eq!(&forward[2]["place"]["position"], position);
    assert_ne!(forward[3]["reason"], "breakpoint");
    // The call that returned the block.
    let allocation = format!("break malloc if address == {address}");
    let allocated = bundle.results(&[&allocation, "reverse-continue", "backtrace"]);
    assert_eq!(allocated[1]["reason"], "breakpoint", "{}", allocated[1]);
    assert!(
        allocated[2].to_string().contains("open_session"),
        "{}",
        allocated[2]
    );
}

/// Returns a copy of a bundle as the collector makes it: with records in place of values in the
/// trace.
fn noted(bundle: &Bundle, records: &[HeapRecord], zero: u64, gaps: Vec<HeapGap>) -> Bundle {
    let copy = Bundle::empty();
    let mut copied = Command::new("cp");
    copied.arg("-r").args([&bundle.path, &copy.path]);
    assert!(copied.status().unwrap().success());
    let opened = backtrail_bundle::Bundle::open(&copy.path).unwrap();
    let gaps = gaps.into_iter().map(|gap| HeapGap {
        from: zero - gap.from,
        to: zero - gap.to,
        ..gap
    });
    let interval = HeapInterval {
        pid: opened.manifest().processes[0].pid,
        since: records.iter().map(|record| record.began).min().unwrap() - 1000,
        until: zero,
        zero,
        perf_offset: Some(0),
        gaps: gaps.collect(),
    };
    let file = HeapRecords::encode(&interval, records).unwrap();
    std::fs::write(copy.path.join(FILE), file).unwrap();
    let meta = copy.path.join("meta.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&meta).unwrap()).unwrap();
    text["heapEvents"] = 2.into();
    std::fs::write(&meta, text.to_string()).unwrap();
    copy
}

/// Returns a record without a caller. A call that frees has a block, and others a size.
fn record_of(function: AllocatorFunction, time: u64, tid: Tid, block: u64, size: u64) -> HeapRecord {
    let frees = function.takes_block();
    HeapRecord {
        began: time,
        ended: time,
        argument: if frees { block } else { size },
        size: if frees { size } else { 0 },
        result: if frees { 0 } else { block },
        caller: Avma(0),
        sp: 0,
        bp: 0,
        tid,
        function,
        words: 0,
        stack: [0; STACK_WORDS],
    }
}

/// Returns a bundle with records of the two calls that allocated and freed the block of `block`, at
/// their times in the trace.
fn with_records(bundle: &Bundle, block: &Value, gaps: Vec<HeapGap>) -> Bundle {
    let opened = backtrail_bundle::Bundle::open(&bundle.path).unwrap();
    let conversion = opened.manifest().tsc.unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let record = |key: &str, function| {
        let place = &block[key];
        let tsc = number(&place["time"]["tsc"]) + number(&place["time"]["uncertainty_ticks"]) / 2;
        let (time, tid) = (conversion.nanos(Tsc(tsc)).0, Tid(number(&place["thread"]) as u32));
        record_of(
            function,
            time,
            tid,
            number(&block["block"]),
            number(&block["size"]),
        )
    };
    let records = [
        record("allocated", AllocatorFunction::Malloc),
        record("freed", AllocatorFunction::Free),
    ];
    noted(bundle, &records, records[1].began + 5_000_000, gaps)
}

/// Returns the records that the collector's probes of C functions would note of a recording with
/// heap events. Times are within the time stamps of the trace.
fn collected(bundle: &Bundle) -> Vec<HeapRecord> {
    let session = Session::open(&bundle.path, &OpenOptions::default(), &Watch::none()).unwrap();
    let conversion = session.times().conversion.unwrap();
    let mut records = Vec::new();
    for thread in session.threads() {
        let (history, tid) = (&thread.history, thread.tid);
        let forest = session.forest(thread, &Watch::none()).unwrap();
        let symbols = session.symbols_at(thread, history.len()).unwrap();
        for call in calls(history, 0) {
            // C++ operators have no probes, and call these functions.
            let function = match call.function {
                AllocatorFunction::New | AllocatorFunction::NewArray => AllocatorFunction::Malloc,
                AllocatorFunction::Delete | AllocatorFunction::DeleteArray => AllocatorFunction::Free,
                other => other,
            };
            if function == AllocatorFunction::Free && call.argument == 0 {
                continue;
            }
            let named = symbols.functions_named(function.name());
            let entries = PcSet::from_iter(named.iter().map(|named| named.entry));
            let entry = history.next_at(call.index, &entries).unwrap();
            let tsc = history.interpolated_departure(entry).unwrap();
            let time = conversion.nanos(tsc).0;
            let (block, size) = (call.block().unwrap_or(0), call.requested().unwrap_or(0));
            let end = forest.call(forest.call_at(entry).unwrap()).end;
            records.push(HeapRecord {
                result: call.result.map_or(0, |(_, block)| block),
                caller: history.pc(end).unwrap_or(Avma(0)),
                ..record_of(function, time, tid, block, size)
            });
        }
    }
    records.sort_by_key(|record| record.ended);
    records
}

/// Returns the address of the block of a crash's sentence.
fn crashed_block(bundle: &Bundle) -> String {
    let screen = crash(bundle);
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    rest.split_once('`').unwrap().0.to_owned()
}

#[test]
fn break_free_stops_where_records_match_certainly() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let address = crashed_block(&bundle);
    let records = collected(&bundle);
    let zero = records.iter().map(|record| record.ended).max().unwrap() + 5_000_000;
    let noted = noted(&bundle, &records, zero, Vec::new());
    // The probe at `free`, which `operator delete` jumps to, has the block; the operator has none.
    let condition = format!("break free if address == {address}");
    let commands = [&condition, "reverse-continue", "backtrace"];
    let found = noted.results(&commands);
    assert_eq!(found[1]["reason"], "breakpoint", "{}", found[1]);
    let frames = found[2]["frames"].as_array().unwrap();
    let dropping = frames.iter().find(|frame| {
        let function = frame["function"].as_str();
        function.is_some_and(|name| name.starts_with("drop_session"))
    });
    assert_eq!(dropping.unwrap()["line"], built.line("freed"));
    // The exact recording stops in the same call.
    let exact = bundle.results(&[
        &format!("break operator delete if address == {address}"),
        "reverse-continue",
        "backtrace",
    ]);
    assert_eq!(exact[1]["reason"], "breakpoint", "{}", exact[1]);
    assert!(exact[2].to_string().contains("drop_session"), "{}", exact[2]);
    let allocation = format!("break malloc if address == {address} && size == 120");
    let allocated = noted.results(&[&allocation, "reverse-continue", "backtrace"]);
    assert_eq!(allocated[1]["reason"], "breakpoint", "{}", allocated[1]);
    assert!(
        allocated[2].to_string().contains("open_session"),
        "{}",
        allocated[2]
    );
}

#[test]
fn certain_matches_equal_the_exact_history() {
    let built = Built::new("chain.cpp");
    let log = built.folder.path().join("log");
    let bundle = built.record(&["--heap"], &[log.as_os_str()]);
    let records = collected(&bundle);
    let zero = records.iter().map(|record| record.ended).max().unwrap() + 5_000_000;
    let noted = noted(&bundle, &records, zero, Vec::new());
    let resized: Vec<u64> = records
        .iter()
        .filter(|record| record.function == AllocatorFunction::Realloc && record.argument != 0)
        .map(|record| record.argument)
        .step_by(16)
        .collect();
    assert!(resized.len() > 5, "{resized:?}");
    for address in resized {
        let condition = format!("break realloc if address == {address:#x}");
        let commands = [&condition, "reverse-continue"];
        let [exact, found] = [&bundle, &noted].map(|bundle| bundle.results(&commands)[1].clone());
        assert_eq!(exact["reason"], "breakpoint", "{exact}");
        assert_eq!(found["place"]["position"], exact["place"]["position"], "{found}");
    }
    // Some calls in this line free a null pointer, which has no record.
    let stopped = &noted.results(&["break free if address == 1", "reverse-continue"])[1];
    let why = stopped["untold"]["why"].as_str().unwrap_or_default();
    assert!(
        why.contains(" calls of free between ") && why.contains(" records of "),
        "{stopped}"
    );
}

#[test]
fn lost_record_leaves_the_match_open() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let address = crashed_block(&bundle);
    let block = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
    let mut records = collected(&bundle);
    let zero = records.iter().map(|record| record.ended).max().unwrap() + 5_000_000;
    let is_free = |record: &HeapRecord| record.function == AllocatorFunction::Free;
    let freed = records
        .iter()
        .rposition(|record| is_free(record) && record.argument == block)
        .unwrap();
    let (tid, caller) = (records[freed].tid, records[freed].caller);
    // The record of another free by the same call instruction, in the same thread.
    let other = (0..freed).rev().find(|&at| {
        let record = &records[at];
        is_free(record) && record.tid == tid && record.caller == caller
    });
    let _ = records.remove(other.unwrap_or(freed));
    let noted = noted(&bundle, &records, zero, Vec::new());
    let condition = format!("break free if address == {address}");
    let stopped = &noted.results(&[&condition, "reverse-continue"])[1];
    assert_ne!(stopped["reason"], "breakpoint", "{stopped}");
    let why = stopped["untold"]["why"].as_str().unwrap_or_default();
    assert!(
        why.contains("of free ") && why.ends_with("of the collector: the match is open"),
        "{stopped}"
    );
    let text = noted.debug(&[&condition, "reverse-continue"]);
    assert!(text.contains("the match is open"), "{text}");
}

#[test]
fn records_give_intervals_of_positions_and_gaps() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let screen = crash(&bundle);
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    let (address, _) = rest.split_once('`').unwrap();
    let command = format!("info heap {address}");
    let exact = bundle.results(&[&command])[0]["blocks"][0].clone();
    let index = |position: &Value| -> u64 {
        let text = position.as_str().unwrap();
        text.rsplit('#').next().unwrap().parse().unwrap()
    };
    let noted = with_records(&bundle, &exact, Vec::new());
    let block = &noted.results(&[&command])[0]["blocks"][0];
    for key in ["allocated", "freed"] {
        let (place, exact) = (&block[key], index(&exact[key]["position"]));
        let [from, to] = [0, 1].map(|at| index(&place["between"][at]));
        assert!(from <= exact && exact <= to && from < to, "{from} {exact} {to}");
        assert!(
            place["position"].is_null() && place["function"].is_null(),
            "{place}"
        );
    }
    let text = noted.debug(&[&command, "crash"]);
    assert!(text.contains("[between t"), "{text}");
    assert!(
        text.contains("use after free: freed by thread \"reaper\" in unknown code"),
        "{text}"
    );
    // Lost calls may have allocated the block again.
    let gap = HeapGap {
        from: 3_000_000,
        to: 2_000_000,
        lost: 7,
    };
    let lossy = with_records(&bundle, &exact, vec![gap]);
    let text = lossy.debug(&[&command, "crash"]);
    assert!(
        text.contains("Gap: 7 calls were lost between -3.000 ms and -2.000 ms."),
        "{text}"
    );
    assert!(!text.contains("use after free"), "{text}");
}

#[test]
fn damaged_records_are_refused_in_one_sentence() {
    let built = Built::new("dispatch.cpp");
    let bundle = built.record(&["--heap"], &[]);
    let screen = crash(&bundle);
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    let (address, _) = rest.split_once('`').unwrap();
    let command = format!("info heap {address}");
    let exact = bundle.results(&[&command])[0]["blocks"][0].clone();
    let noted = with_records(&bundle, &exact, Vec::new());
    let file = noted.path.join(FILE);
    let whole = std::fs::read(&file).unwrap();
    for (bytes, problem) in [
        (&whole[..100], "another size"),
        (b"BTHEAP".as_slice(), "no file of heap records"),
        (&[], "no file of heap records"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let said = &noted.answers(&[&command])[0];
        assert!(
            said["ok"] == false && said.to_string().contains(problem),
            "{said}"
        );
        let checked = backtrail(["check".as_ref(), noted.path.as_os_str()])
            .unwrap()
            .exited(3);
        assert!(
            checked.stdout.contains(problem) || checked.stderr.contains(problem),
            "{checked:?}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(noted.answers(&[&command])[0]["ok"], false);
}
