//! `backtrail profile report`.

use super::html;
use super::lines::{self, LineRow};
use super::selected::Selected;
use super::weight;
use crate::args::{ProfileReport, ProfileView};
use crate::exit::Failure;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_profile::{CallTree, NodeIdx, SiteSample, SymbolId, top};
use serde::Serialize;
use std::io::Write;

/// The deepest level of a tree that is printed.
const MAX_DEPTH: usize = 500;

/// A profile's functions, or its calls.
#[derive(Serialize)]
struct Report<'a> {
    file: String,
    event: &'a str,
    unit: &'a str,
    total: i64,
    samples: usize,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<Vec<FunctionRow<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<Call<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<LineRow>>,
}

/// A function.
#[derive(Serialize)]
struct FunctionRow<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    own: i64,
    total: i64,
}

/// A function with the same callers. Its depth is the number of callers in the tree.
#[derive(Serialize)]
struct Call<'a> {
    depth: usize,
    #[serde(flatten)]
    name: Name<'a>,
    own: i64,
    total: i64,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    module: &'a str,
}

/// Prints a view of a profile.
pub fn run(args: &ProfileReport) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        return html::report(args, path);
    }
    if let Some(name) = &args.calls {
        return super::calls::run(args, name);
    }
    let selected = Selected::open(&args.file, &args.selection)?;
    let (event, unit) = selected.event();
    let (mut functions, mut calls, mut line_rows) = (None, None, None);
    match args.view {
        ProfileView::Lines => line_rows = Some(lines::rows(&selected, args.limit)?),
        ProfileView::Top => functions = Some(rows(&selected, &tree(args, &selected)?, args.limit)),
        _ => calls = Some(nodes(&selected, &tree(args, &selected)?, args.min_percent)),
    }
    let report = Report {
        file: args.file.display().to_string(),
        event,
        unit,
        total: selected.total(),
        samples: selected.functions.samples.len(),
        notes: &selected.profile.notes,
        functions,
        calls,
        lines: line_rows,
    };
    let mut output = Output::new();
    match args.json {
        true => output.json("backtrail-profile-report/1", &report)?,
        false => print(&report, has_own(args.view), &mut output)?,
    }
    output.finish()
}

fn tree(args: &ProfileReport, selected: &Selected) -> Result<CallTree<1>, Failure> {
    let column = |sample: &SiteSample| Some((0, sample.weight));
    let function = || selected.function(args.function.as_deref().unwrap_or(""));
    let profile = &selected.functions;
    Ok(match args.view {
        ProfileView::Top | ProfileView::Lines | ProfileView::Tree => CallTree::new(profile, column),
        ProfileView::Inverted => CallTree::inverted(profile, column),
        ProfileView::Callers => CallTree::callers_of(profile, function()?, column),
        ProfileView::Callees => CallTree::callees_of(profile, function()?, column),
    })
}

fn name(selected: &Selected, symbol: SymbolId) -> Name<'_> {
    let symbol = selected.functions.symbol(symbol);
    Name {
        name: symbol.map_or("", |symbol| &symbol.name),
        file: symbol.map_or("", |symbol| &symbol.file),
        module: symbol.map_or("", |symbol| &symbol.module),
    }
}

fn rows<'a>(selected: &'a Selected, tree: &CallTree<1>, limit: usize) -> Vec<FunctionRow<'a>> {
    let rows = top(tree).into_iter().take(limit);
    rows.map(|row| FunctionRow {
        name: name(selected, row.symbol),
        own: row.own[0],
        total: row.total[0],
    })
    .collect()
}

/// Returns the nodes of a tree in the order in which they are printed.
fn nodes<'a>(selected: &'a Selected, tree: &CallTree<1>, min_percent: f64) -> Vec<Call<'a>> {
    let all = tree.node(NodeIdx::ROOT).map_or(0, |root| root.total[0]);
    let least = all as f64 * min_percent / 100.0;
    let mut calls = Vec::new();
    let mut pending: Vec<(usize, NodeIdx)> = vec![(0, NodeIdx::ROOT)];
    while let Some((depth, at)) = pending.pop() {
        let Some(node) = tree.node(at) else { continue };
        if let Some(symbol) = node.symbol {
            calls.push(Call {
                depth: depth - 1,
                name: name(selected, symbol),
                own: node.own[0],
                total: node.total[0],
            });
        }
        if depth == MAX_DEPTH {
            continue;
        }
        let callees = tree.callees(at).into_iter().rev();
        let callees = callees.filter(|(_, node)| node.total[0] as f64 >= least);
        pending.extend(callees.map(|(at, _)| (depth + 1, at)));
    }
    calls
}

/// Returns whether the own weights of a view belong to its functions. In a tree of callers, they
/// belong to stacks that end.
fn has_own(view: ProfileView) -> bool {
    !matches!(view, ProfileView::Callers | ProfileView::Inverted)
}

fn print(report: &Report<'_>, has_own: bool, output: &mut Output) -> Result<(), Failure> {
    let unit = report.unit;
    writeln!(
        output,
        "{}: {} {} in {} samples",
        report.file,
        plain(report.event),
        weight::text(report.total, unit),
        report.samples
    )?;
    for note in report.notes {
        writeln!(output, "note: {}", plain(note))?;
    }
    let column = |weight: i64| {
        let percent = weight::percent(weight, report.total);
        format!("{:>10} {percent:>6}", weight::text(weight, unit))
    };
    let line = |own: i64, total: i64| match has_own {
        true => format!("{} {}", column(own), column(total)),
        false => column(total),
    };
    match has_own {
        true if report.lines.is_some() => writeln!(output, "{:>17} {:>17}  line", "own", "total")?,
        true => writeln!(output, "{:>17} {:>17}  function", "own", "total")?,
        false => writeln!(output, "{:>17}  function", "total")?,
    }
    for row in report.functions.iter().flatten() {
        writeln!(output, "{}  {}", line(row.own, row.total), place(&row.name))?;
    }
    for row in report.lines.iter().flatten() {
        let place = match row.line {
            0 => "[line unknown]".to_owned(),
            line => format!("{}:{line}", plain(&row.file)),
        };
        let text = plain(row.text.as_deref().unwrap_or_default());
        let shown = format!("{}  {place}  {text}", line(row.own, row.total));
        writeln!(output, "{}", shown.trim_end())?;
    }
    for call in report.calls.iter().flatten() {
        let indent = " ".repeat(call.depth);
        writeln!(
            output,
            "{}  {indent}{}",
            line(call.own, call.total),
            place(&call.name)
        )?;
    }
    Ok(())
}

/// Returns a function with its file, or with its module if the file is unknown, on one line.
fn place(name: &Name<'_>) -> String {
    let file = name.file.rsplit('/').next().unwrap_or_default();
    let place = match (file, name.module) {
        ("", "") => name.name.to_owned(),
        ("", module) if name.name.starts_with(module) => name.name.to_owned(),
        ("", module) => format!("{} ({module})", name.name),
        (file, _) => format!("{} ({file})", name.name),
    };
    plain(&place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_split_rows() {
        let name = Name {
            name: "f\n100 %\tg",
            file: "/src/a\n.c",
            module: "",
        };
        assert_eq!(place(&name), "f\u{fffd}100 %\u{fffd}g (a\u{fffd}.c)");
    }
}
