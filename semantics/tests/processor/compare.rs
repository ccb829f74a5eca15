//! One case: the same instruction by its model and by the processor.

use super::generate::{self, Pool, Random};
use super::native::{CODE, FLAGS, Outcome, Processor};
use super::region::{Copy, SIZE};
use backtrail_semantics::{Model, Operand, Registers, Segment, State, Stop};
use iced_x86::Instruction;
use std::collections::BTreeMap;

/// Counts of compared cases.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Cases with equal results.
    pub equal: u64,
    /// Cases that both refused.
    pub refused: u64,
    /// Cases of instructions that this processor has not got.
    pub unsupported: u64,
    /// Operands that inverses restored.
    pub restored: u64,
    /// Cases for each instruction with a model.
    names: BTreeMap<String, u64>,
}

impl Counts {
    /// Returns the instructions with fewer equal cases.
    pub fn rare(&self, least: u64) -> impl Iterator<Item = (&str, u64)> {
        let names = self.names.iter().map(|(name, &count)| (name.as_str(), count));
        names.filter(move |&(_, count)| count < least)
    }
}

/// A comparison of random cases.
pub struct Comparison {
    random: Random,
    pool: Pool,
    processor: Processor,
    page: Box<[u8; SIZE]>,
    counts: Counts,
}

impl Comparison {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut page = Box::new([0; SIZE]);
        page.fill_with(|| random.next() as u8);
        let pool = Pool::new(&mut random);
        Self {
            random,
            pool,
            processor: Processor::new(),
            page,
            counts: Counts::default(),
        }
    }

    pub fn counts(self) -> Counts {
        println!(
            "{} codes of {} instructions",
            self.pool.len(),
            self.counts.names.len()
        );
        self.counts
    }

    /// Compares one case. Fails with the difference.
    pub fn one(&mut self) -> Result<(), String> {
        let (bytes, instruction, model) = loop {
            let Some((bytes, instruction)) = self.pool.instruction(&mut self.random) else {
                continue;
            };
            if let Ok(model) = Model::of(&instruction) {
                break (bytes, instruction, model);
            }
        };
        let before = generate::state(&mut self.random, &mut self.page, &instruction);
        if is_unsafe(&model, &before) {
            return Ok(());
        }
        let mut copy = Copy {
            bytes: self.page.clone(),
        };
        let mut expected = before.clone();
        let outcome = model.execute(&mut expected, &mut copy);
        *self.processor.page() = *self.page;
        let mut state = before.clone();
        let native = self.processor.run(&bytes, &mut state);
        let problem = match (outcome, native) {
            (_, Outcome::Fault(libc::SIGILL)) => {
                self.counts.unsupported += 1;
                return Ok(());
            }
            (Ok(next), Outcome::Next(other)) if next == other => {
                difference(&self.processor, &expected, &state)
                    .or_else(|| self.memory_difference(&copy))
                    .or_else(|| self.inverse_difference(&model, &before, &state))
                    .or_else(|| unexpected_change(&instruction, &before, &state))
            }
            // Models do not check alignment: the fault is in the trace.
            (Ok(_), Outcome::Fault(libc::SIGSEGV)) if is_misaligned(&model, &before) => {
                self.counts.refused += 1;
                return Ok(());
            }
            (Err(Stop::Memory(_) | Stop::Division), Outcome::Fault(_)) => {
                self.counts.refused += 1;
                // A fault leaves flags undefined, and changes no register.
                (expected.general != state.general).then(|| "registers after a fault".to_owned())
            }
            (Err(Stop::Undefined | Stop::Rounding), _) => {
                self.counts.refused += 1;
                return Ok(());
            }
            (outcome, native) => Some(format!("model {outcome:x?}, processor {native:x?}")),
        };
        if let Some(problem) = problem {
            return Err(explain(&problem, &bytes, &instruction, &model, &before));
        }
        *self.page = *self.processor.page();
        self.counts.equal += 1;
        let name = format!("{:?}", instruction.mnemonic());
        *self.counts.names.entry(name).or_default() += 1;
        Ok(())
    }

    /// Returns an operand that the inverse restores wrongly.
    fn inverse_difference(&mut self, model: &Model, before: &State, after: &State) -> Option<String> {
        let restored = model.invert(
            after,
            &mut Copy {
                bytes: Box::new(*self.processor.page()),
            },
        );
        let mut page = Copy {
            bytes: self.page.clone(),
        };
        self.counts.restored += restored.len() as u64;
        restored.iter().find_map(|found| {
            let value = found.operand.read(before, &mut page).ok()?;
            (value != found.value).then(|| format!("{found:x?} was {value:#x}"))
        })
    }

    fn memory_difference(&mut self, copy: &Copy) -> Option<String> {
        let page = self.processor.page();
        let at = (0..SIZE).find(|&at| page[at] != copy.bytes[at])?;
        let part = at..(at + 16).min(SIZE);
        Some(format!(
            "memory at {at:#x}: model {:x?}, processor {:x?}",
            &copy.bytes[part.clone()],
            &page[part]
        ))
    }
}

