//! `backtrail dap`.

use crate::args::Dap;
use crate::exit::Failure;
use crate::output::plain;
use backtrail_dap::{Access, Notice};
use std::io::{self, Write};

/// Serves the Debug Adapter Protocol to one client, or to connecting clients until a signal.
pub fn run(args: &Dap) -> Result<(), Failure> {
    let mut access = Access::default();
    if !args.allow_origin.is_empty() {
        access.origins = Some(args.allow_origin.iter().flatten().cloned().collect());
    }
    access.download_limit = args.download_limit.map(|mib| mib.saturating_mul(1 << 20));
    match &args.listen {
        Some(address) => backtrail_dap::listen(address, access, report)
            .map_err(|error| Failure::failed(format_args!("cannot listen on {address}: {error}"))),
        None => backtrail_dap::standard(access)
            .map_err(|error| Failure::failed(format_args!("the client is lost: {error}"))),
    }
}

/// Prints a notice. The address is printed, because port 0 selects any free port.
fn report(notice: Notice) -> io::Result<()> {
    match notice {
        Notice::Listening(address) => {
            let mut out = io::stdout();
            writeln!(out, "listening on {}", plain(&address.to_string()))?;
            out.flush()
        }
        Notice::Refused(sentence) => writeln!(io::stderr(), "backtrail: {}", plain(&sentence)),
    }
}
