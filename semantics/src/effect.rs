//! One instruction as a recorder and a replay treat it: by its model, or by its logged results.

use crate::log::{LogEnd, LogReader, LogWriter};
use crate::memory::{Memory, Stop, enabled_runs};
use crate::model::Model;
use crate::registers::{RegisterSet, Registers};
use crate::state::State;
use crate::stored_bytes::StoredBytes;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register, UsedMemory};

/// The most words that a repeated instruction stores in a replay.
const MOST_STORES: u64 = 1 << 24;
/// The largest store of an instruction without a model whose bytes are logged.
const LARGEST_STORE: usize = 64;

/// The effect of an instruction: computed, or read from the log.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The model computes it. The log has the loaded bytes.
    Modeled(Model),
    /// The log has it.
    Logged(LoggedResults),
}

/// The results of an instruction that the log has.
#[derive(Clone, Debug)]
pub struct LoggedResults {
    written: RegisterSet,
    stores: Vec<UsedMemory>,
    /// The area to which it saves registers.
    area: Option<(UsedMemory, SaveFormat)>,
    /// Whether it writes memory of an unknown address or size.
    has_unknown_stores: bool,
    is_syscall: bool,
    next: u64,
}

/// The accesses of a replay, in order.
pub trait Observer {
    /// Bytes were loaded.
    fn loaded(&mut self, address: u64, bytes: &[u8]);
    /// Bytes were stored.
    fn stored(&mut self, address: u64, bytes: &[u8]);
    /// Unknown memory was written.
    fn stored_unknown(&mut self);
}

/// An observer that is not interested.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn loaded(&mut self, _address: u64, _bytes: &[u8]) {}
    fn stored(&mut self, _address: u64, _bytes: &[u8]) {}
    fn stored_unknown(&mut self) {}
}

impl Effect {
    /// Returns the effect of an instruction.
    #[must_use]
    pub fn of(instruction: &Instruction) -> Self {
        match Model::of(instruction) {
            Ok(model) => Self::Modeled(model),
            Err(_) => Self::Logged(LoggedResults::of(instruction)),
        }
    }

    /// Returns whether it is a system call. An observer does not see the memory that the kernel
    /// writes.
    #[must_use]
    pub const fn is_syscall(&self) -> bool {
        matches!(self, Self::Logged(results) if results.is_syscall)
    }

