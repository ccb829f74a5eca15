//! The form of a unit on disk.
//!
//! A header with a checksum and the number of elements of each list, then the lists. All numbers
//! are little-endian. The format changes with the fingerprint in the key of a unit, so it has no
//! versions.

use super::key::UnitKey;
use super::unit::{CodeUnit, Source, UnitBlock};
use crate::translate::address_field::AddressField;
use crate::translate::block::BlockTrap;

/// The first bytes of each file.
const MAGIC: [u8; 8] = *b"btcode\x01\n";
/// The number of lists.
const LISTS: usize = 8;
/// The size of the header: magic, key, checksum, numbers of elements, and the offset of the
/// entries.
const HEADER: usize = 8 + 16 + 8 + 4 * LISTS + 4;

/// Returns the content of the file of a unit.
pub(super) fn encode(key: UnitKey, unit: &CodeUnit) -> Vec<u8> {
    let mut lists = Vec::with_capacity(unit.code.len() * 2);
    lists.extend_from_slice(&unit.code);
    lists.extend_from_slice(&unit.source.bytes);
    for (at, field) in &unit.fields {
        let kind = AddressField::ALL
            .iter()
            .position(|kind| kind == field)
            .unwrap_or(0);
        put(&mut lists, &[*at, kind as u32]);
    }
    for (start, end) in unit.source.ranges.iter().chain(&unit.runs) {
        put(&mut lists, &[*start, *end]);
    }
    for block in &unit.blocks {
        let superblock = u32::from(block.superblock);
        put(
            &mut lists,
            &[
                block.at,
                block.len,
                block.ip,
                superblock,
                block.runs.0,
                block.runs.1,
            ],
        );
    }
    for (at, trap) in &unit.traps {
        let [kind, number, first, second] = trap_numbers(*trap);
        put(&mut lists, &[*at, kind as u32, number as u32]);
        lists.extend_from_slice(&first.to_le_bytes());
        lists.extend_from_slice(&second.to_le_bytes());
    }
    put(&mut lists, &unit.targets);
    let counts = [
        unit.code.len(),
        unit.source.bytes.len(),
        unit.fields.len(),
        unit.source.ranges.len(),
        unit.runs.len(),
        unit.blocks.len(),
        unit.traps.len(),
        unit.targets.len(),
    ];
    let mut counted = Vec::new();
    put(&mut counted, &counts.map(|count| count as u32));
    put(&mut counted, &[unit.entries]);
    let mut file = Vec::with_capacity(HEADER + lists.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&key.0);
    file.extend_from_slice(&checksum(&[&counted, &lists]).to_le_bytes());
    file.extend_from_slice(&counted);
    file.extend_from_slice(&lists);
    file
}

