//! The variables of a frame, for showing them in the source.

use crate::failure::Result;
use crate::session::ClientSession;
use backtrail_debugger::Error;
use backtrail_debugger::evaluation::variables::{self, Format, VariableKind};
use backtrail_decoder::Watch;
use serde::{Deserialize, Serialize};

/// The arguments of `backtrail/locals`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalsArguments {
    #[serde(default)]
    frame_id: Option<f64>,
}

#[derive(Debug, Serialize)]
struct LocalVariable {
    name: String,
    value: String,
    unknown: bool,
}

/// Its answer.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locals {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    variables: Vec<LocalVariable>,
}

/// `backtrail/locals`.
pub fn locals(client: &mut ClientSession, arguments: LocalsArguments, watch: &Watch<'_>) -> Result<Locals> {
    let debuggee = client.debuggee()?;
    let frame = debuggee.frame(arguments.frame_id.map(|id| id as i64))?;
    let (place, declared, nodes) = debuggee.look_from(frame, watch, |navigator| {
        let frames = navigator.known_stack(frame.number + 1, watch)?.frames;
        let place = frames.into_iter().nth(frame.number);
        let pc = place.as_ref().and_then(|place| place.pc);
        let symbols = navigator.symbols()?;
        let function = pc.and_then(|pc| symbols.function_at(backtrail_pt::Avma(pc)));
        let declared = function.and_then(|function| function.declared);
        let mut nodes = Vec::new();
        for which in [VariableKind::Arguments, VariableKind::Locals] {
            match variables::variables(navigator, which, Format::default(), watch) {
                Ok(found) => nodes.extend(found),
                // No debug information describes them.
                Err(Error::Cannot(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((place, declared, nodes))
    })?;
    let (file, line) = place.map_or((None, None), |place| (place.file, place.line));
    let path = file
        .as_deref()
        .and_then(|file| debuggee.sources.describe(&debuggee.navigator, file).path);
    let first_line = declared
        .filter(|(declared, _)| file.as_deref() == Some(&**declared))
        .map(|(_, line)| line);
    let variables = nodes.into_iter().map(|node| LocalVariable {
        name: node.name,
        value: node.shown.text,
        unknown: node.shown.unknown.is_some(),
    });
    Ok(Locals {
        path,
        first_line,
        line,
        variables: variables.collect(),
    })
}
