//! `backtrail dump`: prints a recording item by item.

mod calls;
mod flow;
mod packets;
mod range;

use crate::args::{Dump, DumpKind};
use crate::exit::Failure;
use crate::output::Output;
use range::Range;

/// Prints the requested items.
pub fn run(args: &Dump) -> Result<(), Failure> {
    let mut output = Output::new();
    match args.what {
        DumpKind::Packets => packets::run(args, &mut output)?,
        DumpKind::Instructions => flow::instructions(&Range::of(args)?, args, &mut output)?,
        DumpKind::Blocks => flow::blocks(&Range::of(args)?, args, &mut output)?,
        DumpKind::Calls => calls::run(&Range::of(args)?, args, &mut output)?,
    }
    output.finish()
}
