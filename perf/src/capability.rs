//! What this machine can do for a recorder or profiler, found out by trying.
//!
//! Each [`Capability`] says whether a thing works here, why not, and what would make it work. A
//! thing is said to work only when the kernel accepted it just now.

mod bpf;
mod event;
mod system;

/// One thing a machine can or cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it is called, for people.
    pub name: &'static str,
    /// Whether it works.
    pub state: State,
    /// What would make it work, where something would.
    pub fix: Option<String>,
}

/// Whether a thing works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It works; the text says what was found.
    Works(String),
    /// It does not; the text says why.
    Missing(String),
    /// It was not tried; the text says why not.
    Untried(String),
}

impl Capability {
    fn works(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Works(found.into()),
            fix: None,
        }
    }

    fn missing(name: &'static str, why: impl Into<String>, fix: Option<&str>) -> Self {
        Self {
            name,
            state: State::Missing(why.into()),
            fix: fix.map(str::to_owned),
        }
    }
}

/// Asks this machine everything, hardware first. Takes some milliseconds and leaves nothing behind.
#[must_use]
pub fn all() -> Vec<Capability> {
    let mut found = vec![
        event::intel_pt(),
        event::branch_stack(),
        event::hardware_counter(),
        event::software_event(),
    ];
    found.extend(bpf::all());
    found.push(system::core_dumps());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_reason() {
        for capability in all() {
            let (State::Works(text) | State::Missing(text) | State::Untried(text)) = &capability.state;
            assert!(!text.is_empty(), "{capability:?}");
        }
    }
}
