//! Converts the code of a group to GSYM functions and records of types.

use crate::sidecar::FunctionTypes;
use backtrail_symbolizer::{CodePart, CodeParts, FileNumber, InlinedPart, demangled};
use gsym::{AddressRange, FileIndex, Function, InlineNode, LineEntry};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

use backtrail_pt::Svma;

/// The most rows and the most inlined copies of a part. Genuine functions have a fraction of that.
const MAX_ROWS: usize = 1 << 20;
const MAX_INLINED: usize = 1 << 18;

/// The functions of a group.
#[derive(Debug, Default)]
pub struct GroupRecords {
    /// The used source files. The number of a file is its position, from 1.
    pub files: Vec<Arc<str>>,
    /// The functions, with these numbers of files.
    pub functions: Vec<Function>,
    /// The types of the functions, in the same order.
    pub types: Vec<FunctionTypes>,
}

/// Converts the parts of a group.
pub fn group_records(group: CodeParts) -> GroupRecords {
    let mut names = StoredNames::default();
    let mut files = UsedFiles {
        all: &group.files,
        numbers: FxHashMap::default(),
        used: Vec::new(),
    };
    let mut records = GroupRecords::default();
    for part in &group.parts {
        let size = part.range.end.0.saturating_sub(part.range.start.0);
        let name = match &*part.linkage_name {
            "" => &part.function,
            _ => &part.linkage_name,
        };
        if name.is_empty() || size == 0 || u32::try_from(size).is_err() {
            continue;
        }
        let readable = &part.function;
        let (root, signatures) = inline_tree(part, name, &mut names, &mut files);
        records.functions.push(Function {
            lines: lines(part, &mut files),
            inline: root,
            ..Function::new(range(&part.range), name.as_bytes())
        });
        records.types.push(FunctionTypes {
            start: part.range.start.0,
            language: group.language,
            // The reader demangles the name of the GSYM.
            readable: (names.demangled(name) != readable).then(|| readable.clone()),
            signature: part.signature.clone(),
            inlined: signatures,
        });
    }
    records.files = files.used;
    records
}

fn range(range: &Range<Svma>) -> AddressRange {
    AddressRange::new(range.start.0, range.end.0)
}

fn lines(part: &CodePart, files: &mut UsedFiles<'_>) -> Vec<LineEntry> {
    if part.rows.iter().all(|row| row.file.is_none()) {
        return Vec::new();
    }
    let mut lines: Vec<LineEntry> = Vec::with_capacity(part.rows.len().min(MAX_ROWS));
    for row in part.rows.iter().take(MAX_ROWS) {
        let line = if row.file.is_some() { row.line } else { 0 };
        let entry = LineEntry::new(row.address.0, files.number(row.file), line);
        let same = |last: &LineEntry| (last.file, last.line) == (entry.file, entry.line);
        if !lines.last().is_some_and(same) {
            lines.push(entry);
        }
    }
    lines
}

/// Builds the tree of inlined copies below the function. Lists the types of the copies in the order
/// of the tree, from the root down.
fn inline_tree(
    part: &CodePart,
    function: &str,
    names: &mut StoredNames,
    files: &mut UsedFiles<'_>,
) -> (
    Option<InlineNode>,
    Vec<Option<Arc<backtrail_symbolizer::Signature>>>,
) {
    let count = part.inlined.len().min(MAX_INLINED);
    if count == 0 {
        return (None, Vec::new());
    }
    let inlined = part.inlined.get(..count).unwrap_or_default();
    let tree = Tree::new(inlined);
    let mut signatures = Vec::with_capacity(count);
    let root = InlineNode {
        ranges: vec![range(&part.range)],
        name: function.into(),
        children: tree.nodes(tree.outermost, names, files, &mut signatures),
        ..InlineNode::default()
    };
    (Some(root), signatures)
}

/// The inlined copies of a part, in lists of those directly in the same one.
struct Tree<'a> {
    inlined: &'a [InlinedPart],
    /// The first copy that is inlined into the function.
    outermost: Option<usize>,
    /// For each copy: the first one directly in it, and the next one beside it.
    links: Vec<(Option<usize>, Option<usize>)>,
}

impl<'a> Tree<'a> {
    fn new(inlined: &'a [InlinedPart]) -> Self {
        let mut tree = Tree {
            inlined,
            outermost: None,
            links: vec![(None, None); inlined.len()],
        };
        // A list is extended at its front.
        for (number, copy) in inlined.iter().enumerate().rev() {
            let first = match copy.around.and_then(|around| tree.links.get_mut(around)) {
                Some((inside, _)) => inside.replace(number),
                None => tree.outermost.replace(number),
            };
            if let Some((_, beside)) = tree.links.get_mut(number) {
                *beside = first;
            }
        }
        tree
    }

    /// Builds the nodes of a list. The symbolizer bounds the depth.
    fn nodes(
        &self,
        first: Option<usize>,
        names: &mut StoredNames,
        files: &mut UsedFiles<'_>,
        signatures: &mut Vec<Option<Arc<backtrail_symbolizer::Signature>>>,
    ) -> Vec<InlineNode> {
        let beside = |number: &usize| self.links.get(*number)?.1;
        let list = || std::iter::successors(first, beside);
        let mut nodes = Vec::with_capacity(list().count());
        for number in list() {
            let Some(copy) = self.inlined.get(number) else {
                continue;
            };
            signatures.push(copy.signature.clone());
            let inside = self.links.get(number).and_then(|links| links.0);
            nodes.push(InlineNode {
                ranges: copy.ranges.iter().map(range).collect(),
                name: names
                    .stored(&copy.linkage_name, &copy.function)
                    .as_bytes()
                    .to_vec(),
                call_file: files.number(copy.call_file),
                call_line: copy.call_line,
                children: self.nodes(inside, names, files, signatures),
            });
        }
        nodes
    }
}

/// The demangled forms of the linkage names in a group.
#[derive(Default)]
struct StoredNames {
    known: FxHashMap<Arc<str>, Arc<str>>,
}

impl StoredNames {
    fn demangled(&mut self, linkage: &Arc<str>) -> &Arc<str> {
        self.known
            .entry(linkage.clone())
            .or_insert_with(|| demangled(linkage))
    }

    /// Returns the name of a copy in the GSYM: the linkage name, or the qualified name where the
    /// linkage name says less.
    fn stored<'a>(&mut self, linkage: &'a Arc<str>, readable: &'a Arc<str>) -> &'a str {
        match **self.demangled(linkage) == **readable && !linkage.is_empty() {
            true => linkage,
            false if readable.is_empty() => "??",
            false => readable,
        }
    }
}

/// Numbers the source files that are used, in the order of their use.
struct UsedFiles<'a> {
    all: &'a [Arc<str>],
    numbers: FxHashMap<FileNumber, FileIndex>,
    used: Vec<Arc<str>>,
}

impl UsedFiles<'_> {
    fn number(&mut self, file: Option<FileNumber>) -> FileIndex {
        let Some(file) = file else {
            return FileIndex::ZERO;
        };
        if let Some(known) = self.numbers.get(&file) {
            return *known;
        }
        let Some(path) = self.all.get(file.0 as usize) else {
            return FileIndex::ZERO;
        };
        self.used.push(path.clone());
        let number = FileIndex::new(u32::try_from(self.used.len()).unwrap_or(0));
        self.numbers.insert(file, number);
        number
    }
}
