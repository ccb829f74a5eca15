//! Data breakpoints: watchpoints that a client sets on variables and expressions.
//!
//! The id of a data breakpoint has the frame in which its expression was seen, because clients set
//! all data breakpoints again from other positions.

use super::breakpoints::{answer, clear, hit_condition, refused};
use crate::breakpoint_table::BreakpointKind;
use crate::debuggee::Debuggee;
use crate::failure::Result;
use crate::handles::{Container, FrameKey};
use crate::protocol::types::{
    DataBreakpoint, DataBreakpointAccessType, DataBreakpointInfoArguments, DataBreakpointInfoResponseBody,
    SetDataBreakpointsArguments, SetDataBreakpointsResponseBody,
};
use crate::session::ClientSession;
use backtrail_debugger::breakpoint::Condition;
use backtrail_debugger::evaluation::variables::{self, Format, Node};
use backtrail_debugger::watchpoint::WatchKind;
use backtrail_decoder::Watch;

/// The children of a container among which a name is searched.
const MOST: u64 = 1 << 16;

/// The words in an id for the memory of an expression, and for its value.
const LOCATION: &str = "location";
const EXPRESSION: &str = "expression";

/// Handles `dataBreakpointInfo`: returns the id for a variable or expression.
pub fn info(
    client: &mut ClientSession,
    arguments: DataBreakpointInfoArguments,
    watch: &Watch<'_>,
) -> Result<DataBreakpointInfoResponseBody> {
    let debuggee = client.debuggee()?;
    let unavailable = |why: String| DataBreakpointInfoResponseBody {
        description: why,
        ..DataBreakpointInfoResponseBody::default()
    };
    if arguments.as_address == Some(true) {
        let bytes = arguments.bytes.filter(|bytes| *bytes > 0).unwrap_or(8);
        let frame = debuggee.frame(arguments.frame_id)?;
        let expression = format!("*(char (*)[{bytes}]) {}", arguments.name);
        return Ok(watchable(
            debuggee,
            frame,
            (&expression, false),
            &arguments.name,
            watch,
        ));
    }
    let Some(reference) = arguments.variables_reference.filter(|reference| *reference > 0) else {
        let frame = debuggee.frame(arguments.frame_id)?;
        let name = &*arguments.name;
        return Ok(watchable(debuggee, frame, (name, false), name, watch));
    };
    // A member is watched where it is now. Its object may outlive the frame.
    let is_member = |container: &Container| matches!(container, Container::Parts(..));
    let container = debuggee.handles.container_of(reference)?.clone();
    let at_location = is_member(&container);
    let (frame, expression) = match container {
        Container::Registers(frame) => (frame, Some(format!("${}", arguments.name))),
        Container::Locals(frame) | Container::Arguments(frame) => (frame, Some(arguments.name.clone())),
        Container::Parts(frame, node) => (frame, member(debuggee, frame, &node, &arguments.name, watch)?),
        Container::Trace(frame) => (frame, None),
    };
    Ok(match expression {
        Some(expression) => watchable(
            debuggee,
            frame,
            (&expression, at_location),
            &arguments.name,
            watch,
        ),
        None => unavailable(format!(
            "{} has no expression that can be watched",
            arguments.name
        )),
    })
}

/// Returns the expression of a member or element.
fn member(
    debuggee: &mut Debuggee,
    frame: FrameKey,
    node: &Node,
    name: &str,
    watch: &Watch<'_>,
) -> Result<Option<String>> {
    let children = debuggee.look_from(frame, watch, |navigator| {
        variables::children(navigator, node, 0..MOST, Format::default(), watch)
    })?;
    let found = children.into_iter().find(|child| child.name == name);
    Ok(found.and_then(|child| child.expression))
}

fn watchable(
    debuggee: &mut Debuggee,
    frame: FrameKey,
    (expression, at_location): (&str, bool),
    name: &str,
    watch: &Watch<'_>,
) -> DataBreakpointInfoResponseBody {
    let checked = debuggee.look_from(frame, watch, |navigator| {
        navigator.is_watchable(expression, watch)
    });
    match checked {
        Ok(()) => DataBreakpointInfoResponseBody {
            access_types: Some(vec![
                DataBreakpointAccessType::Write,
                DataBreakpointAccessType::Read,
                DataBreakpointAccessType::ReadWrite,
            ]),
            can_persist: Some(false),
            data_id: Some(format!(
                "{} {} {} {expression}",
                frame.position,
                frame.number,
                if at_location { LOCATION } else { EXPRESSION }
            )),
            description: name.to_owned(),
        },
        Err(why) => DataBreakpointInfoResponseBody {
            description: why.to_string(),
            ..DataBreakpointInfoResponseBody::default()
        },
    }
}

/// Handles `setDataBreakpoints`.
pub fn set(
    client: &mut ClientSession,
    arguments: SetDataBreakpointsArguments,
    watch: &Watch<'_>,
) -> Result<SetDataBreakpointsResponseBody> {
    let debuggee = client.debuggee()?;
    clear(debuggee, &BreakpointKind::Data);
    let mut breakpoints = Vec::new();
    for asked in &arguments.breakpoints {
        breakpoints.push(match set_one(debuggee, asked, watch) {
            Ok(number) => {
                debuggee.breakpoints.insert(number, BreakpointKind::Data);
                answer(Ok(number), |_| {})
            }
            Err(failure) if failure.is_cancelled() => return Err(failure),
            Err(failure) => refused(failure.to_string()),
        });
    }
    Ok(SetDataBreakpointsResponseBody { breakpoints })
}

fn set_one(debuggee: &mut Debuggee, asked: &DataBreakpoint, watch: &Watch<'_>) -> Result<u32> {
    let mut parts = asked.data_id.splitn(4, ' ');
    let (position, number) = (parts.next(), parts.next());
    let (what, expression) = (parts.next(), parts.next());
    let position = position.and_then(|position| position.parse().ok());
    let number = number.and_then(|number| number.parse().ok());
    let (Some(position), Some(number), Some(expression)) = (position, number, expression) else {
        return Err(crate::failure::Failure::Cannot(format!(
            "\"{}\" is not the id of a data breakpoint of this session",
            asked.data_id
        )));
    };
    let kind = match asked.access_type {
        Some(DataBreakpointAccessType::Read) => WatchKind::Read,
        Some(DataBreakpointAccessType::ReadWrite) => WatchKind::Access,
        _ => WatchKind::Change,
    };
    let condition = asked
        .condition
        .as_deref()
        .filter(|condition| !condition.trim().is_empty());
    let hits = asked.hit_condition.as_deref().map(hit_condition).transpose()?;
    let among = hits.as_deref().map(Condition::parse).transpose()?;
    let frame = FrameKey { position, number };
    let number = debuggee.look_from(frame, watch, |navigator| {
        navigator.set_watchpoint(expression, kind, what == Some(LOCATION), condition, watch)
    })?;
    debuggee.navigator.breakpoints.get_mut(number)?.among = among;
    Ok(number)
}
