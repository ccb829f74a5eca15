//! The end of a thread and of its log.

use super::{ThreadState, Translated};
use crate::clock;
use crate::recorded::FinishedStream;
use crate::translate::encoder::EncoderPool;
use crate::translate::event::LogEvent;
use crate::translate::staged::Unstaged;
use crate::translate::thread::value_log::TranslatedValues;
use backtrail_bundle::core::Registers;

impl Translated {
    /// Ends the log with the thread at `ip`.
    pub(crate) fn close(&mut self, ip: u64, encoders: &EncoderPool) {
        if !self.is_closed() {
            self.end_values(encoders);
            let time = clock::now().0;
            self.log(LogEvent::Interrupt { ip, time }, encoders);
            self.state = ThreadState::Closed;
        }
    }

    /// Ends the log of an exiting thread, based on the registers at its last stop.
    pub(crate) fn close_at_exit(&mut self, registers: &Registers, encoders: &EncoderPool) {
        let mut now = *registers;
        if let Some(unset) = self.unset.take() {
            return self.close(unset.rip, encoders);
        }
        match &self.state {
            ThreadState::InCache => {
                if let Some(mut entry) = self.program_registers(&mut now, encoders) {
                    // The call that ends the thread has no results.
                    if entry.unstaged == Unstaged::SystemCall {
                        entry.unstaged = Unstaged::Nothing;
                    }
                    self.log_staged(&entry, &now, encoders);
                }
            }
            ThreadState::InSyscall { next, .. } => now.rip = *next,
            ThreadState::Native { ip, .. } if now.rip != *ip => {
                self.on_stepped(registers, false, encoders);
            }
            _ => {}
        }
        self.close(now.rip, encoders);
    }

    /// Waits for the packets.
    pub(crate) fn finish(mut self, encoders: &EncoderPool) -> Option<FinishedStream> {
        self.end_values(encoders);
        let values = self.values.take().map(TranslatedValues::finish);
        let end = self.cursor.written(&self.region);
        let written = encoders.end(self.stream, end).recv().ok()?;
        self.space.borrow_mut().release_region(self.memory, self.region);
        Some(FinishedStream {
            packets: written.packets,
            dropped: written.dropped,
            instructions: None,
            bytes: written.bytes,
            gaps: written.gaps,
            golden: Vec::new(),
            boundaries: written.boundaries,
            values,
            failure: written.failure,
        })
    }
}
