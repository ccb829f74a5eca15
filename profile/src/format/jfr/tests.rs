//! Recordings that are written and read, and damaged ones.

use super::{is_jfr, read};
use crate::frame::Frame;
use crate::profile::Profile;
use crate::sample::{LabelValue, Sample, UnixNanos};
use backtrail_tests::jfr::{self, Chunk, START, Value};
use proptest::prelude::*;

/// Returns the events of a profile: name, unit, period, number of samples, and sum of weights.
fn events(profile: &Profile) -> Vec<(String, String, u64, usize, i64)> {
    let count = |id| profile.samples.iter().filter(|sample| sample.event == id).count();
    let event = |(id, event): (_, &crate::Event)| {
        (
            profile.text(event.name).to_owned(),
            profile.text(event.unit).to_owned(),
            event.period,
            count(id),
            profile.total(id),
        )
    };
    profile.events.iter().map(event).collect()
}

/// Returns the frames of a sample as texts, the innermost first.
fn frames(profile: &Profile, sample: &Sample) -> Vec<String> {
    let text = |frame| match profile.frames.get(frame) {
        Some(Frame::Function { function, line }) => {
            let function = profile.functions.get(*function).unwrap();
            let names = [function.name, function.linkage_name].map(|name| profile.text(name));
            format!("{}:{line} {}", names[0], names[1])
        }
        frame => format!("{frame:?}"),
    };
    profile.stacks.frames(sample.stack).map(text).collect()
}

/// Returns the labels of a sample as texts.
fn labels(profile: &Profile, sample: &Sample) -> Vec<String> {
    let label = |label: &crate::Label| match label.value {
        LabelValue::Text(value) => format!("{}={}", profile.text(label.key), profile.text(value)),
        LabelValue::Number(..) => unreachable!(),
    };
    profile.labels(sample.labels).iter().map(label).collect()
}

fn numbers<const N: usize>(numbers: [i64; N]) -> [Value<'static>; N] {
    numbers.map(Value::Number)
}

/// Returns a chunk of async-profiler with settings.
fn profiler(settings: &[(&str, &str)]) -> Chunk {
    let mut chunk = Chunk::async_profiler();
    for (name, value) in settings {
        chunk.setting(name, value);
    }
    chunk
}

/// Adds samples of the main event in some states.
fn add_samples(chunk: &mut Chunk, states: &[&str]) {
    let thread = chunk.thread(8, "main");
    let stack = chunk.stack(&[jfr::Frame::java("a/B", "c", 3)], false);
    for state in states {
        let state = chunk.state(state);
        chunk.event("jdk.ExecutionSample", &numbers([START.1, thread, stack, state]));
    }
}

fn row(name: &str, unit: &str, period: u64, count: usize, total: i64) -> (String, String, u64, usize, i64) {
    (name.to_owned(), unit.to_owned(), period, count, total)
}

#[test]
fn samples_have_frames_threads_times_and_labels() {
    let mut chunk = profiler(&[("event", "cpu"), ("interval", "1000000")]);
    chunk.process(4711, "/opt/app/server.jar --port 80");
    let thread = chunk.thread(4712, "worker");
    let state = chunk.state("STATE_RUNNABLE");
    let frame = |class, method, line, kind| jfr::Frame {
        class,
        method,
        line,
        kind,
    };
    let stack = [
        frame("", "do_syscall_64", 0, "Kernel"),
        frame("libc.so.6", "write", 0, "Native"),
        frame("libjvm.so", "os::write(int)", 0, "C++"),
        frame("a/Outer$Inner", "run", 30, "Inlined"),
        frame("a/Main$$Lambda$4+0x00007f0d68000a08", "main", 12, "Interpreted"),
    ];
    let stack = chunk.stack(&stack, false);
    let time = START.1 + 1_500_000;
    chunk.event("jdk.ExecutionSample", &numbers([time, thread, stack, state]));
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(
        events(&profile),
        [row("cpu", "nanoseconds", 1_000_000, 1, 1_000_000)]
    );
    let [sample] = profile.samples[..] else {
        unreachable!()
    };
    assert_eq!(
        frames(&profile, &sample),
        [
            "do_syscall_64_[k]:0 do_syscall_64",
            "write:0 write",
            "os::write(int):0 os::write(int)",
            "a.Outer$Inner.run:30 a/Outer$Inner.run()V",
            "a.Main$$Lambda$4.main:12 a/Main$$Lambda$4+0x00007f0d68000a08.main()V",
        ]
    );
    assert_eq!(sample.time, Some(UnixNanos(START.0 + 1_500_000_000)));
    let thread = profile.threads.get(sample.thread.unwrap()).unwrap();
    let names = [thread.process_name, thread.name].map(|name| profile.text(name));
    assert_eq!(
        (thread.pid.0, thread.tid.0, names),
        (4711, 4712, ["server.jar", "worker"])
    );
    assert_eq!(labels(&profile, &sample), ["state=STATE_RUNNABLE"]);
    assert_eq!(profile.start, Some(UnixNanos(START.0)));
    assert_eq!(profile.duration, Some(2_000_000_000));
    assert_eq!(profile.notes, [""; 0]);
}

