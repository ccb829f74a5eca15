//! The message of a Rust panic, from the arguments of the functions that raise it.
//!
//! The run-time library prints the message and keeps it nowhere. A message that is made of parts
//! is not found.

use super::result::{FrameView, ValueKind};

/// The modules of the functions that raise panics.
const MODULES: [&str; 4] = [
    "core::panicking::",
    "core::option::",
    "core::result::",
    "std::panicking::",
];
/// Their arguments that are messages.
const ARGUMENTS: [&str; 3] = ["msg", "expr", "message"];
/// The frames that are searched, from the innermost one.
const FRAMES: usize = 40;

/// Returns the message of the panic that a stack is in, as `panic: TEXT`.
pub(super) fn panic_message(frames: &[FrameView]) -> Option<String> {
    let named = frames.iter().take(FRAMES).filter_map(|frame| {
        let function = frame.frame.function.as_deref()?;
        Some((frame, function))
    });
    let raising = named.skip_while(|(_, function)| !function.contains("panic"));
    let mut texts = raising
        .filter(|(_, function)| MODULES.iter().any(|module| function.starts_with(module)))
        .flat_map(|(frame, _)| &frame.values)
        .filter(|value| value.kind == ValueKind::Argument && ARGUMENTS.contains(&&*value.name))
        .filter_map(|value| value.value.strip_prefix('"')?.strip_suffix('"'));
    texts.next().map(|text| format!("panic: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::KnownValue;
    use crate::stack::Frame;

    fn frame(function: &str, values: &[(&str, &str)]) -> FrameView {
        let argument = |&(name, value): &(&str, &str)| KnownValue {
            kind: ValueKind::Argument,
            name: name.to_owned(),
            value: value.to_owned(),
        };
        FrameView {
            frame: Frame {
                function: Some(function.to_owned()),
                ..Frame::default()
            },
            values: values.iter().map(argument).collect(),
            ..FrameView::default()
        }
    }

    #[test]
    fn message_of_expect_is_found() {
        let own = frame("bank::close", &[("msg", "\"not a panic\"")]);
        let mut frames = vec![
            frame("abort", &[]),
            frame("core::panicking::panic_display", &[("x", "0x7ffe")]),
            frame(
                "core::option::Option<T>::expect",
                &[("msg", "\"the lease is there\"")],
            ),
            own.clone(),
        ];
        assert_eq!(
            panic_message(&frames).as_deref(),
            Some("panic: the lease is there")
        );
        let _ = frames.remove(2);
        assert_eq!(panic_message(&frames), None);
        // Without a panic, an argument of this name is no message.
        assert_eq!(
            panic_message(&[frame("core::option::expect", &[("msg", "\"x\"")]), own]),
            None
        );
    }
}
