//! Who follows the time of a decode: it is worked out at once, or, where what is in front of it is decoded elsewhere, written
//! down and worked out later.

use super::error::Error;
use super::note::Note;
use super::time::Time;
use crate::Stamp;
use backtrail_pt::packet::Packet;
use std::cell::RefCell;
use std::rc::Rc;

/// Follows the time. A clone can go ahead, and take its place or be dropped.
#[derive(Clone)]
pub(super) enum Timekeeper {
    /// Works it out.
    Now(Time),
    /// Writes down what tells it.
    Later(Writer),
}

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// Then.
    Known(Stamp),
    /// When so many notes were taken, of which the last may have made it another.
    Noted(usize),
}

impl When {
    /// It is another time than that.
    pub fn differs_from(self, other: Self) -> bool {
        match (self, other) {
            (Self::Known(one), Self::Known(other)) => one.tsc != other.tsc,
            (Self::Noted(one), Self::Noted(other)) => one != other,
            _ => true,
        }
    }
}

impl Timekeeper {
    /// Takes a packet; `header`: it stands in a PSB+. Says whether it was one of the time.
    pub fn take(&mut self, packet: &Packet, header: bool) -> Result<bool, Error> {
        match self {
            Self::Now(time) => time.take(packet, header),
            Self::Later(writer) => {
                let note = Note::of(packet, header);
                note.into_iter().for_each(|note| writer.write(note));
                Ok(note.is_some())
            }
        }
    }

    /// The PSB at an offset was passed.
    pub fn psb(&mut self, offset: usize) {
        match self {
            Self::Now(time) => time.psb(),
            Self::Later(writer) => writer.write(Note::Psb(offset)),
        }
    }

    /// An overflow was met.
    pub fn overflow(&mut self) {
        match self {
            Self::Now(time) => time.overflow(),
            Self::Later(writer) => writer.write(Note::Overflow),
        }
    }

    /// Decoding begins anew.
    pub fn reset(&mut self) {
        match self {
            Self::Now(time) => time.reset(),
            Self::Later(writer) => writer.write(Note::Reset),
        }
    }

    /// The time now; `None`: nothing has told it.
    pub fn when(&self) -> Option<When> {
        match self {
            Self::Now(time) => time.stamp().map(When::Known),
            Self::Later(writer) => Some(When::Noted(writer.changed)),
        }
    }
}

/// What tells the time of a segment, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<Note>);

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

    fn write(&mut self, note: Note) {
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

    /// What was written.
    pub fn finish(self) -> Notes {
        let mut notes = self.notes.take();
        notes.0.truncate(self.len);
        notes
    }
}

/// Works out the time of segments, one after the other.
pub(crate) struct Reckoner {
    /// Where the next begins.
    time: Time,
    stamps: Stamps,
}

/// The times of a segment.
#[derive(Default)]
pub(crate) struct Stamps(Vec<Option<Stamp>>);

impl Stamps {
    /// The time when so many notes were taken; `None`: nothing has told it.
    pub fn at(&self, notes: usize) -> Option<Stamp> {
        self.0.get(notes).copied().flatten()
    }
}

impl Reckoner {
    pub(super) fn new(time: Time) -> Self {
        Self {
            time,
            stamps: Stamps::default(),
        }
    }

    /// The times of the next segment, which ends at the PSB at `to`; `None`: its packets cannot be, and only a decode in order shows
    /// what comes of that.
    pub fn reckon(&mut self, notes: &Notes, to: Option<usize>) -> Option<&Stamps> {
        let Stamps(stamps) = &mut self.stamps;
        stamps.clear();
        stamps.push(self.time.stamp());
        let mut behind = None;
        for &note in &notes.0 {
            // What is behind it was read ahead, and is read again with the next segment.
            if matches!(note, Note::Psb(psb) if Some(psb) == to) {
                behind = Some(self.time.clone());
            }
            self.time.note(note).ok()?;
            stamps.push(self.time.stamp());
        }
        if let Some(behind) = behind {
            self.time = behind;
        }
        Some(&self.stamps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{TimingParams, Tsc};

    fn note(writer: &mut Timekeeper, tsc: u64) {
        assert_eq!(writer.take(&Packet::Tsc(tsc), false), Ok(true));
    }

    fn finish(keeper: Timekeeper) -> Notes {
        match keeper {
            Timekeeper::Later(writer) => writer.finish(),
            Timekeeper::Now(_) => panic!("it writes nothing"),
        }
    }

    #[test]
    fn of_what_a_clone_wrote_ahead_only_that_stays_which_is_taken() {
        let mut keeper = Timekeeper::Later(Writer::default());
        note(&mut keeper, 1);
        let mut dropped = keeper.clone();
        note(&mut dropped, 2);
        note(&mut dropped, 3);
        note(&mut keeper, 4);
        let mut taken = keeper.clone();
        note(&mut taken, 5);
        keeper = taken;
        assert!(matches!(keeper.when(), Some(When::Noted(3))));
        let mut unused = keeper.clone();
        note(&mut unused, 6);
        let told = finish(keeper).0.into_iter().map(|note| match note {
            Note::Tsc { tsc, .. } => tsc,
            _ => 0,
        });
        assert_eq!(told.collect::<Vec<_>>(), [1, 4, 5]);
    }

    #[test]
    fn what_says_the_time_again_makes_it_no_other() {
        let mut keeper = Timekeeper::Later(Writer::default());
        let mut when = |packet, header| {
            keeper.take(&packet, header).unwrap();
            match keeper.when() {
                Some(When::Noted(notes)) => notes,
                _ => panic!("it is worked out"),
            }
        };
        assert_eq!(when(Packet::Tsc(7), true), 1);
        assert_eq!(when(Packet::Tma { ctc: 3, fast: 1 }, true), 1);
        assert_eq!(when(Packet::Cbr(9), true), 1);
        assert_eq!(when(Packet::Tsc(7), true), 1);
        assert_eq!(when(Packet::Mtc(7), false), 5);
        // That one is back.
        assert_eq!(when(Packet::Tsc(7), true), 6);
        assert_eq!(when(Packet::Tsc(8), true), 7);
    }

    #[test]
    fn a_segment_begins_with_the_time_before_the_psb_at_which_the_last_one_ends() {
        let mut reckoner = Reckoner::new(Time::new(TimingParams::default(), false));
        let tsc = |tsc| Note::Tsc { tsc, header: false };
        let at = |stamps: &Stamps, notes| stamps.at(notes).map(|stamp| stamp.tsc.0);
        let first = Notes(vec![Note::Psb(0), tsc(5), Note::Psb(90), tsc(9)]);
        let stamps = reckoner.reckon(&first, Some(90)).unwrap();
        let told: Vec<_> = (0..6).map(|notes| at(stamps, notes)).collect();
        assert_eq!(told, [None, None, Some(5), Some(5), Some(9), None]);
        let next = Notes(vec![Note::Psb(90), tsc(9)]);
        let stamps = reckoner.reckon(&next, None).unwrap();
        assert_eq!(stamps.at(0).map(|stamp| stamp.tsc), Some(Tsc(5)));
        assert_eq!(at(stamps, 2), Some(9));
    }

    #[test]
    fn packets_that_cannot_be_are_not_reckoned_with() {
        let mut reckoner = Reckoner::new(Time::new(TimingParams::default(), false));
        // There is nothing that it could refine.
        let tma = Notes(vec![Note::Tma { ctc: 1, fast: 1 }]);
        assert!(reckoner.reckon(&tma, None).is_none());
    }
}
