//! The memory of a crashed process: what the core saved, and of what it left out, what files say.

use backtrail_bundle::core::{Core, Segment};
use backtrail_decoder::{Image, Version};
use backtrail_pt::Avma;
use iced_x86::{Decoder, DecoderOptions};

/// No call instruction is longer, in bytes, with the prefixes that compilers write.
const LONGEST_CALL: u64 = 9;

/// The type of the entry of the auxiliary vector with the address where the program begins.
const AT_ENTRY: u64 = 9;

/// The code at the crash.
const LAST: Version = Version(u32::MAX);

/// The memory at the crash.
pub(crate) struct Memory<'a> {
    core: &'a Core,
    image: &'a Image,
    /// Words of a stack before the crash, and their address. Other writable memory is not known
    /// then.
    past: Option<(Avma, &'a [u64])>,
}

impl<'a> Memory<'a> {
    /// Returns the memory of a core, with the code of the process.
    pub fn new(core: &'a Core, image: &'a Image) -> Self {
        Self {
            core,
            image,
            past: None,
        }
    }

    /// Returns the code of the process, and the words of a stack at a time before the crash.
    pub fn of_stack(core: &'a Core, image: &'a Image, at: Avma, words: &'a [u64]) -> Self {
        Self {
            core,
            image,
            past: Some((at, words)),
        }
    }

    /// Fills `out` with words of the past stack; `None`: it does not have all of them.
    fn read_past(&self, at: Avma, out: &mut [u8]) -> Option<()> {
        let (start, words) = self.past?;
        let from = usize::try_from(at.0.checked_sub(start.0)?).ok()?;
        for (offset, byte) in out.iter_mut().enumerate() {
            let place = from.checked_add(offset)?;
            *byte = *words.get(place / 8)?.to_le_bytes().get(place % 8)?;
        }
        Some(())
    }

    /// Fills `out` with what was at `at`; `None`: not all of it is known. Only what could not be
    /// written is taken from files.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> Option<()> {
        if self.past.is_some() && (self.read_past(at, out).is_some() || self.is_writable(at)) {
            return self.read_past(at, out);
        }
        if self.core.memory(at, out) == out.len() {
            return Some(());
        }
        (!self.is_writable(at) && self.image.read_version(LAST, at, out) == out.len()).then_some(())
    }

    /// The 64-bit word at `at`.
    pub fn word(&self, at: Avma) -> Option<u64> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    /// The program could write to `at`.
    pub fn is_writable(&self, at: Avma) -> bool {
        self.segment(at).is_some_and(|segment| segment.writable)
    }

    /// Instructions can run at `at`.
    pub fn is_code(&self, at: Avma) -> bool {
        match self.segment(at) {
            Some(segment) => segment.executable,
            None => self.image.read_version(LAST, at, &mut [0]) == 1,
        }
    }

    /// A call instruction ends just before `at`.
    pub fn is_behind_call(&self, at: Avma) -> bool {
        self.is_code(at) && self.calls_before(at).next().is_some()
    }

    /// A direct call of `target` ends just before `at`.
    pub fn is_behind_call_of(&self, at: Avma, target: Avma) -> bool {
        self.calls_before(at).any(|call| call == Some(target))
    }

    /// The call instructions that the bytes before `at` can be, by their targets; `None`: indirect.
    fn calls_before(&self, at: Avma) -> impl Iterator<Item = Option<Avma>> {
        (2..=LONGEST_CALL).filter_map(move |length| {
            let start = Avma(at.0.checked_sub(length)?);
            let mut bytes = [0; LONGEST_CALL as usize];
            let bytes = bytes.get_mut(..length as usize)?;
            self.read(start, bytes)?;
            let instruction = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE).decode();
            if instruction.len() as u64 != length {
                return None;
            }
            if instruction.is_call_near() {
                return Some(Some(Avma(instruction.near_branch_target())));
            }
            instruction.is_call_near_indirect().then_some(None)
        })
    }

    /// Returns the entry point of the program, as the kernel reported it. Its function has no
    /// caller.
    pub fn program_entry(&self) -> Option<Avma> {
        let auxv = &self.core.contents().auxv;
        let found = auxv.iter().find(|(kind, _)| *kind == AT_ENTRY);
        found.map(|&(_, entry)| Avma(entry))
    }

    fn segment(&self, at: Avma) -> Option<&Segment> {
        let segments = &self.core.contents().segments;
        let next = segments.partition_point(|segment| segment.start <= at);
        let segment = segments.get(next.checked_sub(1)?)?;
        (at - segment.start < segment.size).then_some(segment)
    }
}
