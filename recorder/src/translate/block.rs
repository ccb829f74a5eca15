//! One block of the program as it stands in the code cache: the same instructions, with stubs that log
//! where control goes.
//!
//! A block follows the program from one address along direct jumps, calls and the likely ways of
//! branches, until an indirect branch, a system call, or its greatest length; short loops are unrolled. A
//! wide block follows the other ways too, for some instructions. Outcomes of branches are known wherever
//! control leaves it, so a way through costs one byte of log, not one a branch.
//!
//! Translating is a pure function of code and place: so what a place in the cache means is found by
//! translating again ([`Block::places`]), and need not be kept.

mod sides;
mod source;
mod stubs;

use super::assembler::{Assembler, Scratch};
use super::event::{Event, NO_OUTCOMES};
use super::layout;
use backtrail_pt::cofi::Cofi;
use iced_x86::{Code, ConstantOffsets, Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use sides::Side;
pub(super) use source::Source;

/// Most instructions of a block.
const MAX_INSTRUCTIONS: usize = 32;
/// Longest instruction.
const MAX_LEN: usize = 15;

/// How blocks are made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// [`Block::places`] are wanted; the code is the same without.
    pub(super) places: bool,
    /// Calls are logged, so that returns can be compressed.
    pub(super) calls: bool,
    /// The change of code that the block comes after, where its code may be another than before: threads
    /// that were not told of it trap.
    pub(super) since: u32,
    /// What is not the likely way of a branch belongs to the block, too.
    pub(super) wide: bool,
}

/// Reads code at an address; says how many bytes there are.
pub(super) type Fetch<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// Registers whose values wait in the region while a stub uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Saved(u8);

impl Saved {
    /// None.
    pub(super) const NONE: Self = Self(0);
    const RAX: Self = Self(1 << Scratch::Rax as u8);
    const RCX: Self = Self(1 << Scratch::Rcx as u8);
    const RDX: Self = Self(1 << Scratch::Rdx as u8);
    /// All three.
    pub(super) const ALL: Self = Self::RAX.and(Self::RCX).and(Self::RDX);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this register's value waits.
    pub(super) fn holds(self, register: Scratch) -> bool {
        self.0 & (1 << register as u8) != 0
    }
}

/// Where an instruction that was executed leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    At(u64),
    /// To the address in RAX.
    InRax,
}

/// What a thread at a place in the cache has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The instruction has not been executed.
    Before(Saved),
    /// It has been executed; the event, if any, is not in the log yet.
    Done {
        saved: Saved,
        event: Option<Event>,
        next: Next,
    },
    /// The system call is in the log already, but has not been executed.
    Told(Saved),
    /// The system call has been executed; RCX is to be the address behind it.
    Returned { saved: Saved, next: u64 },
}

/// From `offset` on (to the next place), the program stands at `ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u32,
    /// The instruction of the program.
    pub(super) ip: u64,
    pub(super) state: State,
    /// Outcomes not in the log yet.
    pub(super) outcomes: u8,
    /// Where the program stood after the last event in the log.
    pub(super) told: u64,
}

/// Why the recorder gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    /// The block at this address of the program comes next; the jump whose distance is at the offset
    /// may lead there directly from now on.
    Exit { site: u32, target: u64 },
    /// A system call that the recorder makes itself.
    Special { ip: u64, next: u64 },
    /// The thread's log must tell of changes of code before it goes on.
    Untold { ip: u64 },
    /// This instruction is to be executed where it stands.
    Native { ip: u64, outcomes: u8 },
}

/// A translated block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// The machine code.
    pub(super) code: Vec<u8>,
    /// Offsets of the `int3`s.
    pub(super) traps: Vec<(u32, Trap)>,
    /// The program's bytes it was made from.
    pub(super) source: Source,
    /// Ascending by offset; none, unless they were asked for.
    pub(super) places: Vec<Place>,
    /// Addresses that are likely to be next.
    pub(super) successors: Vec<u64>,
}

impl Block {
    /// What a thread at `offset` has done.
    pub(super) fn place(&self, offset: u32) -> Option<&Place> {
        let after = self.places.partition_point(|place| place.offset <= offset);
        self.places.get(after.checked_sub(1)?)
    }
}

