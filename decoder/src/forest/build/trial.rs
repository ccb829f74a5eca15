//! What a path does to the open calls, found by trying the rules on calls that stand for any.

use super::rules::{Rules, Way};
use super::turns::Turn;
use crate::forest::Left;
use crate::forest::nodes::{Added, Nodes, Stock};
use crate::forest::stack::{Frame, Level, NONE, Stack};

/// Open calls to try the rules on: one that stands for any, and above it those that the path makes. When it returns out of the
/// one that stands for any, another is there to stand for the next.
#[derive(Default)]
pub(super) struct Trial {
    stack: Stack,
    levels: Vec<Level>,
    /// The calls that stand for any, one for each level.
    outer: Vec<u32>,
    /// The places that no open call may return to.
    unexpected: Vec<u32>,
    /// Each once, and one more than [`Trial::TAILS`] at most.
    tails: Vec<Tail>,
}

/// A function that is jumped to out of a call that stands for any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// The level of that call, the innermost first.
    pub level: usize,
    pub function: u32,
}

/// What was found out of a transfer.
enum Tried {
    Done,
    /// It jumps to this function, out of the call that stands for any.
    Jumps(u32),
    /// It returns out of the call that stands for any.
    Returns,
    /// What it does depends on calls that are not known.
    Open,
}

impl Trial {
    /// The most calls that are open at once, or returned from.
    const LONGEST: usize = 1 << 12;
    /// The most tails that are told: bounds the work of each time.
    const TAILS: usize = 32;

    /// Tries transfers of a path, which is at its instruction `begin` in the function `home`. Gives how many of them there are
    /// while what they do is told by few calls that are open below.
    pub fn run(&mut self, home: u32, begin: u32, turns: &[Turn], rules: &mut Rules<'_>) -> usize {
        self.stack.begin();
        self.levels.clear();
        self.outer.clear();
        self.unexpected.clear();
        self.tails.clear();
        rules.exchange(&mut self.stack);
        let done = self.run_on(home, begin, turns, rules);
        rules.exchange(&mut self.stack);
        done.unwrap_or(0)
    }

    /// `None`: there are as many calls as can be told apart.
    fn run_on(&mut self, home: u32, begin: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<usize> {
        let mut function = home;
        self.begin_level(function, begin, rules)?;
        // Each makes a call at most.
        let turns = turns.get(..Nodes::MOST_AT_ONCE).unwrap_or(turns);
        for (at, turn) in turns.iter().enumerate() {
            let Some(level) = self.levels.last_mut() else {
                break;
            };
            if rules.depth().max(self.outer.len()) >= Self::LONGEST {
                return Some(at);
            }
            let tried = try_one(turn, rules, level, function, &mut self.unexpected);
            match tried {
                Tried::Done => {}
                Tried::Jumps(to) => {
                    level.alone = true;
                    let tail = Tail {
                        level: self.outer.len() - 1,
                        function: to,
                    };
                    if self.tails.len() <= Self::TAILS && !self.tails.contains(&tail) {
                        self.tails.push(tail);
                    }
                }
                Tried::Returns => {
                    level.returns_to = turn.to.id;
                    level.offset = turn.offset;
                    rules.leave_all(u64::from(turn.offset));
                    function = turn.to.function;
                    self.begin_level(function, turn.offset, rules)?;
                }
                Tried::Open => return Some(at),
            }
        }
        Some(turns.len())
    }

    /// Goes on in a call of a function, at an instruction of the path.
    fn begin_level(&mut self, function: u32, offset: u32, rules: &mut Rules<'_>) -> Option<()> {
        let node = rules.stand_in(u64::from(offset), function)?;
        self.outer.push(node);
        self.levels.push(Level {
            function: Level::ANY,
            returns_to: NONE,
            offset,
            left: Left::Return,
            alone: false,
            nested: 0,
        });
        Some(())
    }

    /// Makes a pattern of what was called, when it was.
    pub fn add_to(&mut self, stock: &mut Stock, begin: u32) -> Option<Added> {
        if self.stack.nodes().len() == 1 {
            return None;
        }
        let open = self.open().iter().map(|frame| frame.node);
        let (tried, begin) = (self.stack.nodes(), u64::from(begin));
        let mut nested = vec![0; self.outer.len()];
        let added = stock.add(tried, begin, &self.outer, open, &mut nested);
        for ((level, &node), nested) in self.levels.iter_mut().zip(&self.outer).zip(nested) {
            level.nested = nested.min(Nodes::DEPTHS) as u8;
            level.left = tried.get(node).map_or(level.left, |node| node.left);
        }
        added
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

    /// What was tried, with the calls that stand for any, which come before those that are open.
    pub fn calls(&self) -> (&Nodes, u32) {
        (self.stack.nodes(), self.outer.len() as u32)
    }

    /// The calls of the path that have not ended, outermost first.
    pub fn open(&self) -> &[Frame] {
        self.stack.frames().get(1..).unwrap_or(&[])
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
            let tail_calls = !stays && (!to.is_known() || rules.places.is_start(to));
            let goes_back = !stays && !tail_calls && to.is_known();
            if resolves {
                if outermost {
                    return Tried::Open;
                }
            } else if goes_back && !rules.is_running(to) {
                return Tried::Open;
            } else if tail_calls && to.is_known() && rules.base() == 0 {
                tried = Tried::Jumps(to.function);
            }
            if outermost || goes_back || tail_calls {
                level.function = function;
            }
            if from.way == Way::IndirectJump {
                unexpected.push(to.id);
            }
        }
    }
    rules.transfer(from, to, u64::from(turn.offset));
    tried
}
