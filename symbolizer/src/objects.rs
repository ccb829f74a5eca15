//! Data objects in the ELF symbol tables: `STT_OBJECT` symbols.

use crate::demangle::Name;
use crate::source::Elf;
use object::read::elf::Sym;
use object::{LittleEndian, elf};
use std::sync::Arc;

/// The named data of a file, sorted by address.
#[derive(Default)]
pub(crate) struct ObjectTable<'d> {
    objects: Vec<Object<'d>>,
}

struct Object<'d> {
    start: u64,
    size: u64,
    global: bool,
    linkage: &'d [u8],
}

impl<'d> ObjectTable<'d> {
    /// Reads the tables of the module and of its debug file.
    pub fn new(files: &[&Elf<'d>]) -> Self {
        let mut objects = Vec::new();
        for file in files {
            for table in [file.elf_symbol_table(), file.elf_dynamic_symbol_table()] {
                for symbol in table.iter() {
                    // Versions (`GLIBC_2.2.5`) are absolute symbols, and no data.
                    let is_data = symbol.st_type() == elf::STT_OBJECT
                        && !symbol.is_undefined(LittleEndian)
                        && !symbol.is_absolute(LittleEndian);
                    let name = symbol.name(LittleEndian, table.strings()).unwrap_or_default();
                    if is_data && !name.is_empty() {
                        objects.push(Object {
                            start: symbol.st_value(LittleEndian),
                            size: symbol.st_size(LittleEndian),
                            global: symbol.st_bind() != elf::STB_LOCAL,
                            linkage: name,
                        });
                    }
                }
            }
        }
        // Of objects with the same start, a global one comes first.
        objects.sort_by(|a, b| (a.start, !a.global, a.linkage).cmp(&(b.start, !b.global, b.linkage)));
        objects.dedup_by(|b, a| (a.start, a.linkage) == (b.start, b.linkage));
        Self { objects }
    }

    /// Returns the object that contains `at`: its demangled name, start and size.
    pub fn at(&self, at: u64) -> Option<(Arc<str>, u64, u64)> {
        let next = self.objects.partition_point(|object| object.start <= at);
        let start = self.objects.get(next.checked_sub(1)?)?.start;
        let first = self.objects.partition_point(|object| object.start < start);
        let object = self.objects.get(first)?;
        let inside = at - object.start < object.size.max(1);
        inside.then(|| (readable(object.linkage), object.start, object.size))
    }

    /// Returns the virtual tables: the class of each, its start and its size.
    pub fn vtables(&self) -> impl Iterator<Item = (Arc<str>, u64, u64)> {
        let tables = self
            .objects
            .iter()
            .filter(|object| object.linkage.starts_with(b"_ZTV"));
        tables.filter_map(|object| {
            let class = readable(object.linkage);
            let class = class.strip_prefix("vtable for ")?;
            Some((class.into(), object.start, object.size))
        })
    }

    /// Returns the start and size of the object called `name`.
    pub fn named(&self, name: &str) -> Option<(u64, u64)> {
        let found = self
            .objects
            .iter()
            .find(|object| object.linkage == name.as_bytes())?;
        Some((found.start, found.size))
    }
}

/// Returns the demangled name. Compiler-made objects of a class are named as in other tools.
fn readable(linkage: &[u8]) -> Arc<str> {
    let name = Name::of(linkage).readable;
    let inner = name.strip_prefix('{').and_then(|rest| rest.strip_suffix(")}"));
    let (kind, of) = match inner.and_then(|inner| inner.split_once('(')) {
        Some(("vtable", of)) => ("vtable", of),
        Some(("vtt", of)) => ("VTT", of),
        Some(("typeinfo", of)) => ("typeinfo", of),
        Some(("typeinfo name", of)) => ("typeinfo name", of),
        _ => return name,
    };
    format!("{kind} for {of}").into()
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn class_tables_are_named_as_in_other_tools() {
        assert_eq!(&*readable(b"_ZTVN4shop4ItemE"), "vtable for shop::Item");
        assert_eq!(&*readable(b"_ZTI4Item"), "typeinfo for Item");
        assert_eq!(&*readable(b"counter"), "counter");
    }
}
