//! Stacks, frames and contexts of a segment as they are read from their files.

use crate::columns::{Texts, column, values};
use crate::content::Context;
use crate::encode::KINDS;
use crate::file::ParquetFile;
use crate::frame_line::FrameLine;
use crate::frame_set::FrameSet;
use crate::{Error, Result, blocking};
use arrow_array::types::UInt32Type;
use arrow_array::{
    Array, BinaryArray, ListArray, MapArray, RecordBatch, StringArray, StructArray, UInt32Array, UInt64Array,
};
use backtrail_profile::{Frame, FrameId, Line, Module, ModuleId, Profile};
use backtrail_pt::{BuildId, FileOffset};
use object_store::ObjectStore;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The frames of each stack of a row group.
#[derive(Default)]
pub(crate) struct StackFrames {
    ends: Vec<u32>,
    frames: Vec<u32>,
}

impl StackFrames {
    /// Returns the frames of a stack of the row group, the innermost first.
    pub(crate) fn of(&self, stack: usize) -> Option<&[u32]> {
        let end = usize::try_from(*self.ends.get(stack)?).ok()?;
        let start = match stack.checked_sub(1) {
            Some(before) => usize::try_from(*self.ends.get(before)?).ok()?,
            None => 0,
        };
        self.frames.get(start..end)
    }

    /// Returns the number of stacks.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.ends.len() + self.frames.len()) * 4
    }
}

/// The place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramePlace {
    /// Code at an offset of a module, by the module's index.
    Code(u32, u64),
    Address(u64),
    Function,
    Lost,
}

/// The build id and the path of a module.
type ModuleKey = (Option<BuildId>, Box<str>);

/// The modules of a profile by their build ids. The code of a build is the same at each path.
#[derive(Default)]
pub(crate) struct ModuleIndex {
    by_build: HashMap<BuildId, ModuleId>,
}

impl ModuleIndex {
    fn of(&mut self, (build_id, path): &ModuleKey, profile: &mut Profile) -> Result<ModuleId> {
        if let Some(known) = build_id.as_ref().and_then(|build_id| self.by_build.get(build_id)) {
            return Ok(*known);
        }
        let path = profile.string(path)?;
        let build_id = build_id.clone();
        let module = profile.modules.intern(Module {
            build_id: build_id.clone(),
            path,
        })?;
        if let Some(build_id) = build_id {
            self.by_build.insert(build_id, module);
        }
        Ok(module)
    }
}

/// The frames of a row group. Modules are stored once.
#[derive(Default)]
pub(crate) struct FrameTable {
    modules: Vec<ModuleKey>,
    by_module: HashMap<ModuleKey, u32>,
    /// The place of each frame, and the end of its lines.
    frames: Vec<(FramePlace, u32)>,
    lines: Vec<FrameLine>,
}

impl FrameTable {
    /// Returns whether each frame is code of a module.
    pub(crate) fn are_of(&self, module: &BuildId) -> Vec<bool> {
        let is_same = |(id, _): &ModuleKey| id.as_ref() == Some(module);
        let same: Vec<bool> = self.modules.iter().map(is_same).collect();
        let is_of = |(place, _): &(FramePlace, u32)| match place {
            FramePlace::Code(module, _) => same.get(*module as usize) == Some(&true),
            _ => false,
        };
        self.frames.iter().map(is_of).collect()
    }

    /// Returns whether each frame is in a set.
    pub(crate) fn are_in(&self, set: &FrameSet) -> Vec<bool> {
        let modules = self.modules.iter();
        let code: Vec<_> = modules
            .map(|(build_id, path)| set.code_of(build_id.as_ref(), path))
            .collect();
        let is_in = |(index, (place, end)): (usize, &(FramePlace, u32))| match *place {
            FramePlace::Code(module, offset) => {
                let offsets = code.get(module as usize).copied().flatten();
                offsets.is_some_and(|offsets| offsets.contains(&offset))
            }
            FramePlace::Address(address) => set.has_address(address),
            FramePlace::Function => {
                let line = self.lines_of(index, *end).first();
                line.is_some_and(|line| set.has_function(line))
            }
            FramePlace::Lost => set.has_lost(),
        };
        self.frames.iter().enumerate().map(is_in).collect()
    }

    /// Adds the code that has no lines to a profile.
    pub(crate) fn add_unnamed(&self, profile: &mut Profile, modules: &mut ModuleIndex) -> Result<()> {
        let mut known = vec![None; self.modules.len()];
        for (index, (place, end)) in self.frames.iter().enumerate() {
            if matches!(place, FramePlace::Code(..)) && self.lines_of(index, *end).is_empty() {
                self.intern(index, profile, &mut known, modules)?;
            }
        }
        Ok(())
    }

