//! Compares the opcode tables of `backtrail_pt::instruction` with libipt's length decoder.
//!
//! libipt decodes one instruction of a trace that only has its address; its image has the bytes.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

use backtrail_decoder::Config;
use backtrail_pt::instruction::{DecodeError, Mode, Role, decode};
use backtrail_pt::packet::{ExecMode, IpPayload, Packet, Tnt};
use backtrail_pt::{Avma, Cofi};
use libipt_sys as sys;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

const AT: Avma = Avma(0x10_0000);
const MODES: [Mode; 3] = [Mode::Bits64, Mode::Bits32, Mode::Bits16];

/// libipt's result for an instruction.
#[derive(Debug)]
struct Theirs {
    len: u8,
    class: sys::pt_insn_class,
    /// The next address, if a conditional branch is taken. `None`: a packet would be needed.
    next: Option<Avma>,
}

/// Returns libipt's result for the instruction at [`AT`], where `code` is all code. `None`: it is
/// invalid.
fn libipt(code: &[u8], trace: &[u8]) -> Option<Theirs> {
    let config = backtrail_oracle::configuration(trace, &Config::default()).unwrap();
    // SAFETY: the configuration is complete, and its buffer outlives the decoder.
    let decoder = NonNull::new(unsafe { sys::pt_insn_alloc_decoder(&raw const config) }).unwrap();
    let found = step(decoder, &code);
    // SAFETY: the decoder is valid and not used again.
    unsafe { sys::pt_insn_free_decoder(decoder.as_ptr()) };
    found
}

fn step(decoder: NonNull<sys::pt_insn_decoder>, code: &&[u8]) -> Option<Theirs> {
    let raw = decoder.as_ptr();
    let context = std::ptr::from_ref(code).cast_mut().cast::<c_void>();
    // SAFETY: the decoder is valid; its default image lives as long as it does, and the context has
    // the type that `read_memory` expects.
    let mut status =
        unsafe { sys::pt_image_set_callback(sys::pt_insn_get_image(raw), Some(read_memory), context) };
    assert!(status >= 0);
    // SAFETY: the decoder is valid.
    status = unsafe { sys::pt_insn_sync_forward(raw) };
    while status >= 0 && status.unsigned_abs() & sys::pt_status_flag_pts_event_pending != 0 {
        // SAFETY: a C struct of numbers: all zeros is a valid value.
        let mut event: sys::pt_event = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid, and the size is the struct's.
        status = unsafe { sys::pt_insn_event(raw, &raw mut event, size_of::<sys::pt_event>()) };
    }
    assert!(status >= 0, "status {status} before the instruction");
    let (first, status) = next(decoder);
    assert_eq!(first.ip, AT.0);
    if first.iclass == sys::pt_insn_class_ptic_error {
        assert_eq!(status, -(sys::pt_error_code_pte_bad_insn as c_int));
        return None;
    }
    Some(Theirs {
        len: first.size,
        class: first.iclass,
        next: (status >= 0).then(|| Avma(next(decoder).0.ip)),
    })
}

fn next(decoder: NonNull<sys::pt_insn_decoder>) -> (sys::pt_insn, c_int) {
    // SAFETY: a C struct of numbers: all zeros is a valid value.
    let mut instruction: sys::pt_insn = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid, and the size is the struct's.
    let status =
        unsafe { sys::pt_insn_next(decoder.as_ptr(), &raw mut instruction, size_of::<sys::pt_insn>()) };
    (instruction, status)
}

/// libipt's `read_memory_callback_t`: returns the number of bytes read, or a negative error code.
unsafe extern "C" fn read_memory(
    buffer: *mut u8,
    size: usize,
    _asid: *const sys::pt_asid,
    ip: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `step` stored a pointer to a slice, which outlives the decoder's use.
    let code = unsafe { *context.cast_const().cast::<&[u8]>() };
    let from = ip.wrapping_sub(AT.0);
    let rest = usize::try_from(from).ok().and_then(|from| code.get(from..));
    let rest = rest.unwrap_or_default();
    let len = rest.len().min(size);
    // SAFETY: libipt passes a buffer of `size` bytes, which nothing else uses.
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), buffer, len) };
    match len {
        0 => -(sys::pt_error_code_pte_nomap as c_int),
        len => len as c_int,
    }
}

/// Returns a trace at [`AT`] in `mode`. A conditional branch there is taken.
fn stream(mode: Mode) -> Vec<u8> {
    let mut trace = Vec::new();
    let packets = [
        Packet::Psb,
        Packet::ModeExec(ExecMode {
            long: mode == Mode::Bits64,
            default_32: mode == Mode::Bits32,
            interrupts: false,
        }),
        Packet::Fup(IpPayload::Full(AT.0)),
        Packet::PsbEnd,
        Packet::TntShort(Tnt::new(1, 1).unwrap()),
    ];
    for packet in packets {
        packet.write_to(&mut trace);
    }
    trace
}

