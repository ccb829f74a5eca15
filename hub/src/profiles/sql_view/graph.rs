//! A flame graph of an answer: a profile of its trees, folded stacks, or lists of frames.

use super::call_tree::{self, CallTreeError, is_call_tree};
use super::columns::{self, AnswerColumn, ColumnKind};
use crate::error::{Error, Result};
use crate::profiles::sql::SqlAnswer;
use backtrail_profile::{EventId, Frame, Profile, StackId};
use serde_json::Value;

/// The most stacks of a graph.
const MAX_STACKS: usize = 400_000;
/// The most calls of a stack. Deeper ones count as their caller.
const MAX_DEPTH: usize = 4096;
/// The longest name in characters.
const MAX_NAME: usize = 2000;
/// The factor of weights with fractions.
const FRACTION: i64 = 1000;
/// The name of the root of a tree.
const ROOT: &str = "all";
/// The name of the calls that a tree leaves out.
const SMALLER: &str = "[smaller calls, left out]";
/// The end of a sentence about an answer that has no stacks.
const NEEDED: &str = "a flame graph needs a column of flamegraph(stack, weight) or of folded(stack, weight), \
                      or frames_of(stack) and a number";

/// The column with stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StackColumn<'a> {
    /// Trees of `flamegraph`.
    Trees(AnswerColumn<'a>),
    /// Folded stacks.
    Folded(AnswerColumn<'a>),
    /// Lists of frames, the innermost first, and the weight of each.
    Lists(AnswerColumn<'a>, AnswerColumn<'a>),
}

impl<'a> StackColumn<'a> {
    /// Returns the column with stacks: the first one with trees or folded stacks, else the first
    /// list with the first number.
    fn of(answer: &SqlAnswer, columns: &[AnswerColumn<'a>]) -> Option<Self> {
        let first = |column: &AnswerColumn<'_>| {
            let mut texts = answer.rows.iter().filter_map(|row| column.text(row));
            texts.find(|text| !text.trim().is_empty())
        };
        let of_text = |column: &AnswerColumn<'a>| match first(column)? {
            text if is_call_tree(text) => Some(Self::Trees(*column)),
            text if is_folded(text) => Some(Self::Folded(*column)),
            _ => None,
        };
        let mut texts = columns.iter().filter(|column| column.kind == ColumnKind::Text);
        texts.find_map(of_text).or_else(|| {
            let of_kind = |kind| AnswerColumn::of_kind(columns, kind).next();
            Some(Self::Lists(
                of_kind(ColumnKind::List)?,
                of_kind(ColumnKind::Number)?,
            ))
        })
    }

    /// Returns the column that names the event.
    fn event(&self) -> AnswerColumn<'a> {
        match self {
            Self::Trees(column) | Self::Folded(column) | Self::Lists(_, column) => *column,
        }
    }
}

/// Returns the profile of an answer. The other texts of a row are its outermost frames.
///
/// # Errors
/// Fails if the answer has no stacks, or too many of them.
pub(super) fn profile(answer: &SqlAnswer) -> Result<Profile> {
    let columns = AnswerColumn::all(answer);
    let column = StackColumn::of(answer, &columns)
        .ok_or_else(|| Error::Invalid(format!("this answer has no stacks: {NEEDED}")))?;
    let factor = match column {
        StackColumn::Lists(_, weight) => factor_of(answer, &weight),
        _ => 1,
    };
    let outer: Vec<_> = columns
        .iter()
        .filter(|one| one.kind == ColumnKind::Text && **one != column.event())
        .collect();
    let mut graph = GraphBuilder::new(column.event().name, factor)?;
    let mut left_out = 0_usize;
    for row in &answer.rows {
        let mut at = (StackId::EMPTY, 0);
        for one in &outer {
            at = graph.push(at, &columns::label(one, row))?;
        }
        let is_read = match column {
            StackColumn::Trees(trees) => match trees.text(row) {
                None => false,
                Some(text) => graph.add_tree(at, text)?,
            },
            StackColumn::Folded(stacks) => match stacks.text(row) {
                None => false,
                Some(text) => graph.add_folded(at, text)?,
            },
            StackColumn::Lists(frames, weight) => {
                let weight = weight.value(row).and_then(|value| whole_of(value, factor));
                match (frames.value(row).and_then(Value::as_array), weight) {
                    (Some(frames), Some(weight)) => graph.add_list(at, frames, weight)?,
                    _ => false,
                }
            }
        };
        left_out += usize::from(!is_read);
    }
    graph.finish(left_out)
}