    /// Computes the results of an instruction before it runs, and the values that a replay needs.
    /// `read` fills bytes from memory, and returns whether it could.
    pub fn predict(&self, state: &State, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Prediction {
        let mut prediction = Prediction {
            state: state.clone(),
            log: LogWriter::default(),
            next: None,
        };
        if let Self::Modeled(model) = self {
            let mut memory = Recording {
                read,
                log: &mut prediction.log,
                stored: model.loads_own_stores().then(StoredBytes::default),
            };
            prediction.next = model.execute(&mut prediction.state, &mut memory).ok();
        }
        prediction
    }

    /// Records an executed instruction: changes `state` as a replay will, and appends the needed
    /// values to the log. `after` has the registers after it, and `read` its memory. Returns the
    /// address of the next instruction.
    ///
    /// # Errors
    /// Fails if a replay could not reach `after`. Then the log and `state` are as before.
    pub fn confirm(
        &self,
        prediction: Prediction,
        state: &mut State,
        after: &State,
        read: &mut impl FnMut(u64, &mut [u8]) -> bool,
        log: &mut LogWriter,
    ) -> Result<u64, Unrecorded> {
        let mut prediction = prediction;
        let next = match self {
            Self::Modeled(_) => prediction.next,
            Self::Logged(results) => results.record(&mut prediction, after, read),
        };
        // Flags that the manual leaves undefined have their values in the processor.
        match next {
            Some(next) if prediction.state.agrees_with(after) => {
                *state = prediction.state;
                log.push(&prediction.log.take());
                Ok(next)
            }
            _ => Err(Unrecorded),
        }
    }

    /// Replays the instruction. Returns the address of the next one.
    ///
    /// # Errors
    /// Fails if the log has ended, or the result cannot be known.
    pub fn replay(
        &self,
        state: &mut State,
        log: &mut LogReader<'_>,
        observer: &mut impl Observer,
    ) -> Result<u64, Stop<LogEnd>> {
        match self {
            Self::Modeled(model) => {
                let stores = MOST_STORES;
                model.execute(
                    state,
                    &mut Replaying {
                        log,
                        observer,
                        stores,
                    },
                )
            }
            Self::Logged(results) => results.replay(state, log, observer).map_err(Stop::Memory),
        }
    }
}

/// A recorded instruction whose effect no replay can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the results of the instruction are not those of its model")]
pub struct Unrecorded;

impl LoggedResults {
    fn of(instruction: &Instruction) -> Self {
        let mut registers = Registers::of(instruction);
        let is_syscall = instruction.mnemonic() == Mnemonic::Syscall;
        if is_syscall {
            // The result.
            registers.written.general |= 1;
        }
        let mut factory = InstructionInfoFactory::new();
        let written = |used: &&UsedMemory| {
            !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        };
        let info = factory.info(instruction);
        let mnemonic = instruction.mnemonic();
        if matches!(
            mnemonic,
            Mnemonic::Xrstor | Mnemonic::Xrstor64 | Mnemonic::Fxrstor | Mnemonic::Fxrstor64
        ) {
            registers.written.vectors = u32::MAX;
            registers.written.masks = u8::MAX;
        }
        let format = match mnemonic {
            Mnemonic::Xsavec | Mnemonic::Xsavec64 => Some(SaveFormat::Compact),
            Mnemonic::Fxsave | Mnemonic::Fxsave64 => Some(SaveFormat::Legacy),
            _ => None,
        };
        let all: Vec<UsedMemory> = info.used_memory().iter().filter(written).copied().collect();
        let is_known = |used: &&UsedMemory| (1..=LARGEST_STORE).contains(&used.memory_size().size());
        let stores: Vec<UsedMemory> = all.iter().filter(is_known).copied().collect();
        let unknown = all.iter().find(|used| !is_known(used)).copied();
        let area = unknown.zip(format);
        Self {
            written: registers.written,
            has_unknown_stores: stores.len() + usize::from(area.is_some()) < all.len(),
            stores,
            area,
            is_syscall,
            next: instruction.next_ip(),
        }
    }

