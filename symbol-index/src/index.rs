//! An open index: from positions to frames.

use crate::address_table::AddressTable;
use crate::byte_cache::{ByteCache, FEW_SHARDS, MANY_SHARDS};
use crate::decoded::DecodedFunction;
use crate::error::Error;
use crate::frame::{Frame, Frames, FunctionInfo, Position};
use crate::names::Names;
use crate::scan::FunctionRecord;
use crate::sidecar::{BlockFunction, Sidecar, TypesBlock};
use backtrail_pt::BuildId;
use backtrail_symbolizer::{FileBytes, Segment, Signature, SymbolDetail, demangled};
use gsym::{FileIndex, Gsym};
use std::ops::Range;
use std::sync::Arc;

/// The fewest bytes in the record of a function that is scanned first.
const LARGE: usize = 1 << 10;
/// The most scans of a function before it is decoded.
const MAX_SCANS: u32 = 8;
/// The bytes of a decoded function for each byte of its record, at most.
const DECODED: usize = 4;

/// The options of opening an index.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The most bytes of decoded functions, types and names that are kept.
    pub cache_bytes: usize,
}

impl Default for OpenOptions {
    /// Keeps 64 MiB.
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
        }
    }
}

/// The demangled name, and the name itself.
type SharedNames = (Arc<str>, Arc<str>);

/// An open index.
///
/// Opening reads the headers only. A lookup checks what it reads, and [`Self::verify`] checks
/// everything. An index may be shared between threads.
pub struct Index {
    gsym: Gsym<SharedBytes>,
    addresses: AddressTable,
    sidecar: Sidecar,
    functions: ByteCache<usize, Arc<DecodedFunction>>,
    /// The number of scans of large functions.
    scans: ByteCache<usize, u32>,
    blocks: ByteCache<usize, Arc<TypesBlock>>,
    names: ByteCache<Box<[u8]>, SharedNames>,
    paths: ByteCache<u32, Option<Arc<str>>>,
}

/// A function of the index.
pub struct FoundFunction {
    /// Its number in the table of addresses.
    pub number: usize,
    pub range: Range<u64>,
    /// The decoded function, if the cache has it.
    decoded: Option<Arc<DecodedFunction>>,
}

/// The bytes of a GSYM.
struct SharedBytes(FileBytes);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Index {
    /// Opens an index from the contents of its two files.
    ///
    /// # Errors
    /// Fails if a header is damaged, or if the files belong to different indexes.
    pub fn open(gsym: FileBytes, types: FileBytes, options: &OpenOptions) -> Result<Self, Error> {
        let sidecar = Sidecar::open(types)?;
        let gsym = Gsym::parse(SharedBytes(gsym)).map_err(Error::Gsym)?;
        if gsym.as_ref().len() as u64 != sidecar.gsym_len {
            return Err(Error::Damaged("the sidecar belongs to another GSYM"));
        }
        let addresses = AddressTable::of(&gsym)?;
        let part = options.cache_bytes / 8;
        Ok(Self {
            scans: ByteCache::new(part / 8, MANY_SHARDS),
            gsym,
            addresses,
            sidecar,
            functions: ByteCache::new(part * 5, MANY_SHARDS),
            blocks: ByteCache::new(part, FEW_SHARDS),
            names: ByteCache::new(part, MANY_SHARDS),
            paths: ByteCache::new(part, MANY_SHARDS),
        })
    }

    /// Checks the checksums of both files.
    ///
    /// # Errors
    /// Fails if a checksum is wrong.
    pub fn check_sums(&self) -> Result<(), Error> {
        if !self.sidecar.is_intact() || crc32fast::hash(self.gsym.as_ref()) != self.sidecar.gsym_sum {
            return Err(Error::Damaged("a checksum is wrong"));
        }
        Ok(())
    }

