//! `variables`: what a scope or a value is made of, level by level.

use crate::debuggee::Debuggee;
use crate::extensions::place;
use crate::failure::Result;
use crate::handles::{Container, FrameKey};
use crate::protocol::types::{Variable, VariablesArguments, VariablesFilter, VariablesResponseBody};
use crate::session::ClientSession;
use crate::variable_note::{note, read_only};
use backtrail_debugger::evaluation::variables::{self, Children, Format, Node, VariableKind};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::registers::{self, Register};
use backtrail_decoder::Watch;

/// The limit of elements in one response.
const MOST: u64 = 1 << 16;

/// Handles `variables`: returns the contents of a container.
pub fn variables(
    client: &mut ClientSession,
    arguments: VariablesArguments,
    watch: &Watch<'_>,
) -> Result<VariablesResponseBody> {
    let debuggee = client.debuggee()?;
    let format = Format {
        hex: arguments.format.is_some_and(|format| format.hex == Some(true)),
    };
    let start = u64::try_from(arguments.start.unwrap_or(0)).unwrap_or(0);
    let count = u64::try_from(arguments.count.unwrap_or(0)).unwrap_or(0);
    let wanted = if count == 0 { u64::MAX } else { count };
    let window = start..start.saturating_add(wanted.min(MOST));
    let container = debuggee
        .handles
        .container_of(arguments.variables_reference)?
        .clone();
    let indexed = match &container {
        Container::Parts(_, node) => match node.children {
            Children::Indexed(count) => Some(count),
            Children::None | Children::Named => None,
        },
        _ => None,
    };
    let kind = match indexed {
        Some(_) => VariablesFilter::Indexed,
        None => VariablesFilter::Named,
    };
    if arguments.filter.as_ref().is_some_and(|filter| *filter != kind) {
        return Ok(VariablesResponseBody {
            variables: Vec::new(),
        });
    }
    let mut variables = match container {
        Container::Locals(frame) => of_frame(debuggee, frame, VariableKind::Locals, format, watch)?,
        Container::Arguments(frame) => of_frame(debuggee, frame, VariableKind::Arguments, format, watch)?,
        Container::Registers(frame) => {
            let all = debuggee.look_from(frame, watch, |navigator| registers::general(navigator, watch))?;
            all.iter().map(register).collect()
        }
        Container::Trace(frame) => place::variables(debuggee, frame, watch)?,
        Container::Parts(frame, node) => {
            // Of members, the requested ones are selected below.
            let window = indexed.map_or(0..MOST, |_| window.clone());
            let nodes = debuggee.look_from(frame, watch, |navigator| {
                let mut nodes = variables::children(navigator, &node, window.clone(), format, watch)?;
                add_values_at_crash(navigator, &mut nodes, format, watch)?;
                Ok(nodes)
            })?;
            nodes
                .into_iter()
                .map(|node| variable(debuggee, frame, node))
                .collect()
        }
    };
    match indexed {
        Some(all) => {
            let end = start.saturating_add(variables.len() as u64);
            let missing = all.min(start.saturating_add(wanted)).saturating_sub(end);
            if missing > 0 {
                let how = format!("{missing} more: at most {MOST} are returned at once; use `start`");
                variables.push(note("(more)", &how));
            }
        }
        None => {
            let skipped = usize::try_from(start).unwrap_or(usize::MAX);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            variables = variables.into_iter().skip(skipped).take(wanted).collect();
        }
    }
    Ok(VariablesResponseBody { variables })
}

fn of_frame(
    debuggee: &mut Debuggee,
    frame: FrameKey,
    which: VariableKind,
    format: Format,
    watch: &Watch<'_>,
) -> Result<Vec<Variable>> {
    let found = debuggee.look_from(frame, watch, |navigator| {
        match variables::variables(navigator, which, format, watch) {
            Err(backtrail_debugger::Error::Cannot(why)) => Ok(Err(why)),
            Ok(mut nodes) => {
                add_values_at_crash(navigator, &mut nodes, format, watch)?;
                Ok(Ok(nodes))
            }
            Err(error) => Err(error),
        }
    })?;
    Ok(match found {
        Ok(nodes) => nodes
            .into_iter()
            .map(|node| variable(debuggee, frame, node))
            .collect(),
        Err(why) => vec![note("(none)", &why)],
    })
}

/// Adds the values at the crash to values of a frame that are unknown here.
pub fn add_values_at_crash(
    navigator: &mut Navigator,
    nodes: &mut [Node],
    format: Format,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<()> {
    let values = nodes.iter_mut().filter_map(|node| {
        let expression = node.expression.as_deref()?;
        Some((expression, &mut node.shown))
    });
    navigator.add_values_at_crash(values, watch, |navigator, expression| {
        variables::evaluate(navigator, expression, format, watch).map(|node| node.shown)
    })
}

/// A value of a frame for the client.
pub fn variable(debuggee: &mut Debuggee, frame: FrameKey, node: Node) -> Variable {
    let memory = node.memory.map(|address| format!("{address:#x}"));
    let indexed = match node.children {
        Children::Indexed(count) => Some(count),
        Children::None | Children::Named => None,
    };
    let mut value = node.shown.text.clone();
    // A value of before the crash says what it is known from.
    if let Some(origin) = node
        .shown
        .origins
        .first()
        .filter(|_| node.shown.unknown.is_none())
    {
        value = format!("{value}  ({origin})");
    }
    if let Some(then) = &node.shown.at_crash {
        value = format!("{value} (at the crash: {then})");
    }
    let mut variable = Variable {
        name: node.name.clone(),
        value,
        r#type: Some(node.shown.type_name.clone()).filter(|name| !name.is_empty()),
        evaluate_name: node.expression.clone(),
        memory_reference: memory,
        indexed_variables: indexed.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
        presentation_hint: Some(read_only()),
        ..Variable::default()
    };
    if node.children != Children::None {
        // Without a free number, the value cannot be opened.
        let number = debuggee
            .handles
            .container(Container::Parts(frame, Box::new(node)));
        variable.variables_reference = number.unwrap_or(0);
    }
    variable
}

fn register(register: &Register) -> Variable {
    let value = match (&register.value, &register.unknown) {
        (Some(value), _) => match &register.origin {
            Some(origin) => format!("{value:#x}  ({origin})"),
            None => format!("{value:#x}"),
        },
        (None, Some(why)) => format!("<unknown: {why}>"),
        (None, None) => "<unknown>".to_owned(),
    };
    Variable {
        name: register.name.clone(),
        value,
        evaluate_name: register.value.map(|_| format!("${}", register.name)),
        memory_reference: register
            .value
            .filter(|_| matches!(&*register.name, "rsp" | "rbp" | "rip"))
            .map(|value| format!("{value:#x}")),
        presentation_hint: Some(read_only()),
        ..Variable::default()
    }
}
