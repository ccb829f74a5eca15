//! Prints the instructions of a raw trace: `decode TRACE CODE ADDRESS`.
//!
//! `CODE` is a file with the bytes of the code. `ADDRESS` is its first address in hexadecimal.

use backtrail_decoder::{Config, Decoder, Image, Input, Section};
use backtrail_pt::{Avma, Tid};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, code, address] = &*arguments else {
        return Err("usage: decode TRACE CODE ADDRESS".into());
    };
    let mut image = Image::new();
    image.add(Section {
        start: Avma(u64::from_str_radix(address.trim_start_matches("0x"), 16)?),
        bytes: Arc::new(std::fs::read(code)?),
    });
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(std::fs::read(trace)?),
        image: Arc::new(image),
    };
    let config = Config::default();
    let decoded = Decoder::new(&config).decode(&[input], &BTreeMap::new())?;
    for history in &decoded.threads {
        history
            .walk(0)
            .for_each(|instruction| println!("{}", instruction.pc));
        for (index, gap) in history.gaps() {
            println!("gap before instruction {index}: {}", gap.cause);
        }
    }
    Ok(())
}
