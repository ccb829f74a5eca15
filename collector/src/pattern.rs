//! `core_pattern` (core(5)): ours while the daemon lives, and what stood there before once it does not.
//!
//! What stood there is on disk before it is replaced, so that whoever comes next can put it back, however the
//! daemon ended: the daemon itself, its [`guard`](crate::guard), the next start, or `backtrail collect --restore`.

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

/// The kernel's files.
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

/// What stood there before, and what we put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPattern {
    /// `core_pattern` before.
    pub previous: String,
    /// `core_pipe_limit` before.
    pub previous_limit: u32,
    /// `core_pattern` as we set it.
    pub ours: String,
    /// Whether a core goes on to where it went before.
    pub chain: bool,
    /// How long a process may be kept, in milliseconds.
    pub hold_limit: u64,
    /// The daemon: nobody would answer for its own crash.
    pub daemon: u32,
}

/// The longest pattern (`CORENAME_MAX_SIZE` in the kernel, with the final zero).
const MAX_PATTERN: usize = 127;
/// Handlers that wait at once, at most: what crashes beyond is not held, nor gets the previous handler its core. It is the
/// kernel's only bound, for all users together, so it is more than a storm of one user's crashes reaches.
const MAX_HANDLERS: u64 = 4096;
/// So many may wait on a machine with little memory, too.
const MIN_HANDLERS: u64 = 512;
/// The memory that a handler has to itself while it waits, with its stack and page tables in the kernel.
const HANDLER_MEMORY: u64 = 1280 << 10;
/// All handlers together take no more than this part of the machine's memory, which no user's limits count.
const HANDLERS_SHARE: u64 = 16;
/// `core_pattern.json` is not nearly so long.
const MAX_SAVED: u64 = 64 << 10;
/// The handler's command, by which one of ours is known.
pub(crate) const HANDLER: &str = "core-handler";
/// What the handler is told; [`crate::handler`] reads it.
pub(crate) const HANDLER_ARGUMENTS: &str = "%P %p %I %i %u %g %d %s %t %c %e";

impl Sysctl {
    /// In another directory, for tests.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            pattern: directory.join("core_pattern"),
            limit: directory.join("core_pipe_limit"),
        }
    }

    /// What stands in `core_pattern`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pattern(&self) -> Result<String> {
        let text = fs::read_to_string(&self.pattern).map_err(Error::file("read", &self.pattern))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn limit(&self) -> u32 {
        let text = fs::read_to_string(&self.limit).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn set(&self, pattern: &str, limit: u32) -> Result<()> {
        // The limit first: a handler without it would not hold the process.
        let write = |path: &Path, text: String| fs::write(path, text).map_err(Error::file("write", path));
        write(&self.limit, limit.to_string())?;
        write(&self.pattern, pattern.to_owned())
    }

    /// Has the kernel start our handler at each crash.
    ///
    /// # Errors
    /// When another daemon has done so, the pattern would be too long, or it cannot be written.
    pub fn install(
        &self,
        runtime: &Runtime,
        chain: bool,
        hold_limit: std::time::Duration,
    ) -> Result<SavedPattern> {
        let program = std::env::current_exe().map_err(Error::system("find this program's file"))?;
        if let Ok(Some(untrusted)) = first_untrusted(&program) {
            tracing::warn!(
                "the kernel runs {} as root at each crash, but {untrusted}: install it where only root can write, /usr/bin say",
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

    /// Has the kernel connect to our socket at each crash (Linux 6.17).
    ///
    /// # Errors
    /// As [`Self::install`]; and where the kernel knows no such thing.
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
                "core_pattern has no room for the runtime directory {}; set `runtime` to a short path without blanks and percent signs",
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
                "the kernel did not take our core_pattern; is it locked down?".to_owned(),
            ));
        }
        Ok(saved)
    }

    /// Puts back what stood there before, if what stands there is ours; what somebody else has put there since
    /// stays. Says whether there was anything of ours. `kept` is what one remembers of it, should the file be gone.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn restore(&self, runtime: &Runtime, remembered: Option<&SavedPattern>) -> Result<bool> {
        let path = runtime.saved_pattern();
        let Some(saved) = SavedPattern::read(&path).or_else(|| remembered.cloned()) else {
            return Ok(false);
        };
        let ours = self.pattern()? == saved.ours;
        if ours {
            self.set(&saved.previous, saved.previous_limit)?;
        }
        // A handler that the kernel has just started still has to know where its core goes.
        match fs::rename(&path, runtime.past_pattern()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("move", &path)(error))
            }
            _ => Ok(ours),
        }
    }

    /// The runtime directory of a daemon whose pattern stands there, ours or another one's.
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

    /// What another daemon left that was killed: put back, with its runtime directory's help.
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
            // Nobody knows what it was: the kernel's own default is the least surprise.
            tracing::warn!(
                "core_pattern was left by a collector that is gone; what stood there before is not known"
            );
            self.set("core", 0)?;
        }
        Ok(())
    }
}

