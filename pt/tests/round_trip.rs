//! Properties of the parser, writer and text notation, for all packets and arbitrary bytes.

use backtrail_pt::Packet;
use backtrail_pt::Parser;
use backtrail_pt::packet::{ExecMode, IpPayload, Payload, Tnt};
use proptest::prelude::*;

fn tnt(max: u8) -> impl Strategy<Value = Tnt> {
    (1..=max, any::<u64>()).prop_filter_map("length", |(len, bits)| Tnt::new(bits & ((1 << len) - 1), len))
}

fn ip() -> impl Strategy<Value = IpPayload> {
    prop_oneof![
        Just(IpPayload::Suppressed),
        any::<u16>().prop_map(IpPayload::Update16),
        any::<u32>().prop_map(IpPayload::Update32),
        (0..1u64 << 48).prop_map(IpPayload::Sext48),
        (0..1u64 << 48).prop_map(IpPayload::Update48),
        any::<u64>().prop_map(IpPayload::Full),
    ]
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        any::<u32>().prop_map(Payload::Four),
        any::<u64>().prop_map(Payload::Eight)
    ]
}

/// Generates every packet except block items, which are only valid within a block.
fn packet() -> BoxedStrategy<Packet> {
    let flow = prop_oneof![
        Just(Packet::Pad),
        Just(Packet::Psb),
        Just(Packet::PsbEnd),
        tnt(6).prop_map(Packet::TntShort),
        tnt(47).prop_map(Packet::TntLong),
        ip().prop_map(Packet::Tip),
        ip().prop_map(Packet::TipPge),
        ip().prop_map(Packet::TipPgd),
        ip().prop_map(Packet::Fup),
        (0..1u64 << 47, any::<bool>()).prop_map(|(cr3, non_root)| Packet::Pip {
            cr3: cr3 << 5,
            non_root
        }),
        any::<(bool, bool, bool)>().prop_map(|(long, default_32, interrupts)| {
            Packet::ModeExec(ExecMode {
                long,
                default_32,
                interrupts,
            })
        }),
        any::<(bool, bool)>().prop_map(|(in_tx, abort)| Packet::ModeTsx { in_tx, abort }),
        Just(Packet::TraceStop),
        Just(Packet::Ovf),
    ];
    let time = prop_oneof![
        any::<u8>().prop_map(Packet::Cbr),
        (0..1u64 << 56).prop_map(Packet::Tsc),
        (any::<u16>(), 0..512u16).prop_map(|(ctc, fast)| Packet::Tma { ctc, fast }),
        any::<u8>().prop_map(Packet::Mtc),
        (any::<u64>(), 0..61u32).prop_map(|(cycles, shift)| Packet::Cyc(cycles >> 3 >> shift)),
    ];
    let rest = prop_oneof![
        (0..1u64 << 40).prop_map(|base| Packet::Vmcs(base << 12)),
        any::<u64>().prop_map(Packet::Mnt),
        (payload(), any::<bool>()).prop_map(|(value, ip)| Packet::Ptw { value, ip }),
        any::<bool>().prop_map(|ip| Packet::Exstop { ip }),
        (any::<u8>(), 0..4u8).prop_map(|(hints, extensions)| Packet::Mwait { hints, extensions }),
        (any::<bool>(), 0..16u8, 0..16u8).prop_map(|(hardware, state, sub_state)| Packet::Pwre {
            hardware,
            state,
            sub_state
        }),
        (0..16u8, 0..16u8, 0..16u8).prop_map(|(last, deepest, wake)| Packet::Pwrx { last, deepest, wake }),
        any::<bool>().prop_map(|ip| Packet::Bep { ip }),
        (any::<bool>(), 0..32u8, any::<u8>()).prop_map(|(ip, kind, vector)| Packet::Cfe { ip, kind, vector }),
        (0..64u8, any::<u64>()).prop_map(|(kind, value)| Packet::Evd { kind, value }),
        any::<(u8, Option<u16>, bool, bool)>().prop_map(|(triggers, instructions, multiple, ip)| {
            Packet::Trig {
                triggers,
                instructions,
                multiple,
                ip,
            }
        }),
    ];
    prop_oneof![flow, time, rest].boxed()
}