    /// Checks both files completely. Do it once, after an index was made.
    ///
    /// # Errors
    /// Fails if a checksum is wrong, or if a record is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        self.check_sums()?;
        self.gsym.verify().map_err(Error::Gsym)?;
        (0..self.sidecar.blocks).try_for_each(|number| self.sidecar.block(number).map(drop))
    }

    /// Returns the build id, if the file had one.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::new(&self.sidecar.header.build_id)
    }

    /// Returns how much the file said about its code.
    #[must_use]
    pub fn detail(&self) -> SymbolDetail {
        self.sidecar.header.detail
    }

    /// Returns the segments that turn file offsets into addresses. A debug file without the code
    /// has empty ones.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.sidecar.header.segments
    }

    /// Returns the number of functions.
    #[must_use]
    pub fn functions(&self) -> u32 {
        self.gsym.header().address_count
    }

    /// Returns the stated address of a position. `None`: the byte is not loaded.
    #[must_use]
    pub fn address(&self, position: Position) -> Option<u64> {
        let offset = match position {
            Position::Address(address) => return Some(address.0),
            Position::Offset(offset) => offset.0,
        };
        self.segments().iter().find_map(|segment| {
            let inside = offset.checked_sub(segment.offset)?;
            (inside < segment.size).then(|| segment.address.wrapping_add(inside))
        })
    }

    /// Returns the frames at a position.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub fn lookup(&self, position: Position) -> Result<Frames, Error> {
        let Some(address) = self.address(position) else {
            return Ok(none());
        };
        let Some(found) = self.function_at(address)? else {
            return Ok(none());
        };
        if self.is_to_scan(&found, 1) {
            return self.scan(found.number, address);
        }
        let function = self.decoded(found)?;
        Ok(function.frames(function.piece(address), self))
    }

    /// Returns the function that contains an address.
    pub(crate) fn function_at(&self, address: u64) -> Result<Option<FoundFunction>, Error> {
        let Some(number) = self.addresses.find(self.gsym.as_ref(), address) else {
            return Ok(None);
        };
        let decoded = self.functions.get(&number);
        let range = match &decoded {
            Some(decoded) => decoded.range(),
            None => self.range(number)?,
        };
        let found = FoundFunction {
            number,
            range,
            decoded,
        };
        Ok(found.range.contains(&address).then_some(found))
    }

    fn range(&self, number: usize) -> Result<Range<u64>, Error> {
        let range = self.gsym.function(number).map_err(Error::Gsym)?.range();
        Ok(range.start..range.end)
    }

    /// Returns the decoded function.
    pub(crate) fn decoded(&self, found: FoundFunction) -> Result<Arc<DecodedFunction>, Error> {
        if let Some(known) = found.decoded {
            return Ok(known);
        }
        let number = found.number;
        let reference = self.gsym.function(number).map_err(Error::Gsym)?;
        let block = self.types_of(reference.start())?;
        let types = block.as_ref().and_then(|block| block.function(reference.start()));
        let function = reference.decode().map_err(Error::Gsym)?;
        let decoded = Arc::new(DecodedFunction::new(function, types));
        self.functions.insert(number, decoded.clone(), decoded.weight);
        Ok(decoded)
    }

    /// Returns whether to scan a function for each of `addresses`, and counts the scans.
    ///
    /// Decoding a large function pays when many of its addresses are looked up, and the cache keeps
    /// the decoded function.
    pub(crate) fn is_to_scan(&self, found: &FoundFunction, addresses: usize) -> bool {
        let addresses = u32::try_from(addresses).unwrap_or(u32::MAX);
        if addresses > MAX_SCANS || found.decoded.is_some() {
            return false;
        }
        let number = found.number;
        let length = self.record(number).map_or(0, |record| record.len());
        if !self.functions.keeps(length.saturating_mul(DECODED)) {
            return true;
        }
        if length < LARGE {
            return false;
        }
        let scans = self.scans.get(&number).unwrap_or(0).saturating_add(addresses);
        self.scans.insert(number, scans, 32);
        scans <= MAX_SCANS
    }

    /// Returns the frames of an address in a function that is not decoded for it.
    pub(crate) fn scan(&self, number: usize, address: u64) -> Result<Frames, Error> {
        let damaged = || Error::Damaged("the record of a function cannot be read");
        let function = self.gsym.function(number).map_err(Error::Gsym)?;
        let record = self.record(number).ok_or_else(damaged)?;
        let found = record.scan(function.start(), address).ok_or_else(damaged)?;
        let block = self.types_of(function.start())?;
        let types = block.as_ref().and_then(|block| block.function(function.start()));
        let numbers: Vec<usize> = found.calls.iter().map(|call| call.number).collect();
        let signatures = types
            .filter(|types| types.inlined_count() == found.call_count)
            .map_or_else(Vec::new, |types| types.inlined_at(&numbers));
        let info = |name: &[u8], readable: Option<Arc<str>>, signature: Option<Arc<Signature>>| {
            let (name, linkage_name) = self.name(name);
            Arc::new(FunctionInfo {
                name: readable.unwrap_or(name),
                linkage_name,
                signature,
                language: types.and_then(|types| types.language()),
            })
        };
        let (mut file, mut line) = (found.file, found.line);
        let mut frame = |function, inlined, (call_file, call_line)| {
            let path = self.path(file);
            let line_of_path = if path.is_some() { line } else { 0 };
            (file, line) = (call_file, call_line);
            Frame {
                function,
                file: path,
                line: line_of_path,
                inlined,
            }
        };
        let mut frames = Vec::with_capacity(found.calls.len() + 1);
        for (at, call) in found.calls.iter().enumerate().rev() {
            let name = self.gsym.string(u64::from(call.name)).map_err(Error::Gsym)?;
            let signature = signatures.get(at).cloned().flatten();
            let function = info(name, None, signature);
            frames.push(frame(function, true, (call.call_file, call.call_line)));
        }
        let outer = info(
            function.name(),
            types.and_then(|types: BlockFunction<'_>| types.readable()),
            types.and_then(|types| types.signature()),
        );
        frames.push(frame(outer, false, (FileIndex::ZERO, 0)));
        Ok(frames.into())
    }

    fn record(&self, number: usize) -> Option<FunctionRecord<'_>> {
        FunctionRecord::read(self.addresses.record(self.gsym.as_ref(), number)?)
    }

    /// Returns the block with the types of the function that starts at an address.
    fn types_of(&self, start: u64) -> Result<Option<Arc<TypesBlock>>, Error> {
        let block = self.sidecar.block_of(start);
        block.map(|block| self.types_block(block)).transpose()
    }

    fn types_block(&self, number: usize) -> Result<Arc<TypesBlock>, Error> {
        if let Some(known) = self.blocks.get(&number) {
            return Ok(known);
        }
        let block = Arc::new(self.sidecar.block(number)?);
        self.blocks.insert(number, block.clone(), block.weight);
        Ok(block)
    }
}

