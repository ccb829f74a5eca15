//! Random instructions, and registers that lead their accesses into the page.

use super::native::{GS_BASE, INSTRUCTION, TAKEN};
use super::region::{SIZE, START};
use backtrail_semantics::{Model, State, flag};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// Random numbers by xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 32) as u8
    }

    /// Returns a number of a kind that arithmetic treats specially, or any.
    fn number(&mut self) -> u64 {
        let any = self.next();
        match self.below(8) {
            0 => any & 0x3f,
            1 => any & 0xff,
            2 => 0_u64.wrapping_sub(any & 0xff),
            3 => 1 << (any & 63),
            4 => (1_u64 << (any & 63)).wrapping_sub(1),
            5 => any as u32 as u64,
            _ => any,
        }
    }
}

/// The beginnings of modeled instructions, by their codes: prefixes and opcode.
pub struct Pool {
    beginnings: Vec<Vec<Vec<u8>>>,
}

/// Random beginnings that are tried for a pool.
const TRIES: u64 = 4_000_000;
/// The most beginnings of one code.
const MOST: usize = 64;

impl Pool {
    /// Collects the beginnings of instructions that have a model.
    pub fn new(random: &mut Random) -> Self {
        let mut by_code: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        for _ in 0..TRIES {
            let beginning = beginning(random);
            let Some((_, instruction)) = finish(random, &beginning) else {
                continue;
            };
            if Model::of(&instruction).is_err() {
                continue;
            }
            let known = by_code.entry(instruction.code() as u32).or_default();
            if known.len() < MOST {
                known.push(beginning);
            }
        }
        Self {
            beginnings: by_code.into_values().collect(),
        }
    }

    /// Returns the number of codes.
    pub fn len(&self) -> usize {
        self.beginnings.len()
    }

    /// Returns a random instruction with its bytes. `None`: the bytes are none.
    pub fn instruction(&self, random: &mut Random) -> Option<(Vec<u8>, Instruction)> {
        let known = &self.beginnings[random.below(self.beginnings.len() as u64) as usize];
        let beginning = &known[random.below(known.len() as u64) as usize];
        finish(random, beginning)
    }
}

/// Returns random prefixes and a random opcode.
fn beginning(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    let kind = random.below(10);
    match kind {
        0..5 => legacy(random, &mut bytes, kind),
        5..8 => vex(random, &mut bytes),
        _ => evex(random, &mut bytes),
    }
    bytes.push(random.byte());
    bytes
}

/// Adds random operands.
fn finish(random: &mut Random, beginning: &[u8]) -> Option<(Vec<u8>, Instruction)> {
    let mut bytes = beginning.to_vec();
    for _ in 0..10 {
        bytes.push(random.byte());
    }
    bytes.truncate(15);
    let decode = |bytes: &[u8]| Decoder::with_ip(64, bytes, INSTRUCTION, DecoderOptions::NONE).decode();
    let found = decode(&bytes);
    if found.is_invalid() {
        return None;
    }
    bytes.truncate(found.len());
    // With this prefix, branches of AMD and Intel differ.
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..0x50 | 0x64..0x68 | 0xf0 | 0xf2 | 0xf3);
    let mut prefixes = bytes.iter().take_while(|byte| is_prefix(byte));
    if found.flow_control() != FlowControl::Next && prefixes.any(|&byte| byte == 0x66) {
        return None;
    }
    // The stack pointer cannot be the target of a branch and lead to the stack.
    let is_indirect = matches!(
        found.flow_control(),
        FlowControl::IndirectBranch | FlowControl::IndirectCall
    );
    if is_indirect && found.op0_register() == Register::RSP {
        return None;
    }
    if found.op0_kind() == OpKind::NearBranch64 {
        // The displacement is at the end.
        let size = if found.is_jcc_near() || found.is_jmp_near() || found.is_call_near() {
            4
        } else {
            1
        };
        let at = bytes.len().checked_sub(size)?;
        bytes[at..].copy_from_slice(&(TAKEN as u32).to_le_bytes()[..size]);
        return Some((bytes.clone(), decode(&bytes)));
    }
    Some((bytes, found))
}

fn legacy(random: &mut Random, bytes: &mut Vec<u8>, kind: u64) {
    for (prefix, rarity) in [(0x66, 4), (0xf3, 8), (0xf2, 8), (0xf0, 30), (0x67, 30)] {
        if random.once_in(rarity) {
            bytes.push(prefix);
        }
    }
    if random.once_in(2) {
        bytes.push(0x40 | random.byte() & 15);
    }
    match kind {
        0 => {}
        1 | 2 => bytes.push(0x0f),
        3 => bytes.extend([0x0f, 0x38]),
        _ => bytes.extend([0x0f, 0x3a]),
    }
}

fn vex(random: &mut Random, bytes: &mut Vec<u8>) {
    let second = random.byte() & 0xe0 | (1 + random.below(3) as u8);
    bytes.extend([0xc4, second, random.byte()]);
}

fn evex(random: &mut Random, bytes: &mut Vec<u8>) {
    // The map has three bits, and one bit is always one.
    let first = random.byte() & 0xf0 | (1 + random.below(3) as u8);
    let mut third = random.byte();
    if random.once_in(2) {
        // No mask.
        third &= 0x78;
    }
    bytes.extend([0x62, first, random.byte() | 4, third]);
}

