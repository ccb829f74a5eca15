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
