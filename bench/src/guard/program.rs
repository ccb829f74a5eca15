//! Generates a deterministic program and its trace.

use backtrail_pt::{Avma, Encoder, EncoderOptions};

/// The address of the code.
pub const CODE_AT: Avma = Avma(0x40_0000);

/// The depth of calls: functions only call those of the next layer.
const LAYERS: usize = 5;
const FUNCTIONS_OF_LAYER: usize = 24;

/// Instructions that are not branches.
const PLAIN: &[&[u8]] = &[
    &[0x90],                                     // nop
    &[0x48, 0x89, 0xc3],                         // mov rbx, rax
    &[0x48, 0x8b, 0x45, 0x08],                   // mov rax, [rbp + 8]
    &[0xc7, 0x45, 0xfc, 0x01, 0x00, 0x00, 0x00], // mov dword [rbp - 4], 1
];

/// A program and its control flow.
pub struct Program {
    /// The code, starting at [`CODE_AT`].
    pub code: Vec<u8>,
    /// The functions in address order. The first one is the loop that calls the others.
    pub functions: Vec<Function>,
}

/// A function: consecutive blocks.
pub struct Function {
    pub start: Avma,
    pub end: Avma,
    blocks: Vec<Block>,
}

struct Block {
    start: Avma,
    /// The number of instructions, including the branch.
    instructions: u64,
    branch: Branch,
}

/// The branch at the end of a block.
#[derive(Clone, Copy)]
enum Branch {
    /// Skips the next block, this many times out of 16.
    Skip(u64),
    /// Returns to the start of the block, mostly for this many iterations.
    Loop(u64),
    /// Calls a function.
    Call(usize),
    /// Calls any function of the next layer through a register.
    CallAny,
    /// Jumps to the first block.
    Restart,
    Return,
}

/// An execution of the program.
pub struct Run {
    pub trace: Vec<u8>,
    pub instructions: u64,
    pub calls: u64,
}

