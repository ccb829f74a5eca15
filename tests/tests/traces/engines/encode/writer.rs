//! The project's encoder, and packets that it does not write.

use backtrail_pt::{Avma, Encoder, EncoderOptions, Packet, Parser};

/// The low five bits of packets with an address.
pub const TIP: u8 = 0x0d;
pub const TIP_PGD: u8 = 0x01;
pub const FUP: u8 = 0x1d;

/// Writes a trace.
pub struct Writer {
    pub encoder: Encoder,
    out: Vec<u8>,
}

impl Writer {
    pub fn new(options: EncoderOptions) -> Self {
        Self {
            encoder: Encoder::new(options),
            out: Vec::new(),
        }
    }

    /// Writes a packet unchanged, after all pending branches.
    pub fn raw(&mut self, packet: Packet) {
        self.out.extend(self.encoder.take());
        packet.write_to(&mut self.out);
    }

    /// Writes a packet with an address, compressed as usual.
    pub fn ip(&mut self, opcode: u8, ip: Avma) {
        self.out.extend(self.encoder.take());
        self.encoder.indirect(ip);
        let mut bytes = self.encoder.take();
        let last = Parser::new(&bytes).map_while(Result::ok).last();
        let (at, _) = last.unwrap();
        bytes[at] = bytes[at] & !0x1f | opcode;
        self.out.extend(bytes);
    }

    /// Loses packets, starting with the pending branches.
    pub fn overflow(&mut self, ip: Option<Avma>) {
        self.encoder.overflow(ip);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.out.extend(self.encoder.take());
        self.out
    }
}
