//! Encodes the trace of a run in a random way.
//!
//! The stream describes the executed instructions, and its decode must return exactly these, unless
//! packets are lost on purpose. Some traces include kernel code for system calls and interrupts.
//! Some have a filter that excludes one of the two segments.

mod dress;
mod extras;
mod writer;

pub use extras::any_packet;

use crate::engines::assembler::Segment;
use crate::engines::run::{Run, Step};
use backtrail_decoder::{AddressFilter, Config, FilterKind, Resync, UncompressedReturns};
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::packet::{Packet, Payload};
use backtrail_pt::{Avma, Cofi, EncoderOptions, TimingParams, Tsc};
use backtrail_tests::random::Random;
use writer::{FUP, TIP, TIP_PGD, Writer};

/// A trace, and the input of its decode.
#[derive(Clone, Debug)]
pub struct Trace {
    pub bytes: Vec<u8>,
    pub code: Vec<Segment>,
    pub config: Config,
    /// The expected decode.
    pub expected: Expected,
    /// The options of the encoding, for failure messages.
    pub style: Style,
}

/// The expected instructions of a decode without errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These instructions.
    All(Vec<u64>),
    /// A prefix of these.
    Beginning(Vec<u64>),
    /// A suffix of these.
    End(Vec<u64>),
    /// Packets were lost, or are in places where no processor writes them. Engines must agree.
    Agreement,
}

/// The options of an encoding.
#[derive(Clone, Debug)]
pub struct Style {
    pub options: EncoderOptions,
    /// The approximate number of instructions between two injected items; 0 for none.
    pub extras_every: usize,
    /// The same for lost packets.
    pub losses_every: usize,
    /// The same for software breakpoints at branches that need a packet.
    pub breakpoints_every: usize,
    /// Interrupts and system calls go through traced kernel code.
    pub kernel: bool,
    /// Only the first segment is traced.
    pub filtered: bool,
    /// Includes packets that no processor writes there.
    pub wild: bool,
    /// Uses longer packets than necessary, and adds more after a PSB.
    pub dressed: bool,
    /// The missing part.
    pub cut: Cut,
}

/// The missing part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Nothing,
    /// The beginning, which a ring dropped.
    Beginning,
    End,
}

/// Code of the kernel: a system call, an interrupt.
const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// The kernel code of a system call, as (bytes, whether it loads CR3).
const SYSTEM_CALL: &[&[u8]] = &[
    &[0x0f, 0x01, 0xf8],
    &[0x0f, 0x22, 0xd8],
    &[0x90],
    &[0x48, 0x0f, 0x07],
];

/// The kernel code of an interrupt.
const INTERRUPT: &[&[u8]] = &[&[0x50], &[0x58], &[0x48, 0xcf]];

/// The address of an interrupt's code.
const INTERRUPT_AT: u64 = KERNEL + 0x100;

impl Style {
    /// Returns random options.
    pub fn random(random: &mut Random) -> Self {
        let params = TimingParams {
            mtc_freq: random.below(10) as u8,
            nom_freq: 8 + random.below(40) as u8,
            cpuid_15h_eax: 2,
            cpuid_15h_ebx: 2 * random.pick(&[1, 8, 42, 84, 176, 500]),
        };
        let (mtc, cyc) = random.pick(&[(false, false), (true, false), (false, true), (true, true)]);
        let timing = (!random.once_in(3)).then_some(TimingOptions { params, mtc, cyc });
        let filtered = random.once_in(6);
        Self {
            options: EncoderOptions {
                psb_period: 64 << random.below(8),
                compress_returns: !random.once_in(3),
                long_tnt: random.once_in(3),
                timing,
            },
            extras_every: random.pick(&[0, 0, 30, 150, 800]),
            losses_every: random.pick(&[0, 0, 0, 100, 700]),
            breakpoints_every: 0,
            kernel: !filtered && random.once_in(3),
            filtered,
            wild: random.once_in(10),
            dressed: random.once_in(3),
            cut: random.pick(&[Cut::Nothing, Cut::Nothing, Cut::Beginning, Cut::End]),
        }
    }
}

/// Returns a trace of a run with random options.
pub fn random(run: &Run, random: &mut Random) -> Trace {
    let style = Style::random(random);
    encode(run, style, random)
}

