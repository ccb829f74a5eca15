//! Mutations of bytes.

pub use backtrail_tests::random::Random;
use object::{Object, ObjectSection};

/// Numbers at which sizes and offsets overflow.
const EDGES: &[u64] = &[
    0,
    1,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 47,
    1 << 62,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Corrupts `bytes` in one to four places, with pieces of `others`.
pub fn bytes(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(64)).min(bytes.len());
        match random.below(9) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 | 3 => {
                let width = random.pick(&[2, 4, 8]);
                let at = if random.below(2) == 0 {
                    at & !(width - 1)
                } else {
                    at
                };
                let number = random
                    .pick(EDGES)
                    .wrapping_add(random.below(3) as u64)
                    .wrapping_sub(1);
                for (to, from) in bytes.iter_mut().skip(at).zip(&number.to_le_bytes()[..width]) {
                    *to = *from;
                }
            }
            4 => drop(bytes.drain(at.min(end)..end)),
            5 => {
                let piece: Vec<u8> = bytes[at.min(end)..end].to_vec();
                let times = random.pick(&[1, 2, 40]);
                bytes.splice(at..at, piece.repeat(times));
            }
            6 if random.below(4) == 0 => bytes.truncate(at),
            _ => {
                let other = &others[random.below(others.len())];
                let from = random.below(other.len());
                let piece = &other[from..(from + random.below(128)).min(other.len())];
                let end = if random.below(2) == 0 {
                    at
                } else {
                    (at + piece.len()).min(bytes.len())
                };
                bytes.splice(at..end, piece.iter().copied());
            }
        }
    }
}

/// Corrupts a section of an ELF file in place, so that the rest stays intact. `is_wanted` gets the
/// section's name.
pub fn section(
    random: &mut Random,
    file: &mut Vec<u8>,
    others: &[Vec<u8>],
    is_wanted: impl Fn(&str) -> bool,
) {
    let mut sections = Vec::new();
    if let Ok(elf) = object::File::parse(&**file) {
        for section in elf.sections() {
            let is_wanted = section.name().is_ok_and(&is_wanted);
            if let Some((at, size)) = section.file_range().filter(|range| is_wanted && range.1 != 0) {
                sections.push((at as usize, size as usize));
            }
        }
    }
    if sections.is_empty() {
        return bytes(random, file, others);
    }
    let (at, size) = random.pick(&sections);
    let Some(found) = file.get(at..at + size) else {
        return bytes(random, file, others);
    };
    let mut section = found.to_vec();
    bytes(random, &mut section, &[found.to_vec()]);
    section.resize(size, 0);
    file[at..at + size].copy_from_slice(&section);
}

/// Corrupts JSON syntactically correctly: replaces a number or word, or nests a piece deeply.
pub fn json(random: &mut Random, text: &mut Vec<u8>, others: &[Vec<u8>]) {
    if random.below(3) == 0 {
        return bytes(random, text, others);
    }
    const WORDS: &[&str] = &[
        "0",
        "-1",
        "1e999",
        "18446744073709551615",
        "18446744073709551616",
        "4294967296",
        "0.5",
        "null",
        "true",
        "\"\"",
        "\"../../etc/passwd\"",
        "\"/etc/passwd\"",
        "\"0x10\"",
        "\"trace.json\"",
        "\".\"",
        "\"a\\u0000b\"",
        "[]",
        "{}",
        "[[[]]]",
        "\"intel-pt\"",
    ];
    for _ in 0..=random.below(3) {
        let values: Vec<usize> = text
            .iter()
            .enumerate()
            .filter(|&(_, &byte)| byte == b':')
            .map(|(at, _)| at + 1)
            .collect();
        let from = if values.is_empty() {
            0
        } else {
            random.pick(&values)
        };
        let length = text[from..]
            .iter()
            .position(|byte| b",}]\n".contains(byte))
            .unwrap_or(0);
        let word = if random.below(20) == 0 {
            "[".repeat(100_000)
        } else {
            random.pick(WORDS).into()
        };
        text.splice(from..from + length, word.bytes());
    }
}
