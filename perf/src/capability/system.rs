//! Reports how the system handles core dumps.

use super::Capability;
use std::fs;

pub(super) fn core_dumps() -> Capability {
    const NAME: &str = "core dumps";
    let Ok(text) = fs::read_to_string("/proc/sys/kernel/core_pattern") else {
        return Capability::missing(NAME, "/proc/sys/kernel/core_pattern cannot be read", None);
    };
    let pattern = text.trim();
    if let Some(handler) = pattern.strip_prefix('|') {
        return Capability::works(NAME, format!("cores go to the handler {handler}"));
    }
    // SAFETY: `limit` is valid for writes.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_CORE, &mut limit);
        limit.rlim_cur
    };
    if limit == 0 {
        let why = format!("cores would go to files named {pattern}, but the limit here is 0");
        let fix = "`ulimit -c unlimited`; `backtrail record` writes its own core without it";
        return Capability::missing(NAME, why, Some(fix));
    }
    Capability::works(NAME, format!("cores go to files named {pattern}"))
}
