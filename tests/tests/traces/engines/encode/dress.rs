//! The same trace in other packets: less compressed addresses, more state after a PSB, padding.

use crate::engines::units::{self, Unit};
use backtrail_pt::packet::{IpPayload, Packet};
use backtrail_pt::{Avma, LastIp};
use backtrail_tests::random::Random;

/// Rewrites a valid trace without changing its meaning.
pub fn dress(trace: &[u8], random: &mut Random) -> Vec<u8> {
    let every = random.pick(&[1, 3, 20]);
    let mut last_ip = LastIp::default();
    let mut header = false;
    let mut dressed = Vec::new();
    for unit in units::cut(trace) {
        let Some(packet) = unit.packet else {
            dressed.push(unit);
            continue;
        };
        match packet {
            Packet::Psb => header = true,
            Packet::PsbEnd => header = false,
            _ => {}
        }
        if matches!(packet, Packet::Psb | Packet::Ovf) {
            last_ip.reset();
        }
        if header && matches!(packet, Packet::ModeExec(_)) && random.once_in(every) {
            dressed.extend(state(random).into_iter().map(Unit::of));
        }
        let mut longer = |ip: IpPayload| match last_ip.decode(ip) {
            Some(at) if random.once_in(every) => other_form(ip, at, random),
            _ => ip,
        };
        dressed.push(Unit::of(match packet {
            Packet::Tip(ip) => Packet::Tip(longer(ip)),
            Packet::TipPge(ip) => Packet::TipPge(longer(ip)),
            Packet::TipPgd(ip) => Packet::TipPgd(longer(ip)),
            Packet::Fup(ip) => Packet::Fup(longer(ip)),
            packet => packet,
        }));
        if random.once_in(50 * every) {
            dressed.push(Unit::of(Packet::Pad));
        }
    }
    units::join(&dressed)
}

/// Returns the address in another form, with the same or more bytes.
fn other_form(ip: IpPayload, at: Avma, random: &mut Random) -> IpPayload {
    let low = at.0 & 0xffff_ffff_ffff;
    let extended = (low << 16) as i64 >> 16;
    match (random.below(4), ip) {
        (0, _) if extended as u64 == at.0 => IpPayload::Sext48(low),
        (1, IpPayload::Update16(_)) => IpPayload::Update32(at.0 as u32),
        (2, IpPayload::Update16(_) | IpPayload::Update32(_)) => IpPayload::Update48(low),
        (3, _) => IpPayload::Full(at.0),
        _ => ip,
    }
}

/// Returns additional packets after a PSB.
fn state(random: &mut Random) -> Vec<Packet> {
    let pip = Packet::Pip {
        cr3: (random.next() & 0xff_ffff) << 12,
        non_root: random.once_in(4),
    };
    let vmcs = Packet::Vmcs((random.next() & 0xff_ffff) << 12);
    let tsx = Packet::ModeTsx {
        in_tx: false,
        abort: false,
    };
    let mut state = vec![pip, vmcs, tsx, Packet::Pad];
    state.retain(|_| random.once_in(2));
    state
}
