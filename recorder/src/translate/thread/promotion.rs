//! Promotes frequently executed blocks to superblocks, based on samples of the log.
//!
//! Sampling is sufficient: rarely executed blocks are found rarely, and translating one again is
//! harmless.

use super::Translated;
use crate::error::Result;
use crate::translate::block::{InstructionState, TranslationEntry};
use crate::translate::event::LogEvent;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::Registers;

impl Translated {
    /// Promotes blocks that often leave through side exits, as the full chunk shows.
    pub(super) fn promote(&mut self, entry: &TranslationEntry, registers: &Registers) -> Result<()> {
        /// The number of log bytes to read.
        const SAMPLE: u64 = 512;
        /// The maximum number of blocks per sample.
        const MOST: usize = 4;
        let mut log = Vec::new();
        self.region.read(self.cursor.chunk, 0, SAMPLE, &mut log);
        let mut space = self.space.borrow_mut();
        let mut found: Vec<u64> = left_by_side_exits(&log)
            .filter(|ip| space.cache.is_promotable(*ip))
            .take(MOST)
            .collect();
        if let InstructionState::Done {
            event: Some(LogEvent::Outcomes(_)),
            ..
        } = entry.state
        {
            found.extend(space.cache.block_containing(registers.rip));
        }
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        for ip in found {
            space.promote(&mut tracee, self.pid, ip)?;
        }
        Ok(())
    }
}

/// Returns blocks that an indirect branch entered and that left through a side exit. Their outcomes
/// are a separate event, which a superblock would combine with the next event.
///
/// The log begins at an event boundary.
fn left_by_side_exits(log: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = log;
    let events = std::iter::from_fn(move || {
        let (event, len) = LogEvent::read(rest)?;
        rest = rest.get(len..)?;
        Some(event)
    });
    let mut entered = None;
    events.filter_map(move |event| {
        let before = entered.take();
        match event {
            LogEvent::Outcomes(_) => return before,
            LogEvent::Target { target, .. }
            | LogEvent::Return { target, .. }
            | LogEvent::IndirectCall { target, .. } => entered = Some(target),
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
    fn only_the_last_entered_block_took_the_side_exit() {
        let outcomes = NO_OUTCOMES;
        let events = [
            LogEvent::Outcomes(0b11),
            LogEvent::Target { outcomes, target: 1 },
            LogEvent::Return { outcomes, target: 2 },
            LogEvent::Outcomes(0b10),
            LogEvent::Outcomes(0b10),
            LogEvent::Return { outcomes, target: 3 },
            LogEvent::Call { outcomes, next: 4 },
            LogEvent::Outcomes(0b10),
        ];
        let mut log = Vec::new();
        for event in events {
            let (bytes, len) = event.write();
            log.extend_from_slice(&bytes[..len]);
        }
        // The last event may be incomplete.
        log.push(event::TARGET);
        assert_eq!(left_by_side_exits(&log).collect::<Vec<_>>(), [2]);
    }
}
