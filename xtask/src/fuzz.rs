//! `cargo xtask fuzz`: the mutation tests of hostile input, for as long as one likes.

use crate::{Failure, shell};

/// Runs every target of `tests/tests/hostile.rs` for `seconds` seconds.
pub fn run(seconds: u64) -> Result<(), Failure> {
    shell::run(
        shell::cargo()
            .args([
                "test",
                "--package",
                "backtrail-tests",
                "--test",
                "hostile",
                "--",
                "--nocapture",
            ])
            .env("BACKTRAIL_FUZZ_SECONDS", seconds.to_string()),
    )
}
