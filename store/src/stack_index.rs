//! The stacks of several segments in one profile, found by their hashes.

use crate::hash::StackHash;
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_reader::SegmentReader;
use crate::tables::{FrameTable, StackFrames};
use crate::{Error, Result};
use backtrail_profile::{FrameId, Profile, StackId};
use std::collections::HashMap;

/// The stacks of a profile by their hashes.
#[derive(Default)]
pub(crate) struct StackIndex {
    known: HashMap<StackHash, StackId>,
}

impl StackIndex {
    /// Returns the profile's stack for each stack of a segment that is needed. New ones are added
    /// to the profile. The others are empty.
    pub(crate) async fn resolve(
        &mut self,
        profile: &mut Profile,
        reader: &SegmentReader,
        entry: &SegmentEntry,
        needed: Option<&[bool]>,
    ) -> Result<Vec<StackId>> {
        let hashes = reader.hashes(entry).await?;
        let mut stacks = vec![StackId::EMPTY; hashes.len()];
        let mut new = Vec::new();
        for (index, (hash, stack)) in hashes.iter().zip(&mut stacks).enumerate() {
            if needed.is_some_and(|needed| needed.get(index) != Some(&true)) {
                continue;
            }
            match self.known.get(hash) {
                Some(known) => *stack = *known,
                None => new.push(index),
            }
        }
        if new.is_empty() {
            return Ok(stacks);
        }
        let (frames_of, rows) = (reader.stacks(entry).await?, reader.frames(entry).await?);
        let mut frames = FrameIds::new(&rows);
        for index in new {
            let added = frames.add_stack(profile, &frames_of, index);
            let added = added?.ok_or_else(|| {
                let key = entry.key(TableKind::Stacks);
                Error::damaged(&key, format!("stack {index} has frames that do not exist"))
            })?;
            if let (Some(hash), Some(stack)) = (hashes.get(index), stacks.get_mut(index)) {
                self.known.insert(*hash, added);
                *stack = added;
            }
        }
        Ok(stacks)
    }

    /// Returns the number of stacks.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// The profile's frames of a segment's frames. They are added when a stack needs them.
struct FrameIds<'a> {
    table: &'a FrameTable,
    ids: Vec<Option<FrameId>>,
}

impl<'a> FrameIds<'a> {
    fn new(table: &'a FrameTable) -> Self {
        let ids = vec![None; table.len()];
        Self { table, ids }
    }

    /// Adds a stack to the profile. `None`: it has a frame that does not exist.
    fn add_stack(
        &mut self,
        profile: &mut Profile,
        stacks: &StackFrames,
        index: usize,
    ) -> Result<Option<StackId>> {
        let Some(frames) = stacks.of(index) else {
            return Ok(None);
        };
        let mut stack = StackId::EMPTY;
        for frame in frames.iter().rev() {
            let Some(frame) = self.of(profile, *frame)? else {
                return Ok(None);
            };
            stack = profile.stacks.push(stack, frame)?;
        }
        Ok(Some(stack))
    }

    fn of(&mut self, profile: &mut Profile, frame: u32) -> Result<Option<FrameId>> {
        let index = usize::try_from(frame).unwrap_or(usize::MAX);
        let Some(known) = self.ids.get_mut(index) else {
            return Ok(None);
        };
        if known.is_none() {
            *known = self.table.intern(index, profile)?;
        }
        Ok(*known)
    }
}
