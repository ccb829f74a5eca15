//! Small bundles, cores and traces that are expensive to read without limits.

use backtrail_tests::backtrail::{Run, command};
use nix::sys::resource::{Resource, setrlimit};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// The time limit of each command, several times its real time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `backtrail` with a limit on its address space, and kills it at the time limit.
fn bounded<S: AsRef<std::ffi::OsStr>>(memory: u64, arguments: impl IntoIterator<Item = S>) -> Run {
    let mut command = command().unwrap();
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let limit = move || setrlimit(Resource::RLIMIT_AS, memory, memory).map_err(io::Error::from);
    // SAFETY: setrlimit(2) may be called between fork and exec.
    unsafe { command.pre_exec(limit) };
    let mut child = command.spawn().unwrap();
    let read = |mut from: Box<dyn io::Read + Send>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            from.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = read(Box::new(child.stdout.take().unwrap()));
    let stderr = read(Box::new(child.stderr.take().unwrap()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("no answer within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    };
    Run {
        status: status.code(),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

fn debug(path: &Path, memory: u64, commands: &[&str]) -> Run {
    let mut arguments = vec!["debug".into(), path.as_os_str().to_owned(), "--batch".into()];
    for command in commands {
        arguments.extend(["-e".into(), command.into()]);
    }
    bounded(memory, arguments)
}

/// A note of a core.
fn note(out: &mut Vec<u8>, kind: u32, contents: &[u8]) {
    for word in [5, contents.len() as u32, kind] {
        out.extend(word.to_le_bytes());
    }
    out.extend(b"CORE\0\0\0\0");
    out.extend(contents);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Builds a core with this number of threads, mapped files and memory areas.
fn core(threads: u32, files: u64, areas: u64) -> Vec<u8> {
    const NT_PRSTATUS: u32 = 1;
    const NT_FILE: u32 = 0x4649_4c45;
    let mut notes = Vec::new();
    for tid in 0..threads {
        let mut status = vec![0; 336];
        status[12] = 11;
        status[32..36].copy_from_slice(&(tid + 100).to_le_bytes());
        note(&mut notes, NT_PRSTATUS, &status);
    }
    let page = |number: u64| 0x1000_0000 + number * 0x2000;
    let mut mapped: Vec<u8> = [files, 4096].into_iter().flat_map(u64::to_le_bytes).collect();
    for number in 0..files {
        let triple = [page(number), page(number) + 0x1000, 0];
        mapped.extend(triple.into_iter().flat_map(u64::to_le_bytes));
    }
    for number in 0..files {
        mapped.extend(format!("/no/such/{number}\0").into_bytes());
    }
    note(&mut notes, NT_FILE, &mapped);
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |out: &mut Vec<u8>, words: &[u16]| {
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    };
    let long = |out: &mut Vec<u8>, words: &[u64]| {
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    };
    half(&mut out, &[4, 62, 1, 0]);
    long(&mut out, &[0, 64, 0]);
    half(&mut out, &[0, 0, 64, 56, areas as u16 + 1, 64, 0, 0]);
    let notes_at = 64 + 56 * (areas + 1);
    let header = |out: &mut Vec<u8>, kind: u64, rest: [u64; 6]| {
        // p_type and p_flags are one word: PT_LOAD has R and X.
        long(out, &[kind | if kind == 1 { 5 << 32 } else { 0 }]);
        long(out, &rest);
    };
    header(&mut out, 4, [notes_at, 0, 0, notes.len() as u64, 0, 4]);
    for number in 0..areas {
        header(&mut out, 1, [0, page(number), 0, 0x1000, 0x1000, 0x1000]);
    }
    out.extend(notes);
    out
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Comparing each entry with all others took 14 s for the files and 15 s for the threads.
#[test]
fn a_core_of_many_files_threads_and_areas_opens_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for (threads, files, areas) in [(1, 80_000, 1), (60_000, 1, 1), (1, 60_000, 60_000)] {
        let path = written(folder.path(), "core", &core(threads, files, areas));
        let run = debug(&path, 1 << 30, &["info threads", "info sharedlibrary"]).exited(0);
        let listed = run.stdout.lines().count();
        assert!(listed >= threads as usize, "{listed}");
        // Missing files are not listed one by one.
        assert!(run.stderr.lines().count() < 100, "{}", run.stderr.lines().count());
    }
}

/// Eight million empty elements took a gigabyte and ten seconds.
#[test]
fn descriptions_with_millions_of_errors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let elements = |element: &str, count: usize| {
        let list = vec![element; count].join(",");
        format!(r#"{{"type":"intel-pt","processes":[{list}]}}"#)
    };
    for (element, count) in [("1", 8_000_000), ("{}", 5_000_000), (r#"{"a":1}"#, 2_000_000)] {
        written(folder.path(), "trace.json", elements(element, count).as_bytes());
        let run = bounded(500 << 20, [Path::new("check"), folder.path()]).exited(3);
        assert!(
            run.stdout.contains("too much memory") || run.stderr.contains("too much memory"),
            "{}{}",
            run.stdout,
            run.stderr
        );
    }
    written(folder.path(), "trace.json", elements("1", 1_000_000).as_bytes());
    let run = bounded(300 << 20, [Path::new("check"), folder.path()]).exited(3);
    let said = run.stdout + &run.stderr;
    assert!(said.contains("more faults are not listed"), "{said}");
    assert!(said.lines().count() < 120, "{said}");
}

/// One trace for a hundred thousand threads would be decoded once for each.
#[test]
fn a_trace_of_two_threads_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "t", b"");
    let json = r#"{"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":85,"stepping":4},
        "processes":[{"pid":1,"modules":[],"threads":[{"tid":1,"iptTrace":"t"},{"tid":2,"iptTrace":"t"}]}]}"#;
    written(folder.path(), "trace.json", json.as_bytes());
    let run = bounded(1 << 30, [Path::new("info"), folder.path()]).exited(3);
    assert!(
        run.sentence().contains("the trace of two threads"),
        "{}",
        run.stderr
    );
}

/// A line program of one row per byte: 56 bytes of memory each, 1.85 GB in total.
#[test]
fn a_line_table_of_thirty_million_rows_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program)
            .args(arguments)
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    };
    written(folder.path(), "t.c", b"int main(void) { return 0; }\n");
    run("cc", &["-g", "-gdwarf-4", "-O0", "-o", "t", "t.c"]);
    run("objcopy", &["--dump-section", ".debug_line=lines", "t"]);
    let lines = fs::read(folder.path().join("lines")).unwrap();
    // unit_length, version 4, header_length, the header.
    let program_at = 10 + u32::from_le_bytes(lines[6..10].try_into().unwrap()) as usize;
    let (set_address, rest) = lines[program_at..].split_at(13);
    assert!(
        set_address.windows(3).any(|opcode| opcode == [0, 9, 2]),
        "{rest:?}"
    );
    let start = set_address
        .windows(3)
        .position(|opcode| opcode == [0, 9, 2])
        .unwrap();
    let mut hostile = lines[..program_at].to_vec();
    hostile.extend(&lines[program_at + start..program_at + start + 11]);
    // Special opcodes that advance one byte and several lines (opcode_base 13 or 10, line_range
    // 14).
    hostile.resize(hostile.len() + (32 << 20), 13 + 14 + 6);
    hostile.extend([2, 1, 0, 1, 1]);
    let length = (hostile.len() - 4) as u32;
    hostile[..4].copy_from_slice(&length.to_le_bytes());
    written(folder.path(), "hostile", &hostile);
    run("objcopy", &["--update-section", ".debug_line=hostile", "t", "u"]);
    written(folder.path(), "t.pt", &[0x02, 0x82].repeat(8));
    let path = |name: &str| folder.path().join(name).into_os_string();
    let import = ["import", "raw", "--pt"].map(Into::into).into_iter().chain([
        path("t.pt"),
        "--image".into(),
        path("u"),
        "--output".into(),
        path("b"),
    ]);
    let _ = bounded(1 << 30, import).exited(0);
    let run = debug(
        &folder.path().join("b"),
        700 << 20,
        &["break t.c:1", "info line main"],
    );
    assert!(run.status.is_some(), "{}", run.stderr);
}

/// One TNT bit can produce 30 000 instructions: a megabyte of them took more than 40 s.
#[test]
fn trace_with_too_many_instructions_has_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut code = [0x48, 0xff, 0xc0].repeat(30_000);
    code.extend([0x0f, 0x85]);
    code.extend((-(code.len() as i32 + 4)).to_le_bytes());
    let code = written(folder.path(), "code", &code);
    let mut trace = [0x02, 0x82].repeat(8);
    trace.extend([0x99, 0x01, 0x7d, 0x00, 0x10, 0, 0, 0, 0, 0x02, 0x23]);
    trace.resize(trace.len() + (1 << 20), 0xfe);
    let trace = written(folder.path(), "trace", &trace);
    let bundle = folder.path().join("b");
    let mut image = code.into_os_string();
    image.push("@0x1000");
    let import = ["import", "raw", "--pt"].map(Into::into).into_iter().chain([
        trace.into_os_string(),
        "--image".into(),
        image,
        "--output".into(),
        bundle.clone().into_os_string(),
    ]);
    let _ = bounded(1 << 30, import).exited(0);
    let run = debug(&bundle, 1 << 30, &["info gaps"]).exited(0);
    let gap = "more instructions without a packet than a trace of this size can represent";
    assert!(run.stdout.contains(gap), "{}", run.stdout);
}
