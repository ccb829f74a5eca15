//! Containers of Rust's standard library: how many elements they have, and where those are.

use super::members::{self, address, number, path};
use super::scene::Scene;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Gap, Value};

/// What holds elements.
pub enum Container {
    /// Bytes of UTF-8.
    Text(Row),
    /// One after the other in memory.
    Row(Row),
    /// The same, in a ring.
    Deque(Deque),
    /// Keys, with values or without.
    Table(Table),
}

/// A slice, or what a vector holds.
pub struct Row {
    element: Ty,
    at: u64,
    pub count: u64,
}

/// A `VecDeque`.
pub struct Deque {
    row: Row,
    head: u64,
    pub count: u64,
}

/// A map or a set.
pub struct Table {
    pub count: u64,
    kind: Kind,
}

enum Kind {
    /// Of `hashbrown`: the slots stand before the control bytes, the first one last.
    Hash { pair: Ty, mask: u64, control: u64 },
    /// Of B-trees.
    Tree {
        /// The leaf that the root is, or begins with.
        leaf: Ty,
        root: u64,
        height: u64,
    },
}

impl Container {
    /// What a value of a record holds; `None`: it is no container, or its insides are not as they are known.
    pub fn of(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let name = record.name();
        let is =
            |path: &str| name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('<'));
        let hashed = |to: &[&str]| Some(Self::Table(Table::hashed(scene, value, to)?));
        let sorted = |to: &[&str]| Some(Self::Table(Table::sorted(scene, value, to)?));
        if matches!(name, "&str" | "&mut str" | "*const str" | "*mut str") {
            return Some(Self::Text(slice(scene, value)?));
        }
        if ["&[", "&mut [", "*const [", "*mut ["]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            return Some(Self::Row(slice(scene, value)?));
        }
        if is("alloc::string::String") {
            let inner = path(scene, value, &["vec"])?;
            return Some(Self::Text(vector(scene, &inner)?));
        }
        // A path is in them as bytes.
        if is("std::ffi::os_str::OsString") {
            let inner = path(scene, value, &["inner", "inner"])?;
            return Some(Self::Text(vector(scene, &inner)?));
        }
        if is("std::path::PathBuf") {
            let inner = path(scene, value, &["inner", "inner", "inner"])?;
            return Some(Self::Text(vector(scene, &inner)?));
        }
        if is("alloc::vec::Vec") {
            return Some(Self::Row(vector(scene, value)?));
        }
        if is("alloc::collections::vec_deque::VecDeque") {
            return Some(Self::Deque(Deque::of(scene, value, record)?));
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

    /// How many elements it has.
    pub fn count(&self) -> u64 {
        match self {
            Self::Text(row) | Self::Row(row) => row.count,
            Self::Deque(deque) => deque.count,
            Self::Table(table) => table.count,
        }
    }
}

fn slice(scene: &Scene<'_>, value: &Value) -> Option<Row> {
    let pointer = path(scene, value, &["data_ptr"])?;
    let Shape::Pointer(_, element) = pointer.ty.shape() else {
        return None;
    };
    Some(Row {
        element,
        at: address(scene, &pointer)?,
        count: u64::try_from(number(scene, &path(scene, value, &["length"])?)?).ok()?,
    })
}

/// The address in a `NonNull` or `Unique`, however deep.
fn held_address(scene: &Scene<'_>, value: &Value) -> Option<u64> {
    address(scene, &held_pointer(scene, value)?)
}

fn held_pointer(scene: &Scene<'_>, value: &Value) -> Option<Value> {
    let mut value = value.clone();
    for _ in 0..8 {
        match value.ty.shape() {
            Shape::Pointer(..) => return Some(value),
            Shape::Record(record) => {
                let members = &record.record().members;
                let inner = members
                    .iter()
                    .map(|member| members::value_of(scene, &record, &value, member))
                    .find(|inner| inner.ty.size().is_some_and(|size| size >= 8))?;
                value = inner;
            }
            _ => return None,
        }
    }
    None
}

/// The buffer of a `RawVec`, of one and the other edition.
fn buffer(scene: &Scene<'_>, value: &Value) -> Option<u64> {
    let pointer =
        path(scene, value, &["buf", "inner", "ptr"]).or_else(|| path(scene, value, &["buf", "ptr"]))?;
    held_address(scene, &pointer)
}

fn vector(scene: &Scene<'_>, value: &Value) -> Option<Row> {
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    Some(Row {
        element: record.argument(0)?,
        at: buffer(scene, value)?,
        count: u64::try_from(number(scene, &path(scene, value, &["len"])?)?).ok()?,
    })
}

impl Row {
    pub fn at(&self, number: u64) -> Value {
        let size = self.element.size().unwrap_or(0);
        Value::at(
            self.element.clone(),
            self.at.wrapping_add(number.wrapping_mul(size)),
        )
    }

    /// Its first bytes, of a text.
    pub fn bytes(&self, scene: &Scene<'_>, count: u64) -> Option<Result<Vec<u8>, Gap>> {
        let mut bytes = vec![0; usize::try_from(count.min(self.count)).ok()?];
        let read = scene.source.memory(self.at, &mut bytes);
        Some(read.map(|()| bytes).map_err(Into::into))
    }
}

