//! Walks a history and tells the stack what happens.

use super::{Forest, Functions};
use crate::{Canceled, History, Watch};

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let _ = (history, functions, watch);
    Ok(Forest::default())
}