/// Returns a register that changed and is not among those that the instruction writes.
fn unexpected_change(instruction: &Instruction, before: &State, after: &State) -> Option<String> {
    let written = Registers::of(instruction).written;
    let general =
        (0..16).find(|&at| before.general[at] != after.general[at] && written.general >> at & 1 == 0);
    let vector =
        (0..32).find(|&at| before.vectors[at] != after.vectors[at] && written.vectors >> at & 1 == 0);
    let mask = (0..8).find(|&at| before.masks[at] != after.masks[at] && written.masks >> at & 1 == 0);
    let flags = (before.flags ^ after.flags) & FLAGS & !written.flags;
    if general.or(vector).or(mask).is_none() && flags == 0 {
        return None;
    }
    Some(format!(
        "written {written:x?}; changed: {general:?}, {vector:?}, {mask:?}, {flags:#x}"
    ))
}

/// Returns whether the instruction reads or writes its own page, or the test's own thread data.
fn is_unsafe(model: &Model, state: &State) -> bool {
    model.operands().iter().any(|operand| match operand {
        Operand::Memory { address, .. } => {
            let linear = address.linear(state);
            linear.wrapping_sub(CODE - 0x1000) < 0x3000 || address.segment == Some(Segment::Fs)
        }
        _ => false,
    })
}

/// Returns whether an operand in memory may have to be aligned, and is not.
fn is_misaligned(model: &Model, state: &State) -> bool {
    model.operands().iter().any(|operand| match operand {
        Operand::Memory { address, size } if *size >= 16 => address.linear(state) % u64::from(*size) != 0,
        _ => false,
    })
}

/// Returns the first difference of two states.
fn difference(hardware: &Processor, model: &State, processor: &State) -> Option<String> {
    let (count, size) = hardware.vectors();
    for (number, (left, right)) in model.general.iter().zip(&processor.general).enumerate() {
        if left != right {
            return Some(format!(
                "register {number}: model {left:#x}, processor {right:#x}"
            ));
        }
    }
    let flags = (model.flags ^ processor.flags) & FLAGS & !model.undefined;
    if flags != 0 {
        return Some(format!(
            "flags {flags:#x}: model {:#x}, processor {:#x}",
            model.flags, processor.flags
        ));
    }
    let vectors = model.vectors.iter().zip(&processor.vectors).take(count);
    for (number, (left, right)) in vectors.enumerate() {
        if left[..size] != right[..size] {
            return Some(format!(
                "vector {number}:\nmodel     {left:02x?}\nprocessor {right:02x?}"
            ));
        }
    }
    let masks = model.masks.iter().zip(&processor.masks);
    for (number, (left, right)) in masks.take(hardware.mask_count()).enumerate() {
        if left != right {
            return Some(format!("mask {number}: model {left:#x}, processor {right:#x}"));
        }
    }
    None
}

fn explain(problem: &str, bytes: &[u8], instruction: &Instruction, model: &Model, before: &State) -> String {
    let mut vectors = String::new();
    for operand in model.operands() {
        if let Operand::Vector(number) = operand {
            let vector = &before.vectors[usize::from(*number)];
            vectors += &format!("vector {number}: {vector:02x?}\n");
        }
    }
    format!(
        "{instruction} {bytes:02x?} ({:?}): {problem}\n{model:?}\nbefore: {:x?}, flags {:#x}, masks {:x?}\n{vectors}",
        instruction.code(),
        before.general,
        before.flags,
        before.masks,
    )
}
