//! What is executed often, as samples of the log show it.
//!
//! A sample needs to be no more than that: what is not executed often is found seldom, and to translate
//! it again does no harm.

use super::Translated;
use crate::error::Result;
use crate::translate::block::{Place, State};
use crate::translate::event::Event;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::Registers;

impl Translated {
    /// Translates blocks anew, wide, that are left by their sides often: a full chunk shows some.
    pub(super) fn widen(&mut self, place: &Place, registers: &Registers) -> Result<()> {
        /// Bytes of the log looked at.
        const SAMPLE: u64 = 512;
        /// Blocks at a time.
        const MOST: usize = 4;
        let mut log = Vec::new();
        self.region.read(self.cursor.chunk, 0, SAMPLE, &mut log);
        let mut space = self.space.borrow_mut();
        let mut found: Vec<u64> = left_by_sides(&log)
            .filter(|ip| space.cache.is_narrow(*ip))
            .take(MOST)
            .collect();
        if let State::Done {
            event: Some(Event::Outcomes(_)),
            ..
        } = place.state
        {
            found.extend(space.cache.block_at(registers.rip));
        }
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        for ip in found {
            space.widen(&mut tracee, self.pid, ip)?;
        }
        Ok(())
    }
}

/// Blocks that an indirect branch led to and that were left by a side: their outcomes are an event by
/// themselves, which a wide block would tell together with the next.
///
/// The log begins with a whole event.
fn left_by_sides(log: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = log;
    let events = std::iter::from_fn(move || {
        let (event, len) = Event::read(rest)?;
        rest = rest.get(len..)?;
        Some(event)
    });
    let mut entered = None;
    events.filter_map(move |event| {
        let before = entered.take();
        match event {
            Event::Outcomes(_) => return before,
            Event::Target { target, .. }
            | Event::Return { target, .. }
            | Event::IndirectCall { target, .. } => entered = Some(target),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::event::{self, NO_OUTCOMES};

    #[test]
    fn only_what_was_entered_last_was_left() {
        let outcomes = NO_OUTCOMES;
        let events = [
            Event::Outcomes(0b11),
            Event::Target { outcomes, target: 1 },
            Event::Return { outcomes, target: 2 },
            Event::Outcomes(0b10),
            Event::Outcomes(0b10),
            Event::Return { outcomes, target: 3 },
            Event::Call { outcomes, next: 4 },
            Event::Outcomes(0b10),
        ];
        let mut log = Vec::new();
        for event in events {
            let (bytes, len) = event.write();
            log.extend_from_slice(&bytes[..len]);
        }
        // The last event may be cut short.
        log.push(event::TARGET);
        assert_eq!(left_by_sides(&log).collect::<Vec<_>>(), [2]);
    }
}
