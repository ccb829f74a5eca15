//! Containers of Rust's standard library: how many elements they have, and where those are.

use super::context::EvalContext;
use super::members::{self, address, number, path};
use super::types::{RecordShape, Shape, Ty};
use super::value::{Unavailable, Value};

/// A container of elements.
pub enum RustContainer {
    /// Bytes of UTF-8.
    Text(RustSlice),
    /// One after the other in memory.
    Slice(RustSlice),
    /// The same, in a ring.
    Deque(RustDeque),
    /// Keys, with values or without.
    HashTable(RustHashTable),
}

/// A slice, or what a vector holds.
pub struct RustSlice {
    element: Ty,
    at: u64,
    pub count: u64,
}

/// A `VecDeque`.
pub struct RustDeque {
    row: RustSlice,
    head: u64,
    pub count: u64,
}

/// A map or a set.
pub struct RustHashTable {
    pub count: u64,
    kind: TableKind,
}

enum TableKind {
    /// A `hashbrown` table: the slots precede the control bytes in reverse order.
    Hash { pair: Ty, mask: u64, control: u64 },
    /// A B-tree.
    Tree {
        /// The leaf that the root is, or begins with.
        leaf: Ty,
        root: u64,
        height: u64,
    },
}

impl RustContainer {
    /// Returns the container that a record is; `None` if it is not one, or its layout is unknown.
    pub fn of(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let name = record.name();
        let is =
            |path: &str| name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('<'));
        let hashed = |to: &[&str]| Some(Self::HashTable(RustHashTable::hashed(context, value, to)?));
        let sorted = |to: &[&str]| Some(Self::HashTable(RustHashTable::sorted(context, value, to)?));
        if matches!(name, "&str" | "&mut str" | "*const str" | "*mut str") {
            return Some(Self::Text(slice(context, value)?));
        }
        if ["&[", "&mut [", "*const [", "*mut ["]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            return Some(Self::Slice(slice(context, value)?));
        }
        if is("alloc::string::String") {
            let inner = path(context, value, &["vec"])?;
            return Some(Self::Text(vector(context, &inner)?));
        }
        // A path is in them as bytes.
        if is("std::ffi::os_str::OsString") {
            let inner = path(context, value, &["inner", "inner"])?;
            return Some(Self::Text(vector(context, &inner)?));
        }
        if is("std::path::PathBuf") {
            let inner = path(context, value, &["inner", "inner", "inner"])?;
            return Some(Self::Text(vector(context, &inner)?));
        }
        if is("alloc::vec::Vec") {
            return Some(Self::Slice(vector(context, value)?));
        }
        if is("alloc::collections::vec_deque::VecDeque") {
            return Some(Self::Deque(RustDeque::of(context, value, record)?));
        }
        if is("std::collections::hash::map::HashMap") {
            return hashed(&["base", "table"]);
        }
        if is("std::collections::hash::set::HashSet") {
            return hashed(&["base", "map", "table"]);
        }
        if is("alloc::collections::btree::map::BTreeMap") {
            return sorted(&[]);
        }
        if is("alloc::collections::btree::set::BTreeSet") {
            return sorted(&["map"]);
        }
        None
    }

    /// The number of elements.
    pub fn count(&self) -> u64 {
        match self {
            Self::Text(row) | Self::Slice(row) => row.count,
            Self::Deque(deque) => deque.count,
            Self::HashTable(table) => table.count,
        }
    }
}

fn slice(context: &EvalContext<'_>, value: &Value) -> Option<RustSlice> {
    let pointer = path(context, value, &["data_ptr"])?;
    let Shape::Pointer(_, element) = pointer.ty.shape() else {
        return None;
    };
    Some(RustSlice {
        element,
        at: address(context, &pointer)?,
        count: u64::try_from(number(context, &path(context, value, &["length"])?)?).ok()?,
    })
}

