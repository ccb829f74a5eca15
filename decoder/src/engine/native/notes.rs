//! What tells the time of a segment, written down as it is read.

use backtrail_pt::packet::Packet;
use std::cell::RefCell;
use std::rc::Rc;

/// A packet of the time, or what changes what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// `header`: it stands in a PSB+.
    Tsc {
        tsc: u64,
        header: bool,
    },
    Cbr {
        ratio: u8,
        header: bool,
    },
    Tma {
        ctc: u16,
        fast: u16,
    },
    Mtc(u8),
    Cyc(u64),
    /// The PSB at this offset was passed.
    Psb(usize),
    /// An overflow was met.
    Overflow,
    /// Decoding begins anew.
    Reset,
}

impl Note {
    /// What a packet tells; `header`: it stands in a PSB+. `None`: it is none of the time.
    pub fn of(packet: &Packet, header: bool) -> Option<Self> {
        Some(match *packet {
            Packet::Tsc(tsc) => Self::Tsc { tsc, header },
            Packet::Cbr(ratio) => Self::Cbr { ratio, header },
            Packet::Tma { ctc, fast } => Self::Tma { ctc, fast },
            Packet::Mtc(ctc) => Self::Mtc(ctc),
            Packet::Cyc(cycles) => Self::Cyc(cycles),
            _ => return None,
        })
    }
}

/// What tells the time of a segment, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(super) Vec<Note>);

impl Notes {
    /// Bytes of it.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Holds nothing.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Writes notes. Clones write on behind the same ones, and what another wrote there is lost.
#[derive(Clone, Default)]
pub(super) struct Writer {
    notes: Rc<RefCell<Notes>>,
    len: usize,
    /// How many there were when the time was another last.
    changed: usize,
    /// The TSC, as long as no packet refines it.
    tsc: Option<u64>,
}

impl Writer {
    /// Writes over what these are.
    pub fn new(mut notes: Notes) -> Self {
        notes.clear();
        Self {
            notes: Rc::new(RefCell::new(notes)),
            ..Self::default()
        }
    }

    /// Writes the next.
    pub fn write(&mut self, note: Note) {
        let Notes(notes) = &mut *self.notes.borrow_mut();
        notes.truncate(self.len);
        notes.push(note);
        self.len = notes.len();
        let tsc = match note {
            Note::Tsc { tsc, .. } => Some(tsc),
            Note::Mtc(_) | Note::Cyc(_) | Note::Reset => None,
            // They tell how the time goes on.
            Note::Cbr { .. } | Note::Tma { .. } | Note::Psb(_) | Note::Overflow => return,
        };
        // Many PSB+ say again what is known.
        if tsc.is_none() || tsc != self.tsc {
            (self.changed, self.tsc) = (self.len, tsc);
        }
    }

    /// How many there were when the time became another last.
    pub fn changed(&self) -> usize {
        self.changed
    }

    /// What was written.
    pub fn finish(self) -> Notes {
        let mut notes = self.notes.take();
        notes.0.truncate(self.len);
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tsc(tsc: u64) -> Note {
        Note::Tsc { tsc, header: false }
    }

    #[test]
    fn of_what_a_clone_wrote_ahead_only_that_stays_which_is_taken() {
        let mut writer = Writer::default();
        writer.write(tsc(1));
        let mut dropped = writer.clone();
        dropped.write(tsc(2));
        dropped.write(tsc(3));
        writer.write(tsc(4));
        let mut taken = writer.clone();
        taken.write(tsc(5));
        writer = taken;
        let mut unused = writer.clone();
        unused.write(tsc(6));
        assert_eq!(writer.finish().0, [1, 4, 5].map(tsc));
    }

    #[test]
    fn what_says_the_time_again_makes_it_no_other() {
        let mut writer = Writer::default();
        let mut changed = |note| {
            writer.write(note);
            writer.changed()
        };
        assert_eq!(changed(tsc(7)), 1);
        assert_eq!(changed(Note::Tma { ctc: 3, fast: 1 }), 1);
        assert_eq!(changed(Note::Psb(9)), 1);
        assert_eq!(changed(tsc(7)), 1);
        assert_eq!(changed(Note::Mtc(7)), 5);
        // That goes back.
        assert_eq!(changed(tsc(7)), 6);
        assert_eq!(changed(tsc(8)), 7);
    }
}
