//! The `%` specifiers of a `core_pattern` (core(5)), for the patterns that were there before ours.

use std::path::Path;

/// What a pattern may ask about a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Specifiers {
    /// `%P`: process, in the initial namespace.
    pub pid: u32,
    /// `%p`: process, in its own namespace.
    pub inner_pid: u32,
    /// `%I`: thread, in the initial namespace.
    pub tid: u32,
    /// `%i`: thread, in its own namespace.
    pub inner_tid: u32,
    /// `%u`: real user.
    pub uid: u32,
    /// `%g`: real group.
    pub gid: u32,
    /// `%d`: whether it may be dumped (`PR_GET_DUMPABLE`).
    pub dumpable: u32,
    /// `%s`: signal.
    pub signal: i32,
    /// `%t`: seconds since 1970.
    pub time: u64,
    /// `%c`: `RLIMIT_CORE`, in bytes.
    pub limit: u64,
    /// `%e`: the thread's name.
    pub name: String,
}

impl Specifiers {
    /// Of the handler's arguments, in the order that [`crate::pattern`] asks for.
    #[must_use]
    pub fn of(arguments: &[String]) -> Option<Self> {
        let number = |index: usize| arguments.get(index)?.parse::<u64>().ok();
        let narrow = |index: usize| u32::try_from(number(index)?).ok();
        Some(Self {
            pid: narrow(0)?,
            inner_pid: narrow(1)?,
            tid: narrow(2)?,
            inner_tid: narrow(3)?,
            uid: narrow(4)?,
            gid: narrow(5)?,
            dumpable: narrow(6)?,
            signal: i32::try_from(number(7)?).ok()?,
            time: number(8)?,
            limit: number(9)?,
            name: arguments.get(10..)?.join(" "),
        })
    }

    /// The thread's name, for people.
    #[must_use]
    pub fn name_text(&self) -> std::borrow::Cow<'_, str> {
        self.name.as_str().into()
    }

    /// What stands for one specifier; `None`: the kernel knows none either, and drops it.
    fn value(&self, specifier: char) -> Option<String> {
        let plain = |text: String| text.replace('/', "!");
        Some(match specifier {
            '%' => "%".to_owned(),
            'P' => self.pid.to_string(),
            'p' => self.inner_pid.to_string(),
            'I' => self.tid.to_string(),
            'i' => self.inner_tid.to_string(),
            'u' => self.uid.to_string(),
            'g' => self.gid.to_string(),
            'd' => self.dumpable.to_string(),
            's' => self.signal.to_string(),
            't' => self.time.to_string(),
            'c' => self.limit.to_string(),
            'h' => plain(host()),
            'e' => plain(self.name.clone()),
            'E' => plain(link(self.pid)),
            'f' => plain(
                Path::new(&link(self.pid))
                    .file_name()
                    .map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned()),
            ),
            _ => return None,
        })
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn link(pid: u32) -> String {
    std::fs::read_link(format!("/proc/{pid}/exe")).map_or_else(
        |_| "unknown".to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// A pattern's words with their specifiers filled in: a command's arguments, or the name of a file as the only one.
/// It is split before it is filled in, as the kernel does: a name with a space stays one word.
#[must_use]
pub fn expand(pattern: &str, crash: &Specifiers) -> Vec<String> {
    let fill = |word: &str| {
        let mut out = String::new();
        let mut chars = word.chars();
        while let Some(char) = chars.next() {
            if char == '%' {
                out.extend(chars.next().and_then(|specifier| crash.value(specifier)));
            } else {
                out.push(char);
            }
        }
        out
    };
    match pattern.strip_prefix('|') {
        Some(command) => command.split_whitespace().map(fill).collect(),
        None => vec![fill(pattern)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash() -> Specifiers {
        let words = "101 7 102 8 1000 1001 1 11 1763857524 4096 my worker/0";
        Specifiers::of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn commands_and_names_are_filled_in() {
        assert_eq!(
            expand("|/lib/handler %P %e x%s%% %Q.", &crash()),
            ["/lib/handler", "101", "my worker!0", "x11%", "."]
        );
        assert_eq!(
            expand("/cores/core %p %i-%t", &crash()),
            ["/cores/core 7 8-1763857524"]
        );
        assert_eq!(expand("core%", &crash()), ["core"]);
    }

    #[test]
    fn arguments_that_are_none_are_refused() {
        assert_eq!(Specifiers::of(&[]), None);
        let words: Vec<String> = "101 7 102 8 1000 1001 1 eleven 1 1 x"
            .split(' ')
            .map(str::to_owned)
            .collect();
        assert_eq!(Specifiers::of(&words), None);
    }
}
