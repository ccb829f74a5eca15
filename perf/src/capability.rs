//! Reports the capabilities of this machine for a recorder or profiler, by trying them.
//!
//! Each [`Capability`] reports whether a feature works, why not, and how to enable it. A feature
//! counts as working only if the kernel has just accepted it.

mod bpf;
mod event;
mod system;

/// A feature of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The name shown to users.
    pub name: &'static str,
    /// Whether it works.
    pub state: CapabilityState,
    /// How to enable it, if that is possible.
    pub fix: Option<String>,
}

/// Whether a feature works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapabilityState {
    /// The capability works. The text describes what was found.
    Works(String),
    /// The capability does not work, for this reason.
    Missing(String),
    /// The capability was not tested, for this reason.
    Untried(String),
}

impl Capability {
    fn works(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: CapabilityState::Works(found.into()),
            fix: None,
        }
    }

    fn missing(name: &'static str, why: impl Into<String>, fix: Option<&str>) -> Self {
        Self {
            name,
            state: CapabilityState::Missing(why.into()),
            fix: fix.map(str::to_owned),
        }
    }
}

/// Tests all features, hardware first. Takes some milliseconds and has no lasting effect.
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
    fn every_capability_has_a_reason() {
        for capability in all() {
            let (CapabilityState::Works(text)
            | CapabilityState::Missing(text)
            | CapabilityState::Untried(text)) = &capability.state;
            assert!(!text.is_empty(), "{capability:?}");
        }
    }
}
