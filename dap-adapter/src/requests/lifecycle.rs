//! The beginning and the end of a session.

use super::Ignored;
use crate::failure::Result;
use crate::protocol::types::{Capabilities, InitializeRequestArguments};
use crate::session::StopCause;
use crate::session::{ClientSession, FollowUp};
use backtrail_decoder::Watch;
use serde_json::Value;

/// Stores the client's features, and returns those of this adapter.
pub fn initialize(client: &mut ClientSession, features: Value, _: &Watch<'_>) -> Result<Capabilities> {
    // A client that says nothing of itself, or says it oddly, is served all the same.
    client.features =
        serde_json::from_value(features).unwrap_or_else(|_| InitializeRequestArguments::default());
    let yes = Some(true);
    Ok(Capabilities {
        completion_trigger_characters: Some(vec![" ".to_owned()]),
        exception_breakpoint_filters: Some(Vec::new()),
        supports_ansi_styling: Some(false),
        supports_breakpoint_locations_request: yes,
        supports_cancel_request: yes,
        supports_clipboard_context: yes,
        supports_completions_request: yes,
        supports_conditional_breakpoints: yes,
        supports_configuration_done_request: yes,
        supports_data_breakpoints: yes,
        supports_data_breakpoint_bytes: yes,
        supports_delayed_stack_trace_loading: yes,
        supports_disassemble_request: yes,
        supports_evaluate_for_hovers: yes,
        supports_exception_info_request: yes,
        supports_function_breakpoints: yes,
        supports_goto_targets_request: yes,
        supports_hit_conditional_breakpoints: yes,
        supports_instruction_breakpoints: yes,
        supports_loaded_sources_request: yes,
        supports_log_points: yes,
        supports_modules_request: yes,
        supports_read_memory_request: yes,
        supports_restart_frame: yes,
        supports_restart_request: yes,
        supports_step_back: yes,
        supports_single_thread_execution_requests: yes,
        supports_stepping_granularity: yes,
        supports_terminate_request: yes,
        supports_value_formatting_options: yes,
        ..Capabilities::default()
    })
}

/// Reports the position, after the client has sent its configuration.
pub fn configuration_done(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<()> {
    client.debuggee()?;
    client.configured = true;
    client.follow_ups.push(FollowUp::Stopped(StopCause::Opened));
    Ok(())
}

/// Back to where the session began.
pub fn restart(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<()> {
    let debuggee = client.debuggee()?;
    let home = debuggee.home;
    debuggee.navigator.go_to(home)?;
    client.follow_ups.push(FollowUp::Stopped(StopCause::Opened));
    Ok(())
}

/// A trace does not run; the session is over.
pub fn terminate(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<()> {
    client.follow_ups.push(FollowUp::Terminated);
    Ok(())
}

/// The client goes.
pub fn disconnect(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<()> {
    client.follow_ups.push(FollowUp::End);
    Ok(())
}
