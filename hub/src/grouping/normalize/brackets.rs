//! The open brackets of a name while it is read.

/// An open bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The opening character.
    pub bracket: char,
    /// Whether the text within is part of the normalized name.
    pub is_kept: bool,
}

/// The open brackets, outermost first.
#[derive(Debug, Default)]
pub struct Brackets {
    open: Vec<Open>,
    dropped: usize,
    counts: [usize; 4],
}

/// Returns the place of a bracket's kind in a table.
fn kind(bracket: char) -> usize {
    match bracket {
        '<' => 0,
        '(' => 1,
        '[' => 2,
        _ => 3,
    }
}

impl Brackets {
    /// Returns whether no bracket is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether the text is within a bracket that is dropped.
    pub fn is_dropping(&self) -> bool {
        self.dropped > 0
    }

    /// Opens a bracket.
    pub fn open(&mut self, bracket: char, is_kept: bool) {
        self.counts[kind(bracket)] += 1;
        self.dropped += usize::from(!is_kept);
        self.open.push(Open { bracket, is_kept });
    }

    /// Closes the innermost bracket of this kind, and all that are open within it. Returns the
    /// bracket. `None`: none is open.
    ///
    /// An angle bracket closes only if it is innermost: else the character is an operator.
    pub fn close(&mut self, bracket: char) -> Option<Open> {
        let is_innermost = self.open.last().is_some_and(|last| last.bracket == bracket);
        if self.counts[kind(bracket)] == 0 || (bracket == '<' && !is_innermost) {
            return None;
        }
        while let Some(closed) = self.open.pop() {
            self.counts[kind(closed.bracket)] -= 1;
            self.dropped -= usize::from(!closed.is_kept);
            if closed.bracket == bracket {
                return Some(closed);
            }
        }
        None
    }
}
