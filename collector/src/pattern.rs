//! `core_pattern` (core(5)): installed while the daemon runs, and restored afterwards.
//!
//! The previous pattern is on disk before it is replaced. So it can be restored however the daemon
//! ended: by the daemon itself, its [`guard`](crate::guard), the next start, or `backtrail collect
//! --restore`.

mod specifiers;

pub use specifiers::{Specifiers, expand};

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::trust::{first_untrusted, read_trusted};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The kernel's files for core dumps.
#[derive(Clone, Debug)]
pub struct Sysctl {
    pattern: PathBuf,
    limit: PathBuf,
}

impl Default for Sysctl {
    fn default() -> Self {
        Self::at(Path::new("/proc/sys/kernel"))
    }
}

/// The previous and the installed pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPattern {
    /// The previous `core_pattern`.
    pub previous: String,
    /// The previous `core_pipe_limit`.
    pub previous_limit: u32,
    /// The installed `core_pattern`.
    pub ours: String,
    /// Whether a core is passed on to the previous pattern.
    pub chain: bool,
    /// The longest time to hold a process, in milliseconds.
    pub hold_limit: u64,
    /// The daemon's process id. The handler does not hold the daemon's own crash.
    pub daemon: u32,
}

/// Maximum length of a pattern (`CORENAME_MAX_SIZE` in the kernel, with the final zero).
const MAX_PATTERN: usize = 127;
/// Maximum number of handlers at once. The kernel does not hold further crashes, and gives their
/// cores to no handler. The limit applies to all users together, so it is larger than a storm of
/// one user's crashes.
const MAX_HANDLERS: u64 = 4096;
/// Minimum for `MAX_HANDLERS` on machines with little memory.
const MIN_HANDLERS: u64 = 512;
/// The private memory of a waiting handler, including its stack and page tables in the kernel.
const HANDLER_MEMORY: u64 = 1280 << 10;
/// The part of the machine's memory that all handlers together may use. No user's limits count this
/// memory.
const HANDLERS_SHARE: u64 = 16;
/// Maximum size of `core_pattern.json`.
const MAX_SAVED: u64 = 64 << 10;
/// The handler's hidden command, which identifies an installed pattern.
pub(crate) const HANDLER: &str = "core-handler";
/// The handler's arguments, which [`crate::handler`] parses.
pub(crate) const HANDLER_ARGUMENTS: &str = "%P %p %I %i %u %g %d %s %t %c %e";

