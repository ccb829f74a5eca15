//! The writes of an expression as text.

use super::{Paint, Text};
use backtrail_debugger::navigator::{HistoryRow, WritePlace};
use backtrail_debugger::origin::ValueOrigin;
use backtrail_debugger::source::short;
use serde::Serialize;

/// The writes of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WritesView {
    /// The expression.
    pub expression: String,
    /// The writes, the oldest first, and the places between them at which others may be unseen.
    pub writes: Vec<HistoryRow>,
    /// Whether there are older ones.
    pub more: bool,
}

impl WritesView {
    pub(super) fn render(&self, to: &mut Text) {
        let first = self.writes.iter().find_map(|row| match row {
            HistoryRow::Write(write) => Some(write),
            HistoryRow::Unseen { .. } => None,
        });
        if first.is_none() {
            to.line(match self.writes.is_empty() {
                true => format!("No recorded instruction changes {}.", self.expression),
                false => format!("No change of {} is seen.", self.expression),
            });
        }
        if self.more {
            to.line(to.paint(
                Paint::Faint,
                "Older changes are not shown; `history EXPR N` shows N.",
            ));
        }
        let position = |row: &HistoryRow| match row {
            HistoryRow::Write(write) => write.hit.position.chars().count(),
            HistoryRow::Unseen { unseen } => unseen.position.chars().count(),
        };
        let width = self.writes.iter().map(position).max().unwrap_or_default();
        let before = "before";
        let mut thread = None;
        for row in &self.writes {
            let write = match row {
                HistoryRow::Write(write) => write,
                HistoryRow::Unseen { unseen } => {
                    let text = format!("{:width$}  unseen: {}", unseen.position, unseen.reason());
                    to.line(to.paint(Paint::Alarm, text));
                    continue;
                }
            };
            if thread.is_none() {
                to.line(format!(
                    "{before:width$}  {} = {}",
                    self.expression, write.hit.old
                ));
            }
            let named = write
                .name
                .as_deref()
                .filter(|_| thread.is_some_and(|thread| thread != write.thread));
            let of_thread = named
                .map(|name| format!(", thread \"{name}\""))
                .unwrap_or_default();
            thread = Some(write.thread);
            to.line(format!(
                "{:width$}  {} = {}  {}{}{of_thread}",
                write.hit.position,
                self.expression,
                write.hit.new,
                to.paint(Paint::Function, write.place.function.as_deref().unwrap_or("??")),
                to.paint(Paint::Place, place_of(&write.place)),
            ));
        }
    }
}

/// Returns ` at FILE:LINE`, if known.
fn place_of(place: &WritePlace) -> String {
    let line = place.file.as_deref().zip(place.line);
    line.map(|(file, line)| format!(" at {}:{line}", short(file)))
        .unwrap_or_default()
}

pub(super) fn render_origin(origin: &ValueOrigin, to: &mut Text) {
    to.lines(format!("{} = {}", origin.expression, origin.value));
    let width = |text: fn(&backtrail_debugger::origin::OriginStep) -> String| {
        origin.steps.iter().map(|step| text(step).chars().count()).max()
    };
    let position = width(|step| step.position.clone()).unwrap_or_default();
    let instruction = width(|step| step.instruction.replace('\t', " ")).unwrap_or_default();
    for step in &origin.steps {
        let value = step
            .value
            .map(|value| format!(" = {value:#x}"))
            .unwrap_or_default();
        to.line(format!(
            "{:position$}  {:instruction$}  {}{value}  {}{}",
            step.position,
            step.instruction.replace('\t', " "),
            step.to,
            to.paint(Paint::Function, step.place.function.as_deref().unwrap_or("??")),
            to.paint(Paint::Place, place_of(&step.place)),
        ));
    }
    let end = match origin.is_complete {
        true => format!("Origin: {}.", origin.end),
        false => format!("The origin is unknown: {}.", origin.end),
    };
    to.line(end);
}
