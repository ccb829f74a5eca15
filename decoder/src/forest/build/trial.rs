//! What a path does to the open calls, found by trying the rules on calls that stand for any.

use super::rules::{Rules, Source, Way};
use super::turns::Turn;
use crate::forest::effects::Op;
use crate::forest::places::Place;
use crate::forest::stack::{Frame, Key, Level, NONE, Stack, Tail};

/// Open calls to try the rules on: one that stands for any, and above it those that the path makes. When it returns out of the
/// one that stands for any, another is there to stand for the next.
#[derive(Default)]
pub(super) struct Trial {
    stack: Stack,
    levels: Vec<Level>,
    /// The places that no open call may return to.
    unexpected: Vec<u32>,
    /// Each once, and one more than [`Trial::TAILS`] at most.
    tails: Vec<Tail>,
    renames: Option<Place>,
}

/// What was found out of a transfer.
enum Tried {
    Done,
    /// It jumps to this function, out of the call that stands for any.
    Jumps(u32),
    /// It returns out of the call that stands for any.
    Returns,
    /// The call that stands for any is one of the function that begins there.
    Renames,
    /// What it does depends on calls that are not known.
    Open,
}

impl Trial {
    /// The most calls that are open at once, or returned from.
    const LONGEST: usize = 1 << 12;
    /// The most tails that are told: bounds the work of each time.
    const TAILS: usize = 32;

    /// Tries all transfers of a path, which begins in the function `home`. Says whether what they do is told by few calls that
    /// are open below.
    pub fn run(&mut self, home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> bool {
        self.stack.begin();
        self.levels.clear();
        self.unexpected.clear();
        self.tails.clear();
        self.renames = None;
        rules.exchange(&mut self.stack);
        let done = self.run_on(home, turns, rules);
        rules.exchange(&mut self.stack);
        done.is_some()
    }

    fn run_on(&mut self, home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<()> {
        let mut function = home;
        self.begin_level(function, rules);
        // Each makes a call at most.
        if turns.len() > Stack::MOST_AT_ONCE as usize {
            return None;
        }
        for turn in turns {
            let number = self.levels.len() - 1;
            if rules.depth().max(self.levels.len()) >= Self::LONGEST {
                return None;
            }
            let level = self.levels.last_mut()?;
            let tried = try_one(turn, rules, level, function, &mut self.unexpected);
            match tried {
                Tried::Done => {}
                Tried::Jumps(to) => {
                    level.alone = true;
                    let tail = Tail {
                        level: number,
                        function: to,
                    };
                    if self.tails.len() <= Self::TAILS && !self.tails.contains(&tail) {
                        self.tails.push(tail);
                    }
                }
                Tried::Returns => {
                    level.key.returns_to = turn.to.id;
                    rules.leave_all(u64::from(turn.offset));
                    function = turn.to.function;
                    self.begin_level(function, rules);
                }
                Tried::Renames if number == 0 && self.renames.is_none() => {
                    self.renames = Some(turn.to);
                    function = turn.to.function;
                }
                Tried::Renames | Tried::Open => return None,
            }
        }
        Some(())
    }

    /// Goes on in a call of a function.
    fn begin_level(&mut self, function: u32, rules: &mut Rules<'_>) {
        rules.stand_in(function);
        self.levels.push(Level {
            key: Key::NONE,
            alone: false,
        });
    }

    /// What happened.
    pub fn ops(&self) -> &[Op] {
        &self.stack.log().ops
    }

    /// How many calls began.
    pub fn began(&self) -> u32 {
        self.stack.began()
    }

    /// The places that no open call may return to, in no order, and some more than once.
    pub fn unexpected(&mut self) -> &mut Vec<u32> {
        &mut self.unexpected
    }

    /// The functions that are jumped to out of calls that stand for any; none where they are many.
    pub fn tails(&self) -> &[Tail] {
        match self.tails.len() {
            0..=Self::TAILS => &self.tails,
            _ => &[],
        }
    }

    /// The calls that the path is in one after the other.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// What the innermost call turned out to be.
    pub fn renames(&self) -> Option<Place> {
        self.renames
    }

    /// The calls of the path that have not ended, outermost first, as [`Deed`](crate::forest::stack::Deed) has them.
    pub fn open(&self) -> impl ExactSizeIterator<Item = Frame> {
        let frames = self.stack.frames().get(1..).unwrap_or(&[]);
        frames.iter().map(|frame| Frame {
            base: frame.base.checked_sub(1).unwrap_or(NONE),
            ..*frame
        })
    }
}

fn try_one(
    turn: &Turn,
    rules: &mut Rules<'_>,
    level: &mut Level,
    function: u32,
    unexpected: &mut Vec<u32>,
) -> Tried {
    let (from, to) = (&turn.from, turn.to);
    let mut tried = Tried::Done;
    if from.falls(to) {
        return Tried::Done;
    }
    match from.way {
        Way::Call | Way::IndirectCall => {}
        Way::Return | Way::IndirectJump if rules.returns(to) => {}
        // Over calls: for another stack, perhaps, which the rules remember.
        Way::Return | Way::IndirectJump if rules.expects(to.id) => return Tried::Open,
        Way::Return if rules.base() == 0 => return Tried::Returns,
        Way::Return | Way::Sequential | Way::Far => return Tried::Open,
        Way::Conditional | Way::Jump | Way::IndirectJump => {
            let outermost = rules.depth() == 1;
            let stays = rules.stays(rules.inside(), from, to);
            let resolves = !stays && from.glue;
            let tail_calls =
                !stays && (!to.is_known() || rules.places.is_start(to) || is_elsewhere(from, to, rules));
            let goes_back = !stays && !tail_calls && to.is_known();
            if resolves {
                if outermost {
                    tried = Tried::Renames;
                }
            } else if goes_back && !rules.is_running(to) {
                return Tried::Open;
            } else if tail_calls && to.is_known() && rules.base() == 0 {
                tried = Tried::Jumps(to.function);
            }
            if (outermost || goes_back || tail_calls) && level.key.function == Key::ANY {
                level.key.function = function;
            }
            if from.way == Way::IndirectJump {
                unexpected.push(to.id);
            }
        }
    }
    rules.transfer(from, to, u64::from(turn.offset));
    tried
}

/// A direct jump into the middle of a function, no call of which is open: it does not go back there.
fn is_elsewhere(from: &Source, to: Place, rules: &mut Rules<'_>) -> bool {
    from.way != Way::IndirectJump && rules.inside() != Place::UNKNOWN && !rules.is_running(to)
}