#[test]
fn main_event_has_the_weight_of_its_settings() {
    let states = ["STATE_DEFAULT", "STATE_RUNNABLE", "STATE_SLEEPING"];
    let cpu = |period, count| {
        row(
            "cpu",
            "nanoseconds",
            period,
            count,
            (period * count as u64) as i64,
        )
    };
    let wall = |period, count| {
        row(
            "wall",
            "nanoseconds",
            period,
            count,
            (period * count as u64) as i64,
        )
    };
    for (settings, expected) in [
        (&[("event", "cpu"), ("interval", "500")][..], vec![cpu(500, 3)]),
        (
            &[("event", "itimer"), ("interval", "0")],
            vec![cpu(10_000_000, 3)],
        ),
        // Older versions have one event, and newer ones decide by the state.
        (&[("event", "wall"), ("interval", "0")], vec![wall(50_000_000, 3)]),
        (&[("event", "wall"), ("interval", "700")], vec![wall(700, 3)]),
        (
            &[("event", "cpu"), ("interval", "500"), ("wall", "900")],
            vec![wall(900, 2), cpu(500, 1)],
        ),
        (
            &[("event", "cache-misses"), ("interval", "1000")],
            vec![row("cache-misses", "count", 1000, 3, 3000)],
        ),
        (
            &[("event", "java.util.Properties.get"), ("interval", "0")],
            vec![row("java.util.Properties.get", "count", 1, 3, 3)],
        ),
        (&[], vec![row("cpu", "count", 1, 3, 3)]),
    ] {
        let mut chunk = profiler(settings);
        add_samples(&mut chunk, &states);
        let profile = read(&chunk.finish()).unwrap();
        assert_eq!(events(&profile), expected, "{settings:?}");
    }
}

#[test]
fn wall_clock_samples_stand_for_several() {
    let mut chunk = profiler(&[("event", "cpu"), ("interval", "500"), ("wall", "900")]);
    let (thread, state) = (chunk.thread(8, "main"), chunk.state("STATE_SLEEPING"));
    chunk.event(
        "profiler.WallClockSample",
        &numbers([START.1, thread, 0, state, 7]),
    );
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(events(&profile), [row("wall", "nanoseconds", 900, 1, 6300)]);
    assert_eq!(frames(&profile, &profile.samples[0]), [""; 0]);
}

#[test]
fn allocations_have_bytes_and_classes() {
    let mut chunk = profiler(&[]);
    let (thread, stack) = (chunk.thread(8, "main"), chunk.stack(&[], false));
    let (bytes, texts) = (chunk.class("[B"), chunk.class("[[Ljava/lang/String;"));
    let inside = numbers([START.1, thread, stack, bytes, 24, 4096]);
    chunk.event("jdk.ObjectAllocationInNewTLAB", &inside);
    let outside = numbers([START.1, thread, stack, texts, 1 << 40]);
    chunk.event("jdk.ObjectAllocationOutsideTLAB", &outside);
    let live = numbers([START.1, thread, stack, bytes, 24, START.1]);
    chunk.event("profiler.LiveObject", &live);
    chunk.event("profiler.Malloc", &numbers([START.1, thread, stack, 0x1000, 64]));
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(
        events(&profile),
        [
            row("live", "bytes", 0, 1, 24),
            row("malloc", "bytes", 0, 1, 64),
            row("alloc", "bytes", 0, 2, (1 << 40) + 4096),
        ]
    );
    let labels: Vec<_> = profile
        .samples
        .iter()
        .map(|sample| labels(&profile, sample))
        .collect();
    assert_eq!(
        labels,
        [
            vec!["class=byte[]"],
            vec!["class=java.lang.String[][]"],
            vec!["class=byte[]"],
            vec![],
        ]
    );
}