/// Returns the trace of a run.
pub fn encode(run: &Run, style: Style, random: &mut Random) -> Trace {
    let mut config = Config {
        timing: style
            .options
            .timing
            .map_or(TimingParams::default(), |timing| timing.params),
        // Engines are compared by libipt's rule. The executed instructions are compared by the
        // SDM's rule too (`unexpected`).
        uncompressed_returns: UncompressedReturns::Keep,
        resync: Resync::NextPsb,
        ..Config::default()
    };
    let mut code = run.code.clone();
    if style.kernel {
        code.push(Segment {
            start: KERNEL,
            bytes: SYSTEM_CALL.concat(),
        });
        code.push(Segment {
            start: INTERRUPT_AT,
            bytes: INTERRUPT.concat(),
        });
    }
    if style.filtered {
        let Segment { start, bytes } = &run.code[0];
        config.filters.push(AddressFilter {
            range: Avma(*start)..Avma(start + bytes.len() as u64),
            kind: FilterKind::Filter,
        });
    }
    let traced = style.filtered.then(|| {
        let Segment { start, bytes } = &run.code[0];
        *start..start + bytes.len() as u64
    });
    let mut writing = Writing {
        writer: Writer::new(style.options),
        golden: Vec::new(),
        time: random.next() & 0xffff_ffff_ffff,
        pace: pace(&style.options, random),
        traced,
        style: &style,
        random,
        in_transaction: false,
        lost: false,
    };
    writing.all(&run.steps);
    let Writing {
        writer, golden, lost, ..
    } = writing;
    let mut bytes = writer.finish();
    if style.dressed {
        bytes = dress::dress(&bytes, random);
    }
    let mut expected = Expected::All(golden.clone());
    let at = random.below(bytes.len());
    match style.cut {
        Cut::Nothing => {}
        Cut::Beginning => {
            bytes.drain(..at);
            expected = Expected::End(golden);
        }
        Cut::End => {
            bytes.truncate(at);
            // If the interrupt is cut off, the trace does not show whether flow continues in the
            // program.
            expected = if style.kernel && style.extras_every != 0 {
                Expected::Agreement
            } else {
                Expected::Beginning(golden)
            };
        }
    }
    if lost || style.wild {
        expected = Expected::Agreement;
    }
    Trace {
        bytes,
        code,
        config,
        expected,
        style,
    }
}

/// Returns the approximate TSC ticks of an instruction, so few that most packets have no timing
/// packet.
fn pace(options: &EncoderOptions, random: &mut Random) -> usize {
    let params = options
        .timing
        .map_or(TimingParams::default(), |timing| timing.params);
    let crystal = params.cpuid_15h_ebx / params.cpuid_15h_eax.max(1);
    let mtc = (crystal as usize) << params.mtc_freq;
    random.pick(&[1, 40, 3000]).min(1 + mtc / 8)
}

/// The state of an encoding.
struct Writing<'a> {
    writer: Writer,
    /// The expected decode.
    golden: Vec<u64>,
    time: u64,
    /// The approximate TSC ticks of an instruction.
    pace: usize,
    /// The traced addresses, if filtered.
    traced: Option<std::ops::Range<u64>>,
    style: &'a Style,
    random: &'a mut Random,
    in_transaction: bool,
    /// Whether packets were lost.
    lost: bool,
}

