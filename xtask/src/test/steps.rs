//! The steps of a run, how long each takes, and the table of that.

use crate::Failure;
use std::time::{Duration, Instant};

/// The steps that have ended.
#[derive(Debug, Default)]
pub struct Steps(Vec<(String, Duration)>);

impl Steps {
    /// Runs a step and notes its time, whether it fails or not.
    pub fn step<T>(&mut self, name: &str, run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let began = Instant::now();
        let result = run();
        self.add(name, began.elapsed());
        result
    }

    /// Adds a step that was timed elsewhere.
    pub fn add(&mut self, name: &str, time: Duration) {
        self.0.push((name.to_owned(), time));
    }

    /// The table, a line a step, in the order in which they ended.
    pub fn table(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max();
        let width = width.unwrap_or(0);
        let mut table = String::new();
        for (name, time) in &self.0 {
            table.push_str(&format!("{name:width$} {:>8.1} s\n", time.as_secs_f64()));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_steps_are_timed_too() {
        let mut steps = Steps::default();
        assert_eq!(steps.step("build", || Ok(7)), Ok(7));
        assert!(steps.step("run", || Err::<(), _>("no".to_owned())).is_err());
        steps.add("  one of them", Duration::from_millis(1250));
        let table = steps.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[0].starts_with("build ") && lines[1].starts_with("run "));
        assert_eq!(lines[2], "  one of them      1.2 s");
    }
}
