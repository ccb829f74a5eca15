//! Mutations of a trace, or of the code that decodes it.

use crate::engines::assembler::Segment;
use crate::engines::encode::{Expected, Trace, any_packet};
use crate::engines::units::{self, Unit};
use backtrail_pt::Packet;
use backtrail_pt::packet::Tnt;
use backtrail_tests::random::Random;

/// Corrupts a trace in some places, with pieces of `other`.
pub fn random(trace: &mut Trace, other: &Trace, random: &mut Random) {
    trace.expected = Expected::Agreement;
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0..=2 => bytes(&mut trace.bytes, random),
            3..=5 => packets(&mut trace.bytes, &other.bytes, random),
            6 => code(&mut trace.code, random),
            _ => splice(&mut trace.bytes, &other.bytes, random),
        }
    }
}

/// One bit, byte or piece.
fn bytes(trace: &mut Vec<u8>, random: &mut Random) {
    if trace.is_empty() {
        return;
    }
    let at = random.below(trace.len());
    let end = (at + 1 + random.below(16)).min(trace.len());
    match random.below(5) {
        0 => trace[at] ^= 1 << random.below(8),
        1 => trace[at] = random.next() as u8,
        2 => trace.insert(at, random.next() as u8),
        3 => drop(trace.drain(at..end)),
        _ => {
            let piece = trace[at..end].to_vec();
            trace.splice(at..at, piece);
        }
    }
}

/// One packet, or several consecutive ones.
fn packets(trace: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let mut units = units::cut(trace);
    if units.is_empty() {
        return;
    }
    let at = random.below(units.len());
    let end = (at + 1 + random.below(4)).min(units.len());
    match random.below(8) {
        0 => drop(units.remove(at)),
        1 => drop(units.drain(at..end)),
        2 => {
            let piece = units[at..end].to_vec();
            units.splice(at..at, piece);
        }
        3 => {
            let to = random.below(units.len());
            units.swap(at, to);
        }
        4 => {
            let next = (at + 1).min(units.len() - 1);
            units.swap(at, next);
        }
        5 => units.insert(at, Unit::of(any_packet(random))),
        6 => turn_outcome(&mut units, at, random),
        _ => {
            let from = units::cut(other);
            let begin = random.below(from.len());
            let end = (begin + 1 + random.below(6)).min(from.len());
            units.splice(at..at, from[begin.min(end)..end].iter().cloned());
        }
    }
    *trace = units::join(&units);
}

/// Inverts one branch of the first TNT at or after `at`.
fn turn_outcome(units: &mut [Unit], at: usize, random: &mut Random) {
    let found = units[at..].iter_mut().find_map(|unit| match unit.packet {
        Some(Packet::TntShort(tnt)) => Some((unit, tnt, false)),
        Some(Packet::TntLong(tnt)) => Some((unit, tnt, true)),
        _ => None,
    });
    if let Some((unit, tnt, long)) = found {
        let turned = Tnt::new(tnt.bits() ^ 1 << random.below(tnt.len().into()), tnt.len()).unwrap();
        *unit = Unit::of(if long {
            Packet::TntLong(turned)
        } else {
            Packet::TntShort(turned)
        });
    }
}

/// The beginning of one and the end of the other.
fn splice(trace: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let (at, from) = (random.below(trace.len()), random.below(other.len()));
    trace.truncate(at);
    trace.extend_from_slice(&other[from..]);
}

/// A hole, or other bytes.
fn code(code: &mut Vec<Segment>, random: &mut Random) {
    let at = random.below(code.len());
    let len = code[at].bytes.len();
    if len == 0 {
        return;
    }
    let from = random.below(len);
    if random.once_in(2) {
        code[at].bytes[from] ^= 1 << random.below(8);
        return;
    }
    let to = (from + 1 + random.below(30)).min(len);
    let behind = Segment {
        start: code[at].start + to as u64,
        bytes: code[at].bytes.split_off(to),
    };
    code[at].bytes.truncate(from);
    code.push(behind);
}