impl Writing<'_> {
    fn is_traced(&self, at: Avma) -> bool {
        self.traced.as_ref().is_none_or(|range| range.contains(&at.0))
    }

    fn all(&mut self, steps: &[Step]) {
        self.pass();
        self.writer.encoder.start();
        // The index of the next instruction, and whether tracing is on.
        let (mut at, mut on) = (0, false);
        while let Some(&step) = steps.get(at) {
            if !on {
                if self.is_traced(step.at) {
                    self.while_off();
                    self.writer.encoder.enable(step.at);
                } else {
                    at += 1;
                    continue;
                }
            }
            self.pass();
            if self.writer.encoder.psb_due() {
                self.writer.encoder.psb(step.at);
            }
            if self.random.once_in(self.style.losses_every) {
                (at, on) = self.lose(steps, at);
                continue;
            }
            if self.random.once_in(self.style.extras_every) {
                self.extra(step.at);
            }
            self.golden.push(step.at.0);
            if step.ptwrite && self.style.extras_every != 0 && self.random.once_in(2) {
                self.ptwrite(step.at);
            }
            at += 1;
            on = self.step(step, steps.get(at).map(|next| next.at));
        }
    }

    /// Advances the time a little.
    fn pass(&mut self) {
        self.time += self.random.below(self.pace) as u64;
        if self.random.once_in(300) {
            self.time += self.random.below(100 * self.pace) as u64;
        }
        self.writer.encoder.set_time(Tsc(self.time));
    }

    /// Executes an instruction, and returns whether tracing is enabled after it.
    fn step(&mut self, step: Step, next: Option<Avma>) -> bool {
        let after = step.at + u64::from(step.instruction.len);
        let Some(next) = next else {
            self.writer.encoder.disable();
            return false;
        };
        let traced = self.traced.as_ref().is_none_or(|range| range.contains(&next.0));
        if self.random.once_in(self.style.breakpoints_every) {
            self.breakpoint(step);
        }
        let encoder = &mut self.writer.encoder;
        match step.instruction.cofi {
            Cofi::Sequential | Cofi::Jump { .. } => {}
            Cofi::Conditional { target } => encoder.conditional(next == target),
            Cofi::Call { target } => encoder.call(after, target, true),
            Cofi::IndirectCall if traced => {
                encoder.call(after, next, false);
                encoder.indirect(next);
            }
            Cofi::IndirectJump if traced => encoder.indirect(next),
            Cofi::Return if traced => encoder.near_return(next),
            // The other segment is not traced, and only these instructions lead to it.
            Cofi::IndirectCall | Cofi::IndirectJump | Cofi::Return => {
                self.writer.ip(TIP_PGD, next);
                return false;
            }
            Cofi::FarTransfer if self.style.kernel => self.system_call(next),
            Cofi::FarTransfer => {
                encoder.disable();
                return false;
            }
        }
        true
    }

    /// Hits a software breakpoint at a near branch that needs a packet. The file has the branch, so
    /// that it is listed before the gap too.
    fn breakpoint(&mut self, step: Step) {
        if let Cofi::Conditional { .. } | Cofi::IndirectCall | Cofi::IndirectJump | Cofi::Return =
            step.instruction.cofi
        {
            self.writer.encoder.disable();
            self.pass();
            self.writer.encoder.enable(step.at);
            self.golden.push(step.at.0);
        }
    }

    fn system_call(&mut self, next: Avma) {
        self.writer.ip(TIP, Avma(KERNEL));
        let cr3 = (self.random.next() & 0xf_ffff) << 12;
        self.writer.raw(Packet::Pip { cr3, non_root: false });
        self.run_kernel(KERNEL, SYSTEM_CALL);
        self.writer.ip(TIP, next);
    }

    fn run_kernel(&mut self, at: u64, code: &[&[u8]]) {
        let mut at = at;
        for bytes in code {
            self.golden.push(at);
            at += bytes.len() as u64;
        }
    }

    /// Interrupts before the instruction at `ip`, and returns there.
    fn interrupt(&mut self, ip: Avma) {
        if self.random.once_in(3) {
            // No separate address: the interrupt has it.
            self.event(false, 1);
        }
        if self.style.kernel && !self.random.once_in(3) {
            self.writer.ip(FUP, ip);
            self.writer.ip(TIP, Avma(INTERRUPT_AT));
            self.run_kernel(INTERRUPT_AT, INTERRUPT);
            self.writer.ip(TIP, ip);
            return;
        }
        if self.random.once_in(2) {
            self.writer.encoder.disable_async(ip);
        } else {
            self.writer.ip(FUP, ip);
            self.writer.ip(TIP_PGD, Avma(KERNEL));
        }
        self.while_off();
        self.pass();
        self.writer.encoder.enable(ip);
    }

    /// Writes an overflow, after which instructions are missing.
    fn lose(&mut self, steps: &[Step], at: usize) -> (usize, bool) {
        self.lost = true;
        self.in_transaction = false;
        let at = at + self.random.below(40);
        let resumed = steps.get(at).map(|step| step.at).filter(|&ip| self.is_traced(ip));
        if let Some(ip) = resumed
            && !self.random.once_in(4)
        {
            self.writer.overflow(Some(ip));
            return (at, true);
        }
        self.writer.overflow(None);
        (at, false)
    }

    fn ptwrite(&mut self, at: Avma) {
        let value = self.random.next();
        let value = if self.random.once_in(2) {
            Payload::Four(value as u32)
        } else {
            Payload::Eight(value)
        };
        let ip = self.random.once_in(2);
        self.writer.raw(Packet::Ptw { value, ip });
        if ip {
            self.writer.ip(FUP, at);
        }
    }
}
