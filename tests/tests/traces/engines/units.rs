//! A trace cut into packets, and into bytes that are not packets.

use backtrail_pt::{Packet, Parser};
use std::fmt::Write;

/// The bytes of a packet, or of a range without packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub bytes: Vec<u8>,
    pub packet: Option<Packet>,
}

impl Unit {
    pub fn of(packet: Packet) -> Self {
        let mut bytes = Vec::new();
        packet.write_to(&mut bytes);
        Self {
            bytes,
            packet: Some(packet),
        }
    }
}

/// Cuts a trace. After invalid bytes, the next unit begins at the next PSB.
pub fn cut(trace: &[u8]) -> Vec<Unit> {
    let mut parser = Parser::new(trace);
    let mut units = Vec::new();
    let mut end = 0;
    loop {
        let begin = parser.offset();
        push_rubbish(&mut units, &trace[end..begin]);
        end = begin;
        while let Some(Ok((offset, packet))) = parser.next() {
            end = parser.offset();
            units.push(Unit {
                bytes: trace[offset..end].to_vec(),
                packet: Some(packet),
            });
        }
        if end == trace.len() || parser.sync_forward().is_none() {
            push_rubbish(&mut units, &trace[end..]);
            return units;
        }
    }
}

fn push_rubbish(units: &mut Vec<Unit>, bytes: &[u8]) {
    units.extend(bytes.chunks(8).map(|bytes| Unit {
        bytes: bytes.to_vec(),
        packet: None,
    }));
}

/// Returns the trace of the units.
pub fn join(units: &[Unit]) -> Vec<u8> {
    units.iter().flat_map(|unit| unit.bytes.iter().copied()).collect()
}

/// Lists one unit a line with its offset: all units, or those around an offset.
pub fn text(units: &[Unit], around: Option<u64>) -> String {
    let mut text = String::new();
    let mut offset = 0;
    for unit in units {
        let near = around.is_none_or(|around| (offset as u64).abs_diff(around) <= 60);
        if near {
            let _ = match unit.packet {
                Some(packet) => writeln!(text, "  {offset:#06x} {packet}"),
                None => writeln!(text, "  {offset:#06x} bytes {:02x?}", unit.bytes),
            };
        }
        offset += unit.bytes.len();
    }
    text
}

#[test]
fn cut_pieces_contain_every_byte() {
    let mut trace = vec![0xff, 0x00, 0x01];
    Packet::Psb.write_to(&mut trace);
    trace.extend([0x06, 0x02, 0x00]);
    Packet::Psb.write_to(&mut trace);
    trace.push(0x02);
    assert_eq!(join(&cut(&trace)), trace);
    let psbs = cut(&trace)
        .iter()
        .filter(|unit| unit.packet == Some(Packet::Psb))
        .count();
    assert_eq!(psbs, 2);
}
