//! `backtrail pack` and `backtrail unpack`.

use crate::args::{Pack, Unpack};
use crate::exit::Failure;

/// Packs a bundle directory into one file.
pub fn pack(args: &Pack) -> Result<(), Failure> {
    Ok(backtrail_bundle::pack(&args.bundle, &args.output)?)
}

/// Unpacks one file into a bundle directory.
pub fn unpack(args: &Unpack) -> Result<(), Failure> {
    Ok(backtrail_bundle::unpack(&args.file, &args.output)?)
}
