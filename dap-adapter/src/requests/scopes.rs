//! `scopes`: what a frame has to show.

use crate::failure::Result;
use crate::handles::{Container, FrameKey};
use crate::protocol::types::{Scope, ScopePresentationHint, ScopesArguments, ScopesResponseBody};
use crate::session::ClientSession;
use backtrail_decoder::Watch;

/// The scopes of a frame.
pub fn scopes(
    client: &mut ClientSession,
    arguments: ScopesArguments,
    _: &Watch<'_>,
) -> Result<ScopesResponseBody> {
    let debuggee = client.debuggee()?;
    let frame = debuggee.handles.frame_of(arguments.frame_id)?;
    type Make = fn(FrameKey) -> Container;
    let all: [(&str, Option<ScopePresentationHint>, Make, bool); 4] = [
        (
            "Locals",
            Some(ScopePresentationHint::Locals),
            Container::Locals,
            false,
        ),
        (
            "Arguments",
            Some(ScopePresentationHint::Arguments),
            Container::Arguments,
            false,
        ),
        (
            "Registers",
            Some(ScopePresentationHint::Registers),
            Container::Registers,
            true,
        ),
        ("Trace", None, Container::Trace, true),
    ];
    let is_frame = frame.number != FrameKey::NONE;
    let mut scopes = Vec::new();
    for (name, hint, make, expensive) in all.into_iter().filter(|_| is_frame) {
        scopes.push(Scope {
            name: name.to_owned(),
            presentation_hint: hint,
            variables_reference: debuggee.handles.container(make(frame))?,
            expensive,
            ..Scope::default()
        });
    }
    Ok(ScopesResponseBody { scopes })
}
