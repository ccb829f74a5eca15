//! `backtrail dump packets`: prints each buffer of the bundle packet by packet, with byte offsets.

use crate::args::Dump;
use crate::exit::Failure;
use crate::output::Output;
use backtrail_bundle::{Bundle, BundlePath};
use backtrail_pt::packet::Packet;
use backtrail_pt::parser::Parser;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct PacketRecord {
    buffer: String,
    offset: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Prints the packets of every buffer, or of the requested thread or processor.
pub fn run(args: &Dump, output: &mut Output) -> Result<(), Failure> {
    let bundle = Bundle::open(&args.bundle)?;
    let from = match &args.from {
        Some(text) => parse_offset(text)?,
        None => 0,
    };
    let buffers = buffers(&bundle, args.thread);
    if let (Some(id), true) = (args.thread, buffers.is_empty()) {
        return Err(Failure::failed(format_args!(
            "no buffer belongs to thread or processor {id}"
        )));
    }
    for (name, path) in buffers {
        let bytes = bundle.bytes(&path)?;
        if !args.json {
            writeln!(output, "# {name}: {} bytes", bytes.as_ref().len())?;
        }
        dump_buffer(args, output, &name, bytes.as_ref(), from)?;
    }
    Ok(())
}

/// Returns every requested buffer with its name.
fn buffers(bundle: &Bundle, wanted: Option<u32>) -> Vec<(String, BundlePath)> {
    let manifest = bundle.manifest();
    let threads = manifest.processes.iter().flat_map(|process| &process.threads);
    let threads = threads.filter_map(|thread| {
        let path = thread.trace.clone()?;
        wanted
            .is_none_or(|id| id == thread.tid.0)
            .then(|| (format!("thread {}", thread.tid), path))
    });
    let cpus = manifest
        .cpus
        .iter()
        .filter(|cpu| wanted.is_none_or(|id| id == cpu.cpu.0));
    threads
        .chain(cpus.map(|cpu| (format!("cpu {}", cpu.cpu), cpu.trace.clone())))
        .collect()
}

/// Prints packets from the first PSB at or after `from`. After an error it continues at the next
/// PSB. PAD packets are omitted.
fn dump_buffer(
    args: &Dump,
    output: &mut Output,
    name: &str,
    bytes: &[u8],
    from: usize,
) -> Result<(), Failure> {
    let tail = bytes.get(from..).unwrap_or_default();
    let mut parser = Parser::new(tail);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && parser.resync_forward().is_some() {
        for item in parser.by_ref() {
            let (offset, item) = match item {
                Ok((_, Packet::Pad)) => continue,
                Ok((offset, packet)) => (offset, Ok(packet.to_string())),
                Err(error) => (error.offset, Err(error.kind.to_string())),
            };
            let offset = from + offset;
            if args.json {
                let (packet, error) = (item.as_ref().ok().cloned(), item.as_ref().err().cloned());
                let record = PacketRecord {
                    buffer: name.to_owned(),
                    offset,
                    packet,
                    error,
                };
                output.json("backtrail-packet/1", &record)?;
            } else {
                match item {
                    Ok(packet) => writeln!(output, "{offset:#010x}  {packet}")?,
                    Err(error) => writeln!(output, "{offset:#010x}  error: the byte {error}")?,
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    Ok(())
}

fn parse_offset(text: &str) -> Result<usize, Failure> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| Failure::usage(format_args!("--from {text}: not a byte offset (4096 or 0x1000)")))
}
