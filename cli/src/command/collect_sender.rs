//! `backtrail collect-sender`: sends the crashes of the collector's spool to a hub.
//!
//! The daemon starts it without privileges, and gives it its task on standard input
//! (`collector/src/sender.rs`). It ends when the daemon ends.

mod backoff;
mod delivery;
mod heartbeat;
mod source_reader;
mod state;

use crate::exit::Failure;
use crate::terminal;
use backtrail_collector::sender::{self, SenderInbox, SenderInput, SenderTask};
use backtrail_report::client::{HubAddress, HubClient};
use delivery::Delivery;
use heartbeat::Heartbeats;
use source_reader::SourceReader;
use std::sync::Arc;
use std::time::Duration;

/// How long the current request may take after the daemon has ended.
const END: Duration = Duration::from_secs(1);

/// Sends crashes and heartbeats until the daemon ends.
pub fn run() -> Result<(), Failure> {
    let inbox = Arc::new(SenderInbox::of_standard_input()?);
    let first = inbox.receive()?;
    let Some((SenderInput::Task(task), _)) = first else {
        return Err(Failure::failed("only the collector starts this command"));
    };
    let reader = match task.hub.sources.is_empty() {
        true => None,
        false => Some(source_reader::start()?),
    };
    sender::confine()?;
    let reader = reader.and_then(SourceReader::of);
    let client = client_of(&task)?;
    let heartbeats = Heartbeats::start(client.clone(), &task);
    let messages = Arc::clone(&inbox);
    std::thread::spawn(move || take_messages(&messages, &heartbeats));
    Delivery::open(task, client, inbox, reader)?.run()
}

fn client_of(task: &SenderTask) -> Result<HubClient, Failure> {
    let url = task.hub.url.as_deref().unwrap_or_default();
    let address = HubAddress::parse(url, task.hub.insecure_http)?;
    let token = task.token.as_deref().map(crate::hub::settings::parse_token);
    Ok(HubClient::new(address, token.transpose()?))
}

/// Takes messages until the daemon ends, and then ends this process.
fn take_messages(inbox: &SenderInbox, heartbeats: &Heartbeats) {
    loop {
        match inbox.receive() {
            Ok(Some((SenderInput::Running { executable, service }, Some(file)))) => {
                heartbeats.add(&executable, service, &file.into());
            }
            Ok(Some((SenderInput::RunningEnd, _))) => heartbeats.send(),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                log(&error.to_string());
                break;
            }
        }
    }
    // All that must last is on disk, and a request that is cut off is repeated.
    std::thread::sleep(END);
    std::process::exit(0);
}

/// Logs a sentence to standard error, which is the daemon's.
fn log(sentence: &str) {
    terminal::print_error(&format!("sender: {sentence}"));
}
