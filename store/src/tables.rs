//! Stacks, frames and contexts of a segment as they are read from their files.

use crate::columns::{Texts, column, values};
use crate::content::Context;
use crate::encode::KINDS;
use crate::file::ParquetFile;
use crate::hash::StackHash;
use crate::{Error, Result, blocking};
use arrow_array::types::UInt32Type;
use arrow_array::{
    Array, BinaryArray, FixedSizeBinaryArray, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    UInt32Array, UInt64Array,
};
use backtrail_profile::{Frame, FrameId, Function, Line, Module, Profile};
use backtrail_pt::{BuildId, FileOffset};
use object_store::ObjectStore;
use std::sync::Arc;

/// The frames of each stack of a segment.
#[derive(Default)]
pub(crate) struct StackFrames {
    ends: Vec<u32>,
    frames: Vec<u32>,
}

impl StackFrames {
    /// Returns the frames of a stack, the innermost first.
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

/// The kind of a frame, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FramePlace {
    Code {
        build_id: Option<BuildId>,
        module: Box<str>,
        offset: u64,
    },
    Address(u64),
    Function,
    Lost,
}

/// A line of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FrameLine {
    name: Box<str>,
    linkage_name: Box<str>,
    file: Option<Box<str>>,
    start_line: u32,
    line: u32,
}

/// A frame of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameRow {
    place: FramePlace,
    lines: Box<[FrameLine]>,
}

impl FrameRow {
    /// Returns whether the frame is code of a module.
    pub(crate) fn is_of(&self, module: &BuildId) -> bool {
        matches!(&self.place, FramePlace::Code { build_id: Some(id), .. } if id == module)
    }

    /// Adds the frame to a profile.
    pub(crate) fn intern(&self, profile: &mut Profile) -> Result<FrameId> {
        let frame = match &self.place {
            FramePlace::Code {
                build_id,
                module,
                offset,
            } => {
                let path = profile.string(module)?;
                let build_id = build_id.clone();
                let module = profile.modules.intern(Module { build_id, path })?;
                let offset = FileOffset(*offset);
                Frame::Code { module, offset }
            }
            FramePlace::Address(address) => Frame::Address(*address),
            FramePlace::Lost => Frame::Lost,
            FramePlace::Function => {
                let Some(line) = self.lines.first() else {
                    return Ok(profile.frames.intern(Frame::Lost)?);
                };
                let Line { function, line } = line.intern(profile)?;
                return Ok(profile.frames.intern(Frame::Function { function, line })?);
            }
        };
        let id = profile.frames.intern(frame)?;
        if !self.lines.is_empty() && !profile.lines.contains_key(&id) {
            let lines = self.lines.iter().map(|line| line.intern(profile));
            let lines = lines.collect::<Result<Box<[Line]>>>()?;
            profile.lines.insert(id, lines);
        }
        Ok(id)
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let texts = |line: &FrameLine| line.name.len() + line.linkage_name.len();
        let lines = self.lines.iter().map(|line| size_of::<FrameLine>() + texts(line));
        size_of::<Self>() + 64 + lines.sum::<usize>()
    }
}

impl FrameLine {
    fn intern(&self, profile: &mut Profile) -> Result<Line> {
        let function = Function {
            name: profile.string(&self.name)?,
            linkage_name: profile.string(&self.linkage_name)?,
            file: self.file.as_ref().map(|file| profile.string(file)).transpose()?,
            start_line: self.start_line,
        };
        Ok(Line {
            function: profile.functions.intern(function)?,
            line: self.line,
        })
    }
}

