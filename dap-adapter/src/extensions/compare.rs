//! Two calls side by side.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_console::output::Text;
use backtrail_console::{Output, commands};
use backtrail_debugger::session::CallName;
use backtrail_decoder::{Position, Watch};
use serde::{Deserialize, Serialize};

/// The arguments of `backtrail/compare`.
#[derive(Debug, Deserialize)]
pub struct CompareArguments {
    calls: [String; 2],
}

/// Its answer.
#[derive(Debug, Serialize)]
pub struct CompareBody {
    text: String,
    comparison: Output,
}

/// `backtrail/compare`.
pub fn compare(
    client: &mut ClientSession,
    arguments: CompareArguments,
    watch: &Watch<'_>,
) -> Result<CompareBody> {
    let debuggee = client.debuggee()?;
    let [one, other] = &arguments.calls;
    [one, other].into_iter().try_for_each(|text| check(text))?;
    let output = commands::execute(&mut debuggee.navigator, &format!("compare {one} {other}"), watch)?;
    let Output::Comparison(_) = &output else {
        return Err(Failure::Cannot("these calls cannot be compared".to_owned()));
    };
    let mut text = Text::plain();
    output.render(&mut text);
    Ok(CompareBody {
        text: text.into_string(),
        comparison: output,
    })
}

/// Checks that text is a call or a position, and so no other part of a command.
fn check(text: &str) -> Result<()> {
    let is_call = text.parse::<CallName>().is_ok();
    match is_call || text.parse::<Position>().is_ok() {
        true => Ok(()),
        false => Err(Failure::Cannot(format!(
            "\"{text}\" is neither a call nor a position"
        ))),
    }
}
