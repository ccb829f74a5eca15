//! Calls that lie ready, to be made as often as the paths that make them are executed.

use super::{Node, Nodes, what};
use crate::forest::Left;
use std::num::NonZeroU32;

/// The number of some calls that are made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forest) struct Pattern(NonZeroU32);

impl Pattern {
    /// One call, of which nothing is known beforehand.
    pub const SINGLE: Self = Self(NonZeroU32::MIN);
}

impl Default for Pattern {
    fn default() -> Self {
        Self::SINGLE
    }
}

/// The part that a call has in a pattern.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Role {
    /// Its first instruction, counted from where the pattern begins.
    pub first: u32,
    /// Its instructions; where it outlasts the pattern, how many of those that do come before it.
    pub len: u32,
    /// The call it is inside of, counted from the pattern's first; with [`Role::OUTSIDE`], which of those that the pattern
    /// is inside of.
    parent: u32,
    /// See [`what`]; `left` is [`Role::LASTS`] where it outlasts the pattern.
    pub what: u32,
}

/// All patterns.
#[derive(Clone, Debug)]
pub(in crate::forest) struct Stock {
    patterns: Vec<Extent>,
    roles: Vec<Role>,
}

/// What a pattern takes.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Where its roles begin, and how many there are.
    first: u32,
    len: u32,
    /// How many calls it is inside of, and how many of its own outlast it.
    parents: u32,
    lasting: u32,
}

/// A pattern that was added.
#[derive(Clone, Copy, Debug)]
pub(in crate::forest) struct Added {
    pub pattern: Pattern,
    /// How many calls it has.
    pub len: u32,
}

impl Role {
    const OUTSIDE: u32 = 1 << 31;
    /// No code of [`Left`].
    const LASTS: u32 = 7;

    /// The call it is inside of: one of the pattern, or one outside.
    #[inline]
    pub fn parent(&self) -> Result<u32, u32> {
        match self.parent & Self::OUTSIDE {
            0 => Ok(self.parent),
            _ => Err(self.parent & !Self::OUTSIDE),
        }
    }

    /// It outlasts the pattern: how many of those that do come before it.
    #[inline]
    pub fn lasting(&self) -> Option<u32> {
        (self.what & 7 == Self::LASTS).then_some(self.len)
    }
}

impl Default for Stock {
    fn default() -> Self {
        let single = Role {
            first: 0,
            len: 0,
            parent: Role::OUTSIDE,
            what: Role::LASTS,
        };
        Self {
            patterns: vec![Extent {
                first: 0,
                len: 1,
                parents: 1,
                lasting: 1,
            }],
            roles: vec![single],
        }
    }
}

impl Stock {
    fn extent(&self, pattern: Pattern) -> Option<&Extent> {
        self.patterns.get(pattern.0.get() as usize - 1)
    }

    /// The calls of a pattern, in order.
    #[inline]
    pub fn calls(&self, pattern: Pattern) -> &[Role] {
        let extent = self.extent(pattern);
        let found = extent.and_then(|extent| {
            let first = extent.first as usize;
            self.roles.get(first..first + extent.len as usize)
        });
        found.unwrap_or(&[])
    }

    /// How many calls a pattern has, and how many words each batch of it.
    #[inline]
    pub fn size_of(&self, pattern: Pattern) -> (u32, u32) {
        self.extent(pattern)
            .map_or((0, 0), |extent| (extent.len, extent.parents + 2 * extent.lasting))
    }

    /// How many calls a pattern is inside of.
    #[inline]
    pub fn parents_of(&self, pattern: Pattern) -> u32 {
        self.extent(pattern).map_or(0, |extent| extent.parents)
    }

    /// Makes a pattern, which begins at instruction `begin`, of calls that were tried: those of `outer`, ascending, were there
    /// before, and `open` ones of the others, ascending, outlast it. To `nested` comes how deep the calls of each outer one are inside
    /// of one another; 0: it made none.
    /// `None`: no other was made, or there are as many as can be told apart.
    pub fn add(
        &mut self,
        tried: &Nodes,
        begin: u64,
        outer: &[u32],
        open: impl IntoIterator<Item = u32>,
        nested: &mut [u32],
    ) -> Option<Added> {
        let (mut outer, mut open) = (outer.iter().enumerate().peekable(), open.into_iter().peekable());
        // What stands for a call that was tried as a parent, which outer call it is inside of, and how deep.
        let mut tried_as: Vec<(u32, usize, u32)> = Vec::with_capacity(tried.len());
        let mut extent = Extent {
            first: u32::try_from(self.roles.len()).ok()?,
            len: 0,
            parents: 0,
            lasting: 0,
        };
        for id in 0..tried.len() as u32 {
            if let Some((level, _)) = outer.next_if(|&(_, &call)| call == id) {
                tried_as.push((Role::OUTSIDE, level, 0));
                continue;
            }
            let node = tried.get(id)?;
            let (parent, level, depth) = *tried_as.get(node.parent as usize)?;
            tried_as.push((extent.len, level, depth + 1));
            let nested = nested.get_mut(level)?;
            *nested = (*nested).max(depth + 1);
            extent.len += 1;
            let lasts = open.next_if(|&open| open == id).is_some();
            self.roles
                .push(role(&node, begin, parent, lasts.then_some(extent.lasting))?);
            extent.lasting += u32::from(lasts);
        }
        if extent.len == 0 {
            return None;
        }
        // Outer calls that made any are numbered in their order.
        let mut slots = Vec::with_capacity(nested.len());
        for &nested in &*nested {
            slots.push(extent.parents);
            extent.parents += u32::from(nested > 0);
        }
        let made = tried_as.iter().filter(|(parent, ..)| *parent != Role::OUTSIDE);
        for (role, &(_, level, _)) in self.roles.iter_mut().skip(extent.first as usize).zip(made) {
            if role.parent == Role::OUTSIDE {
                role.parent |= *slots.get(level)?;
            }
        }
        self.patterns.push(extent);
        let number = u32::try_from(self.patterns.len()).ok()?;
        Some(Added {
            pattern: Pattern(NonZeroU32::new(number)?),
            len: extent.len,
        })
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.patterns) + size_of_val(&*self.roles)
    }
}

/// The part of a call that was tried.
fn role(node: &Node, begin: u64, parent: u32, lasting: Option<u32>) -> Option<Role> {
    let left = lasting.map_or(u32::from(node.left.code()), |_| Role::LASTS);
    Some(Role {
        first: u32::try_from(node.first.checked_sub(begin)?).ok()?,
        len: match lasting {
            Some(before) => before,
            None => u32::try_from(node.end.saturating_sub(node.first)).ok()?,
        },
        parent,
        what: what(node.function, node.entered, Left::Return) & !7 | left,
    })
}
