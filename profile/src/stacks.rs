//! Stacks as paths of a tree, so that common callers are stored once.

use crate::table::{Id, Table, table_id};
use crate::{Error, Result};
use std::hash::Hash;

table_id! {
    /// A stack: an entry of a [`Stacks`].
    StackId
}

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(0);
}

table_id! {
    /// The index of a node, one less than its stack's id.
    NodeId
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackNode<F> {
    caller: StackId,
    frame: F,
}

/// Distinct stacks. A caller's stack has a lower id than the stacks of its callees.
///
/// ```
/// use backtrail_profile::{StackId, Stacks};
///
/// let mut stacks = Stacks::default();
/// let main = stacks.push(StackId::EMPTY, "main")?;
/// let work = stacks.push(main, "work")?;
/// assert_eq!(stacks.push(main, "work")?, work);
/// assert!(stacks.frames(work).eq(["work", "main"]));
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stacks<F> {
    nodes: Table<NodeId, StackNode<F>>,
    /// The limit of the number of nodes.
    most: usize,
}

impl<F> Default for Stacks<F> {
    fn default() -> Self {
        Self::with_most(usize::MAX)
    }
}

impl<F> Stacks<F> {
    /// Returns no stacks, with a limit of their number. Each caller's stack counts once.
    #[must_use]
    pub fn with_most(most: usize) -> Self {
        Self {
            nodes: Table::default(),
            most,
        }
    }
}

impl<F: Copy + Eq + Hash> Stacks<F> {
    /// Returns the stack of a frame that is called by the innermost frame of `caller`.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyStacks`] beyond the limit, and [`Error::Full`] beyond 2^32 − 2 stacks.
    pub fn push(&mut self, caller: StackId, frame: F) -> Result<StackId> {
        let node = self.nodes.intern(StackNode { caller, frame })?;
        if node.index() >= self.most {
            return Err(Error::TooManyStacks { most: self.most });
        }
        Ok(StackId::from_index(node.index() as u32 + 1))
    }

    /// Returns the caller's stack and the innermost frame, or `None` for the empty stack.
    #[must_use]
    pub fn split(&self, stack: StackId) -> Option<(StackId, F)> {
        let index = u32::try_from(stack.index()).ok()?.checked_sub(1)?;
        let node = self.nodes.get(NodeId::from_index(index))?;
        Some((node.caller, node.frame))
    }

    /// Returns the frames of a stack, the innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = F> {
        let mut rest = stack;
        std::iter::from_fn(move || {
            let (caller, frame) = self.split(rest)?;
            rest = caller;
            Some(frame)
        })
    }

    /// Returns the number of stacks, the empty one included. It exceeds all indexes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// Returns whether the empty stack is the only one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns each stack but the empty one with its caller's stack and its innermost frame.
    /// Callers come first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (StackId, StackId, F)> {
        let nodes = self.nodes.iter();
        nodes.map(|(id, node)| {
            (
                StackId::from_index(id.index() as u32 + 1),
                node.caller,
                node.frame,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_stacks_than_the_limit_are_refused() {
        let mut stacks = Stacks::with_most(2);
        let main = stacks.push(StackId::EMPTY, "main").unwrap();
        stacks.push(main, "f").unwrap();
        stacks.push(main, "f").unwrap();
        let error = stacks.push(main, "g").unwrap_err();
        assert!(matches!(error, Error::TooManyStacks { most: 2 }), "{error}");
    }
}
