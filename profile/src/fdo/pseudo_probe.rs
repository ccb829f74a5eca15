//! Pseudo-probes: places that the compiler marks in the code, for profiles that survive changes of
//! lines.
//!
//! Source: LLVM, `llvm/include/llvm/MC/MCPseudoProbe.h`.

use crate::{Error, Result};
use backtrail_pt::Svma;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The sections of a binary that describe its probes.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSections<'a> {
    /// The bytes of `.pseudo_probe_desc`: the functions.
    pub descriptions: &'a [u8],
    /// The bytes of `.pseudo_probe`: the probes.
    pub probes: &'a [u8],
}

/// A function with probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFunction {
    /// The linkage name.
    pub name: Arc<str>,
    /// The checksum of its control flow when the probes were added. 0: unknown.
    pub checksum: u64,
}

/// The kind of code that a probe marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A block.
    Block,
    /// A call.
    Call,
}

/// The index of a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeIdx(u32);

/// The index of an [`InlineNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdx(u32);

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The instruction that it marks.
    pub address: Svma,
    /// Its number in its function.
    pub id: u32,
    /// The discriminator of copies of a block.
    pub discriminator: u32,
    /// The kind of code that it marks.
    pub kind: ProbeKind,
    /// The copy of the function that it belongs to.
    pub node: NodeIdx,
}

impl Probe {
    /// Returns whether it marks the entry of a function.
    #[must_use]
    pub fn is_entry(&self) -> bool {
        self.id == 1
    }
}

/// A function with code of its own, or a copy of it that is inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineNode {
    /// The hash of the function's name.
    pub guid: u64,
    /// Where it is inlined: the caller, and the probe of the call. `None`: it is not.
    pub site: Option<(NodeIdx, u32)>,
    /// Its probes.
    pub probes: Vec<ProbeIdx>,
    /// The copies that are inlined into it.
    pub children: Vec<NodeIdx>,
}

/// The probes of a binary.
///
/// ```
/// use backtrail_profile::fdo::pseudo_probe::{PseudoProbes, guid};
///
/// // The first 8 bytes of the MD5 sum.
/// assert_eq!(guid("main"), 0xdb956436e78dd5fa);
/// assert!(PseudoProbes::default().at(backtrail_pt::Svma(0x1000)).next().is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct PseudoProbes {
    functions: HashMap<u64, ProbeFunction>,
    nodes: Vec<InlineNode>,
    probes: Vec<Probe>,
    by_address: BTreeMap<Svma, Vec<ProbeIdx>>,
}

/// The most levels of inlining.
const MAX_DEPTH: usize = 512;
/// The attribute of a probe that only carries the name of a part of a split function.
const SENTINEL: u8 = 2;
/// The attribute of a probe with a discriminator.
const HAS_DISCRIMINATOR: u8 = 4;

