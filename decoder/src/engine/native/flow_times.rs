//! The times between which each stretch of flow ran, read from the packets before the flow is
//! followed.
//!
//! The code that ran may depend on the time (see [`crate::TimedChange`]). A decoder selects the
//! code where the flow begins, when the stamps after it are not read yet.

use super::errata::Errata;
use super::packets::PacketCursor;
use super::time::TscEstimator;
use crate::Config;
use backtrail_pt::Tsc;
use backtrail_pt::packet::Packet;

/// The times of the stretches of flow of a trace, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTimes(Vec<Stretch>);

/// Flow up to the end of an interval in which tracing is enabled. It begins at the start of the
/// interval, or at a PSB in it, where a decoder may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// The offset of the packet at which it begins.
    offset: u64,
    /// The last stamp before it.
    after: Option<Tsc>,
    /// The first stamp after it.
    before: Option<Tsc>,
}

impl FlowTimes {
    /// Reads the packets of a trace, whose first byte has this offset, without following the flow.
    pub(super) fn of(trace: &[u8], offset: u64, errata: Errata, config: &Config) -> Self {
        let mut found = Self::default();
        let mut packets = PacketCursor::new(trace, errata);
        while packets.sync_forward().is_ok() {
            let mut reader = Reader {
                time: TscEstimator::new(config.timing, errata.skl168),
                stretches: &mut found.0,
                settled: 0,
                enabled: None,
                header: None,
                offset,
            };
            reader.settled = reader.stretches.len();
            while let Ok(()) = reader.read(&mut packets) {}
        }
        found
    }

    /// Returns the stamps around the flow that begins at an offset, or that is there.
    pub fn around(&self, offset: u64) -> (Option<Tsc>, Option<Tsc>) {
        let next = self.0.partition_point(|stretch| stretch.offset <= offset);
        let found = next.checked_sub(1).and_then(|last| self.0.get(last));
        found.map_or((None, None), |stretch| (stretch.after, stretch.before))
    }
}

/// Reads packets from a PSB on.
struct Reader<'a> {
    time: TscEstimator,
    stretches: &'a mut Vec<Stretch>,
    /// The number of stretches whose end is known. Those before the PSB have no later stamp,
    /// because packets between are lost.
    settled: usize,
    /// The first stretch of the interval, if tracing is enabled.
    enabled: Option<usize>,
    /// The offset of the PSB whose header is read.
    header: Option<u64>,
    offset: u64,
}

impl Reader<'_> {
    /// Reads the next packet. Fails at the first error.
    fn read(&mut self, packets: &mut PacketCursor<'_>) -> Result<(), ()> {
        packets.skip_branches();
        let packet = packets.next().map_err(drop)?;
        let at = self.offset.saturating_add(packets.begin() as u64);
        if matches!(packet, Packet::Cyc(_)) {
            // Cycles estimate the time, in both directions. TSC and MTC are exact.
            return Ok(());
        }
        let is_time = self.time.apply_packet(&packet, self.header.is_some());
        if is_time.map_err(drop)? {
            self.settle();
            return Ok(());
        }
        match packet {
            Packet::Psb => {
                self.header = Some(at);
                self.time.psb();
            }
            Packet::PsbEnd => self.header = None,
            Packet::Fup(_) => {
                if let Some(psb) = self.header {
                    self.open(psb);
                }
            }
            Packet::Ovf => {
                (self.header, self.enabled) = (None, None);
                self.time.overflow();
                self.open(at);
            }
            Packet::TipPge(_) => {
                self.enabled = None;
                self.open(at);
            }
            Packet::TipPgd(_) => self.enabled = None,
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, offset: u64) {
        self.enabled.get_or_insert(self.stretches.len());
        self.stretches.push(Stretch {
            offset,
            after: self.time.stamp().map(|stamp| stamp.tsc),
            before: None,
        });
    }

    /// Sets the end of the stretches that ended before a new stamp.
    fn settle(&mut self) {
        // Without lost packets, a stamp is not too early.
        let Some(stamp) = self
            .time
            .stamp()
            .filter(|stamp| stamp.lost_mtc == 0 && stamp.lost_cyc == 0)
        else {
            return;
        };
        let ended = self.enabled.unwrap_or(self.stretches.len());
        let ended = self.settled..ended.max(self.settled);
        self.settled = ended.end;
        for stretch in self.stretches.get_mut(ended).unwrap_or_default() {
            // After a backward jump of the clock, nothing is known.
            stretch.before =
                Some(stamp.tsc).filter(|before| stretch.after.is_none_or(|after| after <= *before));
        }
    }
}
