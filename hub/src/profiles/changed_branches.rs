//! The branch of a slower function that goes another way in the later build, by traces of both.
//!
//! Stored bundles have the branches that the crashed thread executed. Lines are compared relative
//! to the declaration of the function, because code above it moves it.

use crate::analysis::LineBranches;
use crate::database::listing::CrashFilter;
use crate::error::Result;
use crate::grouping::normalize;
use crate::hub::Hub;
use crate::objects;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bundles of a build that are read, the newest first.
const BUNDLES: i64 = 10;
/// The fewest executions of a branch in each build.
const FEWEST: u64 = 30;
/// The smallest change of a share.
const SMALLEST: f64 = 0.1;
/// The smallest change in standard errors. Executions in a loop are not independent, so it is
/// larger than that of a usual test.
const ERRORS: f64 = 6.0;

/// A branch whose outcomes changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedBranch {
    /// The source file.
    pub file: String,
    /// The line of the branch, in the later build.
    pub line: u32,
    /// The line that runs next more often, in the later build. `None`: the branch leaves the
    /// function.
    pub next: Option<u32>,
    /// The share of executions after which that line runs, in the earlier build.
    pub before: f64,
    /// The same in the later build.
    pub after: f64,
    /// The executions in each build.
    pub executions: [u64; 2],
}

impl ChangedBranch {
    /// Returns the branch as `parse.c:41 goes to line 42 in 96 % of cases, before in 3 %`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let name = file_name(&self.file);
        let next = match self.next {
            Some(next) => format!("goes to line {next}"),
            None => "leaves the function".to_owned(),
        };
        format!(
            "{name}:{} {next} in {:.0} % of cases, before in {:.0} %",
            self.line,
            self.after * 100.0,
            self.before * 100.0
        )
    }
}

/// A line relative to the declaration of its function.
type Offset = i64;

/// The branches of a function in the bundles of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Branches {
    file: String,
    /// The line from which offsets count: the declaration, or the first line of the file.
    origin: u32,
    /// Whether functions with other declarations have the same name, such as overloads.
    is_ambiguous: bool,
    outcomes: BTreeMap<Offset, BTreeMap<Option<Offset>, u64>>,
}

impl Branches {
    fn new(found: &LineBranches) -> Self {
        Self {
            file: found.file.clone(),
            origin: found.declared.unwrap_or(0),
            is_ambiguous: false,
            outcomes: BTreeMap::new(),
        }
    }

    fn add(&mut self, found: &LineBranches) {
        let origin = found.declared.unwrap_or(0);
        self.is_ambiguous |= origin != self.origin;
        let offset = |line: u32| i64::from(line) - i64::from(origin);
        for outcome in &found.outcomes {
            let next = outcome.next.map(offset);
            let counts = self.outcomes.entry(offset(outcome.line)).or_default();
            let count = counts.entry(next).or_default();
            *count = count.saturating_add(outcome.count);
        }
    }

    fn line(&self, offset: Offset) -> u32 {
        u32::try_from(i64::from(self.origin).saturating_add(offset)).unwrap_or(0)
    }

    /// Returns the outcomes that are certainly more frequent in a later build.
    fn changes<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = ChangedBranch> + 'a {
        let known = later.outcomes.iter().filter_map(|(offset, counts)| {
            let earlier = self.outcomes.get(offset)?;
            let executions = [earlier.values().sum::<u64>(), counts.values().sum()];
            let are_enough = executions.iter().all(|count| *count >= FEWEST);
            are_enough.then_some((*offset, earlier, counts, executions))
        });
        known.flat_map(move |(offset, earlier, counts, executions)| {
            counts.iter().filter_map(move |(next, count)| {
                let earlier = earlier.get(next).copied().unwrap_or(0);
                let [first, second] = executions.map(|count| count as f64);
                let (before, after) = (earlier as f64 / first, *count as f64 / second);
                let common = (earlier + *count) as f64 / (first + second);
                let error = (common * (1.0 - common) * (1.0 / first + 1.0 / second)).sqrt();
                (after - before >= SMALLEST.max(ERRORS * error)).then(|| ChangedBranch {
                    file: later.file.clone(),
                    line: later.line(offset),
                    next: next.map(|next| later.line(next)),
                    before,
                    after,
                    executions,
                })
            })
        })
    }
}

/// The branches in the bundles of a build, by function in the form of the grouping, and the name
/// of the source file. Directories of builds differ.
#[derive(Clone, Debug, Default)]
pub struct BuildBranches {
    functions: BTreeMap<(String, String), Branches>,
    /// The number of bundles.
    pub bundles: usize,
}