    /// Returns the number of modules.
    pub(crate) fn modules(&self) -> usize {
        self.modules.len()
    }

    fn lines_of(&self, frame: usize, end: u32) -> &[FrameLine] {
        let before = frame.checked_sub(1).and_then(|before| self.frames.get(before));
        let start = before.map_or(0, |(_, end)| *end);
        self.lines.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Adds a frame to a profile. `known` has the profile's modules of this row group so far.
    /// `None`: there is no such frame.
    pub(crate) fn intern(
        &self,
        frame: usize,
        profile: &mut Profile,
        known: &mut [Option<ModuleId>],
        modules: &mut ModuleIndex,
    ) -> Result<Option<FrameId>> {
        let Some((place, end)) = self.frames.get(frame) else {
            return Ok(None);
        };
        let lines = self.lines_of(frame, *end);
        let frame = match *place {
            FramePlace::Code(module, offset) => {
                let (Some(key), Some(known)) =
                    (self.modules.get(module as usize), known.get_mut(module as usize))
                else {
                    return Ok(None);
                };
                let module = match *known {
                    Some(module) => module,
                    None => *known.insert(modules.of(key, profile)?),
                };
                let offset = FileOffset(offset);
                Frame::Code { module, offset }
            }
            FramePlace::Address(address) => Frame::Address(address),
            FramePlace::Lost => Frame::Lost,
            FramePlace::Function => {
                let Some(line) = lines.first() else {
                    return Ok(None);
                };
                let Line { function, line } = line.intern(profile)?;
                return Ok(Some(profile.frames.intern(Frame::Function { function, line })?));
            }
        };
        let id = profile.frames.intern(frame)?;
        if !lines.is_empty() && !profile.lines.contains_key(&id) {
            let lines = lines.iter().map(|line| line.intern(profile));
            let lines = lines.collect::<Result<Box<[Line]>>>()?;
            profile.lines.insert(id, lines);
        }
        Ok(Some(id))
    }

    fn module(&mut self, key: ModuleKey) -> u32 {
        if let Some(id) = self.by_module.get(&key) {
            return *id;
        }
        let id = self.modules.len() as u32;
        self.modules.push(key.clone());
        self.by_module.insert(key, id);
        id
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let texts = |line: &FrameLine| size_of::<FrameLine>() + line.name.len() + line.linkage_name.len();
        let lines: usize = self.lines.iter().map(texts).sum();
        let module = |(_, path): &ModuleKey| 2 * (path.len() + 160);
        let modules: usize = self.modules.iter().map(module).sum();
        self.frames.len() * size_of::<(FramePlace, u32)>() + lines + modules
    }
}

/// Reads columns of all rows of a row group, batch by batch. `read` gets the index of the batch's
/// first row.
async fn read_group<T: Default + Send + 'static>(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
    group: usize,
    columns: &[&str],
    read: fn(&str, &RecordBatch, usize, &mut T) -> Result<()>,
) -> Result<T> {
    let fetched = file.fetch(objects, group, &file.columns(columns)).await?;
    let key = file.key().to_owned();
    let mut row = file.starts().get(group).copied().unwrap_or(0);
    blocking::run(move || {
        let mut target = T::default();
        fetched.for_each(|batch| {
            read(&key, batch, row, &mut target)?;
            row += batch.num_rows();
            Ok(())
        })?;
        Ok(target)
    })
    .await
}

/// Checks that the ids of a batch continue those before it.
fn check_ids(key: &str, batch: &RecordBatch, name: &str, before: usize) -> Result<()> {
    let ids = values::<UInt32Type>(key, batch, name)?;
    let is_next = |(index, id): (usize, &u32)| usize::try_from(*id) == Ok(before + index);
    match ids.iter().enumerate().all(is_next) {
        true => Ok(()),
        false => Err(Error::damaged(
            key,
            format!("the ids of the column `{name}` have gaps"),
        )),
    }
}

/// Reads the frames of a row group's stacks.
pub(crate) async fn read_stacks(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
    group: usize,
) -> Result<StackFrames> {
    let columns = ["stack", "frames"];
    read_group(
        objects,
        file,
        group,
        &columns,
        |key, batch, row, stacks: &mut StackFrames| {
            check_ids(key, batch, "stack", row)?;
            let lists = column::<ListArray>(key, batch, "frames")?;
            let frames = lists.values().as_any().downcast_ref::<UInt32Array>();
            let wrong = || Error::damaged(key, "the frames of a stack are not a list of ids");
            let frames = frames
                .filter(|frames| frames.null_count() == 0)
                .ok_or_else(wrong)?;
            for range in ranges(lists) {
                let frames = frames.values().get(range).ok_or_else(wrong)?;
                stacks.frames.extend_from_slice(frames);
                let end = u32::try_from(stacks.frames.len());
                let end = end.map_err(|_| Error::damaged(key, "the stacks have more than 2^32 frames"))?;
                stacks.ends.push(end);
            }
            Ok(())
        },
    )
    .await
}

