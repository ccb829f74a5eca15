//! How often code was executed: `count`.

use super::flow::render_rests;
use super::{Paint, Text, is_zero};
use serde::Serialize;

/// How often some code was executed, in all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountView {
    /// The location, as it was given.
    pub location: String,
    /// The line that was counted, where the one asked for has no code: the next that has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of executions.
    pub executions: u64,
    /// The number of calls; `None`: the location is no function.
    pub calls: Option<u64>,
    /// The number of calls that may be continuations of earlier ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub rests: u64,
    /// The threads that executed it.
    pub threads: Vec<ThreadCount>,
    /// Whether another thread than the current one executed it.
    #[serde(skip)]
    pub elsewhere: bool,
    /// Whether nothing was counted yet.
    #[serde(skip)]
    counted: bool,
}

/// How often a thread executed some code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadCount {
    /// The thread.
    pub thread: u32,
    /// Its name, if known.
    pub name: Option<String>,
    /// The number of executions.
    pub executions: u64,
    /// The number of calls; `None`: the location is no function.
    pub calls: Option<u64>,
    /// The number of calls that may be continuations of earlier ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub rests: u64,
}

impl CountView {
    /// Returns the count of a location without threads.
    #[must_use]
    pub fn of(location: &str) -> Self {
        Self {
            location: location.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a thread.
    pub fn add(&mut self, count: ThreadCount, is_current: bool) {
        self.counted = true;
        self.executions = self.executions.saturating_add(count.executions);
        self.rests = self.rests.saturating_add(count.rests);
        if let Some(calls) = count.calls {
            self.calls = Some(self.calls.unwrap_or(0).saturating_add(calls));
        }
        if count.executions > 0 || count.calls.is_some_and(|calls| calls > 0) {
            self.elsewhere |= !is_current;
            self.threads.push(count);
        }
    }

    /// Returns whether no thread was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.counted
    }

    pub(super) fn render(&self, to: &mut Text) {
        let location = &self.location;
        let what = match self.line {
            Some(line) => format!("{location} has no code; the next line with code, {line}"),
            None => location.clone(),
        };
        to.line(format!("{what}: {}", amount(self.calls, self.executions)));
        if self.elsewhere {
            for thread in &self.threads {
                let name = thread.name.as_deref().map(|name| format!(" \"{name}\""));
                let name = name.unwrap_or_default();
                let amount = amount(thread.calls, thread.executions);
                let line = format!("    {amount} in thread {}{name}", thread.thread);
                to.line(to.paint(Paint::Faint, line));
            }
        }
        render_rests(self.rests, to);
    }
}

fn amount(calls: Option<u64>, executions: u64) -> String {
    match (calls, executions) {
        (Some(1), _) => "1 call".to_owned(),
        (Some(calls), _) => format!("{calls} calls"),
        (None, 1) => "executed once".to_owned(),
        (None, executions) => format!("executed {executions} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(thread: u32, calls: u64) -> ThreadCount {
        ThreadCount {
            thread,
            name: Some("worker".to_owned()),
            executions: calls,
            calls: Some(calls),
            rests: 0,
        }
    }

    fn rendered(view: &CountView) -> String {
        let mut text = Text::plain();
        view.render(&mut text);
        text.into_string()
    }

    #[test]
    fn threads_are_listed_if_another_one_executed_it() {
        let mut view = CountView::of("serve");
        assert!(view.is_empty());
        view.add(thread(1, 2), true);
        assert_eq!(rendered(&view), "serve: 2 calls\n");
        view.add(thread(2, 0), false);
        assert_eq!(rendered(&view), "serve: 2 calls\n");
        view.add(thread(3, 1), false);
        assert_eq!(
            rendered(&view),
            "serve: 3 calls\n    2 calls in thread 1 \"worker\"\n    1 call in thread 3 \"worker\"\n"
        );
    }
}
