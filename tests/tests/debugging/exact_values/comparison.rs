//! The comparison of shown values with the true ones, and its row in the report.

use super::recorded::{Answer, Shown};
use super::stepped::TRAP_FLAG;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;

/// General registers, the flags, and the bases of segments.
pub const GENERAL: [&str; 20] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip", "eflags", "fs_base", "gs_base",
];

/// The greatest shares of unknown registers and variables.
const UNKNOWN: (f64, f64) = (0.05, 0.2);

/// Counts of one kind of values.
#[derive(Default)]
struct Counts {
    equal: u64,
    unknown: u64,
    /// Values that the program does not have either, such as variables that are optimized out.
    absent: u64,
}

/// The comparison of a program.
pub struct Comparison {
    name: String,
    instructions: u64,
    steps: u64,
    positions: u64,
    registers: Counts,
    vectors: Counts,
    variables: Counts,
    /// The reasons why variables are unknown.
    reasons: BTreeMap<String, u64>,
    /// The number of values that differ between runs of the program itself: those of the clock, and
    /// flags of comparisons with a thread's id.
    varying: u64,
    wrong: Vec<Wrong>,
}

/// A shown value that is not the true one.
struct Wrong {
    /// The program, the position and the name of the value.
    what: String,
    shown: String,
    truth: String,
}

impl Counts {
    fn share(&self) -> f64 {
        self.unknown as f64 / (self.equal + self.unknown).max(1) as f64
    }

    fn cells(&self) -> String {
        format!("{} | {:.3} %", self.equal, self.share() * 100.0)
    }
}

impl Comparison {
    /// Returns a comparison without positions.
    pub fn new(name: String, instructions: u64, steps: u64) -> Self {
        Self {
            name,
            instructions,
            steps,
            positions: 0,
            registers: Counts::default(),
            vectors: Counts::default(),
            variables: Counts::default(),
            reasons: BTreeMap::new(),
            varying: 0,
            wrong: Vec::new(),
        }
    }

    /// Compares a position. The truth is `None` if the single steps did not come there.
    pub fn add(&mut self, place: &str, shown: &Shown, truth: Option<&Shown>) {
        self.positions += 1;
        let Some(truth) = truth else {
            self.add_wrong(place, ("position", &"shown"), &"not stepped to");
            return;
        };
        for (name, truth_value) in &truth.registers {
            let value = shown.registers.get(name).cloned();
            let value = value.unwrap_or_else(|| Err("not listed".to_owned()));
            let without_trap = |answer: &Answer<String>, tid: u32| match (name.as_str(), answer) {
                // A single step over a system call leaves the trap flag in r11.
                ("eflags" | "r11", Ok(text)) => {
                    let value = u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
                    Ok(format!("{:#x}", value & !TRAP_FLAG))
                }
                (_, answer) => answer
                    .as_ref()
                    .map(|text| without_id(text, tid))
                    .map_err(Clone::clone),
            };
            let counts = match name.starts_with("xmm") {
                true => &mut self.vectors,
                false => &mut self.registers,
            };
            match (
                without_trap(&value, shown.tid),
                without_trap(truth_value, truth.tid),
            ) {
                (Ok(shown), Ok(truth)) if shown == truth => counts.equal += 1,
                (Err(why), _) => {
                    counts.unknown += 1;
                    *self.reasons.entry(generalized(&why)).or_default() += 1;
                }
                (shown, truth) => self.add_wrong(place, (name, &shown), &truth),
            }
        }
        let names =
            |shown: &Shown| -> Vec<String> { shown.variables.iter().map(|(name, _)| name.clone()).collect() };
        if names(shown) != names(truth) {
            self.add_wrong(place, ("names", &names(shown)), &names(truth));
            return;
        }
        let ids = (shown.tid, truth.tid);
        for ((variable, shown), (_, truth)) in shown.variables.iter().zip(&truth.variables) {
            let shown = shown.as_ref().map(|text| without_id(text, ids.0));
            let truth = truth.as_ref().map(|text| without_id(text, ids.1));
            match (&shown, &truth) {
                (Ok(shown), Ok(truth)) if shown == truth => self.variables.equal += 1,
                // The text that a pointer leads to is unknown.
                (Ok(shown), Ok(truth))
                    if shown.contains("<unknown") && truth.starts_with(&known_part(shown)) =>
                {
                    match truth.contains("<unknown") {
                        true => self.variables.absent += 1,
                        false => self.variables.unknown += 1,
                    }
                }
                // A slice or string of Go with an unknown part is shown by its members.
                (Ok(shown), Ok(truth))
                    if shown.contains("<unknown")
                        && (shown.starts_with("{array = ") && truth.starts_with("[]")
                            || shown.starts_with("{str = ") && truth.starts_with('"')) =>
                {
                    self.variables.unknown += 1;
                }
                (Err(_), Err(_)) => self.variables.absent += 1,
                (Err(why), Ok(_)) => {
                    self.variables.unknown += 1;
                    *self.reasons.entry(generalized(why)).or_default() += 1;
                }
                (Ok(_), _) => self.add_wrong(place, (variable, &shown), &truth),
            }
        }
    }

