//! The trace: packets as text, with labels for addresses.

use crate::address::{Labels, number};
use crate::code::byte;
use backtrail_pt::Packet;

/// Appends the packets of a line to the trace. Defines a label on it in `offsets`.
pub fn push(line: &str, addresses: &Labels, offsets: &mut Labels, trace: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = line.trim();
    if let Some((name, after)) = rest.split_once(": ")
        && !name.contains(' ')
    {
        offsets.define(name, trace.len() as u64)?;
        rest = after.trim();
    }
    let mut times = 1;
    if let Some((count, after)) = rest.split_once(" * ") {
        times = number(count)?;
        rest = after.trim();
    }
    let mut bytes = Vec::new();
    if let Some(words) = rest.strip_prefix("bytes ") {
        bytes = words.split_whitespace().map(byte).collect::<Result<_, _>>()?;
    } else {
        let words: Vec<String> = rest
            .split_whitespace()
            .map(|word| resolve(word, addresses))
            .collect::<Result<_, _>>()?;
        let packet: Packet = words.join(" ").parse().map_err(|error| format!("{error}"))?;
        packet.write_to(&mut bytes);
    }
    for _ in 0..times {
        trace.extend(&bytes);
    }
    Ok(())
}

/// Resolves a label in an address field to a number of the field's width.
fn resolve(word: &str, addresses: &Labels) -> Result<String, String> {
    let Some((kind, text)) = word.split_once(':') else {
        return Ok(word.to_owned());
    };
    let bits = match kind {
        "upd16" => 16,
        "upd32" => 32,
        "sext48" | "upd48" => 48,
        "full" => 64,
        _ => return Ok(word.to_owned()),
    };
    let value = addresses.value(text)? & u64::MAX >> (64 - bits);
    Ok(format!("{kind}:{value:#x}"))
}
