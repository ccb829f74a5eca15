//! Whether steps pass over library code.

use crate::failure::Result;
use crate::session::ClientSession;
use backtrail_decoder::Watch;
use serde::{Deserialize, Serialize};

/// The arguments of `backtrail/justMyCode`.
#[derive(Debug, Deserialize)]
pub struct MyCodeArguments {
    /// The new value; absent: the value stays.
    #[serde(default)]
    enabled: Option<bool>,
}

/// The value of the setting.
#[derive(Debug, Serialize)]
pub struct MyCodeBody {
    enabled: bool,
}

/// `backtrail/justMyCode`.
pub fn just_my_code(
    client: &mut ClientSession,
    arguments: MyCodeArguments,
    _: &Watch<'_>,
) -> Result<MyCodeBody> {
    let navigator = &mut client.debuggee()?.navigator;
    let before = navigator.just_my_code;
    let enabled = arguments.enabled.unwrap_or(before);
    navigator.just_my_code = enabled;
    if enabled != before {
        send_event(client)?;
    }
    Ok(MyCodeBody { enabled })
}

/// Reports the setting to the client, after a change.
///
/// # Errors
///
/// If no trace is open.
pub fn send_event(client: &mut ClientSession) -> Result<()> {
    let enabled = client.debuggee()?.navigator.just_my_code;
    client
        .outbox
        .event("backtrail/justMyCodeChanged", MyCodeBody { enabled });
    Ok(())
}
