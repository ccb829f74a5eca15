//! Encodes the events of a log as packets.

use super::branches;
use crate::translate::event::{self, LogEvent};
use backtrail_bundle::heap::{AllocatorFunction, HeapWord};
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tsc};

/// Encodes a log, or a part of it that begins with a PSB.
pub(super) struct LogEncoder {
    encoder: Encoder,
    /// Whether the program is in user code.
    in_user_code: bool,
    /// Whether a system call has been read that the next event may cancel.
    pending_syscall: bool,
    /// The time after the pending system call.
    later_time: Option<Tsc>,
    /// A call of an allocator function whose second argument follows.
    heap_call: Option<HeapCall>,
    /// The approximate size of a packet segment.
    segment: usize,
    /// Encoded segments, each beginning with a PSB.
    packets: Vec<Vec<u8>>,
    gaps: u64,
    boundaries: Vec<Boundary>,
}

/// A call of an allocator function.
#[derive(Clone, Copy)]
struct HeapCall {
    function: AllocatorFunction,
    ip: Avma,
    argument: u64,
}

/// The result of an encoder.
pub(super) struct EncodedPackets {
    /// Packet segments, each beginning with a PSB.
    pub(super) packets: Vec<Vec<u8>>,
    pub(super) gaps: u64,
    /// The positions of code changes in the packets.
    pub(super) boundaries: Vec<Boundary>,
}

impl LogEncoder {
    /// Builds an encoder for the start of a stream, with tracing disabled.
    pub(super) fn at_start(options: EncoderOptions, segment: usize, time: Tsc) -> Self {
        let mut log_encoder = Self::new(options, segment, time);
        log_encoder.encoder.start();
        log_encoder
    }

    /// Builds an encoder for the middle of a stream, with the program at `ip` in user code. It does
    /// not depend on earlier events.
    pub(super) fn at_user_code(options: EncoderOptions, segment: usize, time: Tsc, ip: Avma) -> Self {
        let mut log_encoder = Self::new(options, segment, time);
        log_encoder.encoder.psb(ip);
        log_encoder.in_user_code = true;
        log_encoder
    }

    fn new(options: EncoderOptions, segment: usize, time: Tsc) -> Self {
        let mut encoder = Encoder::new(options);
        encoder.set_time(time);
        Self {
            encoder,
            in_user_code: false,
            pending_syscall: false,
            later_time: None,
            heap_call: None,
            segment,
            packets: Vec::new(),
            gaps: 0,
            boundaries: Vec::new(),
        }
    }

    /// Sets the earliest time of the following events. A pending system call began before.
    pub(super) fn set_time(&mut self, time: Tsc) {
        match self.pending_syscall {
            true => self.later_time = Some(time),
            false => self.encoder.set_time(time),
        }
    }

    /// Ends the packets.
    pub(super) fn finish(mut self) -> EncodedPackets {
        if self.pending_syscall {
            self.leave();
        }
        self.packets.push(self.encoder.take());
        EncodedPackets {
            packets: self.packets,
            gaps: self.gaps,
            boundaries: self.boundaries,
        }
    }