impl Sysctl {
    /// Uses files in another directory, for tests.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            pattern: directory.join("core_pattern"),
            limit: directory.join("core_pipe_limit"),
        }
    }

    /// Returns the current `core_pattern`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn pattern(&self) -> Result<String> {
        let text = fs::read_to_string(&self.pattern).map_err(Error::file("read", &self.pattern))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn limit(&self) -> u32 {
        let text = fs::read_to_string(&self.limit).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn set(&self, pattern: &str, limit: u32) -> Result<()> {
        // The limit first, because the kernel does not hold the process without it.
        let write = |path: &Path, text: String| fs::write(path, text).map_err(Error::file("write", path));
        write(&self.limit, limit.to_string())?;
        write(&self.pattern, pattern.to_owned())
    }

    /// Makes the kernel start the handler at each crash.
    ///
    /// # Errors
    /// When another daemon has installed its handler, or the pattern is too long or cannot be
    /// written.
    pub fn install(
        &self,
        runtime: &Runtime,
        chain: bool,
        hold_limit: std::time::Duration,
    ) -> Result<SavedPattern> {
        let program = std::env::current_exe().map_err(Error::system("find the path of this program"))?;
        if let Ok(Some(untrusted)) = first_untrusted(&program) {
            tracing::warn!(
                "the kernel runs {} as root at each crash, but {untrusted}; install it where only root can write, for example in /usr/bin",
                program.display()
            );
        }
        self.install_program(runtime, &program, chain, hold_limit)
    }

    fn install_program(
        &self,
        runtime: &Runtime,
        program: &Path,
        chain: bool,
        hold_limit: std::time::Duration,
    ) -> Result<SavedPattern> {
        let ours = match direct(runtime, program) {
            Some(ours) => ours,
            None => {
                runtime.link_handler(program)?;
                format!("|{} {HANDLER} {HANDLER_ARGUMENTS}", runtime.handler().display())
            }
        };
        self.install_as(runtime, ours, chain, hold_limit)
    }

    /// Makes the kernel connect to the daemon's socket at each crash (Linux 6.17).
    ///
    /// # Errors
    /// As [`Self::install`], and when the kernel does not support it.
    pub fn install_socket(&self, runtime: &Runtime, hold_limit: std::time::Duration) -> Result<SavedPattern> {
        let socket = runtime.core_socket();
        self.install_as(runtime, format!("@@{}", socket.display()), false, hold_limit)
    }

    fn install_as(
        &self,
        runtime: &Runtime,
        ours: String,
        chain: bool,
        hold_limit: std::time::Duration,
    ) -> Result<SavedPattern> {
        self.restore(runtime, None)?;
        self.restore_abandoned(runtime)?;
        if ours.len() > MAX_PATTERN || !is_plain(runtime.path()) {
            return Err(Error::Unable(format!(
                "core_pattern cannot contain the runtime directory {}; set `runtime` to a short path without blanks and percent signs",
                runtime.path().display()
            )));
        }
        let saved = SavedPattern {
            previous: self.pattern()?,
            previous_limit: self.limit(),
            ours,
            chain,
            hold_limit: u64::try_from(hold_limit.as_millis()).unwrap_or(u64::MAX),
            daemon: std::process::id(),
        };
        saved.keep(&runtime.saved_pattern())?;
        let done = self.set(&saved.ours, pipe_limit(memory()));
        if done.is_err() || self.pattern()? != saved.ours {
            self.restore(runtime, None)?;
            done?;
            return Err(Error::Unable(
                "the kernel did not accept the new core_pattern; is it locked down?".to_owned(),
            ));
        }
        Ok(saved)
    }

    /// Restores the previous pattern, unless another program has replaced the installed one.
    /// Returns whether the installed one was there. `remembered` replaces a missing file.
    ///
    /// # Errors
    /// When the pattern cannot be written.
    pub fn restore(&self, runtime: &Runtime, remembered: Option<&SavedPattern>) -> Result<bool> {
        let path = runtime.saved_pattern();
        let Some(saved) = SavedPattern::read(&path).or_else(|| remembered.cloned()) else {
            return Ok(false);
        };
        let ours = self.pattern()? == saved.ours;
        if ours {
            self.set(&saved.previous, saved.previous_limit)?;
        }
        // A handler that the kernel has just started still needs the previous pattern.
        match fs::rename(&path, runtime.past_pattern()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("move", &path)(error))
            }
            _ => Ok(ours),
        }
    }

    /// Returns the runtime directory of the daemon whose pattern is installed, of this or another
    /// one.
    #[must_use]
    pub fn installed_by(&self) -> Option<Runtime> {
        let pattern = self.pattern().ok()?;
        if let Some(socket) = pattern.strip_prefix("@@") {
            return directory_of(Path::new(socket), "core.socket");
        }
        let mut words = pattern.strip_prefix('|')?.split_ascii_whitespace();
        let program = words.next()?;
        if words.next()? != HANDLER {
            return None;
        }
        match words.next() {
            Some(runtime) if runtime.starts_with('/') => Some(Runtime::new(runtime)),
            // The program is a link in the runtime directory.
            _ => directory_of(Path::new(program), "handler"),
        }
    }

    /// Restores the pattern that another, killed daemon left, from its runtime directory.
    fn restore_abandoned(&self, runtime: &Runtime) -> Result<()> {
        let Some(other) = self.installed_by() else {
            return Ok(());
        };
        if other != *runtime && other.is_locked() {
            return Err(Error::Running {
                pid: "unknown".to_owned(),
                runtime: other.path().to_owned(),
            });
        }
        if !self.restore(&other, None)? {
            // The previous pattern is unknown, so the kernel's default is the best choice.
            tracing::warn!(
                "a collector that no longer runs left its core_pattern; the previous value is unknown"
            );
            self.set("core", 0)?;
        }
        Ok(())
    }
}