    /// Logs the results that the processor has. Returns the address of the next instruction.
    fn record(
        &self,
        prediction: &mut Prediction,
        after: &State,
        read: &mut impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u64> {
        let Prediction { state, log, .. } = prediction;
        for store in &self.stores {
            let mut bytes = [0; LARGEST_STORE];
            let bytes = &mut bytes[..store.memory_size().size()];
            if !read(address(store, state)?, bytes) {
                return None;
            }
            log.push(bytes);
        }
        if let Some((area, format)) = &self.area {
            let address = address(area, state)?;
            let size = format.size(address, read)?;
            let mut bytes = vec![0; usize::from(size)];
            if !read(address, &mut bytes) {
                return None;
            }
            log.push(&size.to_le_bytes());
            log.push(&bytes);
        }
        log.push_registers(self.written, after);
        let bytes = log.tail(self.written);
        LogReader::new(bytes).registers(self.written, state).ok()?;
        if self.is_syscall {
            // `arch_prctl` writes them.
            state.bases = after.bases;
            for base in after.bases {
                log.push(&base.to_le_bytes());
            }
        }
        Some(self.next)
    }

    fn replay(
        &self,
        state: &mut State,
        log: &mut LogReader<'_>,
        observer: &mut impl Observer,
    ) -> Result<u64, LogEnd> {
        for store in &self.stores {
            let mut bytes = [0; LARGEST_STORE];
            let bytes = &mut bytes[..store.memory_size().size()];
            let address = address(store, state).ok_or(LogEnd)?;
            log.bytes(bytes)?;
            observer.stored(address, bytes);
        }
        if let Some((area, _)) = &self.area {
            let address = address(area, state).ok_or(LogEnd)?;
            let mut size = [0; 2];
            log.bytes(&mut size)?;
            let mut bytes = vec![0; usize::from(u16::from_le_bytes(size))];
            log.bytes(&mut bytes)?;
            observer.stored(address, &bytes);
        }
        if self.has_unknown_stores {
            observer.stored_unknown();
        }
        log.registers(self.written, state)?;
        if self.is_syscall {
            for base in &mut state.bases {
                let mut bytes = [0; 8];
                log.bytes(&mut bytes)?;
                *base = u64::from_le_bytes(bytes);
            }
        }
        Ok(self.next)
    }
}

/// The format in which an instruction saves registers (SDM, volume 1, sections 10.5 and 13.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaveFormat {
    /// `fxsave`.
    Legacy,
    /// `xsavec`.
    Compact,
}

/// The size of the legacy region in bytes.
const LEGACY: u16 = 512;
/// The size of the legacy region and the header in bytes.
const HEADER: u16 = 576;
/// The components of the compact format by number: the size in bytes, and whether it is
/// aligned to 64 bytes (SDM, volume 1, section 13.5).
const COMPONENTS: [(u16, bool); 20] = [
    (0, false),
    (0, false),
    (256, false),
    (64, false),
    (64, false),
    (64, false),
    (512, false),
    (1024, false),
    (128, false),
    (8, false),
    (8, false),
    (16, false),
    (24, false),
    (8, false),
    (48, false),
    (808, false),
    (8, false),
    (64, true),
    (8192, true),
    (128, false),
];

impl SaveFormat {
    /// Returns the size of a saved area in bytes. `None`: it has an unknown component.
    fn size(self, address: u64, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Option<u16> {
        if self == Self::Legacy {
            return Some(LEGACY);
        }
        // XCOMP_BV, whose highest bit is the format.
        let mut components = [0; 8];
        if !read(address.wrapping_add(u64::from(LEGACY) + 8), &mut components) {
            return None;
        }
        let components = u64::from_le_bytes(components) & !(1 << 63);
        if components >> COMPONENTS.len() != 0 {
            return None;
        }
        let mut size = HEADER;
        for (number, (bytes, is_aligned)) in COMPONENTS.iter().enumerate() {
            if components >> number & 1 != 0 {
                if *is_aligned {
                    size = size.next_multiple_of(64);
                }
                size += bytes;
            }
        }
        Some(size)
    }
}

/// Returns the address of a store by the registers before the instruction.
fn address(used: &UsedMemory, state: &State) -> Option<u64> {
    used.virtual_address(0, |register, _, _| address_part(register, state))
}

/// Returns the part that a register has in an address: its value, or the base of a segment. `None`:
/// it is no register of addresses.
#[must_use]
pub fn address_part(register: Register, state: &State) -> Option<u64> {
    match register {
        Register::FS => Some(state.bases[0]),
        Register::GS => Some(state.bases[1]),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ => {
            let full = register.full_register();
            let value = *state.general.get(full.number())?;
            full.is_gpr().then_some(match register.size() {
                4 => value & 0xffff_ffff,
                _ => value,
            })
        }
    }
}

/// The results of an instruction by its model, before it has run.
#[derive(Clone, Debug)]
pub struct Prediction {
    state: State,
    log: LogWriter,
    next: Option<u64>,
}

impl Prediction {
    /// Returns the loaded bytes. `None`: the model has no result.
    #[must_use]
    pub fn loaded(mut self) -> Option<Vec<u8>> {
        self.next.map(|_| self.log.take())
    }
}

/// Memory whose loaded bytes go to the log.
struct Recording<'a, F> {
    read: &'a mut F,
    log: &'a mut LogWriter,
    /// Bytes that the instruction itself has stored. `None`: it loads none of them.
    stored: Option<StoredBytes>,
}

impl<F: FnMut(u64, &mut [u8]) -> bool> Memory for Recording<'_, F> {
    type Error = Unrecorded;

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Unrecorded> {
        if !(self.read)(address, bytes) {
            return Err(Unrecorded);
        }
        if let Some(stored) = &self.stored {
            stored.load(address, bytes);
        }
        self.log.push(bytes);
        Ok(())
    }

