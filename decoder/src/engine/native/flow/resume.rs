//! Resumes the flow after code that is missing, or that runs in circles and so did not run.
//!
//! Packets can be read without code (SDM volume 3, "IP Compression": addresses depend only on
//! earlier packets). So the flow resumes at the next packet that has its address: a TIP, a TIP.PGE,
//! an OVF, or the FUP of an event. libipt 2.3 (`pt_insn_resync`) and perf resume there too. Calls
//! before such a place are unknown.
//!
//! Other processes may run on the processor, and their code is not available. The flow resumes only
//! where tracing is enabled again, because the next process can start there.

use super::{FlowDecoder, Stop, cause};
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent, TraceItem};
use crate::{Event, GapCause, Resync};
use backtrail_pt::Avma;

impl FlowDecoder<'_, '_> {
    /// Resumes after lost code, as often as needed. Returns the final reason to stop.
    pub(super) fn resume_after_lost_code(&mut self, mut stop: Stop) -> Stop {
        while let Some(cause) = self.resumable_cause(&stop) {
            let foreign = self.memory.has_unknown_processes();
            self.emit_lost(cause);
            // No instruction ran since the PSB, so its address is the next one that is known.
            if let (&Stop::Error(_, Some(at)), Some((psb, ip))) = (&stop, self.passed_psb)
                && at == ip
                && Some(psb) > self.events.sync_offset()
                && self.config.resync == Resync::NextAddress
            {
                return Stop::AtPsb(psb);
            }
            stop = match self.skip_to_address(foreign) {
                Ok(()) => self.follow(),
                Err(stop) => stop,
            };
            self.flush();
        }
        stop
    }

    /// Returns the cause of a gap after which the flow can resume; `None`: only at a PSB.
    fn resumable_cause(&self, stop: &Stop) -> Option<GapCause> {
        let anywhere = self.config.resync == Resync::NextAddress && !self.progress.is_before_start();
        match *stop {
            Stop::Error(Error::NoCode, at) if anywhere || self.memory.has_unknown_processes() => {
                Some(cause(Error::NoCode, at))
            }
            _ if !anywhere => None,
            Stop::Error(Error::BadInstruction, at) => Some(cause(Error::BadInstruction, at)),
            Stop::Error(Error::NoCall, Some(at)) if self.resumed => {
                Some(GapCause::UnknownCaller { at: Avma(at) })
            }
            Stop::RunAway(at) => Some(GapCause::RunAway { at: Avma(at) }),
            _ => None,
        }
    }

    /// Skips packets up to a place where the flow can be followed again. `foreign`: the code
    /// belongs to another process.
    fn skip_to_address(&mut self, foreign: bool) -> Result<(), Stop> {
        let read = self.events.offset();
        (self.outcomes, self.outcomes_len) = (0, 0);
        self.enabled = false;
        self.runaway.reset();
        let mut is_on = true;
        loop {
            let (event, offset) = match self.pending.take() {
                Some(event) => (event, self.pending_offset),
                None => {
                    let offset = self.ahead_offset;
                    if matches!(self.ahead, Ok(TraceItem::Tnt(_) | TraceItem::Tip(_))) {
                        self.emit_packet_time();
                    }
                    match self.take_ahead()? {
                        TraceItem::Event(event) => (event, offset),
                        TraceItem::Tip(Some(ip)) if !foreign => {
                            self.resume_at(ip, offset);
                            return Ok(());
                        }
                        TraceItem::Tnt(_) | TraceItem::Tip(_) => {
                            self.report_progress()?;
                            continue;
                        }
                    }
                }
            };
            match event.kind {
                EventKind::Enabled { packet } if event.status => self.stop_at_psb(packet, read, &event)?,
                EventKind::Enabled { .. } | EventKind::Overflow { .. } => {
                    (self.pending, self.pending_offset) = (Some(event), offset);
                    if !foreign {
                        self.forget_calls();
                    }
                    return Ok(());
                }
                EventKind::AsyncDisabled { at: from } | EventKind::AsyncBranch { from }
                    if !foreign && is_on && !event.status =>
                {
                    self.resume_with(event, from, offset);
                    return Ok(());
                }
                EventKind::Disabled | EventKind::AsyncDisabled { .. } if !event.status => {
                    is_on = false;
                    let to = event.ip.filter(|_| !foreign).map(Avma);
                    self.emit_time(event.time);
                    self.emit_event(Event::Disabled { from: None, to });
                }
                EventKind::Disabled => {
                    is_on = false;
                    self.emit_time(event.time);
                }
                EventKind::ExecMode(mode) => self.change_mode(&event, mode)?,
                _ => {
                    let ip = event.ip.filter(|_| !foreign && is_on && !event.status);
                    if let Some(ip) = ip.filter(|&ip| self.reaches(&event, ip)) {
                        self.resume_with(event, ip, offset);
                        return Ok(());
                    }
                    self.emit_time(event.time);
                    if let EventKind::Ptwrite { value } = event.kind
                        && !foreign
                    {
                        self.emit_event(Event::Ptwrite { value });
                    }
                }
            }
            self.report_progress()?;
        }
    }

    /// Returns whether an event at an address can be applied there. Some events bind to the
    /// instruction, which must be in the code.
    fn reaches(&mut self, event: &TraceEvent, ip: u64) -> bool {
        let binds_to_instruction = matches!(
            event.kind,
            EventKind::Ptwrite { .. } | EventKind::Iret | EventKind::VmEntry | EventKind::UserIret
        );
        !binds_to_instruction || self.find_block(ip).is_ok()
    }

    /// Handles a PSB+ with the address of the flow, at which decoding can start. Under libipt's
    /// rule it does so unless the PSB was read before the flow was lost.
    fn stop_at_psb(&mut self, psb: usize, read: usize, event: &TraceEvent) -> Result<(), Stop> {
        if self.config.resync == Resync::NextAddress || self.events.rewind_to(psb, read) {
            return Err(Stop::AtPsb(psb));
        }
        self.emit_time(event.time);
        Ok(())
    }

    /// Resumes the flow at an address, before an event there.
    fn resume_with(&mut self, event: TraceEvent, ip: u64, offset: usize) {
        self.emit_time(event.time);
        self.resume_at(ip, offset);
        (self.pending, self.pending_offset) = (Some(event), offset);
    }

    /// Resumes the flow at the address in the packet at `offset`.
    fn resume_at(&mut self, ip: u64, offset: usize) {
        self.passed_psb = None;
        (self.ip, self.enabled, self.since_address) = (ip, true, 0);
        self.forget_calls();
        self.emit_event(Event::FlowBegins {
            offset: offset as u64,
        });
    }

    /// Drops the calls before missing code, which may have returned.
    fn forget_calls(&mut self) {
        self.returns.clear();
        self.resumed = true;
    }
}
