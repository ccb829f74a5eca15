//! The permissions of the profiler on this machine, for `doctor`.

use crate::event::SampledEvent;
use crate::kernel_walker;
use crate::options::Target;
use crate::priority;
use crate::sampler::{Sampler, SamplerOptions};
use backtrail_pt::Pid;

/// The samples that this user may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSupport {
    /// Whether samples in the kernel can be taken.
    pub kernel: bool,
    /// Whether all processes can be sampled.
    pub all: bool,
    /// The reason why no eBPF program walks stacks. `None`: one does.
    pub no_ebpf: Option<String>,
    /// The reason why the thread that reads the rings has no real-time priority. `None`: it has.
    pub no_priority: Option<String>,
}

/// Opens and closes the events of a recording.
///
/// # Errors
///
/// The reason why not even this process can be sampled.
pub fn stack_support() -> Result<StackSupport, String> {
    let open = |target: &Target| {
        Sampler::open(&SamplerOptions {
            target,
            program: None,
            events: &[SampledEvent::Cpu],
            frequency: 1,
            sideband: true,
        })
    };
    let own = open(&Target::Process(Pid(std::process::id()))).map_err(|error| error.to_string())?;
    let (own, _) = own;
    Ok(StackSupport {
        kernel: own.has_kernel(),
        all: open(&Target::All).is_ok(),
        no_ebpf: kernel_walker::check().err(),
        no_priority: priority::check().err().map(|error| error.to_string()),
    })
}
