//! Compares Go's own table of stripped programs with the DWARF of the same programs.

use backtrail_pt::Svma;
use backtrail_symbolizer::{DebugSearch, Frame, SymbolDetail, SymbolFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A package with inlined calls of several levels, a generic type, and a method.
const SHAPES: &str = r#"package shapes

type Number interface{ ~int | ~float64 }

type Stack[T Number] struct{ items []T }

//go:noinline
func (s *Stack[T]) Push(item T) { s.items = append(s.items, twice(item)) }

func (s *Stack[T]) Top() T { return s.items[len(s.items)-1] }

func twice[T Number](x T) T { return once(x) + once(x+1) }

func once[T Number](x T) T { return x * 3 }

//go:noinline
func Sum[T Number](items []T) T {
	var sum T
	for _, item := range items {
		sum += twice(item)
	}
	return sum
}
"#;

/// A program with goroutines, closures, deferred calls, a panic and a select.
const MAIN: &str = r#"package main

import (
	"example.com/walk/shapes"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
)

type point struct{ x, y int }

func (p point) far() int { return square(p.x) + square(p.y) }

func square(x int) int { return mul(x, x) }

func mul(a, b int) int {
	return a * b
}

//go:noinline
func walk(points []point, visit func(point) bool) (steps int) {
	defer func() {
		if r := recover(); r != nil {
			steps = -1
		}
	}()
	for _, p := range points {
		if !visit(p) {
			panic("stop")
		}
		steps += p.far()
	}
	return steps
}

func worker(in <-chan int, out chan<- string, group *sync.WaitGroup) {
	defer group.Done()
	for {
		select {
		case x, ok := <-in:
			if !ok {
				return
			}
			out <- strings.Repeat("x", square(x)%7)
		}
	}
}

func main() {
	in, out := make(chan int), make(chan string, 100)
	var group sync.WaitGroup
	for i := 0; i < 3; i++ {
		group.Add(1)
		go worker(in, out, &group)
	}
	for i := range os.Args {
		in <- i
	}
	close(in)
	group.Wait()
	points := []point{{1, 2}, {3, len(os.Args)}}
	sort.Slice(points, func(i, j int) bool { return points[i].far() < points[j].far() })
	steps := walk(points, func(p point) bool { return p.far() < 100 })
	stack := &shapes.Stack[int]{}
	stack.Push(steps)
	fmt.Println(stack.Top(), shapes.Sum([]float64{1, 2}), len(out))
}
"#;

/// Writes the program, and returns its directory. Prints a message and returns `None` if there is
/// no Go.
fn program() -> Option<TempDir> {
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: no go on this machine");
        return None;
    }
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("shapes")).unwrap();
    for (name, text) in [
        ("go.mod", "module example.com/walk\n\ngo 1.18\n"),
        ("main.go", MAIN),
        ("shapes/shapes.go", SHAPES),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    Some(directory)
}

fn build(directory: &Path, output: &str, arguments: &[&str]) -> SymbolFile {
    let mut command = Command::new("go");
    command
        .current_dir(directory)
        .args(["build", "-o", output])
        .args(arguments);
    command
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod");
    let built = command.arg(".").output().unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    SymbolFile::open(&directory.join(output), &DebugSearch::none()).unwrap()
}

/// The name, file and line of a frame, and whether it is inlined.
type Shown = (String, String, u32, bool);

/// Returns a name with the type arguments as Go's table shortens them.
fn shortened(name: &str) -> String {
    match (name.find('['), name.rfind(']')) {
        (Some(open), Some(close)) if open < close => format!("{}[...]{}", &name[..open], &name[close + 1..]),
        _ => name.to_owned(),
    }
}

fn shown(frames: Vec<Frame>) -> Vec<Shown> {
    let shown = |frame: Frame| {
        let (file, line) = frame
            .location
            .map_or(Default::default(), |at| (at.file.to_string(), at.line));
        // DWARF joins the name of generated code with a directory.
        let file = file.trim_start_matches("./").to_owned();
        (shortened(&frame.function), file, line, frame.inlined)
    };
    frames.into_iter().map(shown).collect()
}

fn compare(full: &SymbolFile, stripped: &SymbolFile) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    let mut inl = 0;
    for function in full.functions_matching(&regex::Regex::new(".").unwrap()) {
        let here = stripped.function_at(function.entry);
        let of = |f: &backtrail_symbolizer::Function| (shortened(&f.name), f.entry, f.range.clone());
        if here.as_ref().map(of) != Some(of(&function)) {
            let n = kinds.entry("function").or_default();
            *n += 1;
            if *n < 12 {
                println!("function {function:?}\n    {here:?}");
            }
        }
        if here.as_ref().map(|f| &f.declared) != Some(&function.declared) {
            let n = kinds.entry("declared").or_default();
            *n += 1;
            if *n < 6 {
                println!("declared {function:?}\n    {here:?}");
            }
        }
        for at in (function.range.start.0..function.range.end.0)
            .step_by(3)
            .map(Svma)
        {
            total += 1;
            let (a, b) = (shown(full.frames_at(at)), shown(stripped.frames_at(at)));
            inl += usize::from(a.len() > 1);
            if a != b {
                let kind = if a.iter().map(|f| &f.0).ne(b.iter().map(|f| &f.0)) {
                    "names"
                } else {
                    "lines"
                };
                let n = kinds.entry(kind).or_default();
                *n += 1;
                if *n < 12 {
                    println!("{kind} {at:x?} {}\n    {a:?}\n    {b:?}", function.name);
                }
            }
            let geo = |f: &Frame| (f.range.clone(), f.entry, f.declared.clone());
            let (a, b) = (full.frames_at(at), stripped.frames_at(at));
            if a.iter().map(geo).ne(b.iter().map(geo)) {
                let n = kinds.entry("geo").or_default();
                *n += 1;
                if *n % 2000 == 1 {
                    println!("geo {at:x?} {}\n    {a:x?}\n    {b:x?}", function.name);
                }
            }
        }
    }
    println!("total {total} inlined {inl} {kinds:?}");
}

#[test]
fn stripped_go_equals_dwarf() {
    let Some(directory) = program() else { return };
    for mode in ["exe", "pie"] {
        let mode = format!("-buildmode={mode}");
        let full = build(directory.path(), "full", &[&mode]);
        let stripped = build(directory.path(), "stripped", &[&mode, "-ldflags=-s -w"]);
        assert_eq!(stripped.detail(), SymbolDetail::SymbolTable);
        println!("{:?} {:?}", stripped.debug_gap(), stripped.source_files().len());
        compare(&full, &stripped);
    }
}