/// The machine's memory in bytes, 0 where unknown (proc_meminfo(5)).
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0).saturating_mul(1024)
}

/// How many handlers may wait at once on a machine of so much memory (`core_pipe_limit`).
fn pipe_limit(memory: u64) -> u32 {
    let handlers = memory / HANDLERS_SHARE / HANDLER_MEMORY;
    handlers.clamp(MIN_HANDLERS, MAX_HANDLERS) as u32
}

/// The pattern that names the program itself, if it has room for that.
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

/// Whether a path stands in a pattern as it is: the kernel splits at blanks, and fills in after percent signs.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| {
        !text.contains(|char: char| char == '%' || char.is_whitespace() || char.is_control())
    })
}

/// The directory of a file of ours.
fn directory_of(path: &Path, name: &str) -> Option<Runtime> {
    let is_ours = path.file_name().is_some_and(|file| file == name);
    is_ours.then(|| path.parent().map(Runtime::new)).flatten()
}

impl SavedPattern {
    /// What a file of it says, if it is there and whole, and nobody but root could have written it.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&read_trusted(path, MAX_SAVED).ok()?).ok()
    }

    /// Whole or not at all.
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
            // Short enough wherever the test runs.
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
    fn what_stood_there_comes_back() {
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
    fn a_killed_daemon_s_pattern_is_no_previous_one() {
        let fixture = fixture("core");
        install(&fixture).unwrap();
        // The daemon was killed, and starts again.
        let again = install(&fixture).unwrap();
        assert_eq!(again.previous, "core");
        // Another one, in another directory.
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
    fn a_running_daemon_s_pattern_stays() {
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
    fn a_runtime_directory_that_was_swept_away_is_no_loss() {
        let fixture = fixture("core.%p");
        let saved = install(&fixture).unwrap();
        fs::remove_dir_all(fixture.runtime.path()).unwrap();
        assert!(fixture.sysctl.restore(&fixture.runtime, Some(&saved)).unwrap());
        assert_eq!(fixture.sysctl.pattern().unwrap(), "core.%p");
    }

    #[test]
    fn what_somebody_else_put_there_stays() {
        let fixture = fixture("core");
        install(&fixture).unwrap();
        fs::write(fixture.directory.join("core_pattern"), "|/bin/theirs\n").unwrap();
        assert!(!fixture.sysctl.restore(&fixture.runtime, None).unwrap());
        assert_eq!(fixture.sysctl.pattern().unwrap(), "|/bin/theirs");
    }

    #[test]
    fn handlers_take_a_sixteenth_of_the_memory() {
        assert_eq!(pipe_limit(0), 512);
        assert_eq!(pipe_limit(32 << 30), 1638);
        assert_eq!(pipe_limit(1 << 40), 4096);
        assert!(memory() > 0);
    }

    #[test]
    fn the_pattern_names_the_program_itself_where_it_has_room() {
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
    fn a_saved_pattern_that_others_could_have_written_is_not_believed() {
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
