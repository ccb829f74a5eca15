//! Long runs of random programs that repeat the same packets at the same places: caches must not
//! change the result.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "common/agreed.rs"]
mod agreed;

use agreed::decode_agreed;
use backtrail_decoder::{
    Call, Config, Digest, Forest, Functions, History, HistoryBuilder, Image, Input, Section, Sink, Watch,
};
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid, TimingParams, Tsc};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const PARAMS: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 32,
    cpuid_15h_eax: 2,
    cpuid_15h_ebx: 160,
};

const fn timing(mtc: bool, cyc: bool) -> Option<TimingOptions> {
    Some(TimingOptions {
        params: PARAMS,
        mtc,
        cyc,
    })
}

/// No time, only TSC at each PSB, MTC, and CYC too.
const TIMINGS: [Option<TimingOptions>; 4] = [
    None,
    timing(false, false),
    timing(true, false),
    timing(true, true),
];

/// How a block ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Through,
    Conditional { target: usize },
    Jump { target: usize },
    Call { target: usize },
    IndirectJump { targets: [usize; 3] },
    IndirectCall { targets: [usize; 3] },
    Return,
}

/// A block of some one-byte instructions and its end.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: u64,
    plain: u64,
    end: End,
}

impl Block {
    fn last(&self) -> u64 {
        self.at + self.plain
    }

    fn next(&self) -> u64 {
        self.last()
            + match self.end {
                End::Through => 0,
                End::Conditional { .. } => 6,
                End::Jump { .. } | End::Call { .. } => 5,
                End::IndirectJump { .. } | End::IndirectCall { .. } => 2,
                End::Return => 1,
            }
    }
}

/// Numbers that repeat: for a while, each is one of a few.
struct Choices {
    state: u64,
    again: u64,
    /// One in `noise` follows no pattern.
    noise: u64,
}

impl Choices {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: u64) -> u64 {
        // Most follow a pattern, so that loops mostly repeat.
        if self.next().is_multiple_of(self.noise) {
            return self.next() % bound;
        }
        self.again = self.again.rotate_left(1);
        (self.again & 7) % bound
    }
}

/// Returns consecutive blocks in two halves 5 GiB apart, so that targets need packets of all
/// lengths.
fn program(choices: &mut Choices, count: usize, indirect: u64) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut at = 0x40_0000;
    for number in 0..count {
        // Branches without packets go forward, so that no loop runs without packets.
        let ahead = (count - number - 1).max(1) as u64;
        let forward = (number + 1 + (choices.next() % ahead) as usize).min(count - 1);
        let target = choices.next() as usize % count;
        let mut targets = || [0; 3].map(|_: usize| choices.next() as usize % count);
        let targets = targets();
        let end = match choices.next() % indirect {
            _ if number + 1 == count || number + 1 == count / 2 => End::IndirectJump { targets },
            0 => End::Through,
            1 => End::Jump { target: forward },
            2 | 3 => End::Call { target: forward },
            4 => End::IndirectJump { targets },
            5 => End::IndirectCall { targets },
            6 | 7 => End::Return,
            _ => End::Conditional { target },
        };
        let block = Block {
            at,
            plain: 1 + choices.next() % 4,
            end,
        };
        at = block.next();
        if number + 1 == count / 2 {
            at += 0x1_4000_0000;
        } else if matches!(end, End::Jump { .. } | End::IndirectJump { .. } | End::Return) {
            // Nothing falls through here, so the next block may be in other 64 KiB.
            at += choices.next() % 3 * 0x1_2345;
        }
        blocks.push(block);
    }
    blocks
}

fn image(blocks: &[Block]) -> Image {
    let mut image = Image::new();
    for block in blocks {
        let mut code = vec![0x90; block.plain as usize];
        let relative = |target: usize| (blocks[target].at.wrapping_sub(block.next()) as u32).to_le_bytes();
        match block.end {
            End::Through => {}
            End::Conditional { target } => {
                code.extend([0x0f, 0x84]);
                code.extend(relative(target));
            }
            End::Jump { target } => {
                code.push(0xe9);
                code.extend(relative(target));
            }
            End::Call { target } => {
                code.push(0xe8);
                code.extend(relative(target));
            }
            End::IndirectJump { .. } => code.extend([0xff, 0xe0]),
            End::IndirectCall { .. } => code.extend([0xff, 0xd0]),
            End::Return => code.push(0xc3),
        }
        image.add(Section {
            start: Avma(block.at),
            bytes: Arc::new(code),
        });
    }
    image
}

