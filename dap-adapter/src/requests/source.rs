//! `source`: the text of a file that the client cannot read.

use crate::failure::{Failure, Result};
use crate::protocol::types::{SourceArguments, SourceResponseBody};
use crate::session::ClientSession;
use backtrail_decoder::Watch;

/// The text of a source file.
pub fn source(
    client: &mut ClientSession,
    arguments: SourceArguments,
    _: &Watch<'_>,
) -> Result<SourceResponseBody> {
    let debuggee = client.debuggee()?;
    let by_number = debuggee
        .sources
        .numbered(arguments.source_reference)
        .map(str::to_owned);
    let by_name = || {
        let source = arguments.source.as_ref()?;
        debuggee.sources.file_of(&debuggee.navigator, source)
    };
    let file = by_number
        .or_else(by_name)
        .ok_or_else(|| Failure::Cannot("unknown source file".to_owned()))?;
    let sources = &debuggee.navigator.sources;
    let missing = || {
        Failure::Cannot(match sources.find(&file) {
            Some(_) => format!(
                "the source file {file} is not in a folder of `sourcePaths`; for a fetched trace, only those are read"
            ),
            None => format!("the source file {file} was not found; add its folder to `sourcePaths`"),
        })
    };
    let text = sources.text(&file).ok_or_else(missing)?;
    let text = text.map_err(|error| Failure::Cannot(format!("cannot read {file}: {error}")))?;
    Ok(SourceResponseBody {
        content: text,
        mime_type: None,
    })
}