#[test]
fn locks_weigh_their_durations() {
    for (is_async, expected) in [
        (true, vec![row("lock", "nanoseconds", 0, 2, 7_000)]),
        (
            false,
            vec![
                row("park", "nanoseconds", 0, 1, 4_000),
                row("lock", "nanoseconds", 0, 1, 3_000),
            ],
        ),
    ] {
        let mut chunk = match is_async {
            true => Chunk::async_profiler(),
            false => Chunk::jvm(),
        };
        let (thread, class) = (chunk.thread(8, "main"), chunk.class("a/Lock"));
        let monitor = numbers([START.1, 3, thread, 0, class, 0, 0x1000]);
        chunk.event("jdk.JavaMonitorEnter", &monitor);
        let park = numbers([START.1, 4, thread, 0, class, 0, i64::MIN, 0x1000]);
        chunk.event("jdk.ThreadPark", &park);
        if is_async {
            chunk.event("profiler.NativeLock", &numbers([START.1, 5, thread, 0, 0x1000]));
        }
        let profile = read(&chunk.finish()).unwrap();
        let mut events = events(&profile);
        if is_async {
            assert_eq!(events.remove(0), row("native-lock", "nanoseconds", 0, 1, 5_000));
        }
        assert_eq!(events, expected);
        assert_eq!(labels(&profile, &profile.samples[0]), ["class=a.Lock"]);
    }
}

#[test]
fn events_of_the_jvm_are_read() {
    let mut chunk = Chunk::jvm();
    // A setting of the JVM is none of async-profiler.
    chunk.setting("interval", "7");
    let stack = chunk.stack(
        &[jfr::Frame {
            kind: "Native",
            ..jfr::Frame::java("a/B", "c", 0)
        }],
        false,
    );
    let (thread, class) = (chunk.thread(8, "main"), chunk.class("a/B"));
    let state = chunk.state("STATE_RUNNABLE");
    for event in ["jdk.ExecutionSample", "jdk.NativeMethodSample"] {
        chunk.event(event, &numbers([START.1, thread, stack, state]));
    }
    chunk.event(
        "jdk.CPUTimeSample",
        &numbers([START.1, stack, thread, 0, 20_000_000, 1]),
    );
    chunk.event(
        "jdk.CPUTimeSample",
        &numbers([START.1, 0, thread, 1, 20_000_000, 0]),
    );
    chunk.event(
        "jdk.ObjectAllocationSample",
        &numbers([START.1, thread, stack, class, 500]),
    );
    let tlab = numbers([START.1, thread, stack, class, 24, 4096]);
    chunk.event("jdk.ObjectAllocationInNewTLAB", &tlab);
    chunk.event(
        "jdk.CPULoad",
        &[Value::Number(START.1), Value::Float(0.5), Value::Float(0.7)],
    );
    chunk.event("jdk.DataLoss", &numbers([START.1, 300, 300]));
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(
        events(&profile),
        [
            row("alloc-tlab", "bytes", 0, 1, 4096),
            row("alloc", "bytes", 0, 1, 500),
            row("native-samples", "count", 0, 1, 1),
            row("samples", "count", 0, 1, 1),
            row("cpu", "nanoseconds", 20_000_000, 2, 40_000_000),
        ]
    );
    // The JVM calls a method of Java native, and not a function of C.
    assert_eq!(frames(&profile, &profile.samples[0]), ["a.B.c:0 a/B.c()V"]);
    assert_eq!(labels(&profile, &profile.samples[3]), ["failed=true"]);
    assert_eq!(profile.notes, ["300 bytes of events were lost by the JVM"]);
}

#[test]
fn chunks_have_their_own_constants_and_one_setting() {
    let profile = read(&jfr::recording()).unwrap();
    assert_eq!(
        events(&profile),
        [
            row("alloc", "bytes", 0, 8, 8 * 4096),
            row("lock", "nanoseconds", 0, 2, 1_000_000),
            row("wall", "nanoseconds", 20_000_000, 2, 200_000_000),
            row("cpu", "nanoseconds", 1_000_000, 8, 8_000_000),
        ]
    );
    let of = |index: usize| frames(&profile, &profile.samples[index]);
    assert_eq!(of(0)[1], "com.example.Server.main:12 com/example/Server.main()V");
    assert_eq!(of(10)[1], "com.example.Server.main:13 com/example/Server.main()V");
    assert_eq!(profile.threads.len(), 1);
}

