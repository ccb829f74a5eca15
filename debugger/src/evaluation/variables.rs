//! Variables and expressions of the selected frame as trees that open level by level.

use super::with_context;
use crate::error::Result;
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_values::tree;
pub use backtrail_values::tree::{Children, Format, Node, VariableKind};
use std::ops::Range;

/// Returns the variables of the selected frame.
///
/// # Errors
/// If no debug information describes the frame; when canceled.
pub fn variables(
    navigator: &Navigator,
    kind: VariableKind,
    format: Format,
    watch: &Watch<'_>,
) -> Result<Vec<Node>> {
    with_context(navigator, watch, |context| {
        Ok(tree::variables(context, kind, format)?)
    })
}

/// Evaluates an expression in the selected frame.
///
/// # Errors
/// If the expression cannot be parsed, or is wrong for its operands; when canceled.
pub fn evaluate(navigator: &Navigator, expression: &str, format: Format, watch: &Watch<'_>) -> Result<Node> {
    with_context(navigator, watch, |context| {
        Ok(tree::evaluate(context, expression, format)?)
    })
}

/// Returns the children of a node of the selected frame; of elements, those in `window`.
///
/// # Errors
/// When canceled.
pub fn children(
    navigator: &Navigator,
    node: &Node,
    window: Range<u64>,
    format: Format,
    watch: &Watch<'_>,
) -> Result<Vec<Node>> {
    with_context(navigator, watch, |context| {
        Ok(tree::children(context, node, window, format))
    })
}
