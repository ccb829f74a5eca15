//! Events to packets.

use super::burst;
use crate::translate::event::{self, Event};
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tsc};

/// Writes the packets of a log, or of a part of it that begins with a PSB of its own.
pub(super) struct Writer {
    encoder: Encoder,
    /// The program is in user code.
    on: bool,
    /// A system call that is in the log, but may be taken back.
    leaving: bool,
    /// The time of what comes after it.
    later: Option<Tsc>,
    /// Bytes of packets that are handed out together, about.
    segment: usize,
    /// What is written, each beginning with PSB.
    packets: Vec<Vec<u8>>,
    gaps: u64,
    boundaries: Vec<Boundary>,
}

/// What a writer has written.
pub(super) struct Written {
    /// Each beginning with PSB.
    pub(super) packets: Vec<Vec<u8>>,
    pub(super) gaps: u64,
    /// Where code has changed, from the beginning of the packets.
    pub(super) boundaries: Vec<Boundary>,
}

impl Writer {
    /// At the beginning of a stream: the program is not in user code yet.
    pub(super) fn begin(options: EncoderOptions, segment: usize, time: Tsc) -> Self {
        let mut writer = Self::new(options, segment, time);
        writer.encoder.start();
        writer
    }

    /// In the midst of a stream, the program standing at `ip` in user code: needs nothing of what came
    /// before.
    pub(super) fn resume(options: EncoderOptions, segment: usize, time: Tsc, ip: Avma) -> Self {
        let mut writer = Self::new(options, segment, time);
        writer.encoder.psb(ip);
        writer.on = true;
        writer
    }

    fn new(options: EncoderOptions, segment: usize, time: Tsc) -> Self {
        let mut encoder = Encoder::new(options);
        encoder.set_time(time);
        Self {
            encoder,
            on: false,
            leaving: false,
            later: None,
            segment,
            packets: Vec::new(),
            gaps: 0,
            boundaries: Vec::new(),
        }
    }

    /// What comes next was written at this time or later. A system call that waits to be written began before.
    pub(super) fn set_time(&mut self, time: Tsc) {
        match self.leaving {
            true => self.later = Some(time),
            false => self.encoder.set_time(time),
        }
    }

    /// Ends the packets.
    pub(super) fn finish(mut self) -> Written {
        if self.leaving {
            self.leave();
        }
        self.packets.push(self.encoder.take());
        Written {
            packets: self.packets,
            gaps: self.gaps,
            boundaries: self.boundaries,
        }
    }

    /// Writes every event that is whole; says how many bytes of the log that was.
    pub(super) fn write_all(&mut self, log: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = log.get(at..).unwrap_or_default();
            // A system call in the log may be taken back by the event after it.
            if !self.leaving {
                let (len, ip) = self.encoder.branches(|branches| burst::write(rest, branches));
                at += len;
                if let Some(ip) = ip {
                    self.sync(ip);
                }
            }
            let Some((event, len)) = log.get(at..).and_then(Event::read) else {
                return at;
            };
            if self.leaving || !event.is_branch() || log.len() - at < event::MAX_LEN {
                self.write(event);
                at += len;
            }
        }
    }

    fn write(&mut self, event: Event) {
        if let Event::Outcomes(_) = event {
            return self.branch(event);
        }
        if std::mem::take(&mut self.leaving) && event != Event::NoSyscall {
            self.leave();
        }
        if let Some(time) = self.later.take() {
            self.encoder.set_time(time);
        }
        match event {
            Event::NoSyscall => {}
            Event::Outcomes(_)
            | Event::Target { .. }
            | Event::Return { .. }
            | Event::Call { .. }
            | Event::IndirectCall { .. } => self.branch(event),
            Event::Syscall { time } => {
                self.encoder.set_time(Tsc(time));
                self.leaving = true;
            }
            Event::Leave { time } => {
                self.encoder.set_time(Tsc(time));
                self.leave();
            }
            Event::Enter { ip, time } => {
                self.encoder.set_time(Tsc(time));
                if !self.on {
                    self.encoder.enable(Avma(ip));
                    self.on = true;
                    self.sync(Avma(ip));
                }
            }
            Event::Interrupt { ip, time } => {
                self.encoder.set_time(Tsc(time));
                self.interrupt(Avma(ip));
            }
            Event::Turn(ip) => {
                self.interrupt(Avma(ip));
                self.encoder.enable(Avma(ip));
                self.on = true;
                self.sync(Avma(ip));
            }
            Event::Version(number) => self.boundaries.push(Boundary {
                offset: self.encoder.written(),
                number: number as u32,
            }),
            Event::Lost(ip) => {
                self.gaps += 1;
                self.encoder.flush();
                self.encoder.overflow(Some(Avma(ip)));
                self.on = true;
            }
        }
    }

    /// One that a burst has left over.
    fn branch(&mut self, event: Event) {
        // Zeros follow it, which say nothing.
        let (log, _) = event.write();
        let (_, ip) = self.encoder.branches(|branches| burst::write(&log, branches));
        if let Some(ip) = ip {
            self.sync(ip);
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.on) {
            self.encoder.disable();
        }
    }

    fn interrupt(&mut self, ip: Avma) {
        if std::mem::take(&mut self.on) {
            self.encoder.disable_async(ip);
        }
    }

    /// PSB, when one is due: the program stands at `ip`.
    #[inline]
    fn sync(&mut self, ip: Avma) {
        if self.encoder.psb_due() {
            self.psb(ip);
        }
    }

    #[cold]
    fn psb(&mut self, ip: Avma) {
        if self.encoder.waiting() >= self.segment {
            let room = Vec::with_capacity(self.segment + (self.segment >> 3));
            self.packets.push(self.encoder.take_for(room));
        }
        self.encoder.psb(ip);
    }
}
