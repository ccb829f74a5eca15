//! The pauses of a trace: tracing is off, and time goes on.
//!
//! Engines tell the time of what they tell, so of the packets of time in a pause (MTC goes on while tracing is off; SDM volume 3,
//! "Mini Time Counter (MTC) Packet") they tell the last. A context switch lies among them, as a rule, and only the first is certain
//! to come soon after the code that ran before.

use super::errata::Errata;
use super::packets::Packets;
use super::time::Time;
use crate::Config;
use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;

/// The first time told in each pause in which several are told, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses(Vec<Tsc>);

/// A pause that is not over.
struct Pause {
    /// The last time told before it.
    began: Option<Tsc>,
    first: Option<Tsc>,
    /// There is a later one.
    several: bool,
}

impl Pauses {
    /// Reads the packets of a trace, and follows no flow.
    pub(super) fn of(trace: &[u8], errata: Errata, config: &Config) -> Self {
        let mut found = Self::default();
        let mut packets = Packets::new(trace, errata);
        while packets.sync_forward().is_ok() {
            let mut time = Time::new(config.timing, errata.skl168);
            found.read(&mut packets, &mut time);
        }
        found
    }

    /// The first time told in the pause that began when `at` was the last.
    pub fn first_after(&self, at: Tsc) -> Option<Tsc> {
        let index = self.0.partition_point(|first| *first <= at);
        self.0.get(index).copied()
    }

    /// Reads up to what cannot be read.
    fn read(&mut self, packets: &mut Packets<'_>, time: &mut Time) {
        let mut header = false;
        let mut pause: Option<Pause> = None;
        loop {
            packets.skip_branches();
            let Ok(packet) = packets.next() else { return };
            match time.take(&packet, header) {
                Ok(true) => {
                    if let (Some(pause), Some(stamp)) = (&mut pause, time.stamp())
                        && stamp.lost_mtc == 0
                    {
                        pause.told(stamp.tsc);
                    }
                    continue;
                }
                Ok(false) => {}
                Err(_) => return,
            }
            match packet {
                Packet::Psb => {
                    header = true;
                    time.psb();
                }
                Packet::PsbEnd => header = false,
                Packet::Ovf => {
                    (header, pause) = (false, None);
                    time.overflow();
                }
                Packet::TipPgd(_) => {
                    pause = Some(Pause {
                        began: time.stamp().map(|stamp| stamp.tsc),
                        first: None,
                        several: false,
                    });
                }
                Packet::TipPge(_) => self.end(pause.take()),
                _ => {}
            }
        }
    }

    fn end(&mut self, pause: Option<Pause>) {
        let first = pause.filter(|pause| pause.several).and_then(|pause| pause.first);
        // A clock that was set back tells nothing that can be found by time.
        if let Some(first) = first.filter(|first| self.0.last().is_none_or(|last| last < first)) {
            self.0.push(first);
        }
    }
}

impl Pause {
    fn told(&mut self, at: Tsc) {
        match self.first {
            None if self.began.is_none_or(|began| at > began) => self.first = Some(at),
            Some(first) if at > first => self.several = true,
            _ => {}
        }
    }
}
