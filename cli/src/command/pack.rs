//! `backtrail pack` and `backtrail unpack`.

use crate::args::{Pack, Unpack};
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// Packs a bundle directory into one file.
pub fn pack(args: &Pack) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    Ok(backtrail_bundle::pack(
        &args.bundle,
        &args.output,
        &interrupt.cancel_token(),
    )?)
}

/// Unpacks one file into a bundle directory.
pub fn unpack(args: &Unpack) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    Ok(backtrail_bundle::unpack(
        &args.file,
        &args.output,
        &interrupt.cancel_token(),
    )?)
}