    fn add_wrong(&mut self, place: &str, (name, shown): (&str, &dyn Debug), truth: &dyn Debug) {
        self.wrong.push(Wrong {
            what: format!("{}, {place}: {name}", self.name),
            shown: format!("{shown:?}"),
            truth: format!("{truth:?}"),
        });
    }

    /// Returns whether all values are equal or unknown.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Takes another run of the same program. A wrong value stays wrong if both runs of single
    /// steps have the same true value.
    pub fn repeat(&mut self, other: &Self) {
        let truths = other.wrong.iter().map(|wrong| (&wrong.what, &wrong.truth));
        let truths: HashMap<&String, &String> = truths.collect();
        let before = self.wrong.len();
        self.wrong
            .retain(|wrong| truths.get(&wrong.what) == Some(&&wrong.truth));
        self.varying += (before - self.wrong.len()) as u64;
    }

    /// Takes a comparison with another recording. A value that differs between recordings has no
    /// single truth.
    pub fn record_again(&mut self, other: &Self) {
        let differing: HashSet<&String> = other.wrong.iter().map(|wrong| &wrong.what).collect();
        let before = self.wrong.len();
        self.wrong.retain(|wrong| !differing.contains(&wrong.what));
        self.varying += (before - self.wrong.len()) as u64;
    }

    /// Returns the wrong values.
    pub fn wrong(&self) -> Vec<String> {
        let text = |wrong: &Wrong| format!("{} {}, truth {}", wrong.what, wrong.shown, wrong.truth);
        self.wrong.iter().map(text).collect()
    }

    /// Checks that few values are unknown.
    #[track_caller]
    pub fn check_unknown(&self) {
        let (registers, variables) = (self.registers.share(), self.variables.share());
        assert!(registers <= UNKNOWN.0 && variables <= UNKNOWN.1, "{}", self.row());
        assert!(self.variables.equal > 0, "{}", self.row());
    }

    /// Returns the row of the report.
    pub fn row(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |  {:?}",
            self.name,
            self.instructions,
            self.steps,
            self.positions,
            self.registers.cells(),
            self.vectors.cells(),
            self.variables.cells(),
            self.variables.absent,
            self.varying,
            self.wrong.len(),
            self.reasons,
        )
    }
}

/// Returns the part of a text before its first unknown part, without the equal elements before
/// that. The true text may have more of them.
fn known_part(text: &str) -> String {
    let known = text.split("<unknown").next().unwrap_or_default();
    let Some(elements) = known.strip_suffix(", ") else {
        return known.to_owned();
    };
    let mut elements: Vec<&str> = elements.split(", ").collect();
    let value = |element: &str| element.split(" <repeats").next().unwrap_or_default().to_owned();
    let last = elements.last().map(|element| value(element));
    while elements.last().map(|element| value(element)) == last {
        elements.pop();
    }
    elements.join(", ")
}

/// Returns a text without the id of a thread.
fn without_id(text: &str, tid: u32) -> String {
    let (decimal, hexadecimal) = (tid.to_string(), format!("{tid:#x}"));
    if !text.contains(&decimal) && !text.contains(&hexadecimal) {
        return text.to_owned();
    }
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let without = |word: &str| {
        let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        match name == decimal || name == hexadecimal {
            true => word.replacen(name, "TID", 1),
            false => word.to_owned(),
        }
    };
    words.map(without).collect()
}

/// Returns a reason without its numbers.
fn generalized(why: &str) -> String {
    let words = why.split_whitespace();
    let general = |word: &str| match word.contains(|c: char| c.is_ascii_digit()) {
        true => "N".to_owned(),
        false => word.to_owned(),
    };
    words.map(general).collect::<Vec<_>>().join(" ")
}
