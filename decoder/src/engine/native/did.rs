//! What a step of the fast way did beside its blocks, so that it can be done again.

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A chunk, by the number of its effect and its depth.
    Chunk { effect: u32, deepest: u8 },
    /// All outcomes of a packet, by a step of the memo with the effect of this number.
    Outcomes { effect: u32 },
    /// A target, the same.
    Target { effect: u32 },
    /// Something else, which is not to be gone again.
    Other,
}

/// The same in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Did(u32);

impl Did {
    const CHUNK: u32 = 1;
    const OUTCOMES: u32 = 2;
    const TARGET: u32 = 3;
    /// Effects with higher numbers are not noted.
    const MOST: u32 = 1 << 22;

    /// Something else, which is not to be gone again.
    pub const OTHER: Self = Self(0);
    /// A chunk with the effect that does nothing, which calls nothing either.
    pub const NOTHING: Self = Self(Self::CHUNK);

    /// [`Self::OTHER`] where it cannot be noted.
    #[inline]
    pub fn new(what: What) -> Self {
        let (kind, effect, deepest) = match what {
            What::Chunk { effect, deepest } => (Self::CHUNK, effect, deepest),
            What::Outcomes { effect } => (Self::OUTCOMES, effect, 0),
            What::Target { effect } => (Self::TARGET, effect, 0),
            What::Other => return Self::OTHER,
        };
        match effect < Self::MOST {
            true => Self(effect << 10 | u32::from(deepest) << 2 | kind),
            false => Self::OTHER,
        }
    }

    #[inline]
    pub fn what(self) -> What {
        match self.0 & 3 {
            Self::CHUNK => What::Chunk {
                effect: self.effect(),
                deepest: self.deepest(),
            },
            Self::OUTCOMES => What::Outcomes {
                effect: self.effect(),
            },
            Self::TARGET => What::Target {
                effect: self.effect(),
            },
            _ => What::Other,
        }
    }

    /// The number of its effect.
    #[inline]
    pub fn effect(self) -> u32 {
        self.0 >> 10
    }

    /// Of a chunk, how many calls more than at its beginning were open at most.
    #[inline]
    pub fn deepest(self) -> u8 {
        (self.0 >> 2) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steps_did_comes_back() {
        let most = Did::MOST;
        let all = [
            What::Chunk {
                effect: 7,
                deepest: 255,
            },
            What::Outcomes { effect: most - 1 },
            What::Target { effect: 0 },
            What::Other,
        ];
        for what in all {
            assert_eq!(Did::new(what).what(), what);
        }
        assert_eq!(Did::new(What::Target { effect: most }), Did::OTHER);
        let nothing = What::Chunk {
            effect: 0,
            deepest: 0,
        };
        assert_eq!(Did::NOTHING.what(), nothing);
    }
}