/// Translates the block at `ip` for the cache address `at` (a multiple of 16).
pub(super) fn translate(ip: u64, at: u64, style: Style, fetch: &mut Fetch<'_>) -> Block {
    let mut translator = Translator {
        at,
        style,
        out: Assembler::new(),
        block: Block {
            traps: Vec::with_capacity(8),
            successors: Vec::with_capacity(8),
            source: Source::new(),
            ..Block::default()
        },
        outcomes: NO_OUTCOMES,
        told: ip,
        called: None,
        quiet: true,
        links: Vec::with_capacity(8),
        constants: Vec::new(),
        sides: Vec::with_capacity(8),
        depth: 0,
        written: 0,
    };
    translator.run(ip, fetch);
    translator.finish()
}

/// An instruction of the program.
struct Original<'a> {
    ip: u64,
    bytes: &'a [u8],
    instruction: Instruction,
    offsets: ConstantOffsets,
}

impl Original<'_> {
    fn next(&self) -> u64 {
        self.ip.wrapping_add(self.bytes.len() as u64)
    }
}

struct Translator {
    at: u64,
    style: Style,
    out: Assembler,
    block: Block,
    outcomes: u8,
    told: u64,
    /// A call that was executed, and is not in the log yet: where it is, and its return address.
    called: Option<(u64, u64)>,
    /// Nothing that gives a packet has happened since the block began.
    quiet: bool,
    /// Jumps to other blocks: where their distance is, and the target.
    links: Vec<(usize, u64)>,
    /// Distances to a constant.
    constants: Vec<(usize, u64)>,
    /// Branches whose other side is to be written.
    sides: Vec<Side>,
    /// How many of them lead here, one off the other.
    depth: u8,
    /// Instructions so far.
    written: usize,
}

/// What follows an instruction.
enum Flow {
    GoOn(u64),
    End,
}

impl Translator {
    fn run(&mut self, start: u64, fetch: &mut Fetch<'_>) {
        if self.style.since != 0 {
            self.check_version(start);
        }
        self.follow_from(start, MAX_INSTRUCTIONS, fetch);
        self.write_sides(fetch);
    }

