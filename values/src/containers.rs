//! Containers of the C++ standard library (libstdc++): how many elements they have, and where those
//! are.

use super::context::EvalContext;
use super::members::{address, bytes_at, number, path};
use super::types::{ArrayCount, RecordShape, Shape, Ty};
use super::units::Units;
use super::value::Value;

/// A container of elements.
pub enum CppContainer {
    /// One after the other in memory.
    Array(CppArray),
    /// Truth values, a bit each.
    BitVector(CppBitVector),
    /// In blocks of one size.
    Deque(CppDeque),
    /// Each in a node of its own.
    Nodes(CppNodes),
}

/// A vector, a string, what views one.
pub struct CppArray {
    element: Ty,
    size: u64,
    start: u64,
    pub count: u64,
    /// The capacity, of a vector.
    pub capacity: Option<u64>,
}

/// A `vector<bool>` or `bitset`.
pub struct CppBitVector {
    element: Ty,
    /// They are there in words of 8 bytes, the lowest bit first.
    words: Value,
    pub count: u64,
    pub capacity: Option<u64>,
}

/// A deque: the first block has elements from `first` on, all others are full.
pub struct CppDeque {
    element: Ty,
    size: u64,
    per_node: u64,
    first: u64,
    in_first: u64,
    /// The address of the array of block addresses.
    nodes: u64,
    pub count: u64,
}

/// A list, a tree, a hash table.
pub struct CppNodes {
    element: Ty,
    /// The offset of the element in a node.
    offset: u64,
    first: u64,
    /// The address of the end node.
    end: u64,
    order: NodeOrder,
    /// `None`: it is not kept.
    count: Option<u64>,
    /// Elements are pairs of a key and a value.
    pub pairs: bool,
}

#[derive(Clone, Copy)]
enum NodeOrder {
    /// Each begins with the address of the next.
    List,
    /// A red-black tree.
    Tree,
}

/// The name of a class template of the library without its arguments.
pub fn template(record: &RecordShape) -> Option<String> {
    let name = record.name().replace("__cxx11::", "").replace("__debug::", "");
    let (template, _) = name.split_once('<')?;
    let template = template
        .strip_prefix("std::")
        .or_else(|| template.strip_prefix("__gnu_cxx::"))?;
    Some(template.to_owned())
}