/// Returns the machine's memory in bytes, or 0 if unknown (proc_meminfo(5)).
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0).saturating_mul(1024)
}

/// Returns how many handlers may wait at once on a machine with this memory (`core_pipe_limit`).
fn pipe_limit(memory: u64) -> u32 {
    let handlers = memory / HANDLERS_SHARE / HANDLER_MEMORY;
    handlers.clamp(MIN_HANDLERS, MAX_HANDLERS) as u32
}

/// Returns the pattern with the program's own path, if it fits.
fn direct(runtime: &Runtime, program: &Path) -> Option<String> {
    let pattern = format!(
        "|{} {HANDLER} {} {HANDLER_ARGUMENTS}",
        program.display(),
        runtime.path().display()
    );
    let names = [program, runtime.path()];
    let fits = pattern.len() <= MAX_PATTERN && names.iter().all(|name| name.is_absolute() && is_plain(name));
    fits.then_some(pattern)
}

/// Returns whether a path can be part of a pattern. The kernel splits patterns at blanks and
/// expands percent signs.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| {
        !text.contains(|char: char| char == '%' || char.is_whitespace() || char.is_control())
    })
}

/// Returns the runtime directory of a file with this name.
fn directory_of(path: &Path, name: &str) -> Option<Runtime> {
    let is_ours = path.file_name().is_some_and(|file| file == name);
    is_ours.then(|| path.parent().map(Runtime::new)).flatten()
}

