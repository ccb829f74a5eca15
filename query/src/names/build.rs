//! Building the names of a segment from its columns.

use super::lists::Lists;
use super::segment::SegmentNames;
use super::symbols::Symbols;
use super::texts::{TextIdx, Texts};
use datafusion::arrow::array::{
    Array, AsArray, BinaryArray, ListArray, RecordBatch, StringArray, StructArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, UInt32Type, UInt64Type};
use datafusion::execution::memory_pool::MemoryReservation;

/// The name of a frame after which the stack could not be read.
const LOST: &str = "[the stack could not be read further]";

/// The reason why columns cannot be used.
#[derive(Debug)]
pub(super) enum Problem {
    /// The columns are not those of the store.
    Damaged(String),
    /// The memory does not suffice.
    Memory,
}

/// The names of a segment while its files are read.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    names: SegmentNames,
    symbols: &'a Symbols,
}

impl<'a> Builder<'a> {
    /// Builds an empty value.
    pub(super) fn new(symbols: &'a Symbols, memory: MemoryReservation) -> Self {
        let names = SegmentNames {
            stacks: Lists::default(),
            functions: Lists::default(),
            modules: Vec::new(),
            texts: Texts::default(),
            _memory: memory,
        };
        Self { names, symbols }
    }

    /// Adds stacks: the columns `stack` and `frames`.
    pub(super) fn add_stacks(&mut self, batch: &RecordBatch) -> Result<(), Problem> {
        let ids: UInt32Array = column(batch, "stack", &DataType::UInt32)?.as_primitive().clone();
        let lists: ListArray = list(batch, "frames")?;
        for (row, id) in ids.values().iter().enumerate() {
            is_next(*id, self.names.stacks.len(), "stack")?;
            let frames = lists.value(row);
            let frames = cast(&frames, &DataType::UInt32).map_err(damaged)?;
            let frames = frames.as_primitive::<UInt32Type>().values().to_vec();
            self.names.stacks.push(frames).ok_or(Problem::Memory)?;
        }
        self.account()
    }

    /// Adds frames: the columns `frame`, `frame_kind`, `build_id`, `module`, `offset` and `lines`.
    pub(super) fn add_frames(&mut self, batch: &RecordBatch) -> Result<(), Problem> {
        let ids: UInt32Array = column(batch, "frame", &DataType::UInt32)?.as_primitive().clone();
        let kind = match batch.column_by_name("kind") {
            Some(_) => "kind",
            None => "frame_kind",
        };
        let kinds: StringArray = column(batch, kind, &DataType::Utf8)?.as_string().clone();
        let build_ids: BinaryArray = column(batch, "build_id", &DataType::Binary)?.as_binary().clone();
        let modules: StringArray = column(batch, "module", &DataType::Utf8)?.as_string().clone();
        let offsets = column(batch, "offset", &DataType::UInt64)?;
        let offsets: &UInt64Array = offsets.as_primitive::<UInt64Type>();
        let lines = list(batch, "lines")?;
        for (row, id) in ids.values().iter().enumerate() {
            is_next(*id, self.names.functions.len(), "frame")?;
            let module = modules.is_valid(row).then(|| modules.value(row));
            let offset = offsets.is_valid(row).then(|| offsets.value(row));
            let mut functions = self.line_functions(&lines.value(row))?;
            if functions.is_empty() && build_ids.is_valid(row) {
                let known = self.symbols.functions(build_ids.value(row), offset.unwrap_or(0));
                functions.extend(known.iter().map(|name| self.names.texts.intern(name).0));
            }
            if functions.is_empty() {
                let name = name_without_symbol(kinds.value(row), module, offset);
                functions.push(self.names.texts.intern(&name).0);
            }
            self.names.functions.push(functions).ok_or(Problem::Memory)?;
            let module = module.map(|module| self.names.texts.intern(module));
            self.names.modules.push(module);
        }
        self.account()
    }