/// Returns the pointer of a string to its characters. Clang omits the type of the member that
/// begins with the pointer, unless `-fstandalone-debug` asks for all types.
fn string_pointer(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Value> {
    let holder = path(context, value, &["_M_dataplus"])?;
    match holder.ty.shape() {
        Shape::Record(inner) if inner.record().declaration => {
            Some(holder.part(record.argument(0)?.pointer(), 0))
        }
        _ => path(context, &holder, &["_M_p"]),
    }
}

impl CppContainer {
    /// Returns the container that a record is; `None` if it is not one, or its layout is unknown.
    pub fn of(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let is_bool = || record.argument(0).is_some_and(|element| element.name() == "bool");
        Some(match template(record)?.as_str() {
            "vector" if is_bool() => Self::BitVector(CppBitVector::of_vector(context, value, record)?),
            "bitset" => Self::BitVector(CppBitVector::of_bitset(context, value, record)?),
            "vector" => Self::Array(CppArray::of_vector(context, value, record)?),
            "array" => Self::Array(CppArray::of_array(&path(context, value, &["_M_elems"])?)?),
            "basic_string" => {
                let pointer = string_pointer(context, value, record)?;
                Self::Array(CppArray::pointed_to(
                    context,
                    &pointer,
                    value,
                    &["_M_string_length"],
                )?)
            }
            "basic_string_view" => {
                let pointer = path(context, value, &["_M_str"])?;
                Self::Array(CppArray::pointed_to(context, &pointer, value, &["_M_len"])?)
            }
            "initializer_list" => {
                let pointer = path(context, value, &["_M_array"])?;
                Self::Array(CppArray::pointed_to(context, &pointer, value, &["_M_len"])?)
            }
            "span" => {
                let pointer = path(context, value, &["_M_ptr"])?;
                Self::Array(CppArray::of_span(context, &pointer, value, record)?)
            }
            "deque" => Self::Deque(CppDeque::of(context, value, record)?),
            "list" => Self::Nodes(CppNodes::of_list(context, value, record)?),
            "map" | "multimap" => Self::Nodes(CppNodes::of_tree(context, value, record, true)?),
            "set" | "multiset" => Self::Nodes(CppNodes::of_tree(context, value, record, false)?),
            "unordered_map" | "unordered_multimap" => {
                Self::Nodes(CppNodes::of_table(context, value, record, true)?)
            }
            "unordered_set" | "unordered_multiset" => {
                Self::Nodes(CppNodes::of_table(context, value, record, false)?)
            }
            _ => return None,
        })
    }

    /// Returns the number of elements; `None` if they must be counted and are too many.
    pub fn count(&self, context: &EvalContext<'_>) -> Option<u64> {
        match self {
            Self::Array(row) => Some(row.count),
            Self::BitVector(bits) => Some(bits.count),
            Self::Deque(deque) => Some(deque.count),
            Self::Nodes(nodes) => nodes.count(context),
        }
    }

    /// The last element of those that it has.
    pub fn last(&self, context: &EvalContext<'_>) -> Option<Value> {
        match self {
            Self::Nodes(nodes) => nodes.last(context),
            other => other.at(context, other.count(context)?.checked_sub(1)?),
        }
    }

    /// Returns the element with this number, which is below the count. Of nodes, only the first is
    /// returned: others are reached by a walk.
    pub fn at(&self, context: &EvalContext<'_>, number: u64) -> Option<Value> {
        match self {
            Self::Array(row) => Some(row.at(number)),
            Self::BitVector(bits) => Some(bits.at(context, number)),
            Self::Deque(deque) => deque.at(context, number),
            Self::Nodes(nodes) if number == 0 => nodes.values(context, 1)?.pop(),
            Self::Nodes(_) => None,
        }
    }
}

impl CppArray {
    fn of_vector(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let element = record.argument(0)?;
        let size = element.size().filter(|size| *size > 0)?;
        let end = |name: &str| address(context, &path(context, value, &["_M_impl", name])?);
        let start = end("_M_start")?;
        Some(Self {
            count: end("_M_finish")?.checked_sub(start)? / size,
            capacity: Some(end("_M_end_of_storage")?.checked_sub(start)? / size),
            element,
            size,
            start,
        })
    }

    /// An array that is in memory.
    fn of_array(elements: &Value) -> Option<Self> {
        let Shape::Array {
            element,
            count: ArrayCount::Known(count),
            ..
        } = elements.ty.shape()
        else {
            return None;
        };
        Some(Self {
            size: element.size().filter(|size| *size > 0)?,
            start: elements.address()?,
            count,
            capacity: None,
            element,
        })
    }

    /// Returns the array at a pointer, with the number of elements that a member of the value
    /// gives.
    fn pointed_to(
        context: &EvalContext<'_>,
        pointer: &Value,
        value: &Value,
        length: &[&str],
    ) -> Option<Self> {
        let Shape::Pointer(_, element) = pointer.ty.shape() else {
            return None;
        };
        Some(Self {
            size: element.size().filter(|size| *size > 0)?,
            start: address(context, pointer)?,
            count: u64::try_from(number(context, &path(context, value, length)?)?).ok()?,
            capacity: None,
            element,
        })
    }

    /// A span has its length in itself, or in its type.
    fn of_span(
        context: &EvalContext<'_>,
        pointer: &Value,
        value: &Value,
        record: &RecordShape,
    ) -> Option<Self> {
        let in_type = record.record().arguments.get(1)?.value?;
        if in_type as u64 == u64::MAX {
            return Self::pointed_to(context, pointer, value, &["_M_extent", "_M_extent_value"]);
        }
        let element = record.argument(0)?;
        Some(Self {
            size: element.size().filter(|size| *size > 0)?,
            start: address(context, pointer)?,
            count: in_type as u64,
            capacity: None,
            element,
        })
    }

    pub fn at(&self, number: u64) -> Value {
        let at = self.start.wrapping_add(number.wrapping_mul(self.size));
        Value::at(self.element.clone(), at)
    }

    /// Returns the code units of its characters; `None` if the elements make no strings.
    pub fn units(&self) -> Option<Units> {
        Units::of(&self.element)
    }

    /// The bytes of its first elements.
    pub fn bytes(
        &self,
        context: &EvalContext<'_>,
        count: u64,
    ) -> Option<Result<Vec<u8>, super::value::Unavailable>> {
        let size = count.min(self.count).checked_mul(self.size)?;
        bytes_at(context, self.start, size)
    }
}

impl CppBitVector {
    fn of_vector(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let end = |name: &str| path(context, value, &["_M_impl", name]);
        let start = address(context, &path(context, &end("_M_start")?, &["_M_p"])?)?;
        let finish = end("_M_finish")?;
        let words = address(context, &path(context, &finish, &["_M_p"])?)?.checked_sub(start)?;
        let bits = u64::try_from(number(context, &path(context, &finish, &["_M_offset"])?)?).ok()?;
        let limit = address(context, &end("_M_end_of_storage")?)?;
        Some(Self {
            element: record.argument(0)?,
            words: Value::at(Ty::unsigned_long(), start),
            count: words.checked_mul(8)?.checked_add(bits)?,
            capacity: Some(limit.checked_sub(start)?.checked_mul(8)?),
        })
    }

    fn of_bitset(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let count = record.record().arguments.first()?.value?;
        Some(Self {
            element: Ty::base("bool", 1, backtrail_symbolizer::types::Encoding::Boolean),
            words: path(context, value, &["_M_w"])?,
            count: u64::try_from(count).ok()?,
            capacity: None,
        })
    }

    pub fn at(&self, context: &EvalContext<'_>, number: u64) -> Value {
        let word = self.words.part(Ty::unsigned_long(), number / 64 * 8);
        match word.read(context.source, 8) {
            Ok(bytes) => {
                let byte = bytes.get((number % 64 / 8) as usize).copied().unwrap_or(0);
                Value::new(self.element.clone(), vec![byte >> (number % 8) & 1])
            }
            Err(cause) => Value::unavailable(self.element.clone(), cause),
        }
    }
}

fn word(context: &EvalContext<'_>, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    context.source.memory(at, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

impl CppDeque {
    fn of(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let element = record.argument(0)?;
        let size = element.size().filter(|size| *size > 0)?;
        let per_node = if size < 512 { 512 / size } else { 1 };
        let field = |iterator: &str, name: &str| {
            address(context, &path(context, value, &["_M_impl", iterator, name])?)
        };
        let (first, last) = (field("_M_start", "_M_cur")?, field("_M_start", "_M_last")?);
        let (nodes, finish_node) = (field("_M_start", "_M_node")?, field("_M_finish", "_M_node")?);
        let (finish, finish_first) = (field("_M_finish", "_M_cur")?, field("_M_finish", "_M_first")?);
        let in_first = last.checked_sub(first)? / size;
        let count = match nodes == finish_node {
            true => finish.checked_sub(first)? / size,
            false => {
                let whole = (finish_node.checked_sub(nodes)? / 8).checked_sub(1)?;
                let in_last = finish.checked_sub(finish_first)? / size;
                whole
                    .checked_mul(per_node)?
                    .checked_add(in_first)?
                    .checked_add(in_last)?
            }
        };
        Some(Self {
            element,
            size,
            per_node,
            first,
            in_first,
            nodes,
            count,
        })
    }

    pub fn at(&self, context: &EvalContext<'_>, number: u64) -> Option<Value> {
        let at = match number.checked_sub(self.in_first) {
            None => self.first.checked_add(number.checked_mul(self.size)?)?,
            Some(following) => {
                let node = self.nodes.checked_add(8 * (following / self.per_node + 1))?;
                let offset = (following % self.per_node).checked_mul(self.size)?;
                word(context, node)?.checked_add(offset)?
            }
        };
        Some(Value::at(self.element.clone(), at))
    }
}

/// Returns the offset of the value in a node that begins with `header` bytes of links.
fn offset_after(header: u64, ty: &Ty) -> Option<u64> {
    let aligned = super::layout::alignment(ty)?;
    header.checked_next_multiple_of(aligned)
}

/// Reads a container, by its type name.
fn held(record: &RecordShape) -> Option<Ty> {
    let name = format!("{}::value_type", record.name());
    let entry = record.module.file.type_named(&name, None)?;
    Some(record.ty(Some(entry)))
}

impl CppNodes {
    /// The limit of elements that are read to count them or to find a key.
    pub const MOST: usize = 1 << 17;

    fn of_list(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let element = record.argument(0)?;
        let end = path(context, value, &["_M_impl", "_M_node"])?.address()?;
        Some(Self {
            offset: offset_after(16, &element)?,
            first: word(context, end)?,
            end,
            order: NodeOrder::List,
            // Older libraries count each time that they are asked.
            count: path(context, value, &["_M_impl", "_M_node", "_M_size"])
                .and_then(|size| u64::try_from(number(context, &size)?).ok()),
            pairs: false,
            element,
        })
    }

    /// Reads an `_Rb_tree`.
    fn of_tree(context: &EvalContext<'_>, value: &Value, record: &RecordShape, pairs: bool) -> Option<Self> {
        let count = number(
            context,
            &path(context, value, &["_M_t", "_M_impl", "_M_node_count"])?,
        )?;
        let header = path(context, value, &["_M_t", "_M_impl", "_M_header"])?;
        let element = held(record)?;
        Some(Self {
            offset: offset_after(32, &element)?,
            first: address(context, &path(context, &header, &["_M_left"])?)?,
            end: header.address()?,
            order: NodeOrder::Tree,
            count: Some(u64::try_from(count).ok()?),
            pairs,
            element,
        })
    }

    /// Reads a `_Hashtable`, whose nodes are one list.
    fn of_table(context: &EvalContext<'_>, value: &Value, record: &RecordShape, pairs: bool) -> Option<Self> {
        let count = number(context, &path(context, value, &["_M_h", "_M_element_count"])?)?;
        let element = held(record)?;
        let before = path(context, value, &["_M_h", "_M_before_begin", "_M_nxt"])?;
        Some(Self {
            offset: offset_after(8, &element)?,
            first: address(context, &before)?,
            end: 0,
            order: NodeOrder::List,
            count: Some(u64::try_from(count).ok()?),
            pairs,
            element,
        })
    }

    /// `None`: there are too many to count.
    pub fn count(&self, context: &EvalContext<'_>) -> Option<u64> {
        match self.count {
            Some(count) => Some(count),
            None => {
                let counted = self.values(context, Self::MOST)?.len();
                (counted < Self::MOST).then_some(counted as u64)
            }
        }
    }

    /// Returns the last element. The end node links to it.
    fn last(&self, context: &EvalContext<'_>) -> Option<Value> {
        let link = match self.order {
            NodeOrder::List => 8,
            NodeOrder::Tree => 24,
        };
        let node = word(context, self.end.wrapping_add(link)).filter(|_| self.end != 0)?;
        let at = node.wrapping_add(self.offset);
        (node != self.end).then(|| Value::at(self.element.clone(), at))
    }

    /// Its first elements in their order; `None`: they do not hang together as they should.
    pub fn values(&self, context: &EvalContext<'_>, most: usize) -> Option<Vec<Value>> {
        let (mut values, mut node) = (Vec::new(), self.first);
        let is_whole = |found: usize| self.count.is_some_and(|count| found as u64 >= count);
        while node != self.end && values.len() < most && !is_whole(values.len()) {
            let at = node.wrapping_add(self.offset);
            values.push(Value::at(self.element.clone(), at));
            node = match self.order {
                NodeOrder::List => word(context, node)?,
                NodeOrder::Tree => successor(context, node)?,
            };
        }
        let missing = self.count.is_some_and(|count| (values.len() as u64) < count);
        (!missing || values.len() >= most).then_some(values)
    }
}

/// The next node: parent, left and right stand at 8, 16 and 24.
fn successor(context: &EvalContext<'_>, node: u64) -> Option<u64> {
    /// No genuine tree is deeper.
    const MAX_DEPTH: usize = 256;
    let (parent, left, right) = (8, 16, 24);
    let follow = |node: u64, link: u64| word(context, node.wrapping_add(link));
    let mut next = follow(node, right)?;
    if next != 0 {
        for _ in 0..MAX_DEPTH {
            match follow(next, left)? {
                0 => return Some(next),
                lower => next = lower,
            }
        }
        return None;
    }
    let mut from = node;
    next = follow(node, parent)?;
    for _ in 0..MAX_DEPTH {
        if follow(next, right)? != from {
            // The root's parent is the header, whose right link may be the root.
            return Some(next);
        }
        from = next;
        next = follow(next, parent)?;
    }
    None
}
