//! Rust panics that unwind: dropped values on the way, caught by `catch_unwind`, exit status 0.

use std::panic::{self, AssertUnwindSafe};

struct Count<'a>(&'a mut u32);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        *self.0 += 1;
    }
}

#[inline(never)]
fn index(values: &[u32], at: usize) -> u32 {
    values[at]
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let mut dropped = 0;
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        let _count = Count(&mut dropped);
        index(&[1, 2, 3], 7)
    }));
    std::process::exit(i32::from(!(caught.is_err() && dropped == 1)));
}