#[test]
fn constants_may_be_in_several_checkpoints() {
    let mut chunk = Chunk::jvm();
    add_samples(&mut chunk, &["STATE_RUNNABLE"]);
    chunk.checkpoint();
    let thread = chunk.thread(9, "other");
    let stack = chunk.stack(&[jfr::Frame::java("a/B", "later", 9)], false);
    chunk.event("jdk.ExecutionSample", &numbers([START.1, thread, stack, 1]));
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(frames(&profile, &profile.samples[0]), ["a.B.c:3 a/B.c()V"]);
    assert_eq!(
        frames(&profile, &profile.samples[1]),
        ["a.B.later:9 a/B.later()V"]
    );
    assert_eq!(labels(&profile, &profile.samples[1]), ["state=STATE_RUNNABLE"]);
    assert_eq!(profile.threads.len(), 2);
}

#[test]
fn numbers_of_fixed_size_are_read() {
    let build = |is_compressed| {
        let mut chunk = Chunk::jvm();
        chunk.is_compressed = is_compressed;
        chunk.process(7, "a.Main");
        add_samples(&mut chunk, &["STATE_RUNNABLE"; 3]);
        let profile = read(&chunk.finish()).unwrap();
        let samples = profile.samples.iter();
        let samples: Vec<_> = samples
            .map(|sample| (frames(&profile, sample), sample.time))
            .collect();
        (samples, events(&profile), profile.notes)
    };
    assert_eq!(build(true), build(false));
    assert_eq!(build(false).0.len(), 3);
}

#[test]
fn truncated_stack_ends_with_a_mark() {
    let mut chunk = Chunk::jvm();
    let stack = chunk.stack(&[jfr::Frame::java("a/B", "c", 3)], true);
    chunk.event("jdk.ExecutionSample", &numbers([START.1, 0, stack, 0]));
    // More frames than a stack keeps.
    let deep = vec![jfr::Frame::java("a/B", "c", 3); 20_000];
    let deep = chunk.stack(&deep, false);
    chunk.event("jdk.ExecutionSample", &numbers([START.1, 0, deep, 0]));
    let profile = read(&chunk.finish()).unwrap();
    let stacks: Vec<_> = profile
        .samples
        .iter()
        .map(|sample| frames(&profile, sample))
        .collect();
    assert_eq!(stacks[0], ["a.B.c:3 a/B.c()V", "Some(Lost)"]);
    assert_eq!(stacks[1].len(), (1 << 14) + 1);
    assert_eq!(stacks[1].last().unwrap(), "Some(Lost)");
    assert_eq!(profile.notes, [""; 0]);
}

#[test]
fn missing_constants_are_marked_and_counted() {
    let mut chunk = profiler(&[("event", "cpu"), ("interval", "500")]);
    chunk.event("jdk.ExecutionSample", &numbers([START.1, 98, 99, 97]));
    let profile = read(&chunk.finish()).unwrap();
    let sample = &profile.samples[0];
    assert_eq!(frames(&profile, sample), ["Some(Lost)"]);
    assert_eq!((sample.thread, labels(&profile, sample)), (None, Vec::new()));
    assert_eq!(profile.notes, ["1 stack traces are missing or damaged"]);
}

#[test]
fn cut_recording_keeps_its_complete_records() {
    let file = jfr::recording();
    let whole = read(&file).unwrap();
    // Both chunks have the same records but the settings of the first.
    let second = file.len()
        - file
            .windows(4)
            .rev()
            .position(|bytes| bytes == super::MAGIC)
            .unwrap()
        - 4;
    let cut = read(&file[..file.len() - 100]).unwrap();
    assert_eq!(cut.samples.len(), whole.samples.len());
    assert_eq!(cut.notes.len(), 2, "{:?}", cut.notes);
    assert!(
        cut.notes[0].starts_with("chunk 2 is damaged or cut at byte 0x"),
        "{:?}",
        cut.notes
    );
    assert_eq!(cut.notes[1], "2 stack traces are missing or damaged");
    // The constants of the first chunk are complete.
    assert_eq!(frames(&cut, &cut.samples[0]), frames(&whole, &whole.samples[0]));
    assert_eq!(frames(&cut, &cut.samples[10]), ["Some(Lost)"]);
    // The second chunk has a header alone.
    let cut = read(&file[..second + 68]).unwrap();
    assert_eq!(cut.samples.len(), 10);
    assert_eq!(
        cut.notes,
        [format!(
            "chunk 2 at byte {second:#x} does not describe its events, and is not read"
        )]
    );
    let cut = read(&file[..second + 9]).unwrap();
    assert_eq!(
        cut.notes,
        ["the last 9 bytes of the recording are no chunk, and are not read"]
    );
}