/// Reads columns of all rows of a file, batch by batch.
async fn read_all<T: Send + 'static>(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
    columns: &[usize],
    mut target: T,
    read: fn(&str, &RecordBatch, &mut T) -> Result<()>,
) -> Result<T> {
    for group in 0..file.groups() {
        let fetched = file.fetch(objects, group, columns).await?;
        let key = file.key().to_owned();
        target = blocking::run(move || {
            fetched.for_each(|batch| read(&key, batch, &mut target))?;
            Ok(target)
        })
        .await?;
    }
    Ok(target)
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

/// Reads the hashes of all stacks.
pub(crate) async fn read_hashes(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
) -> Result<Vec<StackHash>> {
    read_all(objects, file, &[1, 2], Vec::new(), |key, batch, hashes| {
        check_ids(key, batch, "stack", hashes.len())?;
        let column = column::<FixedSizeBinaryArray>(key, batch, "hash")?;
        let wrong = || Error::damaged(key, "a hash has not 16 bytes");
        for hash in column.iter() {
            let hash = hash.and_then(|hash| StackHash::try_from(hash).ok());
            hashes.push(hash.ok_or_else(wrong)?);
        }
        Ok(())
    })
    .await
}

/// Reads the frames of all stacks.
pub(crate) async fn read_stacks(objects: &dyn ObjectStore, file: &Arc<ParquetFile>) -> Result<StackFrames> {
    let empty = StackFrames::default();
    read_all(objects, file, &[1, 3], empty, |key, batch, stacks| {
        check_ids(key, batch, "stack", stacks.len())?;
        let lists = column::<ListArray>(key, batch, "frames")?;
        let wrong = || Error::damaged(key, "the frames of a stack are not a list of ids");
        for row in 0..lists.len() {
            let list = lists.value(row);
            let frames = list.as_any().downcast_ref::<UInt32Array>().ok_or_else(wrong)?;
            stacks.frames.extend_from_slice(frames.values());
            let end = u32::try_from(stacks.frames.len());
            let end = end.map_err(|_| Error::damaged(key, "the stacks have more than 2^32 frames"))?;
            stacks.ends.push(end);
        }
        Ok(())
    })
    .await
}

/// Reads all frames.
pub(crate) async fn read_frames(objects: &dyn ObjectStore, file: &Arc<ParquetFile>) -> Result<Vec<FrameRow>> {
    read_all(
        objects,
        file,
        &[1, 2, 3, 4, 5, 6],
        Vec::new(),
        |key, batch, frames| {
            check_ids(key, batch, "frame", frames.len())?;
            read_frame_batch(key, batch, frames)
        },
    )
    .await
}

fn read_frame_batch(key: &str, batch: &RecordBatch, frames: &mut Vec<FrameRow>) -> Result<()> {
    let kinds = Texts::new(key, batch, "kind")?;
    let build_ids = column::<BinaryArray>(key, batch, "build_id")?;
    let modules = column::<StringArray>(key, batch, "module")?;
    let offsets = column::<UInt64Array>(key, batch, "offset")?;
    let lists = column::<ListArray>(key, batch, "lines")?;
    let damaged = |problem: &str| Error::damaged(key, problem);
    for row in 0..batch.num_rows() {
        let offset = (!offsets.is_null(row)).then(|| offsets.value(row));
        let offset = || offset.ok_or_else(|| damaged("a frame has no offset"));
        let lines = read_lines(key, lists.value(row).as_any().downcast_ref::<StructArray>())?;
        let [code, address, function, lost] = KINDS;
        let place = match kinds.text(row) {
            Some(kind) if kind == code => {
                let bytes = (!build_ids.is_null(row)).then(|| build_ids.value(row));
                let build_id = bytes.map(|bytes| {
                    BuildId::new(bytes).ok_or_else(|| damaged("a build id is empty or too long"))
                });
                FramePlace::Code {
                    build_id: build_id.transpose()?,
                    module: match modules.is_null(row) {
                        true => Box::default(),
                        false => modules.value(row).into(),
                    },
                    offset: offset()?,
                }
            }
            Some(kind) if kind == address => FramePlace::Address(offset()?),
            Some(kind) if kind == function && !lines.is_empty() => FramePlace::Function,
            Some(kind) if kind == lost => FramePlace::Lost,
            _ => return Err(damaged("the kind of a frame is not known")),
        };
        frames.push(FrameRow { place, lines });
    }
    Ok(())
}

fn read_lines(key: &str, lines: Option<&StructArray>) -> Result<Box<[FrameLine]>> {
    let wrong = || Error::damaged(key, "the lines of a frame have other columns");
    let lines = lines.ok_or_else(wrong)?;
    let texts = |name| {
        let column = lines.column_by_name(name)?;
        column.as_any().downcast_ref::<StringArray>()
    };
    let numbers = |name| {
        let column = lines.column_by_name(name)?;
        column.as_any().downcast_ref::<UInt32Array>()
    };
    let names = texts("function").ok_or_else(wrong)?;
    let linkage_names = texts("linkage_name").ok_or_else(wrong)?;
    let files = texts("file").ok_or_else(wrong)?;
    let starts = numbers("start_line").ok_or_else(wrong)?;
    let numbers = numbers("line").ok_or_else(wrong)?;
    let line = |row| FrameLine {
        name: names.value(row).into(),
        linkage_name: linkage_names.value(row).into(),
        file: (!files.is_null(row)).then(|| files.value(row).into()),
        start_line: starts.value(row),
        line: numbers.value(row),
    };
    Ok((0..lines.len()).map(line).collect())
}

/// Reads the labels of all contexts.
pub(crate) async fn read_contexts(
    objects: &dyn ObjectStore,
    file: &Arc<ParquetFile>,
) -> Result<Vec<Context>> {
    read_all(objects, file, &[1, 2], Vec::new(), |key, batch, contexts| {
        check_ids(key, batch, "context", contexts.len())?;
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
    })
    .await
}