impl BuildBranches {
    /// Reads the newest stored bundles of a build.
    ///
    /// # Errors
    /// Fails if the database or the object store fails.
    pub async fn read(hub: &Arc<Hub>, service: &str, build: &str) -> Result<Self> {
        let filter = CrashFilter {
            service: Some(service.to_owned()),
            build: Some(build.to_owned()),
            only_stored: true,
            limit: BUNDLES,
            ..CrashFilter::default()
        };
        let mut found = Self::default();
        let (crashes, _) = hub.database.list_crashes(&filter).await?;
        for crash in crashes {
            let Some(bytes) = hub.objects.get(&objects::branches(&crash.id)).await? else {
                continue;
            };
            // A damaged object says nothing about branches.
            let branches: Vec<LineBranches> = serde_json::from_slice(&bytes).unwrap_or_default();
            found.add(&branches);
        }
        Ok(found)
    }

    fn add(&mut self, branches: &[LineBranches]) {
        self.bundles += usize::from(!branches.is_empty());
        for branch in branches {
            let key = (normalize(&branch.function), file_name(&branch.file).to_owned());
            let function = self.functions.entry(key);
            function.or_insert_with(|| Branches::new(branch)).add(branch);
        }
    }

    /// Returns the branch of a function whose outcomes differ most in a later build.
    #[must_use]
    pub fn changed(&self, later: &Self, function: &str) -> Option<ChangedBranch> {
        let name = normalize(function);
        let files = later.functions.range((name.clone(), String::new())..);
        let files = files.take_while(|((known, _), _)| *known == name);
        let both = files.filter_map(|(key, after)| {
            let before = self.functions.get(key)?;
            (!before.is_ambiguous && !after.is_ambiguous).then_some((before, after))
        });
        both.flat_map(|(before, after)| before.changes(after))
            .max_by(by_change)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn by_change(one: &ChangedBranch, other: &ChangedBranch) -> std::cmp::Ordering {
    let change = |branch: &ChangedBranch| branch.after - branch.before;
    change(one).total_cmp(&change(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::BranchOutcome;

    fn build(declared: u32, outcomes: &[(u32, Option<u32>, u64)]) -> BuildBranches {
        let outcome = |&(line, next, count): &(u32, Option<u32>, u64)| BranchOutcome {
            line: declared + line,
            next: next.map(|next| declared + next),
            count,
        };
        let mut build = BuildBranches::default();
        build.add(&[LineBranches {
            function: "Shop::parse(char)".to_owned(),
            file: "/src/shop/parse.cc".to_owned(),
            declared: Some(declared),
            outcomes: outcomes.iter().map(outcome).collect(),
        }]);
        build
    }

    #[test]
    fn branch_that_goes_another_way_is_named_by_its_lines_in_the_later_build() {
        let before = build(
            10,
            &[
                (2, Some(3), 30),
                (2, Some(5), 970),
                (7, Some(8), 500),
                (7, None, 500),
            ],
        );
        let after = build(
            40,
            &[
                (2, Some(3), 480),
                (2, Some(5), 20),
                (7, Some(8), 520),
                (7, None, 480),
            ],
        );
        let changed = before.changed(&after, "Shop::parse(int)").unwrap();
        assert_eq!(
            (changed.line, changed.next, changed.executions),
            (42, Some(43), [1000, 500])
        );
        assert_eq!(
            changed.in_words(),
            "parse.cc:42 goes to line 43 in 96 % of cases, before in 3 %"
        );
        assert_eq!(before.changed(&after, "Shop::render"), None);
        assert_eq!(before.changed(&before, "Shop::parse"), None);
    }

    #[test]
    fn overloads_are_no_finding() {
        let before = build(10, &[(2, Some(3), 30), (2, Some(5), 970)]);
        let after = build(40, &[(2, Some(3), 480), (2, Some(5), 20)]);
        let mut both = after.clone();
        both.add(&[LineBranches {
            function: "Shop::parse(long)".to_owned(),
            file: "/build/shop/parse.cc".to_owned(),
            declared: Some(90),
            outcomes: Vec::new(),
        }]);
        assert!(before.changed(&after, "Shop::parse").is_some());
        assert_eq!(before.changed(&both, "Shop::parse"), None);
    }

    #[test]
    fn few_executions_and_small_changes_are_no_finding() {
        let few = build(1, &[(2, Some(3), 1), (2, Some(5), 28)]);
        let many = build(1, &[(2, Some(3), 900), (2, Some(5), 100)]);
        assert_eq!(few.changed(&many, "Shop::parse"), None);
        assert_eq!(many.changed(&few, "Shop::parse"), None);
        // 9 points of 100 000 are certain, and too small. 40 points of 40 are uncertain.
        let one = build(1, &[(2, Some(3), 50_000), (2, None, 50_000)]);
        let other = build(1, &[(2, Some(3), 59_000), (2, None, 41_000)]);
        assert_eq!(one.changed(&other, "Shop::parse"), None);
        let one = build(1, &[(2, Some(3), 12), (2, None, 28)]);
        let other = build(1, &[(2, Some(3), 28), (2, None, 12)]);
        assert_eq!(one.changed(&other, "Shop::parse"), None);
    }
}
