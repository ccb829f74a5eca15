//! Comparison of two profiles.

use crate::Result;
use crate::function_match::{FunctionKey, match_functions};
use crate::function_profile::{FunctionProfile, SiteSample, SymbolId};
use crate::stacks::StackId;
use crate::table::Id;
use crate::top::{FunctionWeight, top};
use crate::tree::CallTree;
use std::collections::HashMap;

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
    /// Compares two profiles. Functions are the same by the rules of [`match_functions`], and have
    /// the names of the first profile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn new(before: &FunctionProfile, after: &FunctionProfile) -> Result<Self> {
        let mut profile = FunctionProfile::default();
        let mut by_number = HashMap::new();
        let profiles = [before, after];
        let numbers = numbers(profiles);
        let mut before = 0;
        for (source, numbers) in profiles.into_iter().zip(&numbers) {
            before = profile.samples.len();
            add(&mut profile, source, numbers, &mut by_number)?;
        }
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

/// Returns the numbers of the functions of both profiles, where equal ones are one function.
fn numbers([before, after]: [&FunctionProfile; 2]) -> [Vec<usize>; 2] {
    let (before_ids, after_ids) = (build_ids(before), build_ids(after));
    match_functions([&keys(before, &before_ids), &keys(after, &after_ids)])
}

/// Returns the text of the build id of each symbol.
fn build_ids(profile: &FunctionProfile) -> Vec<String> {
    let symbols = profile.symbols.iter();
    let texts = symbols.map(|(_, symbol)| symbol.build_id.as_ref().map(ToString::to_string));
    texts.map(Option::unwrap_or_default).collect()
}

fn keys<'a>(profile: &'a FunctionProfile, build_ids: &'a [String]) -> Vec<FunctionKey<'a>> {
    let symbols = profile.symbols.iter().zip(build_ids);
    symbols
        .map(|((_, symbol), build_id)| symbol.key(build_id))
        .collect()
}

/// Adds the samples of a profile. Functions with equal numbers become the first of them.
fn add(
    profile: &mut FunctionProfile,
    source: &FunctionProfile,
    numbers: &[usize],
    by_number: &mut HashMap<usize, SymbolId>,
) -> Result<()> {
    let mut symbols = Vec::with_capacity(source.symbols.len());
    for ((_, symbol), number) in source.symbols.iter().zip(numbers) {
        let id = match by_number.get(number) {
            Some(id) => *id,
            None => profile.symbols.intern(symbol.clone())?,
        };
        by_number.insert(*number, id);
        symbols.push(id);
    }
    let mut files = Vec::with_capacity(source.files.len());
    for (_, file) in source.files.iter() {
        files.push(profile.files.intern(file.clone())?);
    }
    let mut stacks = vec![StackId::EMPTY];
    for (_, caller, mut site) in source.stacks.iter() {
        let caller = stacks.get(caller.index()).copied().unwrap_or(StackId::EMPTY);
        if let Some(symbol) = symbols.get(site.symbol.index()) {
            site.symbol = *symbol;
        }
        site.file = site.file.and_then(|file| files.get(file.index()).copied());
        stacks.push(profile.stacks.push(caller, site)?);
    }
    let stack = |stack: StackId| stacks.get(stack.index()).copied().unwrap_or(StackId::EMPTY);
    profile
        .samples
        .extend(source.samples.iter().map(|sample| SiteSample {
            stack: stack(sample.stack),
            ..*sample
        }));
    Ok(())
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
    use crate::frame::{Frame, Line, Module};
    use crate::profile::Profile;
    use backtrail_pt::FileOffset;

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

    /// Returns a profile of a binary with a named function `work` and nameless code.
    fn of_binary(path: &str, build_id: &str) -> FunctionProfile {
        let mut profile = Profile::default();
        let path = profile.string(path).unwrap();
        let build_id = Some(build_id.parse().unwrap());
        let module = profile.modules.intern(Module { build_id, path }).unwrap();
        let event = profile.event("cpu", "count", 1).unwrap();
        let function = profile.function("work").unwrap();
        for (offset, is_named) in [(0x10, true), (0x20, false)] {
            let offset = FileOffset(offset);
            let frame = profile.frames.intern(Frame::Code { module, offset }).unwrap();
            if is_named {
                profile.lines.insert(frame, [Line { function, line: 0 }].into());
            }
            let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
            profile.add(event, 5, stack).unwrap();
        }
        FunctionProfile::new(&profile).unwrap()
    }

    #[test]
    fn renamed_file_changes_no_function() {
        let before = of_binary("/usr/bin/app-1.0", "aabb");
        let same = Comparison::new(&before, &of_binary("/opt/app2", "aabb")).unwrap();
        assert_eq!(same.functions(), []);
        // Code without a name is not that of another build.
        let other = Comparison::new(&before, &of_binary("/usr/bin/app-1.1", "ccdd")).unwrap();
        let rows = other.functions();
        let rows: Vec<_> = rows
            .iter()
            .map(|(change, row)| (other.name(row.symbol), *change))
            .collect();
        let expected = [("app-1.0+0x20", Change::Removed), ("app-1.1+0x20", Change::New)];
        assert_eq!(rows.len(), 2);
        assert!(expected.iter().all(|row| rows.contains(row)), "{rows:?}");
    }
}