impl Deque {
    fn of(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let field = |names: &[&str]| u64::try_from(number(scene, &path(scene, value, names)?)?).ok();
        let (head, count) = (field(&["head"])?, field(&["len"])?);
        let capacity = field(&["buf", "inner", "cap", "__0"]).or_else(|| field(&["buf", "cap", "__0"]))?;
        if capacity == 0 && count > 0 {
            return None;
        }
        Some(Self {
            row: Row {
                element: record.argument(0)?,
                at: buffer(scene, value)?,
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

impl Table {
    /// A larger table is not gone through.
    const MAX_SLOTS: u64 = 1 << 24;
    /// No more entries are looked at for a key.
    pub const MOST: usize = 1 << 17;

    fn hashed(scene: &Scene<'_>, value: &Value, to: &[&str]) -> Option<Self> {
        let raw = path(scene, value, to)?;
        let Shape::Record(record) = raw.ty.shape() else {
            return None;
        };
        let table = path(scene, &raw, &["table"])?;
        let field = |name: &str| u64::try_from(number(scene, &path(scene, &table, &[name])?)?).ok();
        Some(Self {
            count: field("items")?,
            kind: Kind::Hash {
                pair: record.argument(0)?,
                mask: field("bucket_mask")?,
                control: held_address(scene, &path(scene, &table, &["ctrl"])?)?,
            },
        })
    }

    /// `alloc::collections::btree::node`: a leaf has `parent`, `keys`, `vals`, `parent_idx` and `len`; an inner node is a leaf
    /// with the addresses of the nodes between its keys behind it.
    fn sorted(scene: &Scene<'_>, value: &Value, to: &[&str]) -> Option<Self> {
        let map = path(scene, value, to)?;
        let count = u64::try_from(number(scene, &path(scene, &map, &["length"])?)?).ok()?;
        let root = path(scene, &map, &["root"])?;
        let Shape::Record(record) = root.ty.shape() else {
            return None;
        };
        // An empty map may have no root.
        let form = members::active(scene, &record, &root).ok()??;
        let node = path(scene, &form, &["__0"]).filter(|_| count > 0);
        let Some(node) = node else {
            return (count == 0).then_some(Self {
                count,
                kind: Kind::Tree {
                    leaf: Ty::Void,
                    root: 0,
                    height: 0,
                },
            });
        };
        let pointer = held_pointer(scene, &path(scene, &node, &["node"])?)?;
        let Shape::Pointer(_, leaf) = pointer.ty.shape() else {
            return None;
        };
        Some(Self {
            count,
            kind: Kind::Tree {
                leaf,
                root: address(scene, &pointer)?,
                height: u64::try_from(number(scene, &path(scene, &node, &["height"])?)?).ok()?,
            },
        })
    }

    /// The first keys with their values, of a set with nothing; `None`: they do not hang together as they should.
    pub fn entries(&self, scene: &Scene<'_>, most: usize) -> Option<Vec<(Value, Value)>> {
        match &self.kind {
            Kind::Hash { pair, mask, control } => {
                if *mask >= Self::MAX_SLOTS {
                    return None;
                }
                let mut controls = vec![0; usize::try_from(*mask).ok()? + 1];
                scene.source.memory(*control, &mut controls).ok()?;
                let size = pair.size()?;
                let taken = (1u64..).zip(&controls).filter(|(_, byte)| **byte < 0x80);
                let entry = |slot: u64| {
                    let pair = Value::at(pair.clone(), control.wrapping_sub(slot.wrapping_mul(size)));
                    Some((
                        path(scene, &pair, &["__0"])?,
                        path(scene, &pair, &["__1"]).unwrap_or_else(|| Value::number(Ty::Void, 0)),
                    ))
                };
                taken.map(|(slot, _)| entry(slot)).take(most).collect()
            }
            Kind::Tree { leaf, root, height } => {
                let mut entries = Vec::new();
                if self.count > 0 {
                    sorted(scene, leaf, *root, *height, most, &mut entries)?;
                }
                Some(entries)
            }
        }
    }
}

/// The entries of a node of a B-tree and of those below it.
fn sorted(
    scene: &Scene<'_>,
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
    let len = number(scene, &path(scene, &node, &["len"])?)?;
    if height > MAX_HEIGHT || !(0..=CAPACITY).contains(&len) {
        return None;
    }
    let edges = at.wrapping_add(leaf.size()?.checked_next_multiple_of(8)?);
    let below = |number: u64, entries: &mut Vec<(Value, Value)>| {
        let mut edge = [0; 8];
        let from = edges.wrapping_add(8 * number);
        scene.source.memory(from, &mut edge).ok()?;
        sorted(scene, leaf, u64::from_le_bytes(edge), height - 1, most, entries)
    };
    for number in 0..len as u64 {
        if height > 0 {
            below(number, entries)?;
        }
        if entries.len() >= most {
            return Some(());
        }
        let held = |name: &str| {
            let slots = path(scene, &node, &[name])?;
            let slot = scene.index(&slots, i128::from(number)).ok()?;
            initialized(&slot)
        };
        entries.push((held("keys")?, held("vals")?));
    }
    if height > 0 {
        below(len as u64, entries)?;
    }
    Some(())
}

/// What a `MaybeUninit` that is initialized holds.
fn initialized(slot: &Value) -> Option<Value> {
    let Shape::Record(record) = slot.ty.shape() else {
        return None;
    };
    Some(slot.part(record.argument(0)?, 0))
}
