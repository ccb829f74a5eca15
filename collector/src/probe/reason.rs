//! Formats the errors of `aya` and of the kernel in one line.

use aya::programs::ProgramError;

/// Returns in one line why a program is not loaded or attached.
pub(super) fn program_error(error: &ProgramError) -> String {
    match error {
        // The verifier's log is long. Its last lines have the reason.
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let mut lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            lines.drain(..lines.len().saturating_sub(3));
            let said = lines.join(" / ");
            let said = if said.is_empty() {
                said
            } else {
                format!(": {said}")
            };
            format!("the kernel does not load it: {io_error}{said}")
        }
        error => error_reason(error),
    }
}

/// Returns the causes of an error in one line, each once.
pub(super) fn error_reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_reason_has_each_cause_once() {
        let inner = std::io::Error::from_raw_os_error(libc::EPERM);
        let text = inner.to_string();
        let error = ProgramError::SyscallError(aya::sys::SyscallError {
            call: "bpf_raw_tracepoint_open",
            io_error: inner,
        });
        assert_eq!(
            error_reason(&error).matches(&text).count(),
            1,
            "{}",
            error_reason(&error)
        );
    }
}
