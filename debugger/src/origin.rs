//! The origin of a value: the instructions through which it came, backward.
//!
//! A value in memory came from the last write there, and one in a register from the last
//! instruction that wrote it. While these only move the value, its origin is further back. The
//! chain ends at arithmetic, a constant, a system call, or where the recorded values end.

mod flow;
mod location;
mod trace;

pub use location::{AnyRegister, RegisterSlice, ValueLocation};

use crate::error::Result;
use crate::evaluation::watched;
use crate::navigator::{Navigator, WritePlace};
use backtrail_decoder::Watch;
use serde::Serialize;
use trace::OriginTrace;

/// The most steps of a chain.
const MAX_STEPS: usize = 256;

/// An instruction through which a value came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginStep {
    /// The position before the instruction.
    pub position: String,
    /// The thread.
    pub thread: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The place in the program.
    #[serde(flatten)]
    pub place: WritePlace,
    /// The instruction.
    pub instruction: String,
    /// The place of the value after the instruction: a register, or an address.
    pub to: String,
    /// The value after it, as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
}

/// The chain of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueOrigin {
    /// The expression.
    pub expression: String,
    /// Its value here.
    pub value: String,
    /// The instructions, the latest first.
    pub steps: Vec<OriginStep>,
    /// The reason why the chain ends there.
    pub end: String,
    /// Whether the chain ends at the origin, and not for lack of knowledge.
    pub is_complete: bool,
}

/// Returns the origin of the value that an expression has in the selected frame.
///
/// # Errors
/// If no values were recorded; if the expression is invalid, or not in one place; when canceled.
pub fn origin(navigator: &Navigator, expression: &str, watch: &Watch<'_>) -> Result<ValueOrigin> {
    navigator.needs_values()?;
    let (location, value) = watched::location(navigator, expression, watch)?;
    let mut trace = OriginTrace::new(navigator, location, watch)?;
    let mut steps = Vec::new();
    let end = loop {
        if steps.len() >= MAX_STEPS {
            break trace::End::unknown("the chain has more instructions; `goto` the last one, and ask again");
        }
        match trace.step()? {
            trace::Traced::Through(step) => steps.push(step),
            trace::Traced::End { step, end } => {
                steps.extend(step);
                break end;
            }
        }
    };
    Ok(ValueOrigin {
        expression: expression.to_owned(),
        value,
        steps,
        end: end.text,
        is_complete: end.is_complete,
    })
}
