//! Functions, lines and inlined calls from the table that Go's runtime uses (`.gopclntab`).
//!
//! Go's linker writes the table into each program, and no option leaves it out: the runtime prints
//! stack traces from it. So it is in stripped programs too. The formats of Go 1.16 and later are
//! read (package `runtime` of Go, file `symtab.go`).

use crate::code::CodeRanges;
use crate::demangle::Name;
use crate::names;
use crate::source::Elf;
use bytes::{string_at, u32_at, u64_at};
use header::{Format, Header};
use image::Image;
use layout::{Layout, Place};
use module_data::ModuleData;
use object::{Object, ObjectSection};
use record::Record;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

mod bytes;
mod header;
mod image;
mod inline_tree;
pub(crate) mod layout;
mod module_data;
mod pc_values;
mod record;
#[cfg(test)]
mod tests;

/// The sections that contain nothing but the table.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The section to which GNU's linkers move the table of a position-independent program.
const MERGED: &str = ".data.rel.ro";
/// The alignment of the table in a merged section.
const ALIGNMENT: u64 = 32;
/// The largest weight of the layouts that are cached ([`Layout::weight`]).
const CACHED: usize = 1 << 20;

/// A function: its addresses up to the next function, and the offset of its record.
struct Listed {
    start: u64,
    end: u64,
    record: u32,
}

/// The table of a file.
pub(crate) struct GoTable<'d> {
    header: Header<'d>,
    image: Image<'d>,
    /// The functions with code, ordered by address.
    functions: Vec<Listed>,
    /// The address to which the places of inlined calls are relative. `None`: it was not found.
    function_data: Option<u64>,
    names: Mutex<FxHashMap<u32, Option<Name>>>,
    paths: Mutex<FxHashMap<u32, Option<Arc<str>>>>,
    layouts: Mutex<LayoutCache>,
}

#[derive(Default)]
struct LayoutCache {
    layouts: FxHashMap<u32, Arc<Layout>>,
    weight: usize,
}

/// The number of a function in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionNumber(u32);

/// A function with its code.
pub(crate) struct GoFunction {
    /// The entry address.
    pub start: u64,
    pub name: Name,
    pub layout: Arc<Layout>,
}

impl GoFunction {
    /// Returns the addresses of the function, without padding.
    pub fn range(&self) -> Range<u64> {
        self.addresses(0..self.layout.size)
    }

    /// Returns the offset of an address of the function.
    pub fn offset(&self, at: u64) -> Option<u32> {
        u32::try_from(at.checked_sub(self.start)?).ok()
    }

    /// Converts offsets to addresses.
    pub fn addresses(&self, offsets: Range<u32>) -> Range<u64> {
        let address = |offset: u32| self.start.saturating_add(u64::from(offset));
        address(offsets.start)..address(offsets.end)
    }
}

impl<'d> GoTable<'d> {
    /// Reads the header and the list of functions. Returns `None` if there is no table, or if it
    /// is damaged.
    pub fn open(elf: &Elf<'d>, code: &CodeRanges) -> Option<Self> {
        let (addresses, header) = find_table(elf)?;
        let section = || Some(elf.section_by_name(".text")?.address());
        let file = (Image::of(elf), elf.data().len());
        Self::new(header, &addresses, file, section, code)
    }

    /// Reads the list of functions, given the table's header and addresses. `text_section` is the
    /// start of the code in files that state none.
    fn new(
        header: Header<'d>,
        addresses: &Range<u64>,
        (image, file_size): (Image<'d>, usize),
        text_section: impl Fn() -> Option<u64>,
        code: &CodeRanges,
    ) -> Option<Self> {
        let data = ModuleData::find(&image, &header, addresses);
        let text = match header.format {
            Format::Go116 => 0,
            Format::Go118 | Format::Go120 => match &data {
                Some(data) => data.text,
                None => header.text.or_else(text_section)?,
            },
        };
        let functions = list_functions(&header, text, file_size, code)?;
        Some(Self {
            header,
            image,
            functions,
            function_data: data.map(|data| data.function_data),
            names: Mutex::default(),
            paths: Mutex::default(),
            layouts: Mutex::default(),
        })
    }

    /// Returns the function that contains an address, or the padding after it.
    pub fn number_at(&self, at: u64) -> Option<FunctionNumber> {
        let next = self.functions.partition_point(|function| function.start <= at);
        let number = next.checked_sub(1)?;
        let is_inside = self.functions.get(number)?.end > at;
        is_inside.then_some(FunctionNumber(number as u32))
    }

    /// Returns all functions, in address order.
    pub fn numbers(&self) -> impl Iterator<Item = FunctionNumber> + use<> {
        (0..self.functions.len() as u32).map(FunctionNumber)
    }

    /// Returns the functions in `wanted`, in address order.
    pub fn numbers_in(&self, wanted: &Range<u64>) -> impl Iterator<Item = FunctionNumber> + use<> {
        let first = self
            .functions
            .partition_point(|function| function.end <= wanted.start);
        let end = self
            .functions
            .partition_point(|function| function.start < wanted.end);
        (first as u32..end as u32).map(FunctionNumber)
    }

    /// Returns the addresses of a function, with the padding after it.
    pub fn extent(&self, number: FunctionNumber) -> Option<Range<u64>> {
        let listed = self.functions.get(number.0 as usize)?;
        Some(listed.start..listed.end)
    }

    /// Returns a function, and caches its code.
    pub fn function(&self, number: FunctionNumber) -> Option<GoFunction> {
        let listed = self.functions.get(number.0 as usize)?;
        let record = Record::read(&self.header, listed.record)?;
        let name = self.name(record.name)?;
        let mut cache = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = cache.layouts.get(&number.0).cloned() {
            let start = listed.start;
            return Some(GoFunction { start, name, layout });
        }
        drop(cache);
        let function = self.read(listed, &record, name);
        cache = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        cache.weight += function.layout.weight();
        if cache.weight > CACHED {
            cache.layouts.clear();
            cache.weight = function.layout.weight();
        }
        cache.layouts.insert(number.0, Arc::clone(&function.layout));
        Some(function)
    }

    /// Reads a function without caching its code, as for a pass over all functions.
    pub fn read_function(&self, number: FunctionNumber) -> Option<GoFunction> {
        let listed = self.functions.get(number.0 as usize)?;
        let record = Record::read(&self.header, listed.record)?;
        let name = self.name(record.name)?;
        Some(self.read(listed, &record, name))
    }

    fn read(&self, listed: &Listed, record: &Record, name: Name) -> GoFunction {
        let calls = self.function_data.zip(record.inlined_calls);
        let calls = calls.and_then(|(base, offset)| self.image.from(base.checked_add(offset)?));
        let limit = u32::try_from(listed.end - listed.start).unwrap_or(u32::MAX);
        GoFunction {
            start: listed.start,
            name,
            layout: Arc::new(Layout::read(&self.header, record, calls, limit)),
        }
    }

    /// Returns the entry and the name of a function.
    pub fn entry_and_name(&self, number: FunctionNumber) -> Option<(u64, Name)> {
        let listed = self.functions.get(number.0 as usize)?;
        let record = Record::read(&self.header, listed.record)?;
        Some((listed.start, self.name(record.name)?))
    }

    /// Returns the starts of the functions called `name`, in address order.
    pub fn starts_named(&self, name: &str) -> Vec<u64> {
        let query = names::Query::new(name);
        let all = self.numbers().filter_map(|number| self.entry_and_name(number));
        all.filter(|(_, name)| query.matches(name))
            .map(|(start, _)| start)
            .collect()
    }

    /// Returns a name by its offset.
    pub fn name(&self, offset: u32) -> Option<Name> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || string_at(self.header.names, offset).filter(|name| !name.is_empty());
        names
            .entry(offset)
            .or_insert_with(|| read().map(Name::of))
            .clone()
    }

