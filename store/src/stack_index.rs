//! The stacks of several segments in one profile, found by their frames.

use crate::row_parts::RowParts;
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_reader::SegmentReader;
use crate::tables::{FrameTable, ModuleIndex, StackFrames};
use crate::{Error, Result};
use backtrail_profile::{FrameId, ModuleId, Profile, StackId};

/// The stacks of a segment, with their frames.
pub(crate) struct SegmentStacks {
    stacks: RowParts<StackFrames>,
    frames: RowParts<FrameTable>,
}

impl SegmentStacks {
    /// Reads the stacks of a segment: at least those that are needed. `None`: all.
    pub(crate) async fn read(
        reader: &SegmentReader,
        entry: &SegmentEntry,
        needed: Option<&[bool]>,
    ) -> Result<Self> {
        let stacks = reader.stacks(entry, needed).await?;
        let count = usize::try_from(entry.frames.rows).unwrap_or(usize::MAX);
        let needed_frames = needed.map(|needed| frames_of(&stacks, needed, count));
        let frames = reader.frames(entry, needed_frames.as_deref()).await?;
        Ok(Self { stacks, frames })
    }
}

/// Returns which frames are on needed stacks.
fn frames_of(stacks: &RowParts<StackFrames>, needed: &[bool], count: usize) -> Vec<bool> {
    let mut frames = vec![false; count];
    for (start, part) in stacks.iter() {
        let needed = needed.iter().skip(start).take(part.len());
        for (index, _) in needed.enumerate().filter(|(_, needed)| **needed) {
            for frame in part.of(index).unwrap_or_default() {
                if let Some(frame) = frames.get_mut(*frame as usize) {
                    *frame = true;
                }
            }
        }
    }
    frames
}

/// The stacks of a profile.
#[derive(Default)]
pub(crate) struct StackIndex {
    modules: ModuleIndex,
}

impl StackIndex {
    /// Returns the profile's stack for each stack of a segment that is needed. New ones are added
    /// to the profile. The others are empty.
    pub(crate) fn resolve(
        &mut self,
        profile: &mut Profile,
        entry: &SegmentEntry,
        read: &SegmentStacks,
        needed: Option<&[bool]>,
    ) -> Result<Vec<StackId>> {
        let mut stacks = vec![StackId::EMPTY; read.stacks.rows()];
        let mut frames = FrameIds::new(&read.frames, &mut self.modules);
        // The frames of the last stack, the outermost first. The next one often has most of them.
        let mut path: Vec<(u32, StackId)> = Vec::new();
        for (start, part) in read.stacks.iter() {
            for (index, stack) in stacks.iter_mut().enumerate().skip(start).take(part.len()) {
                if needed.is_some_and(|needed| needed.get(index) != Some(&true)) {
                    continue;
                }
                let list = part.of(index - start).unwrap_or_default().iter().rev();
                let common = list
                    .clone()
                    .zip(&path)
                    .take_while(|(frame, (last, _))| *frame == last);
                path.truncate(common.count());
                let mut last = path.last().map_or(StackId::EMPTY, |(_, stack)| *stack);
                for frame in list.skip(path.len()) {
                    let id = frames.of(profile, *frame)?.ok_or_else(|| {
                        let key = entry.key(TableKind::Stacks);
                        Error::damaged(&key, format!("stack {index} has frames that do not exist"))
                    })?;
                    last = profile.stacks.push(last, id)?;
                    path.push((*frame, last));
                }
                *stack = last;
            }
        }
        Ok(stacks)
    }
}

/// The profile's frames of a segment's frames. They are added when a stack needs them.
struct FrameIds<'a> {
    table: &'a RowParts<FrameTable>,
    ids: Vec<Option<FrameId>>,
    /// The profile's modules, by row group and index.
    known: Vec<Vec<Option<ModuleId>>>,
    modules: &'a mut ModuleIndex,
}

impl<'a> FrameIds<'a> {
    fn new(table: &'a RowParts<FrameTable>, modules: &'a mut ModuleIndex) -> Self {
        Self {
            table,
            ids: vec![None; table.rows()],
            known: vec![Vec::new(); table.groups()],
            modules,
        }
    }

    /// Returns a frame of the profile. `None`: it does not exist.
    fn of(&mut self, profile: &mut Profile, frame: u32) -> Result<Option<FrameId>> {
        let index = usize::try_from(frame).unwrap_or(usize::MAX);
        let Some(id) = self.ids.get_mut(index) else {
            return Ok(None);
        };
        if id.is_none()
            && let Some((part, row, group)) = self.table.find(index)
            && let Some(known) = self.known.get_mut(group)
        {
            known.resize(part.modules(), None);
            *id = part.intern(row, profile, known, self.modules)?;
        }
        Ok(*id)
    }
}