/// Returns the range of each list's items.
fn ranges(lists: &ListArray) -> impl Iterator<Item = Range<usize>> {
    let place = |offset: i32| usize::try_from(offset).unwrap_or(usize::MAX);
    lists.value_offsets().windows(2).map(move |pair| match pair {
        [start, end] => place(*start)..place(*end),
        _ => 0..0,
    })
}

/// Reads the frames of a row group.
pub(crate) async fn read_frames(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
    group: usize,
) -> Result<FrameTable> {
    let columns = [
        "frame",
        "frame_kind",
        "kind",
        "build_id",
        "module",
        "offset",
        "lines",
    ];
    read_group(objects, file, group, &columns, |key, batch, row, table| {
        check_ids(key, batch, "frame", row)?;
        read_frame_batch(key, batch, table)
    })
    .await
}

fn read_frame_batch(key: &str, batch: &RecordBatch, table: &mut FrameTable) -> Result<()> {
    // The name in files of version 1 is `kind`.
    let name = match batch.column_by_name("kind") {
        Some(_) => "kind",
        None => "frame_kind",
    };
    let kinds = Texts::new(key, batch, name)?;
    let build_ids = column::<BinaryArray>(key, batch, "build_id")?;
    let modules = column::<StringArray>(key, batch, "module")?;
    let offsets = column::<UInt64Array>(key, batch, "offset")?;
    let lists = column::<ListArray>(key, batch, "lines")?;
    let lines = LineColumns::new(key, lists)?;
    let damaged = |problem: &str| Error::damaged(key, problem);
    // Frames of one module are neighbors.
    let mut last: Option<(Option<&[u8]>, &str, u32)> = None;
    for (row, range) in ranges(lists).enumerate() {
        let offset = (!offsets.is_null(row)).then(|| offsets.value(row));
        let offset = || offset.ok_or_else(|| damaged("a frame has no offset"));
        let has_lines = !range.is_empty();
        lines.read(range, &mut table.lines)?;
        let [code, address, function, lost] = KINDS;
        let place = match kinds.text(row) {
            Some(kind) if kind == code => {
                let bytes = (!build_ids.is_null(row)).then(|| build_ids.value(row));
                let path = match modules.is_null(row) {
                    true => "",
                    false => modules.value(row),
                };
                let module = match last {
                    Some((last_bytes, last_path, module)) if (last_bytes, last_path) == (bytes, path) => {
                        module
                    }
                    _ => {
                        let build_id = bytes.map(|bytes| {
                            BuildId::new(bytes).ok_or_else(|| damaged("a build id is empty or too long"))
                        });
                        table.module((build_id.transpose()?, path.into()))
                    }
                };
                last = Some((bytes, path, module));
                FramePlace::Code(module, offset()?)
            }
            Some(kind) if kind == address => FramePlace::Address(offset()?),
            Some(kind) if kind == function && has_lines => FramePlace::Function,
            Some(kind) if kind == lost => FramePlace::Lost,
            _ => return Err(damaged("the kind of a frame is not known")),
        };
        let end = u32::try_from(table.lines.len());
        let end = end.map_err(|_| damaged("the frames have more than 2^32 lines"))?;
        table.frames.push((place, end));
    }
    Ok(())
}

/// The columns of the lines of a batch's frames.
struct LineColumns<'a> {
    key: &'a str,
    names: &'a StringArray,
    linkage_names: &'a StringArray,
    files: &'a StringArray,
    starts: &'a UInt32Array,
    lines: &'a UInt32Array,
}

impl<'a> LineColumns<'a> {
    fn new(key: &'a str, lists: &'a ListArray) -> Result<Self> {
        let wrong = || Error::damaged(key, "the lines of a frame have other columns");
        let lines = lists.values().as_any().downcast_ref::<StructArray>();
        let lines = lines.ok_or_else(wrong)?;
        let texts = |name| {
            let column = lines.column_by_name(name)?;
            column.as_any().downcast_ref::<StringArray>()
        };
        let numbers = |name| {
            let column = lines.column_by_name(name)?;
            column.as_any().downcast_ref::<UInt32Array>()
        };
        Ok(Self {
            key,
            names: texts("function").ok_or_else(wrong)?,
            linkage_names: texts("linkage_name").ok_or_else(wrong)?,
            files: texts("file").ok_or_else(wrong)?,
            starts: numbers("start_line").ok_or_else(wrong)?,
            lines: numbers("line").ok_or_else(wrong)?,
        })
    }

