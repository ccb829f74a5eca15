//! `backtrail dap`.

use crate::args::Dap;
use crate::exit::Failure;
use crate::terminal::plain;
use backtrail_dap::{Access, HubToken, Notice};
use std::io::{self, Write};

/// Serves one client on standard input and output until it disconnects, or accepts clients at an
/// address.
pub fn run(args: &Dap) -> Result<(), Failure> {
    let mut access = Access::default();
    if !args.allow_origin.is_empty() {
        access.origins = Some(args.allow_origin.iter().flatten().cloned().collect());
    }
    access.download_limit = args.download_limit.map(|mib| mib.saturating_mul(1 << 20));
    access.hub_token = hub_token();
    match &args.listen {
        Some(address) => backtrail_dap::listen(address, access, print_notice)
            .map_err(|error| Failure::failed(format_args!("cannot listen on {address}: {error}"))),
        None => backtrail_dap::standard(access)
            .map_err(|error| Failure::failed(format_args!("the connection to the client failed: {error}"))),
    }
}

/// Returns the token that the editor, or the user, put into the environment.
fn hub_token() -> Option<HubToken> {
    let hub = std::env::var("BACKTRAIL_HUB").ok()?;
    let token = std::env::var("BACKTRAIL_HUB_TOKEN").ok()?;
    HubToken::new(hub.parse().ok()?, &token)
}

/// Prints the address, which a user who requested any free port needs.
fn print_notice(notice: Notice) -> io::Result<()> {
    match notice {
        Notice::Listening(address) => {
            let mut out = io::stdout();
            writeln!(out, "listening on {}", plain(&address.to_string()))?;
            out.flush()
        }
        Notice::Refused(sentence) => writeln!(io::stderr(), "backtrail: {}", plain(&sentence)),
    }
}
