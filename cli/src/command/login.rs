//! `backtrail login`: stores the address of a hub and a token for it.

use crate::args::Login;
use crate::exit::Failure;
use crate::hub::settings::{self, HubFile};
use crate::hub::transfer;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::terminal;
use backtrail_report::client::{HubAddress, HubClient};
use std::io::{IsTerminal, Write};

/// Checks the token at the hub, and stores it.
pub fn run(args: &Login) -> Result<(), Failure> {
    let address = HubAddress::parse(&args.url, args.insecure_http)?;
    let token = match &args.token_file {
        Some(file) => settings::token_in(file)?,
        None => settings::parse_token(&typed_token(&address)?)?,
    };
    let interrupt = Interrupt::install();
    let client = HubClient::new(address.clone(), Some(token.clone()));
    let identity = transfer::run(&interrupt, "checking the token", move |_| client.whoami())?;
    let file = HubFile {
        url: address.to_string(),
        token: token.reveal().to_owned(),
        insecure_http: args.insecure_http,
    };
    let path = file.store()?;
    let mut output = Output::new();
    let scopes = identity.scopes.join(", ");
    writeln!(
        output,
        "signed in to {address} as {} ({scopes})",
        terminal::plain(&identity.name)
    )?;
    writeln!(output, "the token is in {}", path.display())?;
    output.finish()
}

/// Reads the token from the terminal without showing it, or from standard input.
fn typed_token(address: &HubAddress) -> Result<String, Failure> {
    let unreadable = |error| Failure::failed(format_args!("cannot read the token: {error}"));
    if !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin().read_line(&mut text).map_err(unreadable)?;
        return Ok(text);
    }
    let question = format!("Token for {address}: ");
    terminal::ask_secret(&question).map_err(unreadable)
}