    fn read(&self, range: Range<usize>, target: &mut Vec<FrameLine>) -> Result<()> {
        if range.end > self.lines.len() {
            return Err(Error::damaged(self.key, "a frame has lines that do not exist"));
        }
        target.extend(range.map(|row| FrameLine {
            name: self.names.value(row).into(),
            linkage_name: self.linkage_names.value(row).into(),
            file: (!self.files.is_null(row)).then(|| self.files.value(row).into()),
            start_line: self.starts.value(row),
            line: self.lines.value(row),
        }));
        Ok(())
    }
}

/// Reads the labels of all contexts.
pub(crate) async fn read_contexts(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
) -> Result<Vec<Context>> {
    let mut contexts = Vec::new();
    for group in 0..file.groups() {
        let columns = ["context", "labels"];
        contexts.extend(read_group(objects, file, group, &columns, read_context_batch).await?);
    }
    Ok(contexts)
}

fn read_context_batch(key: &str, batch: &RecordBatch, row: usize, contexts: &mut Vec<Context>) -> Result<()> {
    check_ids(key, batch, "context", row)?;
    let maps = column::<MapArray>(key, batch, "labels")?;
    let wrong = || Error::damaged(key, "the labels of a context are not texts");
    for row in 0..maps.len() {
        let pairs = maps.value(row);
        let texts = |index: usize| {
            let column = pairs.columns().get(index)?;
            column.as_any().downcast_ref::<StringArray>()
        };
        let (keys, values) = (texts(0).ok_or_else(wrong)?, texts(1).ok_or_else(wrong)?);
        let pair = |row| (keys.value(row).into(), values.value(row).into());
        contexts.push((0..pairs.len()).map(pair).collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::encode;
    use crate::hour::Hour;
    use crate::schema::{Effort, first_schema};
    use crate::segment::{FileSummary, SegmentEntry, SegmentId, TableKind};
    use crate::table_writer::TableWriter;
    use arrow_array::{ArrayRef, FixedSizeBinaryArray};
    use object_store::memory::InMemory;
    use object_store::path::Path as Key;
    use object_store::{ObjectStoreExt, PutPayload};

    /// Writes a file of version 1, and opens it.
    async fn first_file(
        objects: &InMemory,
        id: SegmentId,
        kind: TableKind,
        columns: Vec<ArrayRef>,
    ) -> Arc<ParquetFile> {
        let schema = first_schema(kind).unwrap();
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let mut writer = TableWriter::with_schema(kind, schema, Effort::Low).unwrap();
        writer.write(&batch).unwrap();
        let (_, bytes, summary) = writer.finish(None).unwrap();
        let none = FileSummary::default();
        let mut entry = SegmentEntry {
            id,
            hour: Hour(9),
            level: 0,
            first: 0,
            last: 0,
            samples: none,
            stacks: none,
            frames: none,
            contexts: none,
            services: None,
            hosts: None,
            events: None,
            build_ids: crate::BuildIdFilter::default(),
            notes: Vec::new(),
            origin_notes: crate::OriginNotes::default(),
            idle: crate::IdleCounts::default(),
        };
        match kind {
            TableKind::Stacks => entry.stacks = summary,
            _ => entry.frames = summary,
        }
        let key = Key::from(entry.key(kind));
        objects.put(&key, PutPayload::from(bytes)).await.unwrap();
        Arc::new(ParquetFile::open(objects, &entry, kind).await.unwrap())
    }

    #[tokio::test]
    async fn files_of_version_1_are_read() {
        let objects = InMemory::new();
        let id = SegmentId::random().unwrap();
        let batch = encode::stacks(id, 0, &[vec![1, 0], vec![]]).unwrap();
        let mut columns = batch.columns().to_vec();
        let hashes = FixedSizeBinaryArray::try_from_iter([[7u8; 16], [8; 16]].iter()).unwrap();
        columns.insert(2, Arc::new(hashes));
        let file = first_file(&objects, id, TableKind::Stacks, columns).await;
        let stacks = read_stacks(&objects, &file, 0).await.unwrap();
        assert_eq!((stacks.of(0), stacks.of(1)), (Some(&[1, 0][..]), Some(&[][..])));

        let mut content = Content::default();
        let frames = [Frame::Address(77), Frame::Lost];
        let frames = frames.map(|frame| content.profile.frames.intern(frame).unwrap());
        let batch = encode::frames(id, 0, &content, &frames).unwrap();
        let columns = batch.columns().to_vec();
        let file = first_file(&objects, id, TableKind::Frames, columns).await;
        let frames = read_frames(&objects, &file, 0).await.unwrap();
        let places: Vec<_> = frames.frames.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [FramePlace::Address(77), FramePlace::Lost]);
    }
}
