//! The binary `backtrail-hub`.

fn main() {}
