//! Code that is nobody's: other processes run on the processor too, and their code is not there.
//!
//! libipt goes on at the PSB behind it, and what ran up to there is lost. But a packet is understood without the code
//! (SDM volume 3, "IP Compression": an address is told by those before it in the trace), so the flow is found again where
//! tracing comes on (TIP.PGE), which is where the next process begins when only user code is traced.

use super::{Flow, Stop, cause};
use crate::Event as Told;
use crate::engine::native::error::Error;
use crate::engine::native::event::{Item, Kind};

impl Flow<'_, '_> {
    /// Goes on behind code that is nobody's, and says what stopped it at last.
    pub(super) fn get_through(&mut self, mut stop: Stop) -> Stop {
        while let Stop::Error(Error::NoCode, at) = stop
            && self.memory.is_nobodys()
        {
            self.lost(cause(Error::NoCode, at), true);
            stop = match self.pass_over() {
                Ok(()) => self.follow(),
                Err(stop) => stop,
            };
            self.flush();
        }
        stop
    }

    /// Goes over packets to where the flow can be followed again. Where that is a PSB, it is the one at which libipt goes on.
    fn pass_over(&mut self) -> Result<(), Stop> {
        let read = self.events.offset();
        (self.outcomes, self.outcomes_len) = (0, 0);
        self.enabled = false;
        self.quiet.reset();
        loop {
            let event = match self.pending.take() {
                Some(event) => event,
                None => {
                    let next = self.events.next();
                    match std::mem::replace(&mut self.ahead, next)? {
                        Item::Event(event) => event,
                        Item::Tnt(_) | Item::Tip(_) => {
                            self.tick();
                            self.report()?;
                            continue;
                        }
                    }
                }
            };
            match event.kind {
                Kind::Enabled { packet } if event.status => {
                    if self.events.back_to(packet, read) {
                        return Err(Stop::Elsewhere);
                    }
                    self.tell_time(event.when);
                }
                Kind::Enabled { .. } | Kind::Overflow { .. } => {
                    self.pending = Some(event);
                    return Ok(());
                }
                Kind::Disabled | Kind::AsyncDisabled { .. } if !event.status => {
                    self.tell_time(event.when);
                    self.tell(Told::Disabled { from: None, to: None });
                }
                Kind::ExecMode(mode) => self.change_mode(&event, mode)?,
                _ => self.tell_time(event.when),
            }
            self.report()?;
        }
    }
}