/// Returns whether each line of a text ends with a whole number, and the text has a line's end or a
/// separator of frames.
fn is_folded(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    text.contains(['\n', ';']) && lines.all(|line| folded_line(line).is_some())
}

/// Returns the frames and the weight of a line of folded stacks.
fn folded_line(line: &str) -> Option<(&str, i64)> {
    let (frames, weight) = line.trim_end().rsplit_once(' ')?;
    Some((frames, weight.parse().ok()?))
}

/// Returns the factor by which the weights of a column are whole numbers.
fn factor_of(answer: &SqlAnswer, weight: &AnswerColumn<'_>) -> i64 {
    let mut weights = answer.rows.iter().filter_map(|row| weight.number(row));
    match weights.any(|weight| weight.fract() != 0.0) {
        true => FRACTION,
        false => 1,
    }
}

/// Returns a weight as a whole number. `None`: the value is no number, or too large.
fn whole_of(value: &Value, factor: i64) -> Option<i64> {
    if let Some(whole) = value.as_i64() {
        return whole.checked_mul(factor);
    }
    let scaled = (columns::number(value)? * factor as f64).round();
    // The largest weight rounds to a number that is too large.
    (scaled.abs() < i64::MAX as f64).then_some(scaled as i64)
}

/// A stack, and the number of its frames.
type StackDepth = (StackId, usize);

/// Builds the profile.
struct GraphBuilder {
    profile: Profile,
    event: EventId,
    /// Whether stacks were too deep.
    is_cut: bool,
}

impl GraphBuilder {
    fn new(event: &str, factor: i64) -> Result<Self> {
        let mut profile = Profile::default();
        let unit = match factor {
            1 => "count",
            _ => "thousandths",
        };
        let event = profile.event(&name_of(event), unit, 1)?;
        if factor != 1 {
            profile
                .notes
                .push("The weights have fractions. They are shown in thousandths, and rounded.".to_owned());
        }
        Ok(Self {
            profile,
            event,
            is_cut: false,
        })
    }

    /// Returns the stack of a function that the innermost frame of a stack calls.
    fn push(&mut self, (caller, depth): StackDepth, name: &str) -> Result<StackDepth> {
        if depth >= MAX_DEPTH {
            self.is_cut = true;
            return Ok((caller, depth));
        }
        let function = self.profile.function(&name_of(name))?;
        let frame = self
            .profile
            .frames
            .intern(Frame::Function { function, line: 0 })?;
        let stack = self.profile.stacks.push(caller, frame)?;
        if self.profile.stacks.len() > MAX_STACKS {
            return Err(Error::TooLarge(format!(
                "the flame graph of this answer has more than {MAX_STACKS} stacks; select fewer rows"
            )));
        }
        Ok((stack, depth + 1))
    }

    fn add(&mut self, (stack, _): StackDepth, weight: i64) -> Result<()> {
        if weight != 0 {
            self.profile.add(self.event, weight, stack)?;
        }
        Ok(())
    }

    /// Adds a tree. Returns whether the text is one.
    fn add_tree(&mut self, outer: StackDepth, text: &str) -> Result<bool> {
        let nodes = match call_tree::read(text) {
            Ok(nodes) => nodes,
            Err(CallTreeError::Malformed) => return Ok(false),
            Err(CallTreeError::TooLarge) => {
                let text = "a tree of this answer has too many calls; select fewer stacks";
                return Err(Error::TooLarge(text.to_owned()));
            }
        };
        // The weight of a node that is neither its own nor that of its calls.
        let mut rests: Vec<i64> = nodes
            .iter()
            .map(|node| node.total.saturating_sub(node.own))
            .collect();
        for node in &nodes {
            if let Some(rest) = node.caller.and_then(|caller| rests.get_mut(caller)) {
                *rest = rest.saturating_sub(node.total);
            }
        }
        let mut stacks: Vec<StackDepth> = Vec::with_capacity(nodes.len());
        for (node, rest) in nodes.iter().zip(rests) {
            let stack = match node.caller {
                None if node.name == ROOT => outer,
                None => self.push(outer, &node.name)?,
                Some(caller) => {
                    let caller = stacks.get(caller).copied().unwrap_or(outer);
                    self.push(caller, &node.name)?
                }
            };
            self.add(stack, node.own)?;
            if rest > 0 {
                let smaller = self.push(stack, SMALLER)?;
                self.add(smaller, rest)?;
            }
            stacks.push(stack);
        }
        Ok(true)
    }

