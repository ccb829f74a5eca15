//! Arguments of `backtrail profile record` and `agent` as options of a recording.

use super::uprobe;
use crate::args::{ProfileEvent, ProfileStacks};
use crate::exit::Failure;
use backtrail_profiler::{SampledEvent, StackMethod, Tracepoint};

/// Returns the events without doubles. `pid` is the process of which files without a folder are.
pub fn sampled_events(events: &[ProfileEvent], pid: Option<u32>) -> Result<Vec<SampledEvent>, Failure> {
    let mut sampled = Vec::new();
    for event in events {
        let event = sampled_event(event, pid)?;
        if !sampled.contains(&event) {
            sampled.push(event);
        }
    }
    Ok(sampled)
}

/// Returns the way in which stacks are walked.
pub fn stack_method(stacks: ProfileStacks) -> StackMethod {
    match stacks {
        ProfileStacks::Auto => StackMethod::Auto,
        ProfileStacks::Ebpf => StackMethod::Ebpf,
        ProfileStacks::Copy => StackMethod::Copy,
    }
}

fn sampled_event(event: &ProfileEvent, pid: Option<u32>) -> Result<SampledEvent, Failure> {
    Ok(match event {
        ProfileEvent::Tracepoint(name) => SampledEvent::Tracepoint(Tracepoint::find(name)?),
        ProfileEvent::Uprobe(place) => SampledEvent::Uprobe(uprobe::find(place, pid)?),
        ProfileEvent::Cpu => SampledEvent::Cpu,
        ProfileEvent::OffCpu => SampledEvent::OffCpu,
        ProfileEvent::Cycles => SampledEvent::Cycles,
        ProfileEvent::Lbr => SampledEvent::LastBranches,
        ProfileEvent::Instructions => SampledEvent::Instructions,
        ProfileEvent::CacheMisses => SampledEvent::CacheMisses,
        ProfileEvent::PageFaults => SampledEvent::PageFaults,
    })
}
