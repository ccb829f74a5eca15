//! Comparison of two profiles.

use crate::Result;
use crate::function_profile::{FunctionProfile, SiteSample, SymbolId};
use crate::stacks::StackId;
use crate::table::Id;
use crate::top::{FunctionWeight, top};
use crate::tree::CallTree;

/// The samples of two profiles in one table, and the number of those of the first.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The samples of both.
    pub profile: FunctionProfile,
    before: usize,
}

/// How a function's weight changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The function is only in the second profile.
    New,
    /// The function is only in the first profile.
    Removed,
    /// Both have it.
    Changed,
}

impl Comparison {
    /// Compares two profiles.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn new(before: &FunctionProfile, after: &FunctionProfile) -> Result<Self> {
        let mut profile = before.clone();
        let mut symbols = Vec::with_capacity(after.symbols.len());
        for (_, symbol) in after.symbols.iter() {
            symbols.push(profile.symbols.intern(symbol.clone())?);
        }
        let mut stacks = vec![StackId::EMPTY];
        for (_, caller, mut site) in after.stacks.iter() {
            let caller = stacks.get(caller.index()).copied().unwrap_or(StackId::EMPTY);
            if let Some(symbol) = symbols.get(site.symbol.index()) {
                site.symbol = *symbol;
            }
            stacks.push(profile.stacks.push(caller, site)?);
        }
        let before = profile.samples.len();
        profile.samples.extend(after.samples.iter().map(|sample| {
            SiteSample {
                stack: stacks
                    .get(sample.stack.index())
                    .copied()
                    .unwrap_or(StackId::EMPTY),
                ..*sample
            }
        }));
        Ok(Self { profile, before })
    }

    /// Returns the samples of the first profile, and those of the second.
    #[must_use]
    pub fn samples(&self) -> [&[SiteSample]; 2] {
        let (before, after) = self.profile.samples.split_at(self.before);
        [before, after]
    }

    /// Returns the call tree of both. The first column has the weights of the first profile, the
    /// second column those of the second.
    #[must_use]
    pub fn tree(&self) -> CallTree<2> {
        let samples = self.profile.samples.iter().enumerate();
        let column = |index| usize::from(index >= self.before);
        let samples = samples.map(|(index, sample)| (sample, column(index), sample.weight));
        CallTree::of_samples(&self.profile, samples)
    }

    /// Returns the functions whose own or total weight differs, the largest difference of own
    /// weights first.
    #[must_use]
    pub fn functions(&self) -> Vec<(Change, FunctionWeight<2>)> {
        let mut rows: Vec<_> = top(&self.tree())
            .into_iter()
            .filter(|row| row.own[0] != row.own[1] || row.total[0] != row.total[1])
            .map(|row| (change(&row), row))
            .collect();
        let difference = |[before, after]: [i64; 2]| before.abs_diff(after);
        rows.sort_by_key(|(_, row)| std::cmp::Reverse((difference(row.own), difference(row.total))));
        rows
    }

    /// Returns the name of a function.
    #[must_use]
    pub fn name(&self, symbol: SymbolId) -> &str {
        self.profile.name(symbol)
    }
}

fn change(row: &FunctionWeight<2>) -> Change {
    match row.total {
        [0, _] => Change::New,
        [_, 0] => Change::Removed,
        _ => Change::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;

    fn read(text: &str) -> FunctionProfile {
        FunctionProfile::new(&folded::read(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn functions_are_new_removed_or_changed() {
        let before = read("main;old 3\nmain;same 5\nmain;slow 2\n");
        let after = read("main;new 1\nmain;same 5\nmain;slow 9\n");
        let comparison = Comparison::new(&before, &after).unwrap();
        let row = |(change, row): &(Change, FunctionWeight<2>)| {
            (comparison.name(row.symbol).to_owned(), *change, row.own)
        };
        let rows: Vec<_> = comparison.functions().iter().map(row).collect();
        let expected = [
            ("slow", Change::Changed, [2, 9]),
            ("old", Change::Removed, [3, 0]),
            ("new", Change::New, [0, 1]),
            ("main", Change::Changed, [0, 0]),
        ];
        assert_eq!(
            rows,
            expected.map(|(name, change, own)| (name.to_owned(), change, own))
        );
    }
}
