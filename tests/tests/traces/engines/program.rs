//! Random programs: machine code with every kind of control flow, which is harmless and always
//! ends.
//!
//! `rbx` holds random numbers, whose bits control conditional branches, tables and repeat counts.
//! `rcx` counts loops, and is saved on the stack around their bodies. `r12` and `r13` are the exit
//! from a deep recursion, and `r14` is its depth. The other registers have no fixed use.

mod statements;

use crate::engines::assembler::{Assembler, Label, Segment};
use backtrail_tests::random::Random;

/// A program, in its executed and its decoded form.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executed code.
    pub segments: Vec<Segment>,
    /// The decoded code: the same, but some NOPs are replaced by instructions of the same length
    /// that not every processor supports.
    pub code: Vec<Segment>,
    /// The addresses of PTWRITE instructions in it.
    pub ptwrites: Vec<u64>,
    pub entry: u64,
}

/// Addresses of the two segments: close together, and at distances that need fewer or more than
/// four bytes.
const STARTS: &[[u64; 2]] = &[
    [0x40_0000, 0x41_0000],
    [0x40_0000, 0x1_2345_0000],
    [0x5555_5555_0000, 0x40_0000],
    [0x1_0000_0000, 0x1_ffff_0000],
    [0x7000_1234_0000, 0x2000_1234_0000],
];

/// Instructions that are decoded where a NOP is executed.
const FOREIGN: &[&[u8]] = &[
    // vpxor, vmovdqa32 (EVEX), vbroadcastss, vzeroupper, andn (VEX.NDS of general registers)
    &[0xc5, 0xf1, 0xef, 0xc9],
    &[0x62, 0xf1, 0x7d, 0x48, 0x6f, 0x00],
    &[0xc4, 0xe2, 0x79, 0x18, 0x00],
    &[0xc5, 0xf8, 0x77],
    &[0xc4, 0xe2, 0x78, 0xf2, 0xc1],
    // xgetbv, rdrand, crc32 with a prefix, pshufb, pclmulqdq
    &[0x0f, 0x01, 0xd0],
    &[0x0f, 0xc7, 0xf0],
    &[0x66, 0xf2, 0x0f, 0x38, 0xf1, 0xc1],
    &[0x66, 0x0f, 0x38, 0x00, 0xc1],
    &[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0x11],
    // mov with an absolute address of four bytes (67), a store far from rip, a test of an immediate
    &[0x67, 0x8b, 0x04, 0x25, 1, 2, 3, 4],
    &[0x48, 0x89, 0x05, 1, 2, 3, 0],
    &[0xf6, 0x05, 1, 2, 3, 0, 7],
    &[0x66, 0xf7, 0xc1, 1, 2],
];

/// PTWRITE of eax, and of rax.
const PTWRITE: &[&[u8]] = &[&[0xf3, 0x0f, 0xae, 0xe0], &[0xf3, 0x48, 0x0f, 0xae, 0xe0]];

/// NOPs of 3 to 9 bytes.
const NOPS: &[&[u8]] = &[
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
];

/// Returns the program of a seed, which executes some hundred to some thousand instructions.
pub fn random(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let mut starts = random.pick(STARTS);
    if random.once_in(3) {
        starts[0] += 0xfff - random.below(64) as u64;
    }
    let mut generator = Generator {
        assembler: Assembler::new(&starts),
        random,
        functions: Vec::new(),
        replaced: Vec::new(),
        ptwrites: Vec::new(),
    };
    generator.functions();
    generator.assembler.go_to(0);
    let entry = generator.assembler.here();
    generator.main();
    generator.finish(entry)
}

/// A function, and its maximum number of executed instructions.
#[derive(Clone, Copy, Debug)]
struct Function {
    label: Label,
    segment: usize,
    cost: usize,
    kind: Kind,
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// The depth is in `r14`; the cost is that of one level.
    Recursive,
    /// As recursive, but jumps to `r13` with the stack at `r12` instead of returning.
    Escaping,
}

struct Generator {
    assembler: Assembler,
    random: Random,
    /// The functions that may be called.
    functions: Vec<Function>,
    /// The address and bytes of each replaced instruction.
    replaced: Vec<(u64, &'static [u8])>,
    ptwrites: Vec<u64>,
}

impl Generator {
    /// Writes functions, each of which calls only earlier ones.
    fn functions(&mut self) {
        for at in 0..4 + self.random.below(8) {
            let segment = self.random.below(2);
            self.assembler.go_to(segment);
            let budget = [12, 40, 120, 300][(at / 2).min(3)];
            let kind = match self.random.below(8) {
                0 | 1 if at < 5 => Kind::Recursive,
                2 if at < 5 => Kind::Escaping,
                _ => Kind::Plain,
            };
            let label = self.assembler.bound();
            let cost = match kind {
                Kind::Plain => {
                    let cost = self.body(budget, 0);
                    cost + self.leave_function(segment)
                }
                kind => self.recursive(label, kind),
            };
            self.functions.push(Function {
                label,
                segment,
                cost,
                kind,
            });
        }
    }

    fn main(&mut self) {
        let seed = self.random.next() | 1;
        // movabs rbx, seed
        self.assembler.put(&[0x48, 0xbb]);
        self.assembler.put(&seed.to_le_bytes());
        let wanted = self.random.pick(&[300, 1000, 3000, 6000]);
        let mut used = 0;
        while used < wanted {
            used += self.statement(wanted / 2, 0);
        }
        // xor edi, edi; mov eax, 231; syscall: exit_group(0)
        self.assembler.put(&[0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05]);
    }

    fn finish(self, entry: u64) -> Program {
        let segments = self.assembler.finish();
        let mut code = segments.clone();
        for (at, bytes) in &self.replaced {
            for segment in &mut code {
                let offset = at.wrapping_sub(segment.start) as usize;
                if offset < segment.bytes.len() {
                    segment.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Program {
            segments,
            code,
            ptwrites: self.ptwrites,
            entry,
        }
    }
}

#[test]
fn a_seed_gives_one_program() {
    let (one, same, other) = (random(7), random(7), random(8));
    assert_eq!(one.segments, same.segments);
    assert_ne!(one.segments, other.segments);
}
