//! Packets outside of the flow: power, events, transactions, paging, padding.

use super::Writing;
use super::writer::{FUP, TIP};
use backtrail_pt::Avma;
use backtrail_pt::packet::{ExecMode, IpPayload, Packet, Payload, Tnt};
use backtrail_tests::random::Random;

impl Writing<'_> {
    /// Writes something that may precede the instruction at `ip`.
    pub(super) fn extra(&mut self, ip: Avma) {
        if self.style.wild && self.random.once_in(3) {
            let packet = any_packet(self.random);
            return self.writer.raw(packet);
        }
        match self.random.below(14) {
            0..=3 => self.interrupt(ip),
            4 => self.writer.encoder.psb(ip),
            5 => self.transaction(ip),
            6 => {
                let hints = self.random.next() as u8;
                self.writer.raw(Packet::Mwait { hints, extensions: 1 });
                self.writer.raw(Packet::Exstop { ip: true });
                self.writer.ip(FUP, ip);
            }
            7 => self.writer.raw(Packet::Exstop { ip: false }),
            8 => {
                self.writer.raw(Packet::Exstop { ip: true });
                self.writer.ip(FUP, ip);
            }
            9 => {
                // An interrupt, a system management interrupt, a shutdown, a user interrupt.
                let kind = self.random.pick(&[1, 3, 0xa, 0xc]);
                self.event(true, kind);
                self.writer.ip(FUP, ip);
            }
            10 => {
                for _ in 0..=self.random.below(20) {
                    self.writer.raw(Packet::Pad);
                }
            }
            11 => self.writer.encoder.flush(),
            _ => {
                let packet = anywhere(self.random);
                self.writer.raw(packet);
            }
        }
    }

    /// Tracing is off.
    pub(super) fn while_off(&mut self) {
        if self.style.extras_every == 0 {
            return;
        }
        for _ in 0..self.random.below(3) {
            let packet = match self.random.below(5) {
                0 => Packet::Pip {
                    cr3: (self.random.next() & 0xff_ffff) << 12,
                    non_root: self.random.once_in(4),
                },
                1 => Packet::Vmcs((self.random.next() & 0xff_ffff) << 12),
                2 => Packet::TraceStop,
                _ => anywhere(self.random),
            };
            self.writer.raw(packet);
        }
    }

    /// A transaction begins, ends, or is aborted and continues here.
    fn transaction(&mut self, ip: Avma) {
        let abort = self.in_transaction && self.random.once_in(2);
        self.in_transaction = !self.in_transaction;
        self.writer.raw(Packet::ModeTsx {
            in_tx: self.in_transaction,
            abort,
        });
        self.writer.ip(FUP, ip);
        if abort {
            self.writer.ip(TIP, ip);
        }
    }

    /// A control flow event, before its FUP if it has one.
    pub(super) fn event(&mut self, ip: bool, kind: u8) {
        if kind == 1 && self.random.once_in(3) {
            let value = self.random.next();
            self.writer.raw(Packet::Evd { kind: 0, value });
        }
        let vector = self.random.next() as u8;
        self.writer.raw(Packet::Cfe { ip, kind, vector });
    }
}

/// A packet that is valid between any two others.
fn anywhere(random: &mut Random) -> Packet {
    let low = |random: &mut Random| random.below(16) as u8;
    match random.below(5) {
        0 => Packet::Cbr(1 + random.below(60) as u8),
        1 => Packet::Pwre {
            hardware: random.once_in(2),
            state: low(random),
            sub_state: low(random),
        },
        2 => Packet::Pwrx {
            last: low(random),
            deepest: low(random),
            wake: 1,
        },
        3 => Packet::Mnt(random.next()),
        _ => Packet::Pad,
    }
}

/// A packet of any kind.
pub fn any_packet(random: &mut Random) -> Packet {
    let wide = random.next();
    let byte = random.next() as u8;
    let flag = random.once_in(2);
    let value = if random.once_in(2) {
        Payload::Four(wide as u32)
    } else {
        Payload::Eight(wide)
    };
    match random.below(31) {
        0 => Packet::Pad,
        1 => Packet::Psb,
        2 => Packet::PsbEnd,
        3 | 4 => {
            let len = 1 + random.below(6) as u8;
            Packet::TntShort(Tnt::new(wide >> (64 - len), len).unwrap())
        }
        5 => {
            let len = 1 + random.below(47) as u8;
            Packet::TntLong(Tnt::new(wide >> (64 - len), len).unwrap())
        }
        6 => Packet::Tip(address(random)),
        7 => Packet::TipPge(address(random)),
        8 => Packet::TipPgd(address(random)),
        9 | 10 => Packet::Fup(address(random)),
        11 => Packet::Pip {
            cr3: (wide & 0xff_ffff) << 12,
            non_root: flag,
        },
        12 => Packet::ModeExec(ExecMode {
            long: flag,
            default_32: random.once_in(2),
            interrupts: random.once_in(2),
        }),
        13 => Packet::ModeTsx {
            in_tx: flag,
            abort: random.once_in(2),
        },
        14 => Packet::TraceStop,
        15 => Packet::Cbr(byte),
        16 => Packet::Tsc(wide >> 8),
        17 => Packet::Tma {
            ctc: wide as u16,
            fast: (wide >> 16) as u16 & 0x1ff,
        },
        18 => Packet::Mtc(byte),
        19 => Packet::Cyc(wide >> random.below(64)),
        20 => Packet::Vmcs((wide & 0xff_ffff) << 12),
        21 => Packet::Ovf,
        22 => Packet::Mnt(wide),
        23 => Packet::Ptw { value, ip: flag },
        24 => Packet::Exstop { ip: flag },
        25 => Packet::Mwait {
            hints: byte,
            extensions: 1,
        },
        26 => Packet::Pwre {
            hardware: flag,
            state: byte >> 4,
            sub_state: 0,
        },
        27 => Packet::Pwrx {
            last: byte >> 4,
            deepest: byte & 15,
            wake: 1,
        },
        28 => Packet::Bbp {
            kind: byte & 31,
            short: flag,
        },
        29 => Packet::Cfe {
            ip: flag,
            kind: byte & 31,
            vector: byte,
        },
        _ => Packet::Evd {
            kind: byte & 63,
            value: wide,
        },
    }
}

fn address(random: &mut Random) -> IpPayload {
    let wide = random.next();
    match random.below(6) {
        0 => IpPayload::Suppressed,
        1 => IpPayload::Update16(wide as u16),
        2 => IpPayload::Update32(0x40_0000 + (wide as u32 & 0xfff)),
        3 => IpPayload::Sext48(wide >> 16),
        4 => IpPayload::Update48(wide >> 16),
        _ => IpPayload::Full(wide),
    }
}
