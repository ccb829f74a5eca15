//! Records the values of a single-stepped thread: each instruction is computed by its model before
//! it runs, and compared afterwards.

use crate::packet_stream::PacketStream;
use crate::ptrace::{self, RawTid};
use crate::segment_log::SegmentLog;
use crate::xstate::XState;
use backtrail_bundle::value_log;
use backtrail_process::memory;
use backtrail_pt::Avma;
use backtrail_semantics::{Effect, LogWriter, Prediction, State};
use iced_x86::{Decoder, DecoderOptions};

/// The size of a log, in bytes, from which another segment begins.
const SEGMENT: usize = 256 << 10;
/// The number of instructions from which another segment begins. A debugger replays them at once.
const INSTRUCTIONS: u64 = 100_000;

/// The values of a thread.
#[derive(Debug)]
pub(crate) struct ValueRecorder {
    xstate: XState,
    kept: SegmentLog,
    /// The registers before the next instruction, as a replay has them. `None`: a segment begins
    /// there.
    state: Option<State>,
    /// The beginning of the current segment.
    start: Vec<u8>,
    log: LogWriter,
    instructions: u64,
    pending: Option<PendingInstruction>,
}

/// An instruction that may run next.
#[derive(Debug)]
struct PendingInstruction {
    at: Avma,
    effect: Effect,
    prediction: Prediction,
    has_run: bool,
}

impl ValueRecorder {
    /// Builds a log that keeps about `limit` bytes, or everything.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            xstate: XState::of_this_processor(),
            kept: SegmentLog::new(limit),
            state: None,
            start: Vec::new(),
            log: LogWriter::default(),
            instructions: 0,
            pending: None,
        }
    }

    /// Notes that the pending instruction has run.
    pub(crate) fn executed(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.has_run = true;
        }
    }

    /// Notes that the next registers do not follow from the last ones.
    pub(crate) fn interrupted(&mut self) {
        self.pending = None;
        self.end_segment();
    }

    /// Compares the pending instruction with the thread, which is at `ip`.
    pub(crate) fn confirm(&mut self, tid: RawTid, pid: RawTid, ip: Avma) {
        let Some(pending) = self.pending.take_if(|pending| pending.has_run) else {
            return;
        };
        let after = self.registers(tid);
        let (Some(state), Some(after)) = (&mut self.state, after) else {
            return self.interrupted();
        };
        let next = pending
            .effect
            .confirm(pending.prediction, state, &after, &mut reader(pid), &mut self.log);
        if next != Ok(ip.0) {
            return self.interrupted();
        }
        self.instructions += 1;
        if self.log.len() >= SEGMENT || self.instructions >= INSTRUCTIONS {
            self.end_segment();
        }
    }

    /// Prepares for the instruction at `ip`.
    pub(crate) fn before(
        &mut self,
        (tid, pid): (RawTid, RawTid),
        ip: Avma,
        code: &[u8],
        stream: &mut PacketStream,
    ) {
        // A repeated instruction goes on.
        if self.pending.as_ref().is_some_and(|pending| pending.at == ip) {
            return;
        }
        if self.state.is_none() {
            self.begin_segment(tid, ip, stream);
        }
        let Some(state) = &self.state else {
            return;
        };
        let instruction = Decoder::with_ip(64, code, ip.0, DecoderOptions::NONE).decode();
        let effect = Effect::of(&instruction);
        let prediction = effect.predict(state, &mut reader(pid));
        self.pending = Some(PendingInstruction {
            at: ip,
            effect,
            prediction,
            has_run: false,
        });
    }

    fn begin_segment(&mut self, tid: RawTid, ip: Avma, stream: &mut PacketStream) {
        let Some(state) = self.registers(tid) else {
            return;
        };
        self.start.clear();
        state.encode(&mut self.start);
        self.state = Some(state);
        stream.value(ip, value_log::mark(self.kept.number()));
    }

    fn end_segment(&mut self) {
        if self.state.take().is_none() {
            return;
        }
        let mut content = std::mem::take(&mut self.start);
        content.extend(self.log.take());
        self.kept.push(&content);
        self.instructions = 0;
    }

    /// Returns the file of the log.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_segment();
        self.kept.finish()
    }

    fn registers(&self, tid: RawTid) -> Option<State> {
        let registers = ptrace::registers(tid).ok()?;
        self.xstate
            .state(&registers, &ptrace::register_set(tid, XState::NOTE))
    }
}

/// Returns a function that reads memory of a process.
pub(crate) fn reader(pid: RawTid) -> impl FnMut(u64, &mut [u8]) -> bool {
    move |address, bytes| memory::read(pid, address, bytes) == bytes.len()
}