    /// Adds folded stacks. Returns whether all lines are stacks.
    fn add_folded(&mut self, outer: StackDepth, text: &str) -> Result<bool> {
        let mut is_read = true;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let Some((frames, weight)) = folded_line(line) else {
                is_read = false;
                continue;
            };
            let mut stack = outer;
            for name in frames.split(';') {
                stack = self.push(stack, name)?;
            }
            self.add(stack, weight)?;
        }
        Ok(is_read)
    }

    /// Adds a stack, the innermost frame first.
    fn add_list(&mut self, outer: StackDepth, frames: &[Value], weight: i64) -> Result<bool> {
        let mut stack = outer;
        for frame in frames.iter().rev() {
            let name = match frame {
                Value::String(name) => name.clone(),
                other => other.to_string(),
            };
            stack = self.push(stack, &name)?;
        }
        self.add(stack, weight)?;
        Ok(true)
    }

    fn finish(mut self, left_out: usize) -> Result<Profile> {
        if self.profile.samples.is_empty() {
            return Err(Error::Invalid(format!(
                "no row of this answer has a stack with a weight: {NEEDED}"
            )));
        }
        let notes = &mut self.profile.notes;
        if left_out > 0 {
            notes.push(format!(
                "Rows without a stack or a weight are left out: {left_out}."
            ));
        }
        if self.is_cut {
            notes.push(format!(
                "Calls deeper than {MAX_DEPTH} are shown as their caller."
            ));
        }
        Ok(self.profile)
    }
}