impl Program {
    /// Generates the program.
    pub fn make() -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut program = Self {
            code: Vec::new(),
            functions: Vec::new(),
        };
        program.add(&mut random, &[Branch::CallAny, Branch::Restart]);
        let mut calls = Vec::new();
        for function in 0..LAYERS * FUNCTIONS_OF_LAYER {
            let count = 3 + random.below(6);
            let mut branches: Vec<Branch> = (0..count).map(|_| branch(&mut random, function + 1)).collect();
            // The last block is never skipped.
            branches.extend([Branch::Loop(2), Branch::Return]);
            calls.extend(program.add(&mut random, &branches));
        }
        for (at, function) in calls {
            let target = program
                .functions
                .get(function)
                .map_or(CODE_AT, |function| function.start);
            let displacement = (target.0 as u32).wrapping_sub(at.0 as u32 + 5);
            let from = (at - CODE_AT) as usize + 1;
            for (to, byte) in program.code.iter_mut().skip(from).zip(displacement.to_le_bytes()) {
                *to = byte;
            }
        }
        program
    }

    fn here(&self) -> Avma {
        CODE_AT + self.code.len() as u64
    }

    /// Adds a function. Returns its direct calls: the position of each target, and the called
    /// function.
    fn add(&mut self, random: &mut Random, branches: &[Branch]) -> Vec<(Avma, usize)> {
        let start = self.here();
        let (mut blocks, mut calls) = (Vec::new(), Vec::new());
        let mut skip: Option<usize> = None;
        for &branch in branches {
            let first = self.here();
            let count = 1 + random.below(8);
            for _ in 0..count {
                self.code
                    .extend(PLAIN.get(random.below(4) as usize).copied().unwrap_or(&[0x90]));
            }
            match branch {
                Branch::Skip(_) => self.code.extend([0x75, 0]),
                Branch::Loop(_) => {
                    let back = first - self.here();
                    self.code.extend([0x75, (back.wrapping_sub(2)) as u8]);
                }
                Branch::Restart => {
                    let back = start - self.here();
                    self.code.extend([0xeb, (back.wrapping_sub(2)) as u8]);
                }
                Branch::Call(function) => {
                    calls.push((self.here(), function));
                    self.code.extend([0xe8, 0, 0, 0, 0]);
                }
                Branch::CallAny => self.code.extend([0xff, 0xd0]),
                Branch::Return => self.code.push(0xc3),
            }
            // A branch may skip the block that ends here.
            let end = self.code.len();
            if let Some(displacement) = skip.take() {
                let over = (end - displacement - 1) as u8;
                if let Some(byte) = self.code.get_mut(displacement) {
                    *byte = over;
                }
            }
            skip = matches!(branch, Branch::Skip(_)).then_some(end - 1);
            blocks.push(Block {
                start: first,
                instructions: count + 1,
                branch,
            });
        }
        self.functions.push(Function {
            start,
            end: self.here(),
            blocks,
        });
        calls
    }

    /// Executes at least `instructions` instructions.
    pub fn run(&self, instructions: u64) -> Run {
        let mut encoder = Encoder::new(EncoderOptions {
            psb_period: 1 << 14,
            ..EncoderOptions::default()
        });
        encoder.start();
        encoder.enable(CODE_AT);
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let mut run = Run {
            trace: Vec::new(),
            instructions: 0,
            calls: 0,
        };
        // The current function and block, and the stack of return positions.
        let (mut function, mut block) = (0, 0);
        let mut stack = Vec::new();
        while run.instructions < instructions
            && let Some(here) = self.functions.get(function)
            && let Some(now) = here.blocks.get(block)
        {
            if encoder.psb_due() {
                encoder.psb(now.start);
            }
            run.instructions += now.instructions;
            let next = here.blocks.get(block + 1).map_or(here.end, |next| next.start);
            block += 1;
            match now.branch {
                Branch::Skip(often) => {
                    let taken = random.below(16) < often;
                    encoder.conditional(taken);
                    block += usize::from(taken);
                }
                Branch::Loop(turns) => {
                    let turns = if random.below(8) == 0 {
                        1 + random.below(9)
                    } else {
                        turns
                    };
                    for _ in 1..turns {
                        encoder.conditional(true);
                        run.instructions += now.instructions;
                    }
                    encoder.conditional(false);
                }
                Branch::Restart => block = 0,
                Branch::Call(_) | Branch::CallAny => {
                    let called = match now.branch {
                        Branch::Call(called) => called,
                        _ => layer_after(function) + random.below(FUNCTIONS_OF_LAYER as u64) as usize,
                    };
                    let target = self.functions.get(called).map_or(CODE_AT, |called| called.start);
                    let direct = matches!(now.branch, Branch::Call(_));
                    encoder.call(next, target, direct);
                    if !direct {
                        encoder.indirect(target);
                    }
                    run.calls += 1;
                    stack.push((function, block, next));
                    (function, block) = (called, 0);
                }
                Branch::Return => {
                    let Some((caller, after, to)) = stack.pop() else {
                        break;
                    };
                    encoder.near_return(to);
                    (function, block) = (caller, after);
                }
            }
        }
        let there = self
            .functions
            .get(function)
            .and_then(|function| function.blocks.get(block));
        encoder.disable_async(there.map_or(CODE_AT, |block| block.start));
        run.trace = encoder.take();
        run
    }
}

/// Returns the first function of the layer that a function calls. The first function has no layer.
fn layer_after(function: usize) -> usize {
    function.div_ceil(FUNCTIONS_OF_LAYER) * FUNCTIONS_OF_LAYER + 1
}

/// Returns a random branch for a block that is not the last one. The last layer calls nothing.
fn branch(random: &mut Random, function: usize) -> Branch {
    let next_layer = layer_after(function);
    let calls = next_layer <= LAYERS * FUNCTIONS_OF_LAYER;
    match random.below(10) {
        0..4 => Branch::Skip([0, 1, 8, 15, 16][random.below(5) as usize]),
        4..6 => Branch::Loop(1 + random.below(9)),
        6 if calls => Branch::CallAny,
        7.. if calls => Branch::Call(next_layer + random.below(FUNCTIONS_OF_LAYER as u64) as usize),
        _ => Branch::Loop(2),
    }
}

/// A deterministic random number generator (xorshift64*).
struct Random(u64);

impl Random {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}