/// Returns the number of a function in profiles and probes: the first 8 bytes of the
/// MD5 sum of its linkage name.
#[must_use]
pub fn guid(name: &str) -> u64 {
    use md5::Digest;
    let sum: [u8; 16] = md5::Md5::digest(name.as_bytes()).into();
    let [a, b, c, d, e, f, g, h, ..] = sum;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl PseudoProbes {
    /// Reads the probes. `start_of` returns the address of the symbol with a GUID.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] with the section and the place in it.
    pub fn read(sections: ProbeSections<'_>, start_of: &dyn Fn(u64) -> Option<Svma>) -> Result<Self> {
        let mut probes = Self::default();
        probes.read_descriptions(sections.descriptions)?;
        let mut reader = Reader::new(sections.probes, ".pseudo_probe");
        let mut trees = TreeReader {
            probes: &mut probes,
            start_of,
            last: Svma(0),
            has_absolute: false,
        };
        while !reader.rest.is_empty() {
            trees.read(&mut reader)?;
        }
        Ok(probes)
    }

    fn read_descriptions(&mut self, section: &[u8]) -> Result<()> {
        let mut reader = Reader::new(section, ".pseudo_probe_desc");
        while !reader.rest.is_empty() {
            let guid = reader.u64()?;
            let checksum = reader.u64()?;
            let length = reader.unsigned()?;
            let name = reader.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
            let name = String::from_utf8_lossy(name);
            let function = ProbeFunction {
                name: name.as_ref().into(),
                checksum,
            };
            self.functions.entry(guid).or_insert(function);
        }
        Ok(())
    }

    /// Returns the function with a GUID. One without a description has its GUID as its name.
    #[must_use]
    pub fn function(&self, guid: u64) -> ProbeFunction {
        self.functions
            .get(&guid)
            .cloned()
            .unwrap_or_else(|| ProbeFunction {
                name: guid.to_string().into(),
                checksum: 0,
            })
    }

    /// Returns the probes at an address.
    pub fn at(&self, address: Svma) -> impl Iterator<Item = ProbeIdx> {
        self.by_address.get(&address).into_iter().flatten().copied()
    }

    /// Returns the probes in a range of addresses.
    pub fn within(&self, range: RangeInclusive<Svma>) -> impl Iterator<Item = ProbeIdx> {
        let range = Some(range).filter(|range| range.start() <= range.end());
        let found = range.into_iter().flat_map(|range| self.by_address.range(range));
        found.flat_map(|(_, probes)| probes).copied()
    }

    /// Returns a probe.
    #[must_use]
    pub fn probe(&self, index: ProbeIdx) -> Option<&Probe> {
        self.probes.get(index.0 as usize)
    }

    /// Returns a copy of a function.
    #[must_use]
    pub fn node(&self, index: NodeIdx) -> Option<&InlineNode> {
        self.nodes.get(index.0 as usize)
    }

    /// Returns the functions that have code of their own.
    pub fn roots(&self) -> impl Iterator<Item = (NodeIdx, &InlineNode)> {
        let nodes = (0..).map(NodeIdx).zip(&self.nodes);
        nodes.filter(|(_, node)| node.site.is_none())
    }

    /// Returns the probe of the call at an address.
    #[must_use]
    pub fn call_at(&self, address: Svma) -> Option<&Probe> {
        let mut probes = self.at(address).filter_map(|index| self.probe(index));
        probes.find(|probe| probe.kind == ProbeKind::Call)
    }

    /// Returns where a copy of a function is inlined, the outermost function first: each caller
    /// with the probe of its call.
    #[must_use]
    pub fn callers(&self, node: NodeIdx) -> Vec<(u64, u32)> {
        let mut callers = Vec::new();
        let mut site = self.node(node).and_then(|node| node.site);
        while let Some((caller, call)) = site {
            let caller = self.node(caller);
            callers.extend(caller.map(|caller| (caller.guid, call)));
            site = caller.and_then(|caller| caller.site);
        }
        callers.reverse();
        callers
    }

    fn add_node(&mut self, guid: u64, site: Option<(NodeIdx, u32)>) -> NodeIdx {
        if let Some((parent, _)) = site {
            let known = self.node(parent).and_then(|parent| {
                let mut children = parent.children.iter().copied();
                children.find(|child| {
                    self.node(*child)
                        .is_some_and(|child| (child.guid, child.site) == (guid, site))
                })
            });
            if let Some(known) = known {
                return known;
            }
        }
        let index = NodeIdx(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(InlineNode {
            guid,
            site,
            probes: Vec::new(),
            children: Vec::new(),
        });
        let parent = site.and_then(|(parent, _)| self.nodes.get_mut(parent.0 as usize));
        parent.into_iter().for_each(|parent| parent.children.push(index));
        index
    }

    fn add_probe(&mut self, probe: Probe) {
        let index = ProbeIdx(u32::try_from(self.probes.len()).unwrap_or(u32::MAX));
        self.by_address.entry(probe.address).or_default().push(index);
        if let Some(node) = self.nodes.get_mut(probe.node.0 as usize) {
            node.probes.push(index);
        }
        self.probes.push(probe);
    }
}

/// Reads functions with the functions inlined into them.
struct TreeReader<'a> {
    probes: &'a mut PseudoProbes,
    start_of: &'a dyn Fn(u64) -> Option<Svma>,
    /// The address of the last probe, to which the next one is relative.
    last: Svma,
    /// Whether a probe had its own address, as older compilers wrote it.
    has_absolute: bool,
}

impl TreeReader<'_> {
    /// Reads a function that is not inlined.
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        // The open functions, each with the number of copies in it that are still to be read.
        let mut open: Vec<(NodeIdx, u64)> = Vec::new();
        let (root, children) = self.read_node(reader, None)?;
        open.push((root, children));
        while let Some((node, children)) = open.last_mut() {
            if *children == 0 {
                open.pop();
                continue;
            }
            *children -= 1;
            let parent = *node;
            if open.len() >= MAX_DEPTH {
                return Err(reader.malformed("functions are inlined more than 512 times"));
            }
            let (child, children) = self.read_node(reader, Some(parent))?;
            open.push((child, children));
        }
        Ok(())
    }

    /// Reads the probes of one function, and returns the number of functions inlined into it.
    fn read_node(&mut self, reader: &mut Reader<'_>, parent: Option<NodeIdx>) -> Result<(NodeIdx, u64)> {
        let site = match parent {
            Some(parent) => Some((parent, reader.u32()?)),
            None => None,
        };
        let guid = reader.u64()?;
        let node = self.probes.add_node(guid, site);
        if site.is_none() && !self.has_absolute {
            self.last = (self.start_of)(guid).unwrap_or(self.last);
        }
        let count = reader.unsigned()?;
        let children = reader.unsigned()?;
        for _ in 0..count {
            self.read_probe(reader, node)?;
        }
        Ok((node, children))
    }

    fn read_probe(&mut self, reader: &mut Reader<'_>, node: NodeIdx) -> Result<()> {
        let id = reader.u32()?;
        let flags = reader.u8()?;
        let attributes = flags >> 4 & 7;
        let is_sentinel = attributes & SENTINEL != 0;
        let address = match flags & 0x80 {
            0 => {
                let value = reader.u64()?;
                if is_sentinel {
                    (self.start_of)(value).unwrap_or(Svma(value))
                } else {
                    self.has_absolute = true;
                    Svma(value)
                }
            }
            _ => Svma(self.last.0.wrapping_add_signed(reader.signed()?)),
        };
        let discriminator = match attributes & HAS_DISCRIMINATOR {
            0 => 0,
            _ => reader.u32()?,
        };
        self.last = address;
        if !is_sentinel {
            self.probes.add_probe(Probe {
                address,
                id,
                discriminator,
                kind: match flags & 0xf {
                    0 => ProbeKind::Block,
                    1 | 2 => ProbeKind::Call,
                    _ => return Err(reader.malformed("a probe has an unknown kind")),
                },
                node,
            });
        }
        Ok(())
    }
}