/// Returns a name of bounded length.
fn name_of(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample as answer;
    use super::*;
    use backtrail_profile::FunctionProfile;
    use backtrail_profile::format::folded;
    use serde_json::json;

    fn folded_of(answer: &SqlAnswer) -> String {
        let profile = profile(answer).unwrap();
        let (event, _) = profile.events.iter().next().unwrap();
        let mut out = Vec::new();
        folded::write(&FunctionProfile::new(&profile).unwrap(), event, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn refusal(answer: &SqlAnswer) -> String {
        profile(answer).unwrap_err().to_string()
    }

    const TREE: &str = r#"{"name":"all","value":9,"self":1,"children":[{"name":"main","value":7,"self":2,"children":[{"name":"f","value":5,"self":5,"children":[]}]}]}"#;

    #[test]
    fn trees_of_all_rows_are_added_up() {
        let columns = [("service", "Utf8View"), ("graph", "Utf8")];
        let rows = vec![
            json!({ "service": "api", "graph": TREE }),
            json!({ "service": "api", "graph": TREE }),
            json!({ "service": null, "graph": TREE }),
            json!({ "service": "web", "graph": null }),
            json!({ "service": "web", "graph": "{\"name\":" }),
        ];
        let answer = answer(&columns, rows);
        assert_eq!(
            folded_of(&answer),
            "NULL 1\nNULL;[smaller calls, left out] 1\nNULL;main 2\nNULL;main;f 5\n\
             api 2\napi;[smaller calls, left out] 2\napi;main 4\napi;main;f 10\n"
        );
        let notes = profile(&answer).unwrap().notes;
        assert_eq!(notes, ["Rows without a stack or a weight are left out: 2."]);
    }

    #[test]
    fn folded_stacks_are_read() {
        let columns = [("stacks", "Utf8")];
        let rows = vec![
            json!({ "stacks": "" }),
            json!({ "stacks": "main;operator new(unsigned long) 3\nmain 1\n" }),
        ];
        assert_eq!(
            folded_of(&answer(&columns, rows)),
            "main 1\nmain;operator new(unsigned long) 3\n"
        );
    }

    #[test]
    fn lists_begin_with_the_innermost_frame() {
        let columns = [
            ("frames", "List(nullable Utf8)"),
            ("thread", "Utf8View"),
            ("n", "Int64"),
            ("other", "Int64"),
        ];
        let rows = vec![
            json!({ "frames": ["f", "main"], "thread": "a", "n": 2, "other": 7 }),
            json!({ "frames": [], "thread": "a", "n": 1, "other": 7 }),
            json!({ "frames": ["f"], "thread": "a", "n": u64::MAX, "other": 7 }),
            json!({ "frames": null, "thread": "a", "n": 1, "other": 7 }),
        ];
        let answer = answer(&columns, rows);
        assert_eq!(folded_of(&answer), "a 1\na;main;f 2\n");
        let notes = profile(&answer).unwrap().notes;
        assert_eq!(notes, ["Rows without a stack or a weight are left out: 2."]);
    }

    #[test]
    fn fractions_are_thousandths() {
        let columns = [("frames", "List(nullable Utf8)"), ("seconds", "Float64")];
        let rows = vec![
            json!({ "frames": ["f"], "seconds": 1.2346 }),
            json!({ "frames": ["g"], "seconds": 2 }),
            json!({ "frames": ["h"], "seconds": 1e300 }),
        ];
        let answer = answer(&columns, rows);
        assert_eq!(folded_of(&answer), "f 1235\ng 2000\n");
        let notes = profile(&answer).unwrap().notes;
        assert!(notes[0].contains("in thousandths"), "{notes:?}");
        assert_eq!(whole_of(&json!(9_223_372_036_854_775_807_i64), 1), Some(i64::MAX));
        assert_eq!(whole_of(&json!(9.3e18), 1), None);
        assert_eq!(whole_of(&json!(i64::MIN), FRACTION), None);
        assert_eq!(whole_of(&json!("1.5"), FRACTION), Some(1500));
    }

    #[test]
    fn answers_without_stacks_are_refused() {
        let text = "worker 1";
        for (columns, row) in [
            (vec![], json!({})),
            (vec![("thread", "Utf8")], json!({ "thread": text })),
            (vec![("n", "Int64")], json!({ "n": 1 })),
            (
                vec![("frames", "List(nullable Utf8)")],
                json!({ "frames": ["f"] }),
            ),
            (vec![("graph", "Utf8")], json!({ "graph": "{\"name\":" })),
            (
                vec![("graph", "Utf8")],
                json!({ "graph": "{\"name\":\"all\",\"value\":0,\"self\":0,\"children\":[]}" }),
            ),
        ] {
            let error = refusal(&answer(&columns, vec![row.clone()]));
            assert!(error.contains("flamegraph(stack, weight)"), "{row}: {error}");
        }
        assert!(refusal(&answer(&[("graph", "Utf8")], Vec::new())).contains("no stacks"));
    }

    #[test]
    fn hostile_names_and_depths_are_bounded() {
        let name = "</script><img src=x>\0\u{202e}".repeat(100);
        let depth = 5_000;
        let start = format!("{{\"name\":{},\"value\":1,\"self\":0,\"children\":[", json!(name));
        let mut tree = start.repeat(depth);
        tree.push_str("{\"name\":\"leaf\",\"value\":1,\"self\":1,\"children\":[]}");
        tree.push_str(&"]}".repeat(depth));
        let found = profile(&answer(&[("graph", "Utf8")], vec![json!({ "graph": tree })])).unwrap();
        assert_eq!(found.stacks.len(), MAX_DEPTH + 1);
        assert!(found.notes[0].contains("deeper than 4096"), "{:?}", found.notes);
        let longest = found.strings.iter().map(|(_, text)| text.chars().count()).max();
        assert_eq!(longest, Some(MAX_NAME));
        let lines: String = (0..MAX_STACKS).map(|line| format!("f{line} 1\n")).collect();
        let many = answer(&[("stacks", "Utf8")], vec![json!({ "stacks": lines })]);
        assert!(refusal(&many).contains("select fewer rows"));
    }
}