    fn line_functions(&mut self, lines: &dyn Array) -> Result<Vec<u32>, Problem> {
        if lines.is_empty() {
            return Ok(Vec::new());
        }
        let lines: &StructArray = lines
            .as_any()
            .downcast_ref()
            .ok_or_else(|| Problem::Damaged("the column `lines` has no lists of lines".into()))?;
        let functions = lines
            .column_by_name("function")
            .ok_or_else(|| Problem::Damaged("the column `lines` has no `function`".into()))?;
        let functions = cast(functions, &DataType::Utf8).map_err(damaged)?;
        let functions = functions.as_string::<i32>().iter().flatten();
        Ok(functions.map(|name| self.names.texts.intern(name).0).collect())
    }

    /// Checks that stacks have only frames that exist, and returns the names.
    pub(super) fn finish(self) -> Result<SegmentNames, Problem> {
        let count = self.names.functions.len();
        let exists = |frame: &u32| usize::try_from(*frame).is_ok_and(|frame| frame < count);
        let stacks = (0u32..).map_while(|stack| self.names.stacks.get(stack));
        let mut frames = stacks.flatten();
        match frames.find(|frame| !exists(frame)) {
            None => Ok(self.names),
            Some(frame) => Err(Problem::Damaged(format!(
                "a stack has the frame {frame}, and there are {count}"
            ))),
        }
    }

    /// Books the memory.
    fn account(&mut self) -> Result<(), Problem> {
        let names = &self.names;
        let bytes = names.stacks.bytes()
            + names.functions.bytes()
            + names.modules.capacity() * size_of::<Option<TextIdx>>()
            + names.texts.bytes();
        names._memory.try_resize(bytes).map_err(|_| Problem::Memory)
    }
}

/// Returns the name of a frame whose function is unknown.
fn name_without_symbol(kind: &str, module: Option<&str>, offset: Option<u64>) -> String {
    let file = module.map(|path| path.rsplit('/').next().unwrap_or(path));
    match (kind, file, offset) {
        ("lost", ..) => LOST.into(),
        (_, Some(file), Some(offset)) => format!("{file}+{offset:#x}"),
        (_, Some(file), None) => file.into(),
        (_, None, Some(offset)) => format!("{offset:#x}"),
        _ => "[unknown]".into(),
    }
}

/// Checks that ids are the row numbers.
fn is_next(id: u32, rows: usize, what: &str) -> Result<(), Problem> {
    match usize::try_from(id) == Ok(rows) {
        true => Ok(()),
        false => Err(Problem::Damaged(format!("{what} {id} is in row {rows}"))),
    }
}

fn column(
    batch: &RecordBatch,
    name: &str,
    kind: &DataType,
) -> Result<datafusion::arrow::array::ArrayRef, Problem> {
    let found = batch
        .column_by_name(name)
        .ok_or_else(|| Problem::Damaged(format!("there is no column `{name}`")))?;
    cast(found, kind).map_err(damaged)
}

fn list(batch: &RecordBatch, name: &str) -> Result<ListArray, Problem> {
    let found = batch
        .column_by_name(name)
        .ok_or_else(|| Problem::Damaged(format!("there is no column `{name}`")))?;
    let list = found.as_any().downcast_ref::<ListArray>().cloned();
    list.ok_or_else(|| Problem::Damaged(format!("the column `{name}` has no lists")))
}

fn damaged(error: datafusion::arrow::error::ArrowError) -> Problem {
    Problem::Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_without_symbol_is_named_by_module_and_offset() {
        let name = name_without_symbol;
        assert_eq!(
            name("code", Some("/usr/lib/libc.so.6"), Some(255)),
            "libc.so.6+0xff"
        );
        assert_eq!(name("address", None, Some(16)), "0x10");
        assert_eq!(name("lost", None, None), LOST);
        assert_eq!(name("other", None, None), "[unknown]");
    }
}
