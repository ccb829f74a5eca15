//! An open index: from positions to frames.

use crate::address_table::AddressTable;
use crate::byte_cache::ByteCache;
use crate::decoded::DecodedFunction;
use crate::error::Error;
use crate::frame::{Frames, Position};
use crate::names::Names;
use crate::sidecar::{Sidecar, TypesBlock};
use backtrail_pt::BuildId;
use backtrail_symbolizer::{FileBytes, Segment, SymbolDetail, demangled};
use gsym::{FileIndex, Gsym};
use std::sync::Arc;

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
    blocks: ByteCache<usize, Arc<TypesBlock>>,
    names: ByteCache<Box<[u8]>, SharedNames>,
    paths: ByteCache<u32, Option<Arc<str>>>,
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
            gsym,
            addresses,
            sidecar,
            functions: ByteCache::new(part * 5),
            blocks: ByteCache::new(part),
            names: ByteCache::new(part),
            paths: ByteCache::new(part),
        })
    }

    /// Checks both files completely. Do it once, after an index was made or copied.
    ///
    /// # Errors
    /// Fails if a checksum is wrong, or if a record is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        if !self.sidecar.is_intact() || crc32fast::hash(self.gsym.as_ref()) != self.sidecar.gsym_sum {
            return Err(Error::Damaged("a checksum is wrong"));
        }
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
        let function = self.address(position).map(|at| (at, self.function_at(at)));
        match function {
            Some((at, found)) => {
                Ok(found?.map_or_else(none, |function| function.frames(function.piece(at), self)))
            }
            None => Ok(none()),
        }
    }

    /// Returns the function at an address, decoded.
    pub(crate) fn function_at(&self, address: u64) -> Result<Option<Arc<DecodedFunction>>, Error> {
        let Some(number) = self.addresses.find(self.gsym.as_ref(), address) else {
            return Ok(None);
        };
        let function = match self.functions.get(&number) {
            Some(known) => known,
            None => self.decode(number)?,
        };
        Ok(function.contains(address).then_some(function))
    }

    fn decode(&self, number: usize) -> Result<Arc<DecodedFunction>, Error> {
        let reference = self.gsym.function(number).map_err(Error::Gsym)?;
        let function = reference.decode().map_err(Error::Gsym)?;
        let start = function.range.start;
        let block = match self.sidecar.block_of(start) {
            Some(block) => Some(self.types_block(block)?),
            None => None,
        };
        let types = block.as_ref().and_then(|block| block.function(start));
        let decoded = Arc::new(DecodedFunction::new(function, types));
        self.functions.insert(number, decoded.clone(), decoded.weight);
        Ok(decoded)
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
