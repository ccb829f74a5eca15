//! What events do to the flow, and what the sink is told of them.

use super::Flow;
use crate::Event as Told;
use crate::engine::native::error::Error;
use crate::engine::native::event::{Event, Kind};
use backtrail_pt::Avma;
use backtrail_pt::instruction::Mode;
use backtrail_pt::packet::ExecMode;

impl Flow<'_, '_> {
    /// Applies the event that is pending, which is due.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        let Some(event) = self.pending.take() else {
            return Ok(());
        };
        self.quiet.reset();
        let to = event.ip.map(Avma);
        match event.kind {
            Kind::Enabled { packet } => self.enable(&event, packet)?,
            Kind::AsyncDisabled { at } => {
                self.disable(&event, Some(Avma(at)))?;
            }
            Kind::Disabled => self.disable(&event, None)?,
            Kind::AsyncBranch { from } => {
                if !self.enabled {
                    return Err(Error::BadContext);
                }
                self.ip = to.unwrap_or_default().0;
                self.tell_event(&event, Told::Branched { from: Avma(from) });
            }
            Kind::Overflow { packet } => {
                self.ip = to.unwrap_or_default().0;
                self.enabled = to.is_some();
                let offset = packet as u64;
                self.tell(Told::FlowBegins { offset });
                self.tell_event(&event, Told::Overflow { offset });
            }
            Kind::ExecMode(mode) => self.change_mode(&event, mode)?,
            Kind::Stop if self.enabled => return Err(Error::BadContext),
            Kind::Ptwrite { value } => self.tell_event(&event, Told::Ptwrite { value }),
            _ => self.tell_time(event.when),
        }
        Ok(())
    }

    /// The time of an event is told before it.
    fn tell_event(&mut self, event: &Event, told: Told) {
        self.tell_time(event.when);
        self.tell(told);
    }

    fn enable(&mut self, event: &Event, packet: usize) -> Result<(), Error> {
        let at = Avma(event.ip.unwrap_or(0));
        let status = event.status;
        if status {
            if !self.enabled {
                return Err(Error::BadStatus);
            }
            self.tell_event(event, Told::Enabled { at, status });
            self.quiet.pass_psb(packet);
            self.pass(packet, at.0);
            return Ok(());
        }
        self.ip = event.ip.ok_or(Error::NoIp)?;
        if self.enabled {
            return Err(Error::BadContext);
        }
        self.enabled = true;
        let offset = packet as u64;
        self.tell(Told::FlowBegins { offset });
        self.tell_event(event, Told::Enabled { at, status });
        Ok(())
    }

    fn disable(&mut self, event: &Event, from: Option<Avma>) -> Result<(), Error> {
        if event.status {
            if self.enabled {
                return Err(Error::BadStatus);
            }
            self.tell_time(event.when);
            return Ok(());
        }
        if !self.enabled {
            return Err(Error::BadContext);
        }
        self.enabled = false;
        let to = event.ip.map(Avma);
        self.tell_event(event, Told::Disabled { from, to });
        Ok(())
    }

    pub(super) fn change_mode(&mut self, event: &Event, mode: ExecMode) -> Result<(), Error> {
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
        self.select();
        self.tell_time(event.when);
        Ok(())
    }
}