    /// Writes `most` instructions from `start` on, unless an event that ends a block comes first.
    fn follow_from(&mut self, start: u64, most: usize, fetch: &mut Fetch<'_>) {
        let mut ip = start;
        for _ in 0..most {
            self.written += 1;
            let mut bytes = [0; MAX_LEN];
            let len = fetch(ip, &mut bytes);
            let mut decoder =
                Decoder::with_ip(64, bytes.get(..len).unwrap_or_default(), ip, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let offsets = decoder.get_constant_offsets(&instruction);
            let bytes = bytes.get(..instruction.len()).unwrap_or_default();
            if instruction.is_invalid() {
                return self.native(ip);
            }
            self.block.source.add(ip, bytes);
            let original = Original {
                ip,
                bytes,
                instruction,
                offsets,
            };
            match self.instruction(&original) {
                Flow::GoOn(next) => ip = next,
                Flow::End => return,
            }
        }
        self.leave(ip, ip, false);
    }

    /// What stands at the end of the code so far.
    fn place(&mut self, ip: u64, state: State) {
        if !self.style.places {
            return;
        }
        self.block.places.push(Place {
            offset: self.out.len() as u32,
            ip,
            state,
            outcomes: self.outcomes,
            told: self.told,
        });
    }

    fn before(&mut self, ip: u64, saved: Saved) {
        let outcomes = self.outcomes;
        let state = match self.called {
            None => State::Before(saved),
            Some((_, next)) => State::Done {
                saved,
                event: Some(Event::Call { outcomes, next }),
                next: Next::At(ip),
            },
        };
        self.place(ip, state);
    }

    /// Logs the call that led to `at`, if that is still to be done.
    fn tell_call(&mut self, at: u64) {
        if let Some((ip, next)) = self.called.take() {
            self.log_call(ip, next, at);
        }
    }

    fn instruction(&mut self, original: &Original<'_>) -> Flow {
        let ip = original.ip;
        let instruction = &original.instruction;
        // A call of another module goes by way of a jump there (PLT): both are told in one.
        let leads_on = matches!(Cofi::of(instruction), Cofi::IndirectJump)
            || instruction.mnemonic() == Mnemonic::Endbr64;
        if !leads_on {
            self.tell_call(ip);
        }
        self.before(ip, Saved::NONE);
        if needs_gs(instruction) || matches!(instruction.mnemonic(), Mnemonic::Xbegin) {
            self.native(ip);
            return Flow::End;
        }
        match Cofi::of(instruction) {
            Cofi::Sequential => self.copy(original),
            Cofi::Jump { target } => self.follow(ip, target.0),
            Cofi::Call { target } => {
                self.push(original.next());
                if self.style.calls && target.0 != original.next() {
                    self.called = Some((ip, original.next()));
                }
                self.block.successors.push(original.next());
                self.follow(ip, target.0)
            }
            Cofi::Conditional { target } => self.branch(original, target.0),
            Cofi::Return => self.near_return(original),
            Cofi::IndirectJump | Cofi::IndirectCall => self.indirect(original),
            Cofi::FarTransfer if instruction.mnemonic() == Mnemonic::Syscall => {
                self.system_call(ip, original.next());
                Flow::End
            }
            Cofi::FarTransfer => {
                self.native(ip);
                Flow::End
            }
        }
    }

    /// The instruction is executed where the program has it.
    fn native(&mut self, ip: u64) {
        self.tell_call(ip);
        self.before(ip, Saved::NONE);
        let outcomes = self.outcomes;
        self.trap(Trap::Native { ip, outcomes });
    }

    fn trap(&mut self, trap: Trap) {
        self.block.traps.push((self.out.len() as u32, trap));
        self.out.trap();
    }

    /// An instruction that does not branch.
    fn copy(&mut self, original: &Original<'_>) -> Flow {
        if self.relocate(original.bytes, original) {
            Flow::GoOn(original.next())
        } else {
            self.native(original.ip);
            Flow::End
        }
    }

    /// Writes `bytes`, a form of the instruction with the same displacement at the same distance from the
    /// end, so that what it names relative to RIP stays the same; `false`: that is out of reach, and
    /// nothing is written.
    fn relocate(&mut self, bytes: &[u8], original: &Original<'_>) -> bool {
        let start = self.out.len();
        self.out.bytes(bytes);
        if !original.instruction.is_ip_rel_memory_operand() {
            return true;
        }
        let end = self.out.len();
        let from_end = original.bytes.len() - original.offsets.displacement_offset();
        let distance = original
            .instruction
            .memory_displacement64()
            .wrapping_sub(self.at + end as u64) as i64;
        let place = end
            .checked_sub(from_end)
            .and_then(|at| self.out.code.get_mut(at..at + 4));
        if let (Ok(distance), Some(place)) = (i32::try_from(distance), place)
            && original.offsets.displacement_size() == 4
            && original.instruction.memory_base() != Register::EIP
        {
            place.copy_from_slice(&distance.to_le_bytes());
            return true;
        }
        self.out.code.truncate(start);
        false
    }

    /// Goes on at `target` in this block, or leaves it for another where it was already. Off the likely way
    /// a few outcomes wait, and that is end enough.
    fn follow(&mut self, ip: u64, target: u64) -> Flow {
        if self.depth == 0 && self.block.source.has(target) {
            self.leave(ip, target, true);
            return Flow::End;
        }
        Flow::GoOn(target)
    }

    /// Leaves the block: the instruction at `ip` was executed, `target` is next, and has been in this
    /// block when `again`.
    ///
    /// A loop that gives no packet must give one all the same: by packets alone, nobody could tell how
    /// often it went round.
    fn leave(&mut self, ip: u64, target: u64, again: bool) {
        self.tell_call(target);
        if self.outcomes != NO_OUTCOMES {
            self.log_outcomes(ip, Next::At(target), self.outcomes);
        } else if again && self.quiet {
            self.log_turn(ip, target);
        }
        self.link(ip, target);
    }

    fn link(&mut self, ip: u64, target: u64) {
        self.place(
            ip,
            State::Done {
                saved: Saved::NONE,
                event: None,
                next: Next::At(target),
            },
        );
        let site = self.out.jump();
        self.links.push((site, target));
        self.block.successors.push(target);
    }

    /// `push` of the return address.
    fn push(&mut self, next: u64) {
        self.out.bytes(&[0xff, 0x35]);
        let at = self.out.distance();
        self.constants.push((at, next));
    }

    fn near_return(&mut self, original: &Original<'_>) -> Flow {
        let ip = original.ip;
        if original.instruction.code() != Code::Retnq && original.instruction.code() != Code::Retnq_imm16 {
            self.native(ip);
            return Flow::End;
        }
        let arguments = if original.instruction.op_count() > 0 {
            u32::from(original.instruction.immediate16())
        } else {
            0
        };
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.return_address();
        self.before(ip, Saved::RAX);
        self.out.pop(8 + arguments);
        // What the target is, RAX says.
        let (outcomes, target) = (self.outcomes, 0);
        let event = if self.style.calls {
            Event::Return { outcomes, target }
        } else {
            Event::Target { outcomes, target }
        };
        self.go_to_rax(ip, event);
        Flow::End
    }

    fn indirect(&mut self, original: &Original<'_>) -> Flow {
        let ip = original.ip;
        // RAX is saved first.
        let before = self.out.len();
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        let load = load_operand(original);
        if !load.is_some_and(|bytes| self.relocate(&bytes, original)) {
            self.out.code.truncate(before);
            self.native(ip);
            return Flow::End;
        }
        self.before(ip, Saved::RAX);
        let (outcomes, target) = (self.outcomes, 0);
        let mut event = Event::Target { outcomes, target };
        if let Some((_, next)) = self.called.take() {
            event = Event::IndirectCall {
                outcomes,
                next,
                target,
            };
        }
        if Cofi::of(&original.instruction).is_call() {
            let next = original.next();
            self.push(next);
            self.block.successors.push(next);
            if self.style.calls {
                event = Event::IndirectCall {
                    outcomes,
                    next,
                    target,
                };
            }
        }
        self.go_to_rax(ip, event);
        Flow::End
    }

    fn finish(mut self) -> Block {
        while !self.out.len().is_multiple_of(8) {
            self.out.trap();
        }
        for (distance, value) in std::mem::take(&mut self.constants) {
            let here = self.out.len();
            self.out.lead(distance, here);
            self.out.bytes(&value.to_le_bytes());
        }
        for (site, target) in std::mem::take(&mut self.links) {
            let here = self.out.len();
            self.out.lead(site, here);
            self.place(target, State::Before(Saved::NONE));
            self.trap(Trap::Exit {
                site: site as u32,
                target,
            });
        }
        self.block.code = self.out.code;
        self.block
    }
}

/// The instruction uses GS, which is the recorder's while the program runs in the cache.
fn needs_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        || (instruction.op_count() > 0 && instruction.op0_register() == Register::GS)
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Rdgsbase | Mnemonic::Wrgsbase | Mnemonic::Swapgs | Mnemonic::Lgs
        )
}

/// `mov rax, OPERAND` for an indirect jump or call: its own bytes with another opcode, so that the
/// operand is the same; `None` for forms that no compiler writes.
fn load_operand(original: &Original<'_>) -> Option<Vec<u8>> {
    let opcode = original.bytes.iter().position(|byte| *byte == 0xff)?;
    let (prefixes, rest) = original.bytes.split_at(opcode);
    let (rex, legacy) = match prefixes.split_last() {
        Some((rex @ 0x40..=0x4f, legacy)) => (*rex, legacy),
        _ => (0x40, prefixes),
    };
    // BND and NOTRACK mean nothing to a load; operand size and the rest do.
    let mut bytes: Vec<u8> = legacy
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, 0xf2 | 0x3e))
        .collect();
    if bytes
        .iter()
        .any(|byte| !matches!(byte, 0x2e | 0x26 | 0x64 | 0x67))
    {
        return None;
    }
    let (modrm, operand) = rest.get(1..)?.split_first()?;
    // REX.W, without REX.R; the register is RAX.
    bytes.push((rex | 8) & !4);
    bytes.push(0x8b);
    bytes.push(modrm & !0x38);
    bytes.extend_from_slice(operand);
    Some(bytes)
}

#[cfg(test)]
mod tests;
