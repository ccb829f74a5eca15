//! The message with which the C library aborted the program.

use crate::session::Session;
use backtrail_bundle::core::Core;
use backtrail_pt::Avma;

/// SIGABRT.
const ABORTED: i32 = 6;
/// The variable of glibc that points to the message of `assert`, `malloc` and the stack protector.
///
/// glibc keeps it for debuggers: a size in an `unsigned int`, then the text and a zero byte.
const VARIABLE: &str = "__abort_msg";
/// The longest text that is read, in bytes.
const LONGEST: usize = 4096;

/// Returns the text of a failed assertion, or of another check of the C library, that ended the
/// program. `None`: the program was not aborted, or the C library kept no text.
#[must_use]
pub fn abort_message(session: &Session) -> Option<String> {
    let crash = session.crash().filter(|crash| crash.signal == ABORTED)?;
    let core = session.core()?;
    let thread = session.thread(crash.tid).ok().or_else(|| session.main_thread())?;
    let symbols = session.symbols_at(thread, thread.history.len())?;
    symbols.modules().iter().find_map(|module| {
        let (at, size) = module.file.as_ref()?.data_named(VARIABLE)?;
        if size != 8 {
            return None;
        }
        message_at(core, at.to_avma(module.bias))
    })
}

/// Reads the text to which the variable at `variable` points.
fn message_at(core: &Core, variable: Avma) -> Option<String> {
    let mut pointer = [0; 8];
    if core.memory(variable, &mut pointer) < pointer.len() {
        return None;
    }
    let at = u64::from_le_bytes(pointer);
    let mut text = vec![0; LONGEST];
    let known = core.memory(Avma(at.checked_add(4).filter(|_| at != 0)?), &mut text);
    text.truncate(known);
    let end = text.iter().position(|&byte| byte == 0)?;
    text.truncate(end);
    let text = String::from_utf8(text).ok()?;
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::core::{CoreContents, CoreThread, Segment, write};
    use std::io::Cursor;

    const VARIABLE_AT: u64 = 0x1000;
    const MESSAGE_AT: u64 = 0x1100;

    /// A core with the variable and a message in one page.
    fn core(pointer: u64, message: &[u8]) -> Core {
        let mut page = vec![0; 0x1000];
        page[..8].copy_from_slice(&pointer.to_le_bytes());
        page[0x104..0x104 + message.len()].copy_from_slice(message);
        let contents = CoreContents {
            threads: vec![CoreThread::default()],
            segments: vec![Segment {
                start: Avma(VARIABLE_AT),
                size: 0x1000,
                saved: 0x1000,
                readable: true,
                ..Segment::default()
            }],
            ..CoreContents::default()
        };
        let memory = |at: Avma, out: &mut [u8]| {
            let from = (at.0 - VARIABLE_AT) as usize;
            let count = out.len().min(page.len() - from);
            out[..count].copy_from_slice(&page[from..from + count]);
            count
        };
        let mut file = Cursor::new(Vec::new());
        write(&mut file, &contents, memory).unwrap();
        Core::parse(file.into_inner().into(), "core").unwrap()
    }

    fn message(pointer: u64, message: &[u8]) -> Option<String> {
        message_at(&core(pointer, message), Avma(VARIABLE_AT))
    }

    #[test]
    fn text_after_the_size_is_the_message() {
        let found = message(MESSAGE_AT, b"a.c:3: Assertion `x' failed.\n\0rest");
        assert_eq!(found.as_deref(), Some("a.c:3: Assertion `x' failed."));
    }

    #[test]
    fn missing_or_malformed_text_is_no_message() {
        assert_eq!(message(0, b"x\0"), None);
        assert_eq!(message(u64::MAX - 1, b"x\0"), None);
        assert_eq!(message(MESSAGE_AT, b"\n\0"), None);
        assert_eq!(message(MESSAGE_AT, b"\xff\xfe\0"), None);
        // The text has no end within the limit and the memory of the core.
        assert_eq!(message(MESSAGE_AT, &[b'x'; 0xefc]), None);
    }
}
