//! Foreign code: other processes run on the processor, and their code is not available.
//!
//! libipt resumes at the next PSB, and loses the flow up to it. But packets can be read without
//! code (SDM volume 3, "IP Compression": addresses depend only on earlier packets). So the flow
//! resumes at the next TIP.PGE. If only user code is traced, the next process starts there.

use super::{FlowDecoder, Stop, cause};
use crate::Event;
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceItem};

impl FlowDecoder<'_, '_> {
    /// Resumes after foreign code, as often as needed. Returns the final reason to stop.
    pub(super) fn resume_after_foreign_code(&mut self, mut stop: Stop) -> Stop {
        while let Stop::Error(Error::NoCode, at) = stop
            && self.memory.has_unknown_processes()
        {
            self.emit_lost(cause(Error::NoCode, at));
            stop = match self.skip_foreign_code() {
                Ok(()) => self.follow(),
                Err(stop) => stop,
            };
            self.flush();
        }
        stop
    }

    /// Skips packets up to a place where the flow can be followed again. If that is a PSB, libipt
    /// resumes there too.
    fn skip_foreign_code(&mut self) -> Result<(), Stop> {
        let read = self.events.offset();
        (self.outcomes, self.outcomes_len) = (0, 0);
        self.enabled = false;
        self.runaway.reset();
        loop {
            let event = match self.pending.take() {
                Some(event) => event,
                None => {
                    let next = self.events.next();
                    match std::mem::replace(&mut self.ahead, next)? {
                        TraceItem::Event(event) => event,
                        TraceItem::Tnt(_) | TraceItem::Tip(_) => {
                            self.emit_packet_time();
                            self.report_progress()?;
                            continue;
                        }
                    }
                }
            };
            match event.kind {
                EventKind::Enabled { packet } if event.status => {
                    if self.events.rewind_to(packet, read) {
                        return Err(Stop::AtNextPsb);
                    }
                    self.emit_time(event.time);
                }
                EventKind::Enabled { .. } | EventKind::Overflow { .. } => {
                    self.pending = Some(event);
                    return Ok(());
                }
                EventKind::Disabled | EventKind::AsyncDisabled { .. } if !event.status => {
                    self.emit_time(event.time);
                    self.emit_event(Event::Disabled { from: None, to: None });
                }
                EventKind::ExecMode(mode) => self.change_mode(&event, mode)?,
                _ => self.emit_time(event.time),
            }
            self.report_progress()?;
        }
    }
}
