//! Tests the heap probe on small C programs. Needs root and a kernel with uprobes. Otherwise each
//! test prints a message and is skipped.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bpf::HeapEvent;
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_collector::probe::{HeapAttachment, HeapProbe, ProbedFunction};
use backtrail_process::{RawTid, maps, symbols};
use backtrail_pt::{FileOffset, Pid};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Waits for a line, and then allocates and frees. Prints each block before.
const PROGRAM: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *volatile blocks[8];
static void show(const char *name, void *block) { fprintf(stdout, "%s %lx\n", name, (unsigned long)block); }
__attribute__((noinline)) static void *inner(size_t size) { return malloc(size); }
__attribute__((noinline)) static void use(void)
{
	blocks[0] = inner(100);
	blocks[1] = calloc(3, 70);
	blocks[2] = realloc(blocks[0], 9000);
	void *out = NULL;
	if (posix_memalign(&out, 64, 500)) abort();
	blocks[3] = out;
	blocks[4] = aligned_alloc(32, 96);
	blocks[5] = memalign(128, 77);
	for (int i = 1; i < 6; i++) free(blocks[i]);
	free(NULL);
}
int main(void)
{
	static char buffer[1 << 12];
	setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
	printf("ready\n"); fflush(stdout);
	if (getchar() == EOF) return 1;
	use();
	show("malloc", blocks[0]); show("calloc", blocks[1]); show("realloc", blocks[2]);
	show("posix", blocks[3]); show("aligned", blocks[4]); show("memalign", blocks[5]);
	return 0;
}
"#;

struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn build(source: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let language = if source.contains("<new>") { "c++" } else { "c" };
        let mut compiler = Command::new(if language == "c" { "cc" } else { "c++" })
            .args(["-O1", "-fno-builtin", "-x", language, "-", "-o"])
            .arg(&path)
            .args(options)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source.as_bytes()).unwrap();
        drop(input);
        assert!(compiler.wait().unwrap().success());
        Self {
            _folder: folder,
            path,
        }
    }
}