/// The address in a `NonNull` or `Unique`, however deep.
fn held_address(context: &EvalContext<'_>, value: &Value) -> Option<u64> {
    address(context, &held_pointer(context, value)?)
}

fn held_pointer(context: &EvalContext<'_>, value: &Value) -> Option<Value> {
    let mut value = value.clone();
    for _ in 0..8 {
        match value.ty.shape() {
            Shape::Pointer(..) => return Some(value),
            Shape::Record(record) => {
                let members = &record.record().members;
                let inner = members
                    .iter()
                    .map(|member| members::value_of(context, &record, &value, member))
                    .find(|inner| inner.ty.size().is_some_and(|size| size >= 8))?;
                value = inner;
            }
            _ => return None,
        }
    }
    None
}

/// The buffer of a `RawVec`, of one and the other edition.
fn buffer(context: &EvalContext<'_>, value: &Value) -> Option<u64> {
    let pointer =
        path(context, value, &["buf", "inner", "ptr"]).or_else(|| path(context, value, &["buf", "ptr"]))?;
    held_address(context, &pointer)
}

fn vector(context: &EvalContext<'_>, value: &Value) -> Option<RustSlice> {
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    Some(RustSlice {
        element: record.argument(0)?,
        at: buffer(context, value)?,
        count: u64::try_from(number(context, &path(context, value, &["len"])?)?).ok()?,
    })
}

impl RustSlice {
    pub fn at(&self, number: u64) -> Value {
        let size = self.element.size().unwrap_or(0);
        Value::at(
            self.element.clone(),
            self.at.wrapping_add(number.wrapping_mul(size)),
        )
    }

    /// Its first bytes, of a text.
    pub fn bytes(&self, context: &EvalContext<'_>, count: u64) -> Option<Result<Vec<u8>, Unavailable>> {
        members::bytes_at(context, self.at, count.min(self.count))
    }
}

impl RustDeque {
    fn of(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let field = |names: &[&str]| u64::try_from(number(context, &path(context, value, names)?)?).ok();
        let (head, count) = (field(&["head"])?, field(&["len"])?);
        let capacity = field(&["buf", "inner", "cap", "__0"]).or_else(|| field(&["buf", "cap", "__0"]))?;
        if capacity == 0 && count > 0 {
            return None;
        }
        Some(Self {
            row: RustSlice {
                element: record.argument(0)?,
                at: buffer(context, value)?,
                count: capacity.max(1),
            },
            head,
            count,
        })
    }

    pub fn at(&self, number: u64) -> Value {
        self.row.at(self.head.wrapping_add(number) % self.row.count)
    }
}

impl RustHashTable {
    /// A larger table is not gone through.
    const MAX_SLOTS: u64 = 1 << 24;
    /// The limit of entries that are searched for a key.
    pub const MOST: usize = 1 << 17;

    fn hashed(context: &EvalContext<'_>, value: &Value, to: &[&str]) -> Option<Self> {
        let raw = path(context, value, to)?;
        let Shape::Record(record) = raw.ty.shape() else {
            return None;
        };
        let table = path(context, &raw, &["table"])?;
        let field = |name: &str| u64::try_from(number(context, &path(context, &table, &[name])?)?).ok();
        Some(Self {
            count: field("items")?,
            kind: TableKind::Hash {
                pair: record.argument(0)?,
                mask: field("bucket_mask")?,
                control: held_address(context, &path(context, &table, &["ctrl"])?)?,
            },
        })
    }