/// Runs the program for some blocks. A return without a call goes to the first block.
fn run(blocks: &[Block], choices: &mut Choices, steps: u32, options: EncoderOptions) -> (Vec<u8>, u64, u64) {
    let mut encoder = Encoder::new(options);
    encoder.start();
    encoder.enable(Avma(blocks[0].at));
    let (mut digest, mut count) = (Digest::default(), 0);
    let mut stack: Vec<usize> = Vec::new();
    let mut at = 0;
    let mut now = 1 << 40;
    for _ in 0..steps {
        if encoder.psb_due() {
            encoder.psb(Avma(blocks[at].at));
        }
        let block = &blocks[at];
        let last = block.last() + u64::from(!matches!(block.end, End::Through));
        (block.at..last).for_each(|pc| digest.push(Avma(pc)));
        count += last - block.at;
        let next = Avma(block.next());
        now += 3 + choices.next() % 40 * (choices.next() % 5);
        encoder.set_time(Tsc(now));
        at = match block.end {
            End::Through => at + 1,
            End::Conditional { target } => {
                let taken = choices.below(2) == 1;
                encoder.conditional(taken);
                if taken { target } else { at + 1 }
            }
            End::Jump { target } => target,
            End::Call { target } => {
                encoder.call(next, Avma(blocks[target].at), true);
                if blocks[target].at != next.0 {
                    stack.push(at + 1);
                }
                target
            }
            End::IndirectJump { targets } => {
                let target = targets[choices.below(3) as usize];
                encoder.indirect(Avma(blocks[target].at));
                target
            }
            End::IndirectCall { targets } => {
                let target = targets[choices.below(3) as usize];
                encoder.call(next, Avma(blocks[target].at), false);
                encoder.indirect(Avma(blocks[target].at));
                stack.push(at + 1);
                target
            }
            End::Return => {
                let called = stack.pop().unwrap_or(0);
                // Some go to other addresses: jumps by returns.
                let target = if choices.below(4) == 3 {
                    (at * 7 + 3) % blocks.len()
                } else {
                    called
                };
                encoder.near_return(Avma(blocks[target].at));
                target
            }
        };
        // Deeper than any return stack: the oldest calls are dropped.
        if stack.len() > 300 {
            stack.drain(..100);
        }
    }
    encoder.disable_async(Avma(blocks[at].at));
    (encoder.take(), count, digest.value())
}

/// Every few blocks are a function.
struct Few<'a>(&'a [Block]);

impl Functions for Few<'_> {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let function = self
            .0
            .chunks(5)
            .find(|blocks| blocks.iter().any(|block| block.at <= pc.0 && pc.0 < block.next()))?;
        let [first, .., last] = function else { return None };
        // Code with gaps is known up to the end of its first block.
        let end = if last.at.abs_diff(first.at) < 0x1000 {
            last
        } else {
            first
        };
        let range = Avma(first.at)..Avma(end.next());
        range.contains(&pc).then_some(range)
    }
}