    /// Encodes all complete events, and returns the number of log bytes read.
    pub(super) fn encode_all(&mut self, log: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = log.get(at..).unwrap_or_default();
            // The next event may cancel a system call in the log.
            if !self.pending_syscall {
                let (len, ip) = self.encoder.branches(|out| branches::encode_branches(rest, out));
                at += len;
                if let Some(ip) = ip {
                    self.psb_if_due(ip);
                }
            }
            let Some((event, len)) = log.get(at..).and_then(LogEvent::read) else {
                return at;
            };
            if self.pending_syscall || !event.is_branch() || log.len() - at < event::MAX_LEN {
                self.encode(event);
                at += len;
            }
        }
    }

    fn encode(&mut self, event: LogEvent) {
        if let LogEvent::Outcomes(_) = event {
            return self.encode_branch(event);
        }
        if std::mem::take(&mut self.pending_syscall) && event != LogEvent::NoSyscall {
            self.leave();
        }
        if let Some(time) = self.later_time.take() {
            self.encoder.set_time(time);
        }
        match event {
            LogEvent::NoSyscall => {}
            LogEvent::Outcomes(_)
            | LogEvent::Target { .. }
            | LogEvent::Return { .. }
            | LogEvent::Call { .. }
            | LogEvent::IndirectCall { .. } => self.encode_branch(event),
            LogEvent::Syscall { time } => {
                self.encoder.set_time(Tsc(time));
                self.pending_syscall = true;
            }
            LogEvent::Leave { time } => {
                self.encoder.set_time(Tsc(time));
                self.leave();
            }
            LogEvent::Enter { ip, time } => {
                self.encoder.set_time(Tsc(time));
                if !self.in_user_code {
                    self.encoder.enable(Avma(ip));
                    self.in_user_code = true;
                    self.psb_if_due(Avma(ip));
                }
            }
            LogEvent::Interrupt { ip, time } => {
                self.encoder.set_time(Tsc(time));
                self.interrupt(Avma(ip));
            }
            LogEvent::LoopMarker(ip) => {
                self.interrupt(Avma(ip));
                self.encoder.enable(Avma(ip));
                self.in_user_code = true;
                self.psb_if_due(Avma(ip));
            }
            LogEvent::Version(number) => self.boundaries.push(Boundary {
                offset: self.encoder.written(),
                number: number as u32,
            }),
            LogEvent::HeapCall {
                function,
                ip,
                argument,
            } => self.heap_call(function, Avma(ip), argument),
            LogEvent::HeapArgument(value) => self.heap_argument(value),
            LogEvent::Mark { ip, value } => self.mark(Avma(ip), value),
            LogEvent::HeapResult { outcomes, ip, block } => {
                self.encode_branch(LogEvent::Outcomes(outcomes));
                self.write_values(Avma(ip), &[HeapWord::Result(block)]);
            }
            LogEvent::Lost(ip) => {
                self.gaps += 1;
                self.encoder.flush();
                self.encoder.overflow(Some(Avma(ip)));
                self.in_user_code = true;
            }
        }
    }

    /// Encodes a branch event near the end of the log, where the inner loop stops.
    fn encode_branch(&mut self, event: LogEvent) {
        // The zero bytes after the event are skipped.
        let (log, _) = event.write();
        let (_, ip) = self.encoder.branches(|out| branches::encode_branches(&log, out));
        if let Some(ip) = ip {
            self.psb_if_due(ip);
        }
    }

    fn heap_call(&mut self, function: u8, ip: Avma, argument: u64) {
        let Some(&function) = AllocatorFunction::ALL.get(usize::from(function)) else {
            return;
        };
        match function {
            AllocatorFunction::Calloc | AllocatorFunction::Realloc => {
                self.heap_call = Some(HeapCall {
                    function,
                    ip,
                    argument,
                });
            }
            _ => self.write_values(ip, &[HeapWord::Call { function, argument }]),
        }
    }

    fn heap_argument(&mut self, value: u64) {
        let Some(HeapCall {
            function,
            ip,
            argument,
        }) = self.heap_call.take()
        else {
            return;
        };
        if function == AllocatorFunction::Calloc {
            let argument = argument.saturating_mul(value);
            return self.write_values(ip, &[HeapWord::Call { function, argument }]);
        }
        let call = HeapWord::Call { function, argument };
        self.write_values(ip, &[call, HeapWord::Size(value)]);
    }

    /// Writes values before the instruction at `ip`, with tracing off.
    fn write_values(&mut self, ip: Avma, words: &[HeapWord]) {
        if !self.in_user_code {
            return;
        }
        self.interrupt(ip);
        for word in words {
            self.encoder.value(word.encode());
        }
        self.encoder.enable(ip);
        self.in_user_code = true;
        self.psb_if_due(ip);
    }

    /// Writes a value before the instruction at `ip`, which is next, with tracing off.
    fn mark(&mut self, ip: Avma, value: u64) {
        self.interrupt(ip);
        self.encoder.value(value);
        self.encoder.enable(ip);
        self.in_user_code = true;
        self.psb_if_due(ip);
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.in_user_code) {
            self.encoder.disable();
        }
    }

    fn interrupt(&mut self, ip: Avma) {
        if std::mem::take(&mut self.in_user_code) {
            self.encoder.disable_async(ip);
        }
    }

    /// Writes a PSB if one is due. The program is at `ip`.
    #[inline]
    fn psb_if_due(&mut self, ip: Avma) {
        if self.encoder.psb_due() {
            self.write_psb(ip);
        }
    }

    #[cold]
    fn write_psb(&mut self, ip: Avma) {
        if self.encoder.waiting() >= self.segment {
            let room = Vec::with_capacity(self.segment + (self.segment >> 3));
            self.packets.push(self.encoder.take_for(room));
        }
        self.encoder.psb(ip);
    }
}