/// Reads numbers of a section.
struct Reader<'a> {
    section: &'static str,
    size: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], section: &'static str) -> Self {
        Self {
            section,
            size: bytes.len(),
            rest: bytes,
        }
    }

    fn malformed(&self, problem: &str) -> Error {
        let at = self.size - self.rest.len();
        Error::Malformed {
            format: self.section,
            problem: format!("{problem}, before offset {at:#x}"),
        }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.malformed("the section ends early"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?.first().copied().unwrap_or(0))
    }

    fn u64(&mut self) -> Result<u64> {
        let bytes = self.bytes(8)?.try_into().unwrap_or_default();
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads an unsigned LEB128 number.
    fn unsigned(&mut self) -> Result<u64> {
        let (value, _) = self.leb128()?;
        Ok(value)
    }

    fn u32(&mut self) -> Result<u32> {
        let value = self.unsigned()?;
        u32::try_from(value).map_err(|_| self.malformed("a number exceeds 32 bits"))
    }

    /// Reads a signed LEB128 number.
    fn signed(&mut self) -> Result<i64> {
        let (value, bits) = self.leb128()?;
        let unused = 64_u32.saturating_sub(bits);
        Ok((value << unused).cast_signed() >> unused)
    }

    /// Reads a LEB128 number, and returns it with the number of its bits.
    fn leb128(&mut self) -> Result<(u64, u32)> {
        let mut value = 0_u64;
        let mut bits = 0;
        loop {
            let byte = self.u8()?;
            if bits >= 64 {
                return Err(self.malformed("a number exceeds 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << bits;
            bits += 7;
            if byte & 0x80 == 0 {
                return Ok((value, bits));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the description of a function.
    fn description(name: &str, checksum: u64) -> Vec<u8> {
        let mut bytes = guid(name).to_le_bytes().to_vec();
        bytes.extend(checksum.to_le_bytes());
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        bytes
    }

    /// Returns `main` at 0x1000: a block, a call at 0x1006 with `leaf` inlined at probe 3, and a
    /// part of `main.cold` at 0x2000.
    fn sections() -> (Vec<u8>, Vec<u8>) {
        let descriptions = [description("main", 77), description("leaf", 5)].concat();
        let mut probes = guid("main").to_le_bytes().to_vec();
        // Four probes, one inlined function.
        probes.extend([4, 1]);
        // A block at the start, and a call 6 bytes later.
        probes.extend([1, 0x80, 0]);
        probes.extend([2, 0x82, 6]);
        // A sentinel with the name of the cold part, and a block with a discriminator in it.
        probes.extend([0, 0x20]);
        probes.extend(guid("main.cold").to_le_bytes());
        probes.extend([0x84, 0x01, 0xc0, 8, 9]);
        // The inlined function, with a block 3 bytes before the last one.
        probes.push(3);
        probes.extend(guid("leaf").to_le_bytes());
        probes.extend([1, 0, 1, 0x80, 0x7d]);
        (descriptions, probes)
    }

    fn read(descriptions: &[u8], probes: &[u8]) -> Result<PseudoProbes> {
        let sections = ProbeSections { descriptions, probes };
        PseudoProbes::read(sections, &|wanted| {
            let symbols = [("main", 0x1000), ("main.cold", 0x2000)];
            let mut symbols = symbols.into_iter();
            symbols
                .find(|(name, _)| guid(name) == wanted)
                .map(|(_, at)| Svma(at))
        })
    }

    #[test]
    fn probes_have_addresses_and_functions() {
        let (descriptions, probes) = sections();
        let found = read(&descriptions, &probes).unwrap();
        let at = |address: u64| -> Vec<&Probe> {
            let probes = found.at(Svma(address));
            probes.filter_map(|index| found.probe(index)).collect()
        };
        assert!(at(0x1000)[0].is_entry());
        let call = found.call_at(Svma(0x1006)).unwrap();
        assert_eq!((call.id, call.kind), (2, ProbeKind::Call));
        let cold = at(0x2008)[0];
        assert_eq!((cold.id, cold.discriminator), (0x84, 9));
        let inlined = at(0x2005)[0];
        assert_eq!(found.callers(inlined.node), [(guid("main"), 3)]);
        let leaf = found.function(found.node(inlined.node).unwrap().guid);
        assert_eq!((&*leaf.name, leaf.checksum), ("leaf", 5));
        assert_eq!(found.within(Svma(0x1000)..=Svma(0x2005)).count(), 3);
        assert_eq!(found.roots().count(), 1);
        assert_eq!(&*found.function(12).name, "12");
    }

    #[test]
    fn cut_sections_are_refused() {
        let (descriptions, probes) = sections();
        for len in 1..probes.len() {
            let error = read(&descriptions, &probes[..len]).unwrap_err().to_string();
            assert!(
                error.starts_with(".pseudo_probe: the section ends early"),
                "{error}"
            );
        }
        let error = read(&descriptions[..30], &probes).unwrap_err().to_string();
        assert_eq!(
            error,
            ".pseudo_probe_desc: the section ends early, before offset 0x1d"
        );
    }

    #[test]
    fn hostile_probes_are_refused() {
        let refuse = |probes: &[u8], problem: &str| {
            let error = read(&[], probes).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        };
        let function = |rest: &[u8]| [&guid("main").to_le_bytes()[..], rest].concat();
        refuse(&function(&[1, 0, 1, 0x83, 0]), "a probe has an unknown kind");
        refuse(&function(&[0xff; 11]), "a number exceeds 64 bits");
        let long = [0xff, 0xff, 0xff, 0xff, 0x7f];
        refuse(
            &function(&[&[1, 0], &long[..]].concat()),
            "a number exceeds 32 bits",
        );
        // More probes than bytes.
        refuse(&function(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0]), "ends early");
        // A function in a function in a function …
        let mut deep = function(&[0, 1]);
        for _ in 0..600 {
            deep.push(1);
            deep.extend(function(&[0, 1]));
        }
        refuse(&deep, "functions are inlined more than 512 times");
    }
}
