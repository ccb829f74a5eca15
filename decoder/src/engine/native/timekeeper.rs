//! Who follows the time of a decode: it is worked out at once, or, where what is in front of it is decoded elsewhere, written
//! down and worked out later.

use super::error::Error;
use super::notes::{Note, Writer};
use super::time::Time;
use crate::Stamp;
use backtrail_pt::packet::Packet;

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
            Self::Later(writer) => Some(When::Noted(writer.changed())),
        }
    }
}
