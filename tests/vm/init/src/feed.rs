//! Recorded packets, cut where the program left user code, for the stand-in driver.

use backtrail_pt::packet::ExecMode;
use backtrail_pt::{LastIp, Packet, Parser};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};

/// The stand-in's device; closing it discards all pieces.
pub struct Feed {
    device: File,
}

/// Packets from one entry into user code to the system call, or fault, that leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub bytes: Vec<u8>,
    /// The offsets of the 7-byte payloads of TSC packets, which are set when the piece is fed.
    pub times: Vec<u32>,
}

/// How a recording is cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each piece continues the last one: all are for one processor.
    Continuous,
    /// Each piece can be decoded alone, because it may go to another processor.
    Independent,
}

/// The counts of a task's pieces after feeding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    pub pieces: u64,
    pub bytes: u64,
    pub lost: u64,
    pub left: u64,
}

impl Feed {
    pub fn open() -> Result<Self, String> {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/intel_pt_feed")
            .map_err(|error| format!("cannot open the stand-in's device: {error}"))?;
        Ok(Self { device })
    }

    /// Registers the pieces that process `pid` will have executed, from its next `execve`.
    pub fn give(&mut self, pid: u32, pieces: &[Piece]) -> Result<(), String> {
        for piece in pieces {
            let fields = [pid, piece.bytes.len() as u32, piece.times.len() as u32, 0];
            let mut message: Vec<u8> = fields.into_iter().flat_map(u32::to_ne_bytes).collect();
            message.extend(piece.times.iter().copied().flat_map(u32::to_ne_bytes));
            message.extend(&piece.bytes);
            self.device
                .write_all(&message)
                .map_err(|error| format!("the stand-in refuses a piece: {error}"))?;
        }
        Ok(())
    }

    /// Returns the counts for a process.
    pub fn fed(&mut self, pid: u32) -> Result<Fed, String> {
        let mut text = String::new();
        self.device
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.device.read_to_string(&mut text))
            .map_err(|error| format!("cannot read the stand-in's device: {error}"))?;
        text.lines()
            .find_map(|line| fed(line, pid))
            .ok_or_else(|| format!("the stand-in knows nothing of process {pid}: {text}"))
    }
}

fn fed(line: &str, pid: u32) -> Option<Fed> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[
        "task",
        task,
        "pieces",
        pieces,
        "bytes",
        bytes,
        "lost",
        lost,
        "left",
        left,
    ] = words.as_slice()
    else {
        return None;
    };
    if task.parse() != Ok(pid) {
        return None;
    }
    Some(Fed {
        pieces: pieces.parse().ok()?,
        bytes: bytes.parse().ok()?,
        lost: lost.parse().ok()?,
        left: left.parse().ok()?,
    })
}

/// Returns the recording of that name, in pieces.
pub fn recording(name: &str, cut: Cut) -> Result<Vec<Piece>, String> {
    let path = format!("/recordings/{name}.pt");
    let bytes = fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    pieces(&bytes, cut)
}

/// Cuts after each TIP.PGD of a system call. Exits with a FUP before them (a signal, or the
/// recorder itself) do not happen here, except the last, which is the crash. Recorded timing
/// packets (MTC, TMA, CYC) are omitted. TSC packets are set later: the stand-in writes this
/// machine's time at the beginning of each piece and where it leaves user code. Hardware writes the
/// time far more often (MTC, CYC).
pub fn pieces(recorded: &[u8], cut: Cut) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut piece = Piece::default();
    let (mut read, mut written) = (LastIp::default(), LastIp::default());
    let (mut after_fup, mut inside) = (false, false);
    for packet in Parser::new(recorded) {
        let (offset, packet) = packet.map_err(|error| format!("the recording is no trace: {error:?}"))?;
        if matches!(
            packet,
            Packet::Mtc(_) | Packet::Tma { .. } | Packet::Cyc(_) | Packet::Pad
        ) {
            continue;
        }
        if piece.bytes.is_empty() && packet != Packet::Psb {
            match cut {
                Cut::Continuous => piece.time(),
                Cut::Independent => {
                    piece.packet(Packet::Psb);
                    piece.time();
                    piece.packet(Packet::ModeExec(ExecMode::LONG));
                    piece.packet(Packet::PsbEnd);
                    written.reset();
                }
            }
        }
        let packet = match packet {
            Packet::Psb => {
                read.reset();
                written.reset();
                packet
            }
            Packet::Tsc(_) => {
                piece.time();
                continue;
            }
            Packet::Tip(ip) => read
                .decode(ip)
                .map_or(packet, |ip| Packet::Tip(written.encode(ip))),
            Packet::TipPge(ip) => read
                .decode(ip)
                .map_or(packet, |ip| Packet::TipPge(written.encode(ip))),
            Packet::TipPgd(ip) => read
                .decode(ip)
                .map_or(packet, |ip| Packet::TipPgd(written.encode(ip))),
            Packet::Fup(ip) => read
                .decode(ip)
                .map_or(packet, |ip| Packet::Fup(written.encode(ip))),
            Packet::Ovf => return Err(format!("the recording has a gap, at byte {offset}")),
            _ => packet,
        };
        let leaves = matches!(packet, Packet::TipPgd(_) | Packet::Fup(_)) && !after_fup;
        if leaves && inside {
            piece.time();
        }
        inside = matches!(packet, Packet::TipPge(_)) || inside && !matches!(packet, Packet::TipPgd(_));
        piece.packet(packet);
        if matches!(packet, Packet::TipPgd(_)) && !after_fup {
            pieces.push(std::mem::take(&mut piece));
        }
        after_fup = matches!(packet, Packet::Fup(_));
    }
    if !piece.bytes.is_empty() {
        pieces.push(piece);
    }
    Ok(pieces)
}

impl Piece {
    fn packet(&mut self, packet: Packet) {
        packet.write_to(&mut self.bytes);
    }

    fn time(&mut self) {
        self.times.push(self.bytes.len() as u32 + 1);
        self.packet(Packet::Tsc(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{Avma, Encoder, EncoderOptions, Tsc};

    fn recorded() -> Vec<u8> {
        let mut encoder = Encoder::new(EncoderOptions::default());
        encoder.set_time(Tsc(1));
        encoder.start();
        encoder.enable(Avma(0x40_1000));
        encoder.conditional(true);
        encoder.disable();
        encoder.enable(Avma(0x40_1010));
        encoder.disable_async(Avma(0x40_1020));
        encoder.take()
    }

    #[test]
    fn piece_ends_where_the_program_leaves_user_code() {
        let pieces = pieces(&recorded(), Cut::Continuous).unwrap();
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|piece| !piece.bytes.is_empty()));
        // At the beginning, and before FUP (with two bytes of its address) and TIP.PGD.
        let end = pieces[1].bytes.len() as u32 - 1 - 3 - 7;
        assert_eq!(pieces[1].times, [1, end]);
    }

    #[test]
    fn independent_piece_has_its_full_first_address() {
        let pieces = pieces(&recorded(), Cut::Independent).unwrap();
        for (piece, first) in pieces.iter().zip([0x40_1000, 0x40_1010]) {
            let mut last = LastIp::default();
            let ip = Parser::new(&piece.bytes).find_map(|packet| match packet.unwrap().1 {
                Packet::TipPge(ip) => last.decode(ip),
                _ => None,
            });
            assert_eq!(ip, Some(Avma(first)));
            for &at in &piece.times {
                assert_eq!(piece.bytes[at as usize - 1], 0x19);
            }
        }
    }
}
