//! Which function does which request: the protocol's own first, then ours.

use crate::failure::{Failure, Result};
use crate::protocol::message::Request;
use crate::session::ClientSession;
use crate::{extensions, requests};
use backtrail_decoder::Watch;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Does a request.
///
/// # Errors
/// The errors of the request's function. Also when no function has this name, or when the arguments
/// are not those of the request.
pub fn dispatch(client: &mut ClientSession, request: &Request, watch: &Watch<'_>) -> Result<Value> {
    use extensions::{
        bookmarks, calls, compare, coverage, functions, latency, locals, my_code, place, timeline,
    };
    use requests::{
        breakpoints, completions, data_breakpoints, disassemble, evaluate, exception, goto, launch,
        lifecycle, memory, modules, scopes, source, stack, step_back, stepping, threads, variables,
    };
    let mut call = RequestCall {
        client,
        request,
        watch,
    };
    match &*request.command {
        "initialize" => call.of(lifecycle::initialize),
        "launch" | "attach" => call.of(launch::launch),
        "configurationDone" => call.of(lifecycle::configuration_done),
        "restart" => call.of(lifecycle::restart),
        "terminate" => call.of(lifecycle::terminate),
        "disconnect" => call.of(lifecycle::disconnect),
        "setBreakpoints" => call.of(breakpoints::set_source),
        "setFunctionBreakpoints" => call.of(breakpoints::set_function),
        "setInstructionBreakpoints" => call.of(breakpoints::set_instruction),
        "setExceptionBreakpoints" => call.of(breakpoints::set_exception),
        "setDataBreakpoints" => call.of(data_breakpoints::set),
        "dataBreakpointInfo" => call.of(data_breakpoints::info),
        "breakpointLocations" => call.of(breakpoints::locations),
        "threads" => call.of(threads::threads),
        "stackTrace" => call.of(stack::stack_trace),
        "scopes" => call.of(scopes::scopes),
        "variables" => call.of(variables::variables),
        "source" => call.of(source::source),
        "continue" => call.of(stepping::go_on),
        "next" => call.of(stepping::next),
        "stepIn" => call.of(stepping::step_in),
        "stepOut" => call.of(stepping::step_out),
        "stepBack" => call.of(step_back::step_back),
        "reverseContinue" => call.of(step_back::reverse_continue),
        "restartFrame" => call.of(goto::restart_frame),
        "gotoTargets" => call.of(goto::targets),
        "goto" => call.of(goto::go),
        "disassemble" => call.of(disassemble::disassemble),
        "readMemory" => call.of(memory::read),
        "evaluate" => call.of(evaluate::evaluate),
        "completions" => call.of(completions::completions),
        "exceptionInfo" => call.of(exception::info),
        "modules" => call.of(modules::modules),
        "loadedSources" => call.of(modules::sources),
        "backtrail/reverseStepIn" => call.of(step_back::reverse_step_in),
        "backtrail/reverseNext" => call.of(step_back::step_back),
        "backtrail/reverseStepOut" => call.of(step_back::reverse_step_out),
        "backtrail/goto" => call.of(extensions::navigation::goto),
        "backtrail/lastWrite" => call.of(extensions::navigation::last_write),
        "backtrail/back" => call.of(extensions::navigation::back),
        "backtrail/forward" => call.of(extensions::navigation::forward),
        "backtrail/runToCall" => call.of(extensions::navigation::run_to_call),
        "backtrail/trace" => call.of(place::trace),
        "backtrail/where" => call.of(place::place),
        "backtrail/calls" => call.of(calls::calls),
        "backtrail/callPath" => call.of(calls::path),
        "backtrail/timeline" => call.of(timeline::timeline),
        "backtrail/latency" => call.of(latency::latency),
        "backtrail/compare" => call.of(compare::compare),
        "backtrail/bookmarks" => call.of(bookmarks::bookmarks),
        "backtrail/functions" => call.of(functions::functions),
        "backtrail/coverage" => call.of(coverage::coverage),
        "backtrail/justMyCode" => call.of(my_code::just_my_code),
        "backtrail/locals" => call.of(locals::locals),
        other => Err(Failure::Unknown(other.to_owned())),
    }
}

struct RequestCall<'a, 'w> {
    client: &'a mut ClientSession,
    request: &'a Request,
    watch: &'a Watch<'w>,
}

impl RequestCall<'_, '_> {
    fn of<A: DeserializeOwned, B: Serialize>(
        &mut self,
        function: impl FnOnce(&mut ClientSession, A, &Watch<'_>) -> Result<B>,
    ) -> Result<Value> {
        let wrong = |error: serde_json::Error| Failure::Arguments {
            command: self.request.command.clone(),
            problem: error.to_string(),
        };
        let arguments = A::deserialize(&self.request.arguments).map_err(wrong)?;
        let body = function(self.client, arguments, self.watch)?;
        let body = serde_json::to_value(body).map_err(|error| Failure::Cannot(error.to_string()))?;
        // Our own requests always have a body.
        Ok(match body {
            Value::Null if self.request.command.starts_with("backtrail/") => json!({}),
            body => body,
        })
    }
}