    /// Returns a path by its offset.
    pub fn path(&self, offset: u32) -> Option<Arc<str>> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || string_at(self.header.paths, offset).filter(|path| !path.is_empty());
        let shared = |path: &[u8]| String::from_utf8_lossy(path).into();
        paths.entry(offset).or_insert_with(|| read().map(shared)).clone()
    }

    /// Returns the path and the line of a place. `None`: the table lacks the path or the line.
    pub fn resolve(&self, place: Place) -> Option<(Arc<str>, u32)> {
        (place.line != 0).then_some((self.path(place.file)?, place.line))
    }

    /// Returns the paths of all source files, in the order of the table.
    pub fn source_files(&self) -> Vec<Arc<str>> {
        let mut offset = 0u32;
        let mut files = Vec::new();
        while files.len() < self.header.files {
            let Some(path) = string_at(self.header.paths, offset) else {
                break;
            };
            files.extend(self.path(offset));
            offset = offset.saturating_add(path.len() as u32 + 1);
        }
        files
    }

    /// Returns whether no function has a name.
    pub fn is_empty(&self) -> bool {
        let mut numbers = self.numbers();
        !numbers.any(|number| self.entry_and_name(number).is_some())
    }
}

/// Returns the addresses of the table, and its header.
fn find_table<'d>(elf: &Elf<'d>) -> Option<(Range<u64>, Header<'d>)> {
    let section = |name| {
        let section = elf.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let extent = |start: u64, bytes: &[u8]| start..start.saturating_add(bytes.len() as u64);
    for (start, bytes) in SECTIONS.into_iter().filter_map(section) {
        if let Some(header) = Header::read(bytes) {
            return Some((extent(start, bytes), header));
        }
    }
    let (start, bytes) = section(MERGED)?;
    let first = usize::try_from(start.wrapping_neg() % ALIGNMENT).ok()?;
    let offsets = (first..bytes.len()).step_by(ALIGNMENT as usize);
    let mut tables = offsets.filter_map(|offset| {
        let table = bytes.get(offset..)?;
        Some((
            extent(start.checked_add(offset as u64)?, table),
            Header::read(table)?,
        ))
    });
    tables.find(|(_, header)| header.functions != 0)
}

/// Reads the list of functions: pairs of an entry and the offset of a record, in address order,
/// and the end of the last function.
fn list_functions(
    header: &Header<'_>,
    text: u64,
    file_size: usize,
    code: &CodeRanges,
) -> Option<Vec<Listed>> {
    let size = if header.format == Format::Go116 { 8 } else { 4 };
    let number_at = |number: usize| {
        let at = number.checked_mul(size)?;
        match header.format {
            Format::Go116 => u64_at(header.records, at),
            Format::Go118 | Format::Go120 => u32_at(header.records, at).map(u64::from),
        }
    };
    let entry = |function: usize| text.checked_add(number_at(function.checked_mul(2)?)?);
    // The end mark is read first, so that the number of functions is no more than the table has.
    let end = entry(header.functions)?;
    let mut start = entry(0)?;
    if end.checked_sub(start)? > file_size as u64 {
        return None;
    }
    let mut functions = Vec::with_capacity(header.functions);
    for number in 0..header.functions {
        let next = entry(number + 1)?;
        if next < start {
            return None;
        }
        let record = u32::try_from(number_at(2 * number + 1)?).ok()?;
        if let Some(section) = code.around(start).filter(|_| start != next) {
            let end = next.min(section.end);
            functions.push(Listed { start, end, record });
        }
        start = next;
    }
    (!functions.is_empty()).then_some(functions)
}
