//! Aborts with values of the standard library and of enumerations at hand.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    North,
    South = 4,
}

#[derive(Debug)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Debug)]
struct Meters(f64);

#[derive(Debug)]
enum Shape {
    Empty,
    Circle { center: Point, radius: f32 },
    Named(String, u8),
}

static GREETING: &str = "hello";
static COUNTER: AtomicU32 = AtomicU32::new(3);

#[inline(never)]
fn look(shapes: &[Shape], name: &str, limit: Option<u32>) -> usize {
    let text = String::from("a \"quoted\" é");
    let numbers = vec![1i32, 2, 3];
    let words: Vec<&str> = vec!["one", "two"];
    let nothing: Vec<u64> = Vec::new();
    let some = Some(5i64);
    let none: Option<i64> = None;
    let boxed = Box::new(Point { x: 1, y: -2 });
    let maybe: Option<Box<Point>> = None;
    let failed: Result<u8, String> = Err("no".to_owned());
    let shared = Rc::new(7u16);
    let other = Rc::clone(&shared);
    let atomic = Arc::new(String::from("arc"));
    let cell = Cell::new(3);
    let guarded = RefCell::new(vec![9]);
    let mut queue = VecDeque::from([1, 2, 3]);
    queue.rotate_left(1);
    let mut map = HashMap::new();
    map.insert(1u8, "first");
    let sorted: BTreeMap<u32, String> = (0..40).rev().map(|key| (key, key.to_string())).collect();
    let no_entries: BTreeMap<u8, u8> = BTreeMap::new();
    let few = BTreeSet::from(["b", "a"]);
    let path = PathBuf::from("/tmp/x");
    let pair = (1u8, 'c');
    let array = [0u8; 20];
    let length = Meters(2.5);
    let way = Direction::South;
    let unit = ();
    let letter = 'é';
    let wide = -1i128;
    let first = &shapes[1];
    let tail = &numbers[1..];
    let size = text.len() + numbers.len() + words.len() + nothing.len() + queue.len() + map.len();
    if size > 3 || limit.is_none() {
        eprintln!("{some:?} {none:?} {boxed:?} {maybe:?} {failed:?} {other} {atomic} {cell:?} {guarded:?}");
        eprintln!("{pair:?} {array:?} {length:?} {way:?} {unit:?} {letter} {wide} {first:?} {tail:?} {name}");
        eprintln!("{sorted:?} {no_entries:?} {few:?} {path:?}");
        COUNTER.fetch_add(1, Ordering::Relaxed);
        std::process::abort();
    }
    size
}

fn main() {
    let shapes = [
        Shape::Empty,
        Shape::Circle { center: Point { x: 3, y: 4 }, radius: 1.5 },
        Shape::Named(GREETING.to_owned(), 200),
    ];
    let direction = Direction::North;
    let found = look(&shapes, "look", Some(8));
    std::process::exit(i32::from(direction == Direction::South) + found as i32);
}