    /// Logs all bytes, so that their number does not depend on the mask.
    fn load_masked(&mut self, address: u64, bytes: &mut [u8], enabled: u64) -> Result<(), Unrecorded> {
        bytes.fill(0);
        for (at, part) in enabled_runs(bytes, enabled) {
            if !(self.read)(address.wrapping_add(at), part) {
                return Err(Unrecorded);
            }
        }
        self.log.push(bytes);
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unrecorded> {
        if let Some(stored) = &mut self.stored {
            stored.store(address, bytes);
        }
        Ok(())
    }
}

/// Memory whose loaded bytes are in the log.
struct Replaying<'a, 'l, O> {
    log: &'a mut LogReader<'l>,
    observer: &'a mut O,
    /// The number of words that a repeated instruction may still store.
    stores: u64,
}

impl<O: Observer> Memory for Replaying<'_, '_, O> {
    type Error = LogEnd;

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), LogEnd> {
        self.log.bytes(bytes)?;
        self.observer.loaded(address, bytes);
        Ok(())
    }

    /// The log has all bytes. Those without a bit in the mask were not loaded.
    fn load_masked(&mut self, address: u64, bytes: &mut [u8], enabled: u64) -> Result<(), LogEnd> {
        self.log.bytes(bytes)?;
        for (at, byte) in bytes.iter_mut().enumerate() {
            if enabled >> (at & 63) & 1 == 0 {
                *byte = 0;
            }
        }
        for (at, part) in enabled_runs(bytes, enabled) {
            self.observer.loaded(address.wrapping_add(at), part);
        }
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), LogEnd> {
        let words = bytes.len().div_ceil(8) as u64;
        self.stores = self.stores.checked_sub(words).ok_or(LogEnd)?;
        self.observer.stored(address, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[derive(Default)]
    struct Stores {
        ranges: Vec<(u64, usize)>,
        has_unknown: bool,
    }

    impl Observer for Stores {
        fn loaded(&mut self, _address: u64, _bytes: &[u8]) {}

        fn stored(&mut self, address: u64, bytes: &[u8]) {
            self.ranges.push((address, bytes.len()));
        }

        fn stored_unknown(&mut self) {
            self.has_unknown = true;
        }
    }

    fn effect(code: &[u8]) -> Effect {
        Effect::of(&Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode())
    }

    /// Records an instruction and replays it. Returns its stores.
    fn stores(code: &[u8], read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Stores {
        let effect = effect(code);
        let mut state = State::default();
        state.general[4] = 0x8000;
        let before = state.clone();
        let prediction = effect.predict(&state, read);
        let mut log = LogWriter::default();
        effect
            .confirm(prediction, &mut state, &before, read, &mut log)
            .unwrap();
        let log = log.take();
        let mut reader = LogReader::new(&log);
        let mut stores = Stores::default();
        let mut replayed = before.clone();
        effect.replay(&mut replayed, &mut reader, &mut stores).unwrap();
        assert_eq!((reader.left(), replayed), (0, before));
        stores
    }

    #[test]
    fn saved_registers_are_a_store_of_their_size() {
        // AVX, masks and both parts of the upper vectors.
        let mut read = |address: u64, bytes: &mut [u8]| {
            bytes.fill(0);
            if address == 0x8000 + 520 {
                bytes.copy_from_slice(&(1 << 63 | 0xe7_u64).to_le_bytes());
            }
            true
        };
        // xsavec [rsp]
        let saved = stores(&[0x0f, 0xc7, 0x24, 0x24], &mut read);
        assert_eq!((saved.ranges, saved.has_unknown), (vec![(0x8000, 2432)], false));
        // fxsave [rsp]
        let saved = stores(&[0x0f, 0xae, 0x04, 0x24], &mut read);
        assert_eq!((saved.ranges, saved.has_unknown), (vec![(0x8000, 512)], false));
    }

    #[test]
    fn restored_registers_are_logged() {
        let mut read = |_: u64, bytes: &mut [u8]| {
            bytes.fill(0);
            true
        };
        // xrstor [rsp]
        let restored = stores(&[0x0f, 0xae, 0x2c, 0x24], &mut read);
        assert!(restored.ranges.is_empty());
        let Effect::Logged(results) = effect(&[0x0f, 0xae, 0x2c, 0x24]) else {
            panic!("it has a model");
        };
        assert_eq!(
            (results.written.vectors, results.written.masks),
            (u32::MAX, u8::MAX)
        );
    }

    #[test]
    fn unknown_components_have_no_size() {
        let mut read = |_: u64, bytes: &mut [u8]| {
            bytes.fill(0xff);
            true
        };
        assert_eq!(SaveFormat::Compact.size(0, &mut read), None);
    }
}
