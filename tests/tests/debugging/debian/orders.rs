//! A Rust program with debug symbols. `tests/fixtures/programs/orders.rs` describes its defect.

use crate::debian::walk::{Crash, Step};
use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use std::sync::OnceLock;

/// Records one run.
pub fn crash() -> &'static Crash {
    static CRASH: OnceLock<Crash> = OnceLock::new();
    CRASH.get_or_init(|| Crash {
        bundle: Bundle::recorded(find("orders").unwrap(), Variant::Pie, &["--full"]).0,
        executable: backtrail_tests::built("orders", Variant::Pie).unwrap(),
    })
}

/// From the panic to the canceled order that moved another order.
pub const WALK: &[Step] = &[
    ("set just-my-code off", &["stop in library code"]),
    (
        "crash",
        &[
            "SIGABRT (aborted)",
            "orders.rs",
            "→",
            "let order = &mut self.orders[place];",
            "more frames: `backtrace` shows them>",
        ],
    ),
    (
        "backtrace",
        &[
            "core::panicking::panic_bounds_check ()",
            "in orders::book::Book::fill () at orders.rs:",
            "in orders::feed::apply () at orders.rs:",
            "in orders::main () at orders.rs:",
        ],
    ),
    ("count Book::fill", &["Book::fill: 10 calls\n"]),
    (
        "search swap_remove",
        &[
            "       1  alloc::vec::Vec<T,A>::swap_remove  [",
            "       1  orders.rs:",
        ],
    ),
    (
        "break Book::fill",
        &["Breakpoint 1: ", "in orders::book::Book::fill at orders.rs:"],
    ),
    (
        "reverse-continue",
        &["Breakpoint 1, orders::book::Book::fill () at orders.rs:"],
    ),
    ("finish", &["The crash: SIGABRT"]),
    ("tbreak cancel", &["Temporary breakpoint 2: "]),
    ("commands 2", &[]),
    ("silent", &[]),
    ("backtrace 2", &[]),
    ("end", &[]),
    ("delete 1", &[]),
    (
        "reverse-continue",
        &[
            "#0  orders::book::Book::cancel () at orders.rs:",
            "in orders::feed::apply () at orders.rs:",
        ],
    ),
    (
        "list",
        &[
            "1× →",
            "let place = self.places.remove(&number)?;",
            "1× ",
            "Some(self.orders.swap_remove(place))",
        ],
    ),
    ("next", &["Some(self.orders.swap_remove(place))"]),
    ("step", &[" at mod.rs:"]),
    ("run-to-call 1 of swap_remove", &["swap_remove () at mod.rs:"]),
    (
        "whatis self",
        &["type = &mut alloc::vec::Vec<orders::book::Order, alloc::alloc::Global>\n"],
    ),
    ("ptype orders::book::Order", &["number", "left"]),
    (
        "reverse-finish",
        &["in orders::book::Book::cancel () at orders.rs:", "call "],
    ),
    (
        "calls --depth 2",
        &[
            "→ orders::book::Book::cancel",
            "    alloc::collections::btree::map::BTreeMap<K,V,A>::remove",
            "    alloc::vec::Vec<T,A>::swap_remove",
        ],
    ),
    ("history 3", &["orders::book::Book::cancel  orders.rs"]),
    ("goto crash", &[]),
    ("reverse-finish", &[]),
    ("thread", &["\"orders\""]),
];

#[test]
fn a_panic_leads_to_the_order_that_was_moved() {
    crash().walk(WALK);
}

/// The frame of `fill`, and its callers.
const FRAMES: &[&str] = &["orders::book::Book::fill", "orders::feed::apply", "orders::main"];

#[test]
fn stack_and_values_are_gdbs() {
    if !have_gdb() {
        return;
    }
    let crash = crash();
    let stack = &crash.ask(&["backtrace"])[0];
    let frames = stack["frames"].as_array().unwrap();
    let number = |function: &str| {
        let frame = frames.iter().find(|frame| frame["function"] == function);
        frame.unwrap_or_else(|| panic!("no {function}: {stack}"))["number"].clone()
    };
    // GDB's stack lacks frames that jumped to their callees, so frame numbers differ.
    let theirs = by_gdb(&crash.executable, &crash.bundle, &["backtrace"]);
    let by_gdb_at = |function: &str| {
        let frames = theirs[0].1.iter().filter(|line| line.starts_with('#'));
        let named = format!("{function} (");
        frames.into_iter().position(|line| line.contains(&named)).unwrap()
    };
    for function in FRAMES {
        let values: &[&str] = match *function {
            "orders::book::Book::fill" => &[
                "print place",
                "print number",
                "print quantity",
                "print (*self).orders.len",
                "print sizeof(orders::book::Order)",
                "info args",
            ],
            "orders::feed::apply" => &["print number", "print quantity"],
            _ => &["print lines.len", "print book.orders.len"],
        };
        let frame = |at: &str| -> Vec<String> {
            let commands = values.iter().map(|value| (*value).to_owned());
            std::iter::once(format!("frame {at}")).chain(commands).collect()
        };
        let (ours_at, theirs_at) = (number(function).to_string(), by_gdb_at(function).to_string());
        let (here, there) = (frame(&ours_at), frame(&theirs_at));
        let here: Vec<&str> = here.iter().map(String::as_str).collect();
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let ours = ours(&crash.bundle, &here);
        let theirs = by_gdb(&crash.executable, &crash.bundle, &there);
        assert_eq!(ours[1..], theirs[1..], "{function}");
    }
}

#[test]
fn forward_comes_back_to_where_backward_began() {
    crash().comes_back("last cancel", "reverse-step", "step", 30);
    crash().comes_back("last swap_remove", "reverse-stepi", "stepi", 30);
}

#[test]
fn exports_have_the_calls_of_the_program() {
    let folded = crash().bundle.run(&["export"], &["--format", "folded"]).stdout;
    let stack = "orders::main;orders::feed::apply;orders::book::Book::cancel";
    assert!(folded.lines().any(|line| line.contains(stack)), "{folded}");
    let chrome = crash().bundle.run(&["export"], &["--format", "chrome"]).stdout;
    let events: serde_json::Value = serde_json::from_str(&chrome).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let begun = events
        .iter()
        .filter(|event| event["name"] == "orders::book::Book::fill" && event["ph"] != "E");
    assert_eq!(begun.count(), 10);
}
