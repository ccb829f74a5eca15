//! Builds small programs, and opens their indexes.

use backtrail_symbol_index::{BuildOptions, Index, IndexFiles, OpenOptions, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A C program with a static function, an inlined one in two levels, and a cold path.
pub const C: &str = r#"#include <stdio.h>
#include <stdlib.h>
struct pair { int first; long second[4]; };
typedef int (*callback)(const struct pair *, char **);
static int leaf(int x) { return x * 3 + 1; }
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
__attribute__((noinline)) long work(const struct pair *pair, callback call, char **names)
{
    if (pair->first > 1000) {
        fputs("too much\n", stderr);
        abort();
    }
    return outer(pair->first) + outer(pair->first + 1) + (call ? call(pair, names) : 0);
}
int main(int argc, char **argv)
{
    struct pair pair = {argc * 7, {1}};
    printf("%ld\n", work(&pair, 0, argv));
    return argv[0] == 0;
}
"#;

/// A C++ program with namespaces, overloads, a template, a class, and a lambda.
pub const CPP: &str = r#"#include <cstdio>
#include <map>
#include <string>
#include <vector>
namespace ns {
int f(int x) { return x + 1; }
int f(double x) { return (int)x + 2; }
template <class T> struct Box {
    T value;
    __attribute__((noinline)) T get(const std::string &name, T *other) const
    {
        return value + name.size() + *other;
    }
};
static __attribute__((noinline)) int hidden(int x) { return f(x) + f(x * 0.5); }
namespace {
__attribute__((noinline)) int anonymous(int x) { return hidden(x) + 1; }
}
}
int main(int argc, char **argv)
{
    std::map<std::string, std::vector<int>> table;
    for (int i = 0; i < argc + 4; i++)
        table[argv[0] + std::to_string(i)].push_back(i);
    ns::Box<long> box{argc};
    long one = 1;
    auto lambda = [&](int x) { return ns::anonymous(x) + (int)box.get(argv[0], &one); };
    std::string text(argc, 'x');
    printf("%d %s %zu\n", lambda(argc), text.c_str(), table.size());
    return 0;
}
"#;

/// A Rust program with a module, a trait, a generic function and a closure.
pub const RUST: &str = r#"
mod shapes {
    pub trait Area { fn area(&self, scale: f32) -> f64; }
    pub struct Square(pub f64);
    impl Area for Square {
        #[inline(never)]
        fn area(&self, scale: f32) -> f64 { self.0 * self.0 * f64::from(scale) }
    }
    #[inline(never)]
    pub fn total<T: Area>(all: &[T]) -> f64 { all.iter().map(|one| one.area(2.0)).sum() }
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

/// A Go program with a method and an inlined function.
pub const GO: &str = r#"package main

import (
	"fmt"
	"os"
)

type point struct{ x, y int }

//go:noinline
func (p *point) far(names []string) int { return p.x*p.x + square(p.y) + len(names) }

func square(x int) int { return x * x }

func main() {
	p := &point{len(os.Args), 2}
	fmt.Println(p.far(os.Args), square(p.x))
}
"#;

/// A directory, and a program built in it.
pub struct Built {
    _directory: TempDir,
    pub program: PathBuf,
}

impl Built {
    pub fn open(&self) -> SymbolFile {
        SymbolFile::open(&self.program, &DebugSearch::none()).unwrap()
    }
}

/// Compiles a source file. Prints a message and returns `None` if there is no compiler.
pub fn compile(compiler: &str, extension: &str, source: &str, arguments: &[&str]) -> Option<Built> {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("program");
    let name = format!("source.{extension}");
    std::fs::write(directory.path().join(&name), source).unwrap();
    let mut command = Command::new(compiler);
    command.current_dir(directory.path());
    if compiler == "go" {
        command
            .args(["build", "-o", "program"])
            .args(arguments)
            .arg(&name);
        command.env("GO111MODULE", "off");
        command.env("GOCACHE", directory.path().join("cache"));
    } else {
        command.arg(&name).args(arguments).args(["-o", "program"]);
    }
    let Ok(output) = command.output() else {
        println!("skipped: no {compiler} on this machine");
        return None;
    };
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(Built {
        _directory: directory,
        program,
    })
}

/// Compiles the C++ program with optimization.
pub fn cpp() -> Option<Built> {
    compile("c++", "cc", CPP, &["-g", "-O2"])
}

/// Makes an index with this number of threads.
pub fn files(symbols: &SymbolFile, threads: usize) -> IndexFiles {
    let threads = NonZeroUsize::new(threads).unwrap();
    build(symbols, &BuildOptions { threads }).unwrap()
}

/// Opens an index.
pub fn open(files: &IndexFiles) -> Index {
    let (gsym, types) = (Arc::new(files.gsym.clone()), Arc::new(files.types.clone()));
    Index::open(gsym, types, &OpenOptions::default()).unwrap()
}

/// Returns whether a tool exists, and prints a message if not.
pub fn have(tool: &str) -> bool {
    let mut command = Command::new(tool);
    let command = command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let found = command.status().is_ok();
    if !found {
        println!("skipped: no {tool} on this machine");
    }
    found
}