/// Compares the two results, and returns their difference.
fn difference(code: &[u8], mode: Mode, trace: &[u8]) -> Option<String> {
    if mode == Mode::Bits64 && is_newer_than_libipt(code) {
        return None;
    }
    let ours = decode(code, AT, mode);
    let theirs = libipt(code, trace);
    let (Ok(ours), Some(theirs)) = (ours, &theirs) else {
        let wrong =
            ours.is_ok() || theirs.is_some() || code.len() >= 15 && ours == Err(DecodeError::Truncated);
        return wrong.then(|| format!("{ours:?}, libipt {theirs:?}"));
    };
    let after = AT + u64::from(ours.len);
    let far_return = matches!(
        ours.role,
        Role::EntersVm | Role::ReturnsFromInterrupt | Role::ReturnsFromUserInterrupt
    );
    let (classes, next): (&[_], _) = match ours.cofi {
        Cofi::Sequential if ours.role == Role::Ptwrite => (&[sys::pt_insn_class_ptic_ptwrite], Some(after)),
        Cofi::Sequential => (&[sys::pt_insn_class_ptic_other], Some(after)),
        Cofi::Conditional { target } => (&[sys::pt_insn_class_ptic_cond_jump], Some(target)),
        Cofi::Jump { target } => (&[sys::pt_insn_class_ptic_jump], Some(target)),
        Cofi::Call { target } => (&[sys::pt_insn_class_ptic_call], Some(target)),
        Cofi::IndirectJump => (&[sys::pt_insn_class_ptic_jump], None),
        Cofi::IndirectCall => (&[sys::pt_insn_class_ptic_call], None),
        Cofi::Return => (&[sys::pt_insn_class_ptic_return], None),
        Cofi::FarTransfer if far_return => (&[sys::pt_insn_class_ptic_far_return], None),
        Cofi::FarTransfer => (
            &[
                sys::pt_insn_class_ptic_far_call,
                sys::pt_insn_class_ptic_far_return,
                sys::pt_insn_class_ptic_far_jump,
            ],
            None,
        ),
    };
    // libipt's targets do not wrap; ours are compared with iced-x86's.
    let same_place = next == theirs.next
        || mode != Mode::Bits64
            && [0xffff, 0xffff_ffff]
                .map(|mask| theirs.next.map(|theirs| Avma(theirs.0 & mask)))
                .contains(&next);
    let same = ours.len == theirs.len && classes.contains(&theirs.class) && same_place;
    (!same).then(|| format!("{ours:?}, libipt {theirs:?}"))
}

/// Returns whether libipt 2.1 does not know the instruction: it has REX2, or is ERETS or ERETU.
fn is_newer_than_libipt(code: &[u8]) -> bool {
    let is_prefix = |byte: &u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    let (prefixes, opcode) = code.split_at(prefixes);
    match opcode {
        [0xd5, ..] => true,
        [0x0f, 0x01, 0xca, ..] => prefixes.iter().any(|byte| matches!(byte, 0xf2 | 0xf3)),
        _ => false,
    }
}

/// Xorshift, with the same sequence in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 20) as usize % end
    }

    /// Returns instruction-like or arbitrary bytes; one string in four is truncated.
    fn string(&mut self) -> Vec<u8> {
        const PREFIXES: &[u8] = &[
            0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x64, 0x65, 0x41, 0x44, 0x48, 0x4f,
        ];
        const MAPS: &[&[u8]] = &[
            &[],
            &[],
            &[0x0f],
            &[0x0f],
            &[0x0f, 0x38],
            &[0x0f, 0x3a],
            &[0xc5],
            &[0xc4],
            &[0x62],
        ];
        let mut code = Vec::new();
        if self.below(8) != 0 {
            let most = if self.below(32) == 0 { 15 } else { 4 };
            for _ in 0..self.below(most) {
                code.push(PREFIXES[self.below(PREFIXES.len())]);
            }
            let map = MAPS[self.below(MAPS.len())];
            code.extend_from_slice(map);
            if matches!(map, [0xc4 | 0x62]) {
                // The map number: more often a low one.
                code.push(self.next() as u8 & if self.below(2) == 0 { 0xe7 } else { 0xff });
            }
        }
        while code.len() < 15 {
            code.push((self.next() >> 24) as u8);
        }
        let len = if self.below(4) == 0 {
            self.below(15) + 1
        } else {
            15
        };
        code.truncate(len);
        code
    }
}

fn compare(strings: impl Iterator<Item = Vec<u8>>) {
    let traces = MODES.map(|mode| (mode, stream(mode)));
    let (mut compared, mut instructions) = (0, 0);
    let mut differences = BTreeMap::new();
    for code in strings {
        for (mode, trace) in &traces {
            compared += 1;
            instructions += u64::from(decode(&code, AT, *mode).is_ok());
            if let Some(difference) = difference(&code, *mode, trace) {
                differences.insert(code.clone(), format!("{code:02x?} {mode:?}: {difference}"));
            }
        }
    }
    println!("{compared} compared, {instructions} of them instructions");
    let all: Vec<_> = differences.values().take(20).collect();
    assert!(all.is_empty(), "{} differ: {all:#?}", differences.len());
}

#[test]
fn random_bytes_are_the_same_instruction_as_in_libipt() {
    let mut random = Random(0x0b5e_55ed_c0ff_ee11);
    compare((0..100_000).map(|_| random.string()));
}

#[test]
#[ignore = "takes half a minute"]
fn many_random_bytes_are_the_same_instruction_as_in_libipt() {
    let mut random = Random(0x5eed_0f7a_b1e5);
    compare((0..2_000_000).map(|_| random.string()));
}
