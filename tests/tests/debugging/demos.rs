//! The walks of `cargo xtask demo`, which show recorded values.

use backtrail_tests::backtrail::repository;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};

/// Returns the transcript of a demo's script.
fn walk(name: &str) -> String {
    let (bundle, run) = Bundle::recorded(find(name).unwrap(), Variant::Pie, &["--values"]);
    assert!(run.stderr.contains("killed the program"), "{run:?}");
    let script = repository().join(format!("tests/fixtures/programs/{name}.bt"));
    let run = bundle.run(&["debug"], &["--batch", "-x", script.to_str().unwrap()]);
    assert!(!run.stdout.contains("<unknown"), "{}", run.stdout);
    run.stdout
}

/// Checks that a transcript has these texts in this order.
#[track_caller]
fn assert_in_order(transcript: &str, texts: &[&str]) {
    let mut rest = transcript;
    for text in texts {
        let found = rest.split_once(text);
        let Some((_, after)) = found else {
            panic!("'{text}' is missing in:\n{rest}\n\nof\n{transcript}")
        };
        rest = after;
    }
}

#[test]
fn demo_in_c_ends_at_the_write_of_the_entry() {
    assert_in_order(
        &walk("ledger"),
        &[
            "Breakpoint 1, close_account (number=6) at ledger.c",
            "#0  close_account (number=6)",
            "in settle (number=6)",
            "in apply (transfer=",
            "(backtrail) print *account",
            "balance = 100, minimum = 100, postings = 3}",
            "(backtrail) last accounts[6]->balance",
            "Old value = 265\nNew value = 100\n",
            "(backtrail) last accounts[6]\nWrite of accounts[6]:",
            "New value = (struct account *) 0x0\nclose_account () at ledger.c",
        ],
    );
}

#[test]
fn demo_in_rust_shows_the_values_of_the_branch() {
    assert_in_order(
        &walk("lease"),
        &[
            "in lease::Server::renew (self=",
            "Breakpoint 1, lease::Server::expire (self=",
            ", session=3) at lease.rs",
            "(backtrail) print timer\n$1 = lease::Timer {deadline: 11, session: 3}",
            "(backtrail) print self.now\n$2 = 3",
            "(backtrail) print delay\n$3 = 8",
        ],
    );
}