/// Returns the calls of a history, and those of the same instructions pushed one by one, without
/// paths.
fn forests(history: &History, functions: &dyn Functions) -> [Vec<Call>; 2] {
    let mut single = HistoryBuilder::new(Tid(1));
    for instruction in history.walk(0) {
        single.instruction(instruction.pc, instruction.len, instruction.cofi);
    }
    [history, &single.finish()].map(|history| {
        let forest = Forest::build(history, functions, &Watch::none()).unwrap();
        forest.ids().map(|id| forest.call(id)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn repeated_packets_decode_the_same(
        seed in 1u64..,
        count in 8usize..200,
        compress_returns: bool,
        long_tnt: bool,
        indirect in prop_oneof![Just(12u64), Just(50), Just(200)],
        noise in prop_oneof![Just(8u64), Just(100), Just(1000)],
        timing in 0u8..4,
        psb_period in prop_oneof![Just(512usize), Just(4096), Just(1 << 20)],
    ) {
        let mut choices = Choices { state: seed, again: seed.rotate_left(17), noise };
        let mut blocks = program(&mut choices, count, indirect);
        // A branch that cannot reach its target falls through to the next block.
        for at in 0..blocks.len() {
            let block = blocks[at];
            let far = |target: usize| block.next().abs_diff(blocks[target].at) >= 1 << 31;
            if let End::Jump { target } | End::Call { target } | End::Conditional { target } = block.end
                && far(target)
            {
                let target = at + 1;
                blocks[at].end = match block.end {
                    End::Jump { .. } => End::Jump { target },
                    End::Call { .. } => End::Call { target },
                    _ => End::Conditional { target },
                };
            }
        }
        let steps = 60_000;
        let options = EncoderOptions { psb_period, compress_returns, long_tnt, timing: TIMINGS[usize::from(timing)] };
        let (trace, len, digest) = run(&blocks, &mut choices, steps, options);
        let input = Input::Thread {
            tid: Tid(1),
            trace: Arc::new(trace),
            image: Arc::new(image(&blocks)),
        };
        let decoded = decode_agreed(&[input], &BTreeMap::new(), &Config { timing: PARAMS, ..Config::default() });
        let history = &decoded.threads[0];
        prop_assert_eq!((history.len(), history.digest(), history.errors()), (len, digest, 0));
        let [paths, single] = forests(history, &Few(&blocks));
        prop_assert!(!paths.is_empty());
        let differing = paths.iter().zip(&single).position(|(one, other)| one != other);
        prop_assert_eq!((differing, paths.len()), (None, single.len()));
    }
}

/// The difference between repeated packet sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Differs {
    Caller,
    LastIp,
}

/// Returns a long, regular loop that two places enter alternately. They enter it by a call and a
/// return, or by a jump. The packet of the jump out of it has the lower half of the target.
fn two_callers(differs: Differs) -> Vec<Block> {
    let block = |at, plain, end| Block { at, plain, end };
    let targets = |one, other| End::IndirectJump {
        targets: [one, other, one],
    };
    let (come, leave) = match differs {
        Differs::Caller => (End::Call { target: 5 }, End::Return),
        Differs::LastIp => (End::Jump { target: 5 }, targets(9, 10)),
    };
    vec![
        block(0x40_0000, 1, targets(1, 3)),
        // The callers, and the code after their calls.
        block(0x41_0000, 2, come),
        block(0x41_0007, 1, End::Conditional { target: 11 }),
        block(0x42_0000, 2, come),
        block(0x42_0007, 3, End::Conditional { target: 11 }),
        // The loop.
        block(0x40_0100, 1, End::Conditional { target: 7 }),
        block(0x40_0107, 2, End::Through),
        block(0x40_0109, 1, End::Conditional { target: 5 }),
        block(0x40_0110, 1, leave),
        // The target of the jump out.
        block(0x41_0800, 1, End::Jump { target: 2 }),
        block(0x42_0800, 2, End::Jump { target: 4 }),
        // Another loop, so that the difference comes before packets of targets.
        block(0x40_0200, 1, End::Conditional { target: 11 }),
        block(0x40_0207, 1, End::Jump { target: 0 }),
    ]
}

/// Runs [`two_callers`] a number of times.
fn run_two_callers(
    differs: Differs,
    blocks: &[Block],
    times: u64,
    options: EncoderOptions,
) -> (Vec<u8>, u64, u64) {
    const TURNS: u64 = 400;
    let mut encoder = Encoder::new(options);
    encoder.start();
    encoder.enable(Avma(blocks[0].at));
    let (mut digest, mut count) = (Digest::default(), 0);
    let mut execute = |at: usize, encoder: &mut Encoder| {
        let block = &blocks[at];
        if encoder.psb_due() {
            encoder.psb(Avma(block.at));
        }
        let last = block.last() + u64::from(!matches!(block.end, End::Through));
        (block.at..last).for_each(|pc| digest.push(Avma(pc)));
        count += last - block.at;
    };
    for time in 0..times {
        // Selects the caller, and one of two patterns of the loop.
        let second = (time ^ time >> 3) & 1 == 1;
        let way = if time >> 5 & 1 == 0 {
            0x9e37_79b9
        } else {
            0x7f4a_7c15u64
        };
        let (caller, after, leaves) = if second { (3, 4, 10) } else { (1, 2, 9) };
        execute(0, &mut encoder);
        encoder.indirect(Avma(blocks[caller].at));
        execute(caller, &mut encoder);
        if differs == Differs::Caller {
            encoder.call(Avma(blocks[caller].next()), Avma(blocks[5].at), true);
        }
        for turn in 0..TURNS {
            execute(5, &mut encoder);
            let skips = (turn * way).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
            encoder.conditional(skips);
            if !skips {
                execute(6, &mut encoder);
            }
            execute(7, &mut encoder);
            encoder.conditional(turn + 1 < TURNS);
        }
        execute(8, &mut encoder);
        match differs {
            Differs::Caller => encoder.near_return(Avma(blocks[after].at)),
            Differs::LastIp => {
                encoder.indirect(Avma(blocks[leaves].at));
                execute(leaves, &mut encoder);
            }
        }
        execute(after, &mut encoder);
        encoder.conditional(true);
        for turn in 0..TURNS {
            execute(11, &mut encoder);
            encoder.conditional(turn + 1 < TURNS);
        }
        execute(12, &mut encoder);
    }
    encoder.disable_async(Avma(blocks[0].at));
    (encoder.take(), count, digest.value())
}

#[test]
fn cached_paths_follow_the_current_targets() {
    for differs in [Differs::Caller, Differs::LastIp] {
        let blocks = two_callers(differs);
        for (compress_returns, psb_period) in [(true, 1 << 20), (false, 1 << 20), (true, 2048), (false, 2048)]
        {
            let options = EncoderOptions {
                psb_period,
                compress_returns,
                long_tnt: false,
                timing: None,
            };
            let (trace, len, digest) = run_two_callers(differs, &blocks, 400, options);
            let input = Input::Thread {
                tid: Tid(1),
                trace: Arc::new(trace),
                image: Arc::new(image(&blocks)),
            };
            let decoded = decode_agreed(&[input], &BTreeMap::new(), &Config::default());
            let history = &decoded.threads[0];
            let found = (history.len(), history.digest(), history.errors());
            assert_eq!(found, (len, digest, 0), "{differs:?}");
        }
    }
}