/// Returns the frames of a position without a function.
pub fn none() -> Frames {
    Arc::new([])
}

impl Names for Index {
    fn name(&self, bytes: &[u8]) -> (Arc<str>, Arc<str>) {
        if let Some(known) = self.names.get(bytes) {
            return known;
        }
        let linkage: Arc<str> = String::from_utf8_lossy(bytes).into();
        let function = demangled(&linkage);
        let function = if function == linkage {
            linkage.clone()
        } else {
            function
        };
        let weight = 2 * bytes.len() + function.len() + 128;
        let names = (function, linkage);
        self.names.insert(bytes.into(), names.clone(), weight);
        names
    }

    fn path(&self, file: FileIndex) -> Option<Arc<str>> {
        if file == FileIndex::ZERO {
            return None;
        }
        if let Some(known) = self.paths.get(&file.get()) {
            return known;
        }
        let (directory, name) = self.gsym.file(file).ok()?;
        let (directory, name) = (String::from_utf8_lossy(directory), String::from_utf8_lossy(name));
        let path: Option<Arc<str>> = match (&*directory, &*name) {
            ("", "") => None,
            ("", name) => Some(name.into()),
            ("/", name) => Some(format!("/{name}").into()),
            (directory, name) => Some(format!("{directory}/{name}").into()),
        };
        let weight = path.as_ref().map_or(0, |path| path.len()) + 64;
        self.paths.insert(file.get(), path.clone(), weight);
        path
    }
}