#[test]
fn unreadable_recordings_are_refused_in_a_sentence() {
    let file = Chunk::jvm().finish();
    assert!(is_jfr(&file) && !is_jfr(b"FLR"));
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(
        error(&file[..68]),
        "JFR: the recording cannot be read: chunk 1 at byte 0x0 does not describe its events, and is not \
         read; stop the recording before it is read"
    );
    assert_eq!(
        error(&file[..20]),
        "JFR: there is no chunk at byte 0x0; the recording is damaged or cut"
    );
    let mut old = file.clone();
    old[5] = 1;
    assert_eq!(
        error(&old),
        "JFR: the chunk at byte 0x0 has format version 1, and only version 2 of Java 9 and later is read"
    );
    assert!(read(&file).unwrap().samples.is_empty());
}

#[test]
fn damaged_events_are_left_out_and_counted() {
    let mut chunk = Chunk::jvm();
    let kind = chunk.type_number("jdk.ExecutionSample");
    chunk.record(kind, &[0x85]);
    add_samples(&mut chunk, &["STATE_RUNNABLE"]);
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(profile.samples.len(), 1);
    assert_eq!(profile.notes, ["1 damaged events are left out"]);
}

#[test]
fn types_without_bytes_take_bounded_time() {
    // 16 fields of 16 fields, and so on. A constant of them has no bytes, and 16^8 fields.
    let mut types = String::from("Level8:\n");
    for level in 0..8 {
        let fields: Vec<_> = (0..16).map(|_| format!("f Level{}", level + 1)).collect();
        types += &format!("Level{level}: {}\n", fields.join(", "));
    }
    let mut chunk = Chunk::with_types(&types, false);
    add_samples(&mut chunk, &["STATE_RUNNABLE"]);
    chunk.checkpoint();
    chunk.keyed("Level0", Vec::new());
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(
        profile.notes[0],
        "chunk 1 has more nested types or longer names than its size permits, and parts of it are not read"
    );
}

#[test]
fn long_names_take_bounded_memory() {
    let mut chunk = Chunk::jvm();
    let class = "a".repeat(10_000);
    let frames: Vec<_> = (0..5000).map(|index| format!("m{index}")).collect();
    let frames: Vec<_> = frames
        .iter()
        .map(|name| jfr::Frame::java(&class, name, 1))
        .collect();
    let stack = chunk.stack(&frames, false);
    chunk.event("jdk.ExecutionSample", &numbers([START.1, 0, stack, 0]));
    let file = chunk.finish();
    let profile = read(&file).unwrap();
    let names: usize = profile.strings.iter().map(|(_, text)| text.len()).sum();
    assert!(names < 100 * file.len(), "{names} of {}", file.len());
    assert!(
        profile.notes[0].contains("longer names than its size permits"),
        "{:?}",
        profile.notes
    );
}

#[test]
fn deeply_nested_metadata_are_refused() {
    let mut chunk = profiler(&[("event", "cpu"), ("interval", "500")]);
    add_samples(&mut chunk, &["STATE_DEFAULT"]);
    // Three numbers, one string, and elements with one child each.
    let mut content = vec![0, 0, 0, 1, 3, 1, b'x'];
    content.extend([0, 0, 1].repeat(100_000));
    chunk.record(0, &content);
    let profile = read(&chunk.finish()).unwrap();
    assert_eq!(events(&profile), [row("cpu", "nanoseconds", 500, 1, 500)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_recordings_do_not_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut file = jfr::recording();
        for (index, byte) in flips {
            let index = index.index(file.len());
            file[index] = byte;
        }
        if is_cut {
            file.truncate(length.index(file.len()));
        }
        if let Ok(profile) = read(&file) {
            // Each sample has at least two bytes, and the file's notes are few.
            prop_assert!(profile.samples.len() <= file.len() / 2);
            prop_assert!(profile.notes.len() <= 16);
            prop_assert!(profile.stacks.len() <= file.len() * 2);
        }
    }
}
