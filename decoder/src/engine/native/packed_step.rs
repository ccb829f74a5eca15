//! The effect of a cached step on the return stack and the last IP, packed into four bytes.

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A path of the packet cache: the index of its effect, and its call depth.
    Packets { effect: u32, max_depth: u8 },
    /// All outcomes of one packet: the index of a branch cache effect.
    Outcomes { effect: u32 },
    /// A target: the index of a branch cache effect.
    Target { effect: u32 },
    /// Anything else; it cannot be replayed.
    Other,
}

/// A [`StepKind`] in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedStep(u32);

impl PackedStep {
    const PACKETS: u32 = 1;
    const OUTCOMES: u32 = 2;
    const TARGET: u32 = 3;
    /// Effects with higher indexes cannot be packed.
    const MAX_EFFECTS: u32 = 1 << 22;

    /// A step that cannot be replayed.
    pub const NOT_REPLAYABLE: Self = Self(0);
    /// A path of the packet cache without effect and without calls.
    pub const NO_EFFECT: Self = Self(Self::PACKETS);

    /// Packs a step; [`Self::NOT_REPLAYABLE`] if it does not fit.
    #[inline]
    pub fn new(kind: StepKind) -> Self {
        let (kind, effect, max_depth) = match kind {
            StepKind::Packets { effect, max_depth } => (Self::PACKETS, effect, max_depth),
            StepKind::Outcomes { effect } => (Self::OUTCOMES, effect, 0),
            StepKind::Target { effect } => (Self::TARGET, effect, 0),
            StepKind::Other => return Self::NOT_REPLAYABLE,
        };
        match effect < Self::MAX_EFFECTS {
            true => Self(effect << 10 | u32::from(max_depth) << 2 | kind),
            false => Self::NOT_REPLAYABLE,
        }
    }

    #[inline]
    pub fn kind(self) -> StepKind {
        match self.0 & 3 {
            Self::PACKETS => StepKind::Packets {
                effect: self.effect(),
                max_depth: self.max_depth(),
            },
            Self::OUTCOMES => StepKind::Outcomes {
                effect: self.effect(),
            },
            Self::TARGET => StepKind::Target {
                effect: self.effect(),
            },
            _ => StepKind::Other,
        }
    }

    /// Returns the index of the effect.
    #[inline]
    pub fn effect(self) -> u32 {
        self.0 >> 10
    }

    /// Returns the largest number of calls that a packet cache path had open at once.
    #[inline]
    pub fn max_depth(self) -> u8 {
        (self.0 >> 2) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_steps_round_trip() {
        let max = PackedStep::MAX_EFFECTS;
        let all = [
            StepKind::Packets {
                effect: 7,
                max_depth: 255,
            },
            StepKind::Outcomes { effect: max - 1 },
            StepKind::Target { effect: 0 },
            StepKind::Other,
        ];
        for kind in all {
            assert_eq!(PackedStep::new(kind).kind(), kind);
        }
        assert_eq!(
            PackedStep::new(StepKind::Target { effect: max }),
            PackedStep::NOT_REPLAYABLE
        );
        let nothing = StepKind::Packets {
            effect: 0,
            max_depth: 0,
        };
        assert_eq!(PackedStep::NO_EFFECT.kind(), nothing);
    }
}
