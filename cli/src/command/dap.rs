//! `backtrail dap`.

use crate::args::Dap;
use crate::exit::Failure;

/// Speaks the Debug Adapter Protocol until the client is gone, or over TCP until it is ended.
pub fn run(args: &Dap) -> Result<(), Failure> {
    let served = match args.listen {
        Some(address) => backtrail_dap::listen(address)
            .map_err(|error| Failure::failed(format_args!("cannot listen on {address}: {error}"))),
        None => backtrail_dap::standard()
            .map_err(|error| Failure::failed(format_args!("the client is lost: {error}"))),
    };
    served
}
