//! `backtrail dap`.

use crate::args::Dap;
use crate::exit::Failure;
use std::io::{self, Write};
use std::net::SocketAddr;

/// Speaks the Debug Adapter Protocol until the client is gone, or over TCP until it is ended.
pub fn run(args: &Dap) -> Result<(), Failure> {
    match args.listen {
        Some(address) => backtrail_dap::listen(address, announce)
            .map_err(|error| Failure::failed(format_args!("cannot listen on {address}: {error}"))),
        None => backtrail_dap::standard()
            .map_err(|error| Failure::failed(format_args!("the client is lost: {error}"))),
    }
}

/// Who asked for any free port reads it here.
fn announce(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "listening on {address}")?;
    out.flush()
}