/// Generates a complete block, or one packet.
fn group() -> BoxedStrategy<Vec<Packet>> {
    let block = (
        0..32u8,
        any::<bool>(),
        prop::collection::vec((0..32u8, any::<u64>()), 0..5),
    )
        .prop_map(|(kind, short, items)| {
            let item = |(id, value): (u8, u64)| Packet::Bip {
                id,
                value: if short {
                    Payload::Four(value as u32)
                } else {
                    Payload::Eight(value)
                },
            };
            let mut group = vec![Packet::Bbp { kind, short }];
            group.extend(items.into_iter().map(item));
            group.push(Packet::Bep { ip: false });
            group
        });
    prop_oneof![4 => packet().prop_map(|packet| vec![packet]), 1 => block].boxed()
}

proptest! {
    #[test]
    fn written_packets_parse_back(groups in prop::collection::vec(group(), 0..40)) {
        let packets = groups.concat();
        let mut bytes = Vec::new();
        packets.iter().for_each(|packet| packet.write_to(&mut bytes));
        let read: Result<Vec<_>, _> = Parser::new(&bytes).map(|item| item.map(|(_, packet)| packet)).collect();
        prop_assert_eq!(read, Ok(packets));
    }

    #[test]
    fn text_parses_back(packet in group()) {
        for packet in packet {
            prop_assert_eq!(packet.to_string().parse(), Ok(packet));
        }
    }

    #[test]
    fn any_bytes_parse_to_the_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        walk(&bytes)?;
    }

    #[test]
    fn packets_mixed_with_noise_parse_to_the_end(
        parts in prop::collection::vec((group(), prop::collection::vec(any::<u8>(), 0..6)), 0..10)
    ) {
        let mut bytes = Vec::new();
        for (packets, noise) in parts {
            packets.iter().for_each(|packet| packet.write_to(&mut bytes));
            bytes.extend(noise);
        }
        walk(&bytes)?;
    }
}

/// Parses to the end, continuing at the next PSB after each error. Offsets must increase.
fn walk(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut parser = Parser::new(bytes);
    let mut end = 0;
    loop {
        for item in &mut parser {
            let offset = item.map_or_else(|error| error.offset, |(offset, _)| offset);
            prop_assert!(offset >= end);
            end = offset + 1;
        }
        if parser.sync_forward().is_none() {
            break;
        }
    }
    prop_assert_eq!(parser.offset(), bytes.len());
    Ok(())
}

/// The first three bytes of an MNT, whose rest was lost: its payload is half of the PSB.
#[test]
fn psb_in_a_packet_cut_by_a_loss_is_found() {
    let mut bytes = Vec::new();
    Packet::Psb.write_to(&mut bytes);
    bytes.extend([0x02, 0xc3, 0x88]);
    let psb = bytes.len();
    Packet::Psb.write_to(&mut bytes);
    Packet::PsbEnd.write_to(&mut bytes);
    let mut parser = Parser::new(&bytes);
    let read = parser.by_ref().count();
    assert_eq!((read, parser.resync_forward()), (3, Some(psb)));
    let rest: Vec<Packet> = parser.map(|packet| packet.unwrap().1).collect();
    assert_eq!(rest, [Packet::Psb, Packet::PsbEnd]);

    // A PSB right after a PSB that an error follows is not found in the first.
    let mut bytes = Vec::new();
    Packet::Psb.write_to(&mut bytes);
    bytes.push(0xc9);
    Packet::Psb.write_to(&mut bytes);
    let mut parser = Parser::new(&bytes);
    assert_eq!((parser.by_ref().count(), parser.resync_forward()), (2, Some(17)));
}