/// Reads the content of the file of a unit. `None`: it is damaged, or that of another key.
pub(super) fn decode(key: UnitKey, file: &[u8]) -> Option<CodeUnit> {
    let (header, lists) = file.split_at_checked(HEADER)?;
    let (magic, header) = header.split_at_checked(MAGIC.len())?;
    let (of, header) = header.split_at_checked(key.0.len())?;
    let (sum, counted) = header.split_at_checked(8)?;
    if magic != MAGIC || of != key.0 || sum != checksum(&[counted, lists]).to_le_bytes() {
        return None;
    }
    let mut numbers = counted.chunks_exact(4).map(number);
    let counts: Vec<usize> = numbers.by_ref().take(LISTS).map(|count| count as usize).collect();
    let [code, source, fields, ranges, runs, blocks, traps, targets] = *counts.first_chunk()?;
    let entries = numbers.next()?;
    let mut reader = Reader(lists);
    let code = reader.list(code, 1)?.to_vec();
    let bytes = reader.list(source, 1)?.to_vec();
    let pair = |pair: &[u8]| (word(pair, 0), word(pair, 4));
    let fields = reader.list(fields, 8)?.chunks_exact(8).map(pair);
    let fields = fields.map(|(at, kind)| Some((at, *AddressField::ALL.get(kind as usize)?)));
    let fields = fields.collect::<Option<_>>()?;
    let ranges = reader.list(ranges, 8)?.chunks_exact(8).map(pair).collect();
    let runs = reader.list(runs, 8)?.chunks_exact(8).map(pair).collect();
    let block = |row: &[u8]| UnitBlock {
        at: word(row, 0),
        len: word(row, 4),
        ip: word(row, 8),
        superblock: word(row, 12) != 0,
        runs: (word(row, 16), word(row, 20)),
    };
    let blocks = reader.list(blocks, 24)?.chunks_exact(24).map(block).collect();
    let trap = |row: &[u8]| {
        Some((
            word(row, 0),
            trap_of([word(row, 4), word(row, 8)], [long(row, 12), long(row, 20)])?,
        ))
    };
    let traps = reader.list(traps, 28)?.chunks_exact(28).map(trap);
    let traps = traps.collect::<Option<_>>()?;
    let targets = reader.list(targets, 4)?.chunks_exact(4).map(number).collect();
    let unit = CodeUnit {
        code,
        fields,
        source: Source { ranges, bytes },
        blocks,
        runs,
        traps,
        targets,
        entries,
    };
    (reader.0.is_empty() && unit.is_consistent()).then_some(unit)
}

/// Returns kind, small number and addresses of a trap.
fn trap_numbers(trap: BlockTrap) -> [u64; 4] {
    match trap {
        BlockTrap::Exit { site, target } => [0, u64::from(site), target, 0],
        BlockTrap::InterceptedSyscall { ip, next } => [1, 0, ip, next],
        BlockTrap::StaleVersion { ip } => [2, 0, ip, 0],
        BlockTrap::Native { ip, outcomes } => [3, u64::from(outcomes), ip, 0],
        BlockTrap::SetsTrapFlag { ip, outcomes } => [4, u64::from(outcomes), ip, 0],
        BlockTrap::StoredX87Pointer { ip } => [5, 0, ip, 0],
        BlockTrap::Predicted { ip } => [6, 0, ip, 0],
        BlockTrap::Masked { ip, slot } => [7, u64::from(slot), ip, 0],
    }
}

fn trap_of([kind, small]: [u32; 2], [ip, second]: [u64; 2]) -> Option<BlockTrap> {
    Some(match kind {
        0 => BlockTrap::Exit {
            site: small,
            target: ip,
        },
        1 => BlockTrap::InterceptedSyscall { ip, next: second },
        3 => BlockTrap::Native {
            ip,
            outcomes: u8::try_from(small).ok()?,
        },
        4 => BlockTrap::SetsTrapFlag {
            ip,
            outcomes: u8::try_from(small).ok()?,
        },
        5 => BlockTrap::StoredX87Pointer { ip },
        6 => BlockTrap::Predicted { ip },
        7 => BlockTrap::Masked { ip, slot: small },
        _ => return None,
    })
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn word(row: &[u8], at: usize) -> u32 {
    let bytes = row.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(bytes.copied().unwrap_or_default())
}

fn number(row: &[u8]) -> u32 {
    word(row, 0)
}

fn long(row: &[u8], at: usize) -> u64 {
    u64::from(word(row, at)) | u64::from(word(row, at + 4)) << 32
}

/// The rest of the lists.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn list(&mut self, count: usize, size: usize) -> Option<&'a [u8]> {
        let (list, rest) = self.0.split_at_checked(count.checked_mul(size)?)?;
        self.0 = rest;
        Some(list)
    }
}

/// Returns a checksum, which finds damage but no intent.
fn checksum(parts: &[&[u8]]) -> u64 {
    /// The multiplier of the 64-bit FNV hash.
    const PRIME: u64 = 0x100_0000_01b3;
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| sum = (sum ^ word).wrapping_mul(PRIME).rotate_left(23);
    for part in parts {
        let (words, rest) = part.as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
        add(part.len() as u64);
    }
    sum
}
