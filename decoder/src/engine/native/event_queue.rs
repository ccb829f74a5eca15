//! The queue of events that wait for the packet they bind to (SDM volume 3, "Packet Binding").

use super::error::Error;
use super::event::{EventKind, TraceEvent};

/// A set of packets that an event may bind to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding(u8);

impl Binding {
    /// The end of a PSB+.
    pub const PSBEND: Self = Self(1);
    /// TIP, TIP.PGE, TIP.PGD.
    pub const TIP: Self = Self(2);
    /// A FUP that also has a meaning of its own.
    pub const FUP: Self = Self(4);
    /// A FUP that only carries the event's address.
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

/// The waiting events in order.
#[derive(Clone, Default)]
pub(super) struct EventQueue {
    waiting: Vec<(Binding, TraceEvent)>,
}

impl EventQueue {
    /// The limit of libipt.
    const MAX: usize = 14;

    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn push(&mut self, binding: Binding, event: TraceEvent) -> Result<(), Error> {
        if self.waiting.len() >= Self::MAX {
            return Err(Error::TooManyEvents);
        }
        self.waiting.push((binding, event));
        Ok(())
    }

    /// Removes and returns the first event with one of these bindings.
    pub fn take(&mut self, binding: Binding) -> Option<TraceEvent> {
        let at = self.position(binding)?;
        Some(self.waiting.remove(at).1)
    }

    /// Returns the first event with one of these bindings.
    pub fn first(&mut self, binding: Binding) -> Option<&mut TraceEvent> {
        let at = self.position(binding)?;
        self.waiting.get_mut(at).map(|(_, event)| event)
    }

    /// Returns whether an event has one of these bindings.
    pub fn waits(&self, binding: Binding) -> bool {
        self.position(binding).is_some()
    }

    /// Returns the first event of a kind with one of these bindings.
    pub fn find(&mut self, binding: Binding, is: impl Fn(&EventKind) -> bool) -> Option<&mut TraceEvent> {
        let found = |(waits, event): &&mut (Binding, TraceEvent)| waits.meets(binding) && is(&event.kind);
        self.waiting.iter_mut().find(found).map(|(_, event)| event)
    }

    /// Swaps the asynchronous branch that waits for TIP with the first event that does, then
    /// removes and returns the first. `None`: no asynchronous branch waits.
    pub fn take_branch(&mut self) -> Option<TraceEvent> {
        let branch = |(waits, event): &(Binding, TraceEvent)| {
            waits.meets(Binding::TIP) && matches!(event.kind, EventKind::AsyncBranch { .. })
        };
        let at = self.waiting.iter().position(branch)?;
        let first = self.position(Binding::TIP)?;
        let (_, first_event) = self.waiting.remove(first);
        match at.checked_sub(1) {
            Some(at) if at + 1 != first => {
                let slot = self.waiting.get_mut(at)?;
                Some(std::mem::replace(&mut slot.1, first_event))
            }
            _ => Some(first_event),
        }
    }

    fn position(&self, binding: Binding) -> Option<usize> {
        self.waiting.iter().position(|(waits, _)| waits.meets(binding))
    }
}
