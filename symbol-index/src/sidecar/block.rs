//! An inflated block of a sidecar: the types of consecutive functions.

use super::format::language_of;
use crate::varint::Bytes;
use backtrail_symbolizer::Signature;
use backtrail_symbolizer::types::Language;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The types of consecutive functions. All references in it are valid.
///
/// Strings and signatures are made when a function needs them, because a lookup needs few of them.
pub struct TypesBlock {
    bytes: Vec<u8>,
    texts: Vec<(Range<u32>, OnceLock<Arc<str>>)>,
    /// The positions of the signatures, which are made once.
    signatures: Vec<(u32, OnceLock<Arc<Signature>>)>,
    /// The functions, in address order.
    functions: Vec<Row>,
    /// An estimate of the memory in bytes.
    pub weight: usize,
}

/// A function in the block.
struct Row {
    start: u64,
    language: Option<Language>,
    /// References: 0, or one more than the index.
    readable: u64,
    signature: u64,
    /// The number of inlined copies, and the bytes with a reference for each.
    inlined: usize,
    references: Range<u32>,
}

/// The part of a block about one function.
#[derive(Clone, Copy)]
pub struct BlockFunction<'a> {
    block: &'a TypesBlock,
    row: &'a Row,
}

impl TypesBlock {
    /// Reads the strings, signatures and functions of an inflated block. The first function starts
    /// at `first` or later. Returns `None` if a part is cut or refers to nothing.
    pub fn read(bytes: Vec<u8>, first: u64, count: usize) -> Option<Self> {
        let mut rest = Bytes(&bytes);
        let at = |rest: &Bytes<'_>| u32::try_from(bytes.len() - rest.0.len()).ok();
        let mut texts = Vec::new();
        for _ in 0..rest.count()? {
            let length = rest.count()?;
            let start = at(&rest)?;
            std::str::from_utf8(rest.bytes(length)?).ok()?;
            texts.push((start..at(&rest)?, OnceLock::new()));
        }
        let mut signatures = Vec::new();
        for _ in 0..rest.count()? {
            signatures.push((at(&rest)?, OnceLock::new()));
            for _ in 0..2 {
                known(rest.number()?, texts.len())?;
            }
            for _ in 0..rest.count()? {
                known(rest.number()?.checked_add(1)?, texts.len())?;
            }
        }
        let mut functions = Vec::with_capacity(count);
        let mut start = first;
        for _ in 0..count {
            start = start.checked_add(rest.number()?)?;
            let language = language_of(rest.number()?);
            let readable = known(rest.number()?, texts.len())?;
            let signature = known(rest.number()?, signatures.len())?;
            let inlined = rest.count()?;
            let begin = at(&rest)?;
            for _ in 0..inlined {
                known(rest.number()?, signatures.len())?;
            }
            functions.push(Row {
                start,
                language,
                readable,
                signature,
                inlined,
                references: begin..at(&rest)?,
            });
        }
        if !rest.0.is_empty() {
            return None;
        }
        // Each string and signature is counted as if it were made.
        let weight = 2 * bytes.len() + 64 * (texts.len() + signatures.len() + functions.len()) + 256;
        Some(Self {
            texts,
            signatures,
            functions,
            weight,
            bytes,
        })
    }

    /// Returns the function that starts at an address.
    pub fn function(&self, start: u64) -> Option<BlockFunction<'_>> {
        let found = self
            .functions
            .binary_search_by_key(&start, |function| function.start);
        let row = self.functions.get(found.ok()?)?;
        Some(BlockFunction { block: self, row })
    }

    fn text(&self, reference: u64) -> Option<Arc<str>> {
        let (range, text) = self.texts.get(index(reference)?)?;
        let bytes = || self.bytes.get(range.start as usize..range.end as usize);
        let read = || {
            std::str::from_utf8(bytes().unwrap_or_default())
                .unwrap_or_default()
                .into()
        };
        Some(text.get_or_init(read).clone())
    }

    fn signature(&self, reference: u64) -> Option<Arc<Signature>> {
        let (position, signature) = self.signatures.get(index(reference)?)?;
        if let Some(known) = signature.get() {
            return Some(known.clone());
        }
        let mut rest = Bytes(self.bytes.get(*position as usize..)?);
        let this = self.text(rest.number()?);
        let result = self.text(rest.number()?);
        let parameters = (0..rest.count()?)
            .map(|_| self.text(rest.number()?.checked_add(1)?))
            .collect::<Option<_>>()?;
        let made = Arc::new(Signature {
            this,
            parameters,
            result,
        });
        Some(signature.get_or_init(|| made).clone())
    }
}

impl BlockFunction<'_> {
    /// Returns the source language, if known.
    pub fn language(&self) -> Option<Language> {
        self.row.language
    }

    /// Returns the demangled name, if it does not follow from the name in the GSYM.
    pub fn readable(&self) -> Option<Arc<str>> {
        self.block.text(self.row.readable)
    }

    /// Returns the types in the declaration.
    pub fn signature(&self) -> Option<Arc<Signature>> {
        self.block.signature(self.row.signature)
    }

    /// Returns the number of inlined copies.
    pub fn inlined_count(&self) -> usize {
        self.row.inlined
    }

    /// Returns the types of each inlined copy, in the order of the inline tree.
    pub fn inlined(&self) -> impl Iterator<Item = Option<Arc<Signature>>> {
        self.references().map(|reference| self.block.signature(reference))
    }

    /// Returns the types of inlined copies. Their numbers in the tree, from 0, ascend.
    pub fn inlined_at(&self, numbers: &[usize]) -> Vec<Option<Arc<Signature>>> {
        let mut references = self.references();
        let mut passed = 0;
        let mut signature = |number: usize| {
            let reference = references.nth(number.checked_sub(passed)?)?;
            passed = number + 1;
            self.block.signature(reference)
        };
        numbers.iter().map(|number| signature(*number)).collect()
    }

    fn references(&self) -> impl Iterator<Item = u64> {
        let range = self.row.references.start as usize..self.row.references.end as usize;
        let mut rest = Bytes(self.block.bytes.get(range).unwrap_or_default());
        std::iter::from_fn(move || rest.number())
    }
}

/// Returns a reference, if it is that of one of `count` items, or 0.
fn known(reference: u64, count: usize) -> Option<u64> {
    (reference <= count as u64).then_some(reference)
}

/// Returns the index that a reference means.
fn index(reference: u64) -> Option<usize> {
    usize::try_from(reference.checked_sub(1)?).ok()
}