impl SavedPattern {
    /// Reads the saved pattern. `None`: the file is missing or incomplete, or another user than
    /// root could have written it.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&read_trusted(path, MAX_SAVED).ok()?).ok()
    }

    /// Writes the file atomically.
    fn keep(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).unwrap_or_default();
        let write = || {
            let _ = fs::remove_file(&new);
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(Error::file("write", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct SysctlFixture {
        _directory: tempfile::TempDir,
        sysctl: Sysctl,
        runtime: Runtime,
        directory: PathBuf,
    }

    fn fixture(pattern: &str) -> SysctlFixture {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_owned();
        fs::write(at.join("core_pattern"), format!("{pattern}\n")).unwrap();
        fs::write(at.join("core_pipe_limit"), "0\n").unwrap();
        fs::create_dir(at.join("run")).unwrap();
        SysctlFixture {
            sysctl: Sysctl::at(&at),
            // Short enough for any temporary directory.
            runtime: Runtime::new(at.join("run")),
            directory: at,
            _directory: directory,
        }
    }

    fn install(fixture: &SysctlFixture) -> Result<SavedPattern> {
        let program = Path::new("/usr/bin/backtrail");
        let limit = Duration::from_secs(30);
        fixture
            .sysctl
            .install_program(&fixture.runtime, program, true, limit)
    }

    #[test]
    fn previous_pattern_is_restored() {
        let fixture = fixture("|/usr/lib/systemd/systemd-coredump %P %u");
        let saved = install(&fixture).unwrap();
        assert!(saved.ours.starts_with('|') && saved.ours.contains(" core-handler "));
        assert_eq!(fixture.sysctl.pattern().unwrap(), saved.ours);
        assert_eq!(fixture.sysctl.limit(), pipe_limit(memory()));
        assert_eq!(fixture.sysctl.installed_by(), Some(fixture.runtime.clone()));
        assert!(fixture.sysctl.restore(&fixture.runtime, None).unwrap());
        assert_eq!(fixture.sysctl.pattern().unwrap(), saved.previous);
        assert_eq!(fixture.sysctl.limit(), 0);
        assert!(!fixture.sysctl.restore(&fixture.runtime, None).unwrap(), "once");
    }

    #[test]
    fn pattern_of_killed_daemon_is_not_previous() {
        let fixture = fixture("core");
        install(&fixture).unwrap();
        // The daemon was killed, and starts again.
        let again = install(&fixture).unwrap();
        assert_eq!(again.previous, "core");
        // Another daemon, with another directory.
        let other = Runtime::new(fixture.directory.join("other"));
        fs::create_dir(other.path()).unwrap();
        let third = fixture
            .sysctl
            .install(&other, true, Duration::from_secs(1))
            .unwrap();
        assert_eq!(third.previous, "core");
        assert!(!fixture.runtime.saved_pattern().exists());
        assert!(
            SavedPattern::read(&fixture.runtime.past_pattern()).is_some(),
            "for handlers"
        );
    }

    #[test]
    fn pattern_of_running_daemon_stays() {
        let fixture = fixture("core");
        let _runtime_lock = fixture.runtime.lock().unwrap();
        let saved = install(&fixture).unwrap();
        let other = Runtime::new(fixture.directory.join("other"));
        fs::create_dir(other.path()).unwrap();
        let refused = fixture.sysctl.install(&other, true, Duration::from_secs(1));
        assert!(matches!(refused, Err(Error::Running { .. })), "{refused:?}");
        assert_eq!(fixture.sysctl.pattern().unwrap(), saved.ours);
    }

    #[test]
    fn pattern_is_restored_without_runtime_directory() {
        let fixture = fixture("core.%p");
        let saved = install(&fixture).unwrap();
        fs::remove_dir_all(fixture.runtime.path()).unwrap();
        assert!(fixture.sysctl.restore(&fixture.runtime, Some(&saved)).unwrap());
        assert_eq!(fixture.sysctl.pattern().unwrap(), "core.%p");
    }

    #[test]
    fn foreign_pattern_stays() {
        let fixture = fixture("core");
        install(&fixture).unwrap();
        fs::write(fixture.directory.join("core_pattern"), "|/bin/theirs\n").unwrap();
        assert!(!fixture.sysctl.restore(&fixture.runtime, None).unwrap());
        assert_eq!(fixture.sysctl.pattern().unwrap(), "|/bin/theirs");
    }

    #[test]
    fn handlers_use_a_sixteenth_of_memory() {
        assert_eq!(pipe_limit(0), 512);
        assert_eq!(pipe_limit(32 << 30), 1638);
        assert_eq!(pipe_limit(1 << 40), 4096);
        assert!(memory() > 0);
    }

    #[test]
    fn pattern_names_the_program_if_it_fits() {
        let fixture = fixture("core");
        let runtime = fixture.runtime.path().display();
        let saved = install(&fixture).unwrap();
        assert_eq!(
            saved.ours,
            format!("|/usr/bin/backtrail core-handler {runtime} {HANDLER_ARGUMENTS}")
        );
        assert!(fixture.runtime.handler().symlink_metadata().is_err());
        for program in [&*"/long".repeat(20), "/with blank/backtrail", "/100%/backtrail"] {
            let limit = Duration::from_secs(1);
            let saved = fixture
                .sysctl
                .install_program(&fixture.runtime, Path::new(program), true, limit)
                .unwrap();
            assert_eq!(
                saved.ours,
                format!("|{runtime}/handler core-handler {HANDLER_ARGUMENTS}")
            );
            assert_eq!(
                fs::read_link(fixture.runtime.handler()).unwrap(),
                Path::new(program)
            );
            assert_eq!(fixture.sysctl.installed_by(), Some(fixture.runtime.clone()));
        }
    }

    #[test]
    fn old_and_new_patterns_name_their_runtime_directory() {
        let fixture = fixture("core");
        for (pattern, expected) in [
            ("|/run/x/handler core-handler %P %p", Some("/run/x")),
            ("|/usr/bin/backtrail core-handler /run/x %P %p", Some("/run/x")),
            ("@@/run/x/core.socket", Some("/run/x")),
            ("|/run/x/handler other %P", None),
            ("|/usr/bin/backtrail core-handler %P", None),
            ("@@/run/x/other.socket", None),
            ("|/run/x/handler", None),
            ("core", None),
        ] {
            fs::write(fixture.directory.join("core_pattern"), pattern).unwrap();
            let found = fixture.sysctl.installed_by();
            assert_eq!(found, expected.map(Runtime::new), "{pattern}");
        }
    }

    #[test]
    fn saved_pattern_writable_by_others_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let fixture = fixture("core");
        install(&fixture).unwrap();
        let path = fixture.runtime.saved_pattern();
        assert!(SavedPattern::read(&path).is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(SavedPattern::read(&path).is_none());
        assert!(!fixture.sysctl.restore(&fixture.runtime, None).unwrap());
    }
}
