//! The `%` specifiers of a `core_pattern` (core(5)), for the previous pattern.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The values of a pattern's specifiers for a crash.
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
    /// `%d`: whether the process is dumpable (`PR_GET_DUMPABLE`).
    pub dumpable: u32,
    /// `%s`: signal.
    pub signal: i32,
    /// `%t`: seconds since 1970.
    pub time: u64,
    /// `%c`: `RLIMIT_CORE`, in bytes.
    pub limit: u64,
    /// `%e`: the thread's name. It can be any bytes, because the program chooses it. The kernel
    /// truncates it to 15 bytes.
    pub name: OsString,
}

impl Specifiers {
    /// Parses the handler's arguments, in the order of [`crate::pattern`].
    #[must_use]
    pub fn of(arguments: &[OsString]) -> Option<Self> {
        let number = |index: usize| arguments.get(index)?.to_str()?.parse::<u64>().ok();
        let narrow = |index: usize| u32::try_from(number(index)?).ok();
        // One argument since Linux 5.3. Before, a name with blanks was several arguments.
        let name = arguments.get(10..)?.join(OsStr::new(" "));
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
            name,
        })
    }

    /// Returns the thread's name for display. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Returns the value of a specifier. `None`: unknown, and the kernel drops it too.
    fn value(&self, specifier: u8) -> Option<Vec<u8>> {
        let number = |value: u64| value.to_string().into_bytes();
        Some(match specifier {
            b'%' => b"%".to_vec(),
            b'P' => number(self.pid.into()),
            b'p' => number(self.inner_pid.into()),
            b'I' => number(self.tid.into()),
            b'i' => number(self.inner_tid.into()),
            b'u' => number(self.uid.into()),
            b'g' => number(self.gid.into()),
            b'd' => number(self.dumpable.into()),
            b's' => self.signal.to_string().into_bytes(),
            b't' => number(self.time),
            b'c' => number(self.limit),
            b'h' => one_part(host()),
            b'e' => one_part(self.name.clone().into_vec()),
            b'E' => one_part(match self.executable() {
                Some(path) => path.into_os_string().into_vec(),
                None => [self.name.as_bytes(), b" (path unknown)"].concat(),
            }),
            b'f' => {
                let path = self.executable();
                let name = path.as_deref().and_then(Path::file_name).unwrap_or(&self.name);
                one_part(name.as_bytes().to_vec())
            }
            _ => return None,
        })
    }

    fn executable(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }
}

/// Escapes a name to one path component, as the kernel does (`cn_esc_printf` in fs/coredump.c).
fn one_part(mut name: Vec<u8>) -> Vec<u8> {
    if name.is_empty() {
        return b"!".to_vec();
    }
    if name == b"." || name == b".." {
        name.splice(..1, *b"!");
    }
    for byte in name.iter_mut().filter(|byte| **byte == b'/') {
        *byte = b'!';
    }
    name
}

fn host() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_ascii().to_vec()
}

/// Expands a pattern to a command's arguments, or to the name of a file as the only word. Like the
/// kernel, it splits before it expands: a name with a space stays one word.
#[must_use]
pub fn expand(pattern: &str, crash: &Specifiers) -> Vec<OsString> {
    let fill = |word: &str| {
        let mut out = Vec::new();
        let mut bytes = word.bytes();
        while let Some(byte) = bytes.next() {
            if byte == b'%' {
                out.extend(
                    bytes
                        .next()
                        .and_then(|specifier| crash.value(specifier))
                        .unwrap_or_default(),
                );
            } else {
                out.push(byte);
            }
        }
        OsString::from_vec(out)
    };
    match pattern.strip_prefix('|') {
        Some(command) => command.split_whitespace().map(fill).collect(),
        None => vec![fill(pattern)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn crash() -> Specifiers {
        Specifiers::of(&words("101 7 102 8 1000 1001 1 11 1763857524 4096 my worker/0")).unwrap()
    }

    fn named(name: &[u8]) -> Specifiers {
        let mut all = words("101 7 102 8 1000 1001 1 11 1763857524 4096");
        all.push(OsString::from_vec(name.to_vec()));
        Specifiers::of(&all).unwrap()
    }

    #[test]
    fn commands_and_names_are_expanded() {
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
    fn names_keep_their_bytes_in_one_path_component() {
        for (name, expected) in [
            (&b"Verarbeitungs\xc3"[..], &b"Verarbeitungs\xc3"[..]),
            (b"\xff\x01\n", b"\xff\x01\n"),
            (b"--help", b"--help"),
            (b" a  b ", b" a  b "),
            (b"", b"!"),
            (b".", b"!"),
            (b"..", b"!."),
            (b"../..", b"..!.."),
        ] {
            let filled = expand("|/h %e", &named(name)).pop().unwrap();
            assert_eq!(filled.as_bytes(), expected, "{name:?}");
        }
    }

    #[test]
    fn names_keep_their_bytes_on_the_wire() {
        let crash = named(b"Verarbeitungs\xc3");
        let text = serde_json::to_vec(&crash).unwrap();
        assert_eq!(serde_json::from_slice::<Specifiers>(&text).unwrap(), crash);
        assert_eq!(crash.display_name(), "Verarbeitungs\u{fffd}");
    }

    #[test]
    fn invalid_arguments_are_refused() {
        assert_eq!(Specifiers::of(&[]), None);
        assert_eq!(
            Specifiers::of(&words("101 7 102 8 1000 1001 1 eleven 1 1 x")),
            None
        );
    }
}