/// A program that has printed its first line and waits.
struct Waiting {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Waiting {
    fn start(program: &Program) -> Self {
        let mut child = Command::new(&program.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Lets it run, and returns its further lines.
    fn finish(mut self) -> Vec<String> {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let lines = self.output.lines().map(|line| line.unwrap()).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

/// Returns the allocator functions of the files that a process maps.
fn functions(pid: Pid) -> Vec<ProbedFunction> {
    let mut found = Vec::new();
    for map in maps::maps(pid.0 as RawTid)
        .iter()
        .filter(|map| map.executable && map.is_file())
    {
        let wanted = |name: &str| AllocatorFunction::of_symbol(name).filter(|_| !name.starts_with('_'));
        for (address, function) in symbols::functions(pid.0 as RawTid, map, wanted) {
            let function = ProbedFunction {
                path: Arc::new(PathBuf::from(&map.path)),
                offset: FileOffset(address - map.start + map.offset),
                function,
            };
            if !found.contains(&function) {
                found.push(function);
            }
        }
    }
    found
}

/// Loads the probe. `None`, with a message: this machine does not allow it.
fn load() -> Option<HeapProbe> {
    // SAFETY: the call has no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        println!("skipped: no root, or no uprobes in this kernel");
        return None;
    }
    Some(HeapProbe::load().unwrap())
}

fn run(probe: &mut HeapProbe, program: &Program) -> (Vec<HeapEvent>, Vec<String>) {
    let waiting = Waiting::start(program);
    let (pid, mut attachment) = (waiting.pid(), HeapAttachment::default());
    let functions = functions(pid);
    assert!(!functions.is_empty());
    probe.attach(pid, &functions, 0, &mut attachment).unwrap();
    let lines = waiting.finish();
    let mut events = Vec::new();
    probe.drain(&mut |event| events.push(*event));
    assert_eq!(probe.lost(pid).count, 0);
    assert!(
        events
            .iter()
            .all(|event| event.pid == pid.0 && event.tid == pid.0)
    );
    assert!(events.windows(2).all(|pair| pair[0].ended <= pair[1].ended));
    probe.detach(pid, attachment).remove();
    (events, lines)
}

fn names(events: &[HeapEvent]) -> Vec<&'static str> {
    events
        .iter()
        .map(|event| AllocatorFunction::ALL[usize::from(event.function)].name())
        .collect()
}

#[test]
fn calls_have_arguments_results_and_callers() {
    let Some(mut probe) = load() else { return };
    let program = Program::build(PROGRAM, &[]);
    let other = Waiting::start(&program);
    let (events, lines) = run(&mut probe, &program);
    other.finish();
    let mut stray = 0;
    probe.drain(&mut |_| stray += 1);
    assert_eq!(stray, 0, "another process is not recorded");
    let printed = |at: usize| u64::from_str_radix(lines[at].rsplit(' ').next().unwrap(), 16).unwrap();
    let blocks: Vec<u64> = (0..6).map(printed).collect();
    // The library's stdio allocates its input buffer.
    let begin = events.iter().position(|event| event.argument == 100).unwrap();
    let events = &events[begin..];
    let calls: Vec<(u64, u64, u64)> = events
        .iter()
        .map(|event| (event.argument, event.size, event.result))
        .collect();
    let expected = [
        (100, 0, blocks[0]),
        (210, 0, blocks[1]),
        (blocks[0], 9000, blocks[2]),
        (500, 0, blocks[3]),
        (96, 0, blocks[4]),
        (77, 0, blocks[5]),
        (blocks[1], 0, 0),
        (blocks[2], 0, 0),
        (blocks[3], 0, 0),
        (blocks[4], 0, 0),
        (blocks[5], 0, 0),
    ];
    assert_eq!(calls, expected, "{:?}", names(events));
    // The five frees are in one loop.
    assert!(
        events[6..]
            .windows(2)
            .all(|pair| pair[0].caller == pair[1].caller)
    );
    assert!(events.iter().all(|event| event.caller > 4096 && event.words > 0));
    assert!(events[..6].iter().all(|event| event.began <= event.ended));
}

#[test]
fn exceptions_of_operator_new_are_caught() {
    let Some(mut probe) = load() else { return };
    let source = "#include <new>\n#include <cstdio>\n#include <cstdlib>\n\
        int main() {\n printf(\"ready\\n\"); fflush(stdout);\n if (getchar() == EOF) return 1;\n\
        int *one = new int(7); printf(\"%p\\n\", (void *)one); delete one;\n\
        try { (void)operator new((size_t)1 << 62); } catch (const std::bad_alloc &) { printf(\"none\\n\"); }\n\
        void *last = malloc(55); printf(\"%p\\n\", last); free(last); return 0; }\n";
    let program = Program::build(source, &[]);
    let (events, lines) = run(&mut probe, &program);
    assert_eq!(lines[1], "none", "the exception was caught");
    let call = |at: u64| events.iter().find(|event| event.argument == at).unwrap();
    let shown = |block: u64| format!("{block:#x}");
    assert_eq!(
        (shown(call(4).result), shown(call(55).result)),
        (lines[0].clone(), lines[2].clone())
    );
    assert_eq!(call(1 << 62).result, 0);
    let freed = call(call(4).result);
    assert_eq!(names(&[*freed]), ["free"]);
}

#[test]
fn operators_are_refused() {
    let Some(mut probe) = load() else { return };
    let function = ProbedFunction {
        path: Arc::new(PathBuf::from("/bin/sh")),
        offset: FileOffset(0),
        function: AllocatorFunction::New,
    };
    let error = probe.attach(Pid(1), &[function], 0, &mut HeapAttachment::default());
    assert!(error.unwrap_err().to_string().contains("exception"));
}

/// Pairs of malloc and free, of which the time is printed in nanoseconds.
const PAIRS: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n\
    static void *volatile block;\n\
    int main(void) {\n printf(\"ready\\n\"); fflush(stdout);\n if (getchar() == EOF) return 1;\n\
    enum { PAIRS = 200000 }; struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a);\n\
    for (int i = 0; i < PAIRS; i++) { block = malloc(64); free(block); }\n\
    clock_gettime(CLOCK_MONOTONIC, &b);\n\
    printf(\"%ld\\n\", ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec) / PAIRS); return 0; }\n";

#[test]
#[ignore = "measures the cost of a pair of calls"]
fn cost_of_a_pair_of_calls() {
    let Some(mut probe) = load() else { return };
    let program = Program::build(PAIRS, &[]);
    for _ in 0..5 {
        let plain = Waiting::start(&program).finish();
        let waiting = Waiting::start(&program);
        let (pid, mut attachment) = (waiting.pid(), HeapAttachment::default());
        let began = std::time::Instant::now();
        probe.attach(pid, &functions(pid), 0, &mut attachment).unwrap();
        let attached = began.elapsed();
        let noted = waiting.finish();
        let mut count = 0;
        probe.drain(&mut |_| count += 1);
        let lost = probe.lost(pid).count;
        let began = std::time::Instant::now();
        probe.detach(pid, attachment).remove();
        println!(
            "{} ns a pair, {} ns noted; {count} records, {lost} lost; attach {attached:?}, detach {:?}",
            plain[0],
            noted[0],
            began.elapsed()
        );
        assert!(count + lost >= 400_000, "{count} {lost}");
    }
}
