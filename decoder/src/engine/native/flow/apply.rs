//! Applies events to the flow, and reports them to the sink.

use super::FlowDecoder;
use crate::Event;
use crate::engine::native::error::Error;
use crate::engine::native::event::{EventKind, TraceEvent};
use backtrail_pt::Avma;
use backtrail_pt::instruction::Mode;
use backtrail_pt::packet::ExecMode;

impl FlowDecoder<'_, '_> {
    /// Applies the pending event, which is due.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        let Some(event) = self.pending.take() else {
            return Ok(());
        };
        self.runaway.reset();
        if !event.status {
            self.passed_psb = None;
        }
        if event.ip.is_some() || matches!(event.kind, EventKind::Trigger { .. }) {
            self.since_address = 0;
        }
        let to = event.ip.map(Avma);
        match event.kind {
            EventKind::Enabled { packet } => self.enable(&event, packet)?,
            EventKind::AsyncDisabled { at } => {
                self.disable(&event, Some(Avma(at)))?;
            }
            EventKind::Disabled => self.disable(&event, None)?,
            EventKind::AsyncBranch { from } => {
                if !self.enabled {
                    return Err(Error::BadContext);
                }
                self.ip = to.unwrap_or_default().0;
                self.emit_timed(&event, Event::Branched { from: Avma(from) });
            }
            EventKind::Overflow { packet } => {
                self.ip = to.unwrap_or_default().0;
                self.enabled = to.is_some();
                let offset = packet as u64;
                self.emit_event(Event::FlowBegins { offset });
                self.emit_timed(&event, Event::Overflow { offset });
            }
            EventKind::ExecMode(mode) => self.change_mode(&event, mode)?,
            EventKind::Stop if self.enabled => return Err(Error::BadContext),
            EventKind::Ptwrite { value } => self.emit_timed(&event, Event::Ptwrite { value }),
            _ => self.emit_time(event.time),
        }
        Ok(())
    }

    /// Reports an event after its time.
    fn emit_timed(&mut self, event: &TraceEvent, output: Event) {
        self.emit_time(event.time);
        self.emit_event(output);
    }

    fn enable(&mut self, event: &TraceEvent, packet: usize) -> Result<(), Error> {
        let at = Avma(event.ip.unwrap_or(0));
        let status = event.status;
        if status {
            if !self.enabled {
                return Err(Error::BadStatus);
            }
            let is_elsewhere = self.ip != at.0 || self.memory.depends_on_time();
            self.passed_psb = is_elsewhere.then_some((packet, self.ip));
            self.emit_timed(event, Event::Enabled { at, status });
            self.runaway.pass_psb(packet);
            self.pass_boundary(packet, at.0);
            return Ok(());
        }
        self.ip = event.ip.ok_or(Error::NoIp)?;
        if self.enabled {
            return Err(Error::BadContext);
        }
        self.enabled = true;
        let offset = packet as u64;
        self.emit_event(Event::FlowBegins { offset });
        self.emit_timed(event, Event::Enabled { at, status });
        Ok(())
    }

    fn disable(&mut self, event: &TraceEvent, from: Option<Avma>) -> Result<(), Error> {
        if event.status {
            if self.enabled {
                return Err(Error::BadStatus);
            }
            self.emit_time(event.time);
            return Ok(());
        }
        if !self.enabled {
            return Err(Error::BadContext);
        }
        self.enabled = false;
        let to = event.ip.map(Avma);
        self.emit_timed(event, Event::Disabled { from, to });
        Ok(())
    }

    pub(super) fn change_mode(&mut self, event: &TraceEvent, mode: ExecMode) -> Result<(), Error> {
        let mode = match mode {
            ExecMode {
                long: true,
                default_32: true,
                ..
            } => None,
            ExecMode { long: true, .. } => Some(Mode::Bits64),
            ExecMode { default_32: true, .. } => Some(Mode::Bits32),
            _ => Some(Mode::Bits16),
        };
        if event.status && self.enabled && self.mode.is_some() && self.mode != mode {
            return Err(Error::BadStatus);
        }
        self.mode = mode;
        self.select_code();
        self.emit_time(event.time);
        Ok(())
    }
}
