//! Builds small programs, and queries binutils about them.

use backtrail_pt::Svma;
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A C program with a static function, an inlined one in two levels, a loop and a cold path.
pub const C: &str = r#"#include <stdio.h>
#include <stdlib.h>

static int leaf(int x)
{
    int y = x * 3;
    return y + 1;
}

static inline __attribute__((always_inline)) int inner(int x)
{
    return leaf(x) ^ x;
}

static inline __attribute__((always_inline)) int outer(int x)
{
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += inner(i);
    return sum;
}

__attribute__((noinline)) int work(int x)
{
    if (x > 1000) {
        fputs("too much\n", stderr);
        abort();
    }
    return outer(x) + outer(x + 1);
}

int alias_of_work(int x) __attribute__((alias("work")));

int main(int argc, char **argv)
{
    printf("%d\n", work(argc * 7));
    return argv[0] == 0;
}
"#;

/// A C++ program with namespaces, overloads, a template, a class, and a lambda.
pub const CPP: &str = r#"#include <cstdio>
#include <string>

namespace ns {
int f(int x) { return x + 1; }
int f(double x) { return (int)x + 2; }
template <class T> struct Box {
    T value;
    __attribute__((noinline)) T get() const { return value + 1; }
};
static __attribute__((noinline)) int hidden(int x) { return f(x) + f(x * 0.5); }
namespace {
__attribute__((noinline)) int anonymous(int x) { return hidden(x) + 1; }
}
}

int main(int argc, char **)
{
    ns::Box<long> box{argc};
    auto lambda = [&](int x) { return ns::anonymous(x) + (int)box.get(); };
    std::string text(argc, 'x');
    printf("%d %s\n", lambda(argc), text.c_str());
    return 0;
}
"#;

/// A C++ program with a virtual base, member functions and types in types.
pub const CLASSES: &str = r#"namespace ns {
struct Animal { int legs = 4; virtual ~Animal() {} static int made; };
int Animal::made = 1;
class Duck : public virtual Animal {
public:
    typedef int Age;
    struct Nest { Age since; };
    int age() const { return own + nest.since; }
    static Duck *make() { return nullptr; }
private:
    Age own = 3;
    Nest nest = {5};
};
}

int main() { ns::Duck duck; return duck.age() + (ns::Duck::make() == nullptr); }
"#;

/// A Rust program with a module, a trait, a generic function and a closure.
pub const RUST: &str = r#"
mod shapes {
    pub trait Area { fn area(&self) -> f64; }
    pub struct Square(pub f64);
    impl Area for Square {
        #[inline(never)]
        fn area(&self) -> f64 { self.0 * self.0 }
    }
    #[inline(never)]
    pub fn total<T: Area>(all: &[T]) -> f64 { all.iter().map(|one| one.area()).sum() }
}

#[inline(never)]
fn pick(n: usize) -> Vec<shapes::Square> {
    (0..n).map(|side| shapes::Square(side as f64)).collect()
}

fn main() {
    let squares = pick(std::env::args().count() + 3);
    println!("{}", shapes::total(&squares));
}
"#;

/// A directory, and a program built in it.
pub struct Built {
    pub directory: TempDir,
    pub program: PathBuf,
}

impl Built {
    pub fn open(&self) -> SymbolFile {
        SymbolFile::open(&self.program, &DebugSearch::default()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Compiles `source` with `compiler arguments… -o program`. Prints a message and returns `None` if
/// there is no compiler.
pub fn build(compiler: &str, extension: &str, source: &str, arguments: &[&str]) -> Option<Built> {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("program");
    let name = format!("source.{extension}");
    std::fs::write(directory.path().join(&name), source).unwrap();
    let mut command = Command::new(compiler);
    command
        .current_dir(directory.path())
        .arg(&name)
        .args(arguments)
        .arg("-o")
        .arg(&program);
    let Ok(output) = command.output() else {
        println!("skipped: no {compiler} on this machine");
        return None;
    };
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(Built { directory, program })
}

/// Runs a tool of binutils in the program's directory.
pub fn run(built: &Built, tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .current_dir(built.directory.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns whether the tool exists, and prints a message if not.
pub fn have(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("skipped: no {tool} on this machine");
    }
    found
}

/// Returns the addresses of all instructions in `.text`, as objdump lists them.
pub fn instructions(program: &Path) -> Vec<Svma> {
    let output = Command::new("objdump")
        .args(["-d", "-j", ".text", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| line.starts_with(' '))
        .filter_map(|line| u64::from_str_radix(line.trim_start().split(':').next()?, 16).ok())
        .map(Svma)
        .collect()
}

/// A frame of addr2line: linkage name, path, line (0 if unknown).
pub type OracleFrame = (String, String, u32);

/// Runs `addr2line -f -i -a` on each address.
pub fn addr2line(program: &Path, addresses: &[Svma]) -> Vec<Vec<OracleFrame>> {
    let mut child = Command::new("addr2line")
        .args(["-f", "-i", "-a", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers: Vec<Vec<OracleFrame>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (discriminator").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        answers
            .last_mut()
            .unwrap()
            .push((line.to_owned(), file.to_owned(), number.parse().unwrap_or(0)));
    }
    answers
}

/// A row of the line table.
#[derive(Debug)]
pub struct DecodedRow {
    pub address: u64,
    pub line: u32,
    pub is_stmt: bool,
}

/// Returns the line tables in the order of the section, from `objdump --dwarf=decodedline`.
pub fn decoded_rows(program: &Path) -> Vec<DecodedRow> {
    let output = Command::new("objdump")
        .arg("--dwarf=decodedline")
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let number = words.next()?;
        let line = if number == "-" { 0 } else { number.parse().ok()? };
        let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(DecodedRow {
            address,
            line,
            is_stmt: words.any(|word| word == "x"),
        })
    };
    text.lines().filter_map(row).collect()
}

/// Returns the address ranges of the code symbols that have a size, as nm lists them.
pub fn sized_symbols(program: &Path) -> Vec<std::ops::Range<u64>> {
    let output = Command::new("nm")
        .args(["-S", "--defined-only"])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let symbol = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [start, size, kind, _] = words[..] else {
            return None;
        };
        let start = u64::from_str_radix(start, 16).ok()?;
        "tTwWiV"
            .contains(kind)
            .then_some(start..start + u64::from_str_radix(size, 16).ok()?)
    };
    text.lines().filter_map(symbol).collect()
}
