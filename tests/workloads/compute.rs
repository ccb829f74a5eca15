//! Compute in Rust: threads with channels, maps, strings, trait objects and caught panics.
//! The argument says how often.
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);
struct Bar(u64, u64);

impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}

impl Shape for Bar {
    fn area(&self) -> u64 {
        self.0 * self.1
    }
}

fn words(count: u64) -> u64 {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for i in 0..count {
        *seen.entry(format!("{:x}", i * 2_654_435 % 4096)).or_default() += 1;
    }
    seen.iter().map(|(word, times)| word.len() as u64 * times).sum()
}

fn areas(count: u64) -> u64 {
    let shapes: Vec<Box<dyn Shape>> = (0..count)
        .map(|i| if i % 3 == 0 { Box::new(Square(i % 11)) as Box<dyn Shape> } else { Box::new(Bar(i % 5, 3)) })
        .collect();
    shapes.iter().map(|shape| shape.area()).sum()
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    std::panic::set_hook(Box::new(|_| {}));
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..rounds {
                    let caught = std::panic::catch_unwind(|| assert!(round % 2 == 1, "even")).is_err();
                    sender.send(words(5_000) + areas(5_000) + worker + u64::from(caught)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let total: u64 = receiver.iter().sum();
    for worker in workers {
        worker.join().unwrap();
    }
    println!("{total}");
}
