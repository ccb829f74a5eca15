//! Works out the time of segments of a trace in their order, from what was noted when each was decoded.

use super::notes::{Note, Notes};
use super::time::Time;
use crate::Stamp;

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
    use backtrail_pt::TimingParams;

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
        assert_eq!(at(stamps, 0), Some(5));
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
