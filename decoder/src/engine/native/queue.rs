//! Events that wait for the packet they bind to (SDM volume 3, "Packet Binding").

use super::error::Error;
use super::event::{Event, Kind};

/// The packets an event may wait for: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding(u8);

impl Binding {
    /// The end of a PSB+.
    pub const PSBEND: Self = Self(1);
    /// TIP, TIP.PGE, TIP.PGD.
    pub const TIP: Self = Self(2);
    /// A FUP that also stands for itself.
    pub const FUP: Self = Self(4);
    /// A FUP that says nothing but the event's address.
    pub const OWN_FUP: Self = Self(8);
    /// EXSTOP.
    pub const EXSTOP: Self = Self(16);
    /// CFE.
    pub const CFE: Self = Self(32);

    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The events that wait, in order.
#[derive(Clone, Default)]
pub(super) struct Queue {
    waiting: Vec<(Binding, Event)>,
}

impl Queue {
    /// As many as libipt lets wait.
    const MAX: usize = 14;

    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn push(&mut self, binding: Binding, event: Event) -> Result<(), Error> {
        if self.waiting.len() >= Self::MAX {
            return Err(Error::TooManyEvents);
        }
        self.waiting.push((binding, event));
        Ok(())
    }

    /// Takes the first that waits for one of these.
    pub fn take(&mut self, binding: Binding) -> Option<Event> {
        let at = self.position(binding)?;
        Some(self.waiting.remove(at).1)
    }

    /// The first that waits for one of these.
    pub fn first(&mut self, binding: Binding) -> Option<&mut Event> {
        let at = self.position(binding)?;
        self.waiting.get_mut(at).map(|(_, event)| event)
    }

    /// One waits for one of these.
    pub fn waits(&self, binding: Binding) -> bool {
        self.position(binding).is_some()
    }

    /// The first that waits for one of these and is of a kind.
    pub fn find(&mut self, binding: Binding, is: impl Fn(&Kind) -> bool) -> Option<&mut Event> {
        let found = |(waits, event): &&mut (Binding, Event)| waits.meets(binding) && is(&event.kind);
        self.waiting.iter_mut().find(found).map(|(_, event)| event)
    }

    /// Takes the first that waits for TIP, after the asynchronous branch among them has changed places
    /// with it. `None`: none of them is one.
    pub fn take_branch(&mut self) -> Option<Event> {
        let branch = |(waits, event): &(Binding, Event)| {
            waits.meets(Binding::TIP) && matches!(event.kind, Kind::AsyncBranch { .. })
        };
        let at = self.waiting.iter().position(branch)?;
        let first = self.position(Binding::TIP)?;
        let (_, taken) = self.waiting.remove(first);
        match at.checked_sub(1) {
            Some(at) if at + 1 != first => {
                let place = self.waiting.get_mut(at)?;
                Some(std::mem::replace(&mut place.1, taken))
            }
            _ => Some(taken),
        }
    }

    fn position(&self, binding: Binding) -> Option<usize> {
        self.waiting.iter().position(|(waits, _)| waits.meets(binding))
    }
}
