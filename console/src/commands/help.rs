//! `help`, out of the table.

use super::examples::example;
use super::{Command, Context, Group, commands, parse};
use crate::output::Output;
use backtrail_debugger::Result;

pub(super) fn help(_context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let text = if arguments.is_empty() {
        overview()
    } else {
        of_command(parse(arguments)?.0)
    };
    Ok(Output::Help { text })
}

fn of_command(command: &Command) -> String {
    let mut text = format!("{}\n    {}", command.usage(), command.help);
    if !command.aliases.is_empty() {
        text.push_str(&format!("\n    Short: {}", command.aliases.join(", ")));
    }
    if let Some((line, effect)) = example(command.name) {
        text.push_str(&format!("\n    Example: {line}  ({effect})"));
    }
    text
}

/// All commands by group, a line each.
#[must_use]
pub fn overview() -> String {
    let width = commands()
        .map(|command| heading(command).chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for group in Group::ALL {
        text.push_str(group.title());
        text.push('\n');
        for command in commands().filter(|command| command.group == group) {
            text.push_str(&format!("  {:width$}  {}\n", heading(command), command.help));
        }
    }
    text.push_str("LOCATION is FUNCTION, FILE:LINE, LINE or *ADDRESS. Commands can be abbreviated.");
    text
}

fn heading(command: &Command) -> String {
    let short = command
        .aliases
        .first()
        .map(|alias| format!(" ({alias})"))
        .unwrap_or_default();
    format!("{}{short}", command.usage())
}