/// Returns random registers for an instruction.
pub fn state(random: &mut Random, page: &mut [u8; SIZE], instruction: &Instruction) -> State {
    let mut state = State {
        bases: [0, GS_BASE],
        ..State::default()
    };
    for register in &mut state.general {
        *register = random.number();
    }
    state.flags = random.next() & flag::STATUS;
    if random.once_in(4) {
        state.flags |= flag::DIRECTION;
    }
    for vector in &mut state.vectors {
        fill(random, vector);
    }
    for mask in &mut state.masks {
        *mask = random.number();
    }
    let start = random.below(SIZE as u64 - 64) as usize;
    fill(random, &mut page[start..start + 64]);
    let middle = || START + SIZE as u64 / 2;
    state.general[4] = middle() + 8 * random.below(64);
    match instruction.flow_control() {
        FlowControl::Return | FlowControl::Call | FlowControl::IndirectCall => {}
        _ if instruction.stack_pointer_increment() != 0 => {
            state.general[5] = middle() + 8 * random.below(64);
        }
        _ => {}
    }
    if instruction.is_string_instruction() {
        state.general[1] = random.below(40);
        state.general[6] = middle() + random.below(64);
        state.general[7] = middle() + random.below(64);
    }
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && instruction.op1_kind() == OpKind::Register
    {
        // The index of a bit moves the access.
        let register = instruction.op1_register().full_register();
        state.general[register.number()] = random.below(1024).wrapping_sub(512);
    }
    aim(random, &mut state, page, instruction);
    state
}

/// Fills bytes with random ones, small ones, or repeated ones.
fn fill(random: &mut Random, bytes: &mut [u8]) {
    let kind = random.below(6);
    for part in bytes.chunks_mut(8) {
        let number = match kind {
            0 => random.next(),
            1 => random.next() & random.next() & 0x0f0f_0f0f_0f0f_0f0f,
            2 => random.number(),
            3 => double(random).to_bits(),
            4 => {
                let pair = [float(random).to_bits(), float(random).to_bits()];
                u64::from(pair[0]) | u64::from(pair[1]) << 32
            }
            _ => [0, u64::MAX, 0x8080_8080_8080_8080, 0x7fff_8000_7fff_8000][random.below(4) as usize],
        };
        part.copy_from_slice(&number.to_le_bytes()[..part.len()]);
    }
}

fn double(random: &mut Random) -> f64 {
    const SPECIAL: [f64; 10] = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MIN_POSITIVE,
        2_147_483_648.0,
        9_223_372_036_854_775_808.0,
    ];
    match random.below(4) {
        0 => SPECIAL[random.below(10) as usize],
        1 => random.next() as i32 as f64 / 16.0,
        2 => f64::from_bits(random.next()),
        _ => random.number() as f64,
    }
}

fn float(random: &mut Random) -> f32 {
    match random.below(3) {
        0 => double(random) as f32,
        1 => f32::from_bits(random.next() as u32),
        _ => random.next() as i16 as f32 / 8.0,
    }
}

/// Leads the access of an instruction into the page, and indirect branches to their target.
fn aim(random: &mut Random, state: &mut State, page: &mut [u8; SIZE], instruction: &Instruction) {
    let target = INSTRUCTION + instruction.len() as u64 + TAKEN;
    if instruction.flow_control() == FlowControl::Return {
        let top = (state.general[4] - START) as usize;
        page[top..top + 8].copy_from_slice(&target.to_le_bytes());
        return;
    }
    let is_branch = matches!(
        instruction.flow_control(),
        FlowControl::IndirectBranch | FlowControl::IndirectCall
    );
    if is_branch && instruction.op0_kind() == OpKind::Register {
        let register = instruction.op0_register();
        if register.is_gpr64() {
            state.general[register.number()] = target;
        }
        return;
    }
    let has_memory = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
    if !has_memory {
        return;
    }
    let mut wanted = START + random.below(SIZE as u64 - 64);
    if random.once_in(2) {
        wanted &= !63;
    }
    if random.once_in(50) {
        wanted = START + SIZE as u64 - 1 - random.below(64);
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let is_general = |register: Register| register.is_gpr32() || register.is_gpr64();
    let scale = u64::from(instruction.memory_index_scale());
    let mut rest = wanted.wrapping_sub(instruction.memory_displacement64());
    if instruction.memory_segment() == Register::GS {
        rest = rest.wrapping_sub(GS_BASE);
    }
    if is_general(base) && base != index {
        let indexed = if is_general(index) {
            state.general[index.number()].wrapping_mul(scale)
        } else {
            0
        };
        state.general[base.number()] = rest.wrapping_sub(indexed);
    } else if base == Register::None && is_general(index) {
        state.general[index.number()] = rest / scale;
        wanted -= rest % scale;
    }
    let Some(at) = wanted.checked_sub(START) else {
        return;
    };
    let at = at as usize;
    let mut put = |offset: usize, value: u64, size: usize| {
        if at + offset + size <= SIZE {
            page[at + offset..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
    };
    if is_branch {
        put(0, target, 8);
    }
    // Random numbers are seldom equal.
    let half = match instruction.mnemonic() {
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg16b => 8,
        Mnemonic::Cmpxchg8b => 4,
        _ => return,
    };
    if random.once_in(2) {
        put(0, state.general[0], half);
        put(half, state.general[2], half);
    }
}