    /// A node of `alloc::collections::btree::node`. A leaf has `parent`, `keys`, `vals`,
    /// `parent_idx` and `len`. An inner node is a leaf followed by the addresses of its children.
    fn sorted(context: &EvalContext<'_>, value: &Value, to: &[&str]) -> Option<Self> {
        let map = path(context, value, to)?;
        let count = u64::try_from(number(context, &path(context, &map, &["length"])?)?).ok()?;
        let root = path(context, &map, &["root"])?;
        let Shape::Record(record) = root.ty.shape() else {
            return None;
        };
        // An empty map may have no root.
        let form = members::active(context, &record, &root).ok()??;
        let node = path(context, &form, &["__0"]).filter(|_| count > 0);
        let Some(node) = node else {
            return (count == 0).then_some(Self {
                count,
                kind: TableKind::Tree {
                    leaf: Ty::Void,
                    root: 0,
                    height: 0,
                },
            });
        };
        let pointer = held_pointer(context, &path(context, &node, &["node"])?)?;
        let Shape::Pointer(_, leaf) = pointer.ty.shape() else {
            return None;
        };
        Some(Self {
            count,
            kind: TableKind::Tree {
                leaf,
                root: address(context, &pointer)?,
                height: u64::try_from(number(context, &path(context, &node, &["height"])?)?).ok()?,
            },
        })
    }

    /// The first keys with their values, of a set with nothing; `None`: they do not hang together
    /// as they should.
    pub fn entries(&self, context: &EvalContext<'_>, most: usize) -> Option<Vec<(Value, Value)>> {
        match &self.kind {
            TableKind::Hash { pair, mask, control } => {
                if *mask >= Self::MAX_SLOTS {
                    return None;
                }
                let mut controls = vec![0; usize::try_from(*mask).ok()? + 1];
                context.source.memory(*control, &mut controls).ok()?;
                let size = pair.size()?;
                let taken = (1u64..).zip(&controls).filter(|(_, byte)| **byte < 0x80);
                let entry = |slot: u64| {
                    let pair = Value::at(pair.clone(), control.wrapping_sub(slot.wrapping_mul(size)));
                    Some((
                        path(context, &pair, &["__0"])?,
                        path(context, &pair, &["__1"]).unwrap_or_else(|| Value::number(Ty::Void, 0)),
                    ))
                };
                taken.map(|(slot, _)| entry(slot)).take(most).collect()
            }
            TableKind::Tree { leaf, root, height } => {
                let mut entries = Vec::new();
                if self.count > 0 {
                    sorted(context, leaf, *root, *height, most, &mut entries)?;
                }
                Some(entries)
            }
        }
    }
}

/// The entries of a node of a B-tree and of those below it.
fn sorted(
    context: &EvalContext<'_>,
    leaf: &Ty,
    at: u64,
    height: u64,
    most: usize,
    entries: &mut Vec<(Value, Value)>,
) -> Option<()> {
    /// Higher than any that fits into memory.
    const MAX_HEIGHT: u64 = 32;
    /// Keys of a node at most.
    const CAPACITY: i128 = 11;
    let node = Value::at(leaf.clone(), at);
    let len = number(context, &path(context, &node, &["len"])?)?;
    if height > MAX_HEIGHT || !(0..=CAPACITY).contains(&len) {
        return None;
    }
    let edges = at.wrapping_add(leaf.size()?.checked_next_multiple_of(8)?);
    let below = |number: u64, entries: &mut Vec<(Value, Value)>| {
        let mut edge = [0; 8];
        let from = edges.wrapping_add(8 * number);
        context.source.memory(from, &mut edge).ok()?;
        sorted(context, leaf, u64::from_le_bytes(edge), height - 1, most, entries)
    };
    for number in 0..len as u64 {
        if height > 0 {
            below(number, entries)?;
        }
        if entries.len() >= most {
            return Some(());
        }
        let held = |name: &str| {
            let slots = path(context, &node, &[name])?;
            let slot = context.index(&slots, i128::from(number)).ok()?;
            initialized(&slot)
        };
        entries.push((held("keys")?, held("vals")?));
    }
    if height > 0 {
        below(len as u64, entries)?;
    }
    Some(())
}

/// Returns the value of an initialized `MaybeUninit`.
fn initialized(slot: &Value) -> Option<Value> {
    let Shape::Record(record) = slot.ty.shape() else {
        return None;
    };
    Some(slot.part(record.argument(0)?, 0))
}
