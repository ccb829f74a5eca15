//! The configuration: a TOML file, which is validated completely before use.

mod signals;
mod units;

pub use signals::name as signal_name;
pub use units::{Size, Span};

use crate::error::{Error, Result};
use crate::probe::SignalSet;
use backtrail_bundle::redact::{EnvironmentRules, matches_name};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest name in bytes.
const MAX_NAME: usize = 255;

/// The file that is read by default.
pub const DEFAULT_FILE: &str = "/etc/backtrail/collect.toml";

/// The whole configuration. Every field has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The directory of the bundles.
    pub spool: PathBuf,
    /// Maximum bytes of all bundles together. The oldest are removed first.
    pub spool_limit: Size,
    /// Bytes of the file system that stay free for other programs.
    pub spool_free: Size,
    /// The directory of the sockets, the lock and the crash handler.
    pub runtime: PathBuf,
    /// The user whose group may read bundles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The log filter: `error`, `warn`, `info`, `debug`, or a filter expression of the crate
    /// tracing.
    pub log: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// Crashes: which signals count, and how much of the process is saved.
    pub crash: CrashConfig,
    /// The rate limits for bundles, by user and by executable of a user.
    pub limit: LimitConfig,
    /// Intel PT.
    pub trace: TraceConfig,
    /// The heap history of services.
    pub heap: HeapConfig,
    /// The hub that gets the crashes.
    pub hub: HubConfig,
    /// The profiler of this host.
    pub profile: ProfileConfig,
    /// Functions whose calls cause a bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub function: Vec<FunctionConfig>,
}

/// `[hub]`: the hub that gets crashes and heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HubConfig {
    /// The hub's address. `None`: nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file with the token. Root reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The build of all programs. `None`: each program's build id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The service of all programs. `None`: each program's file name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The part of a crash that is sent.
    pub send: SendPolicy,
    /// The names of environment variables whose values are removed from bundles. `*` is any text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redact_environment: Vec<String>,
    /// The directories whose source files are sent, if a crashed program executed lines of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<PathBuf>,
    /// Whether HTTP to other machines is allowed.
    pub insecure_http: bool,
}

/// `[profile]`: the profiler of this host, which sends profiles to the hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileConfig {
    /// Whether all processes are sampled.
    pub enabled: bool,
    /// Samples a second of each busy processor.
    pub frequency: u32,
    /// The most time of all processors, in percent. The rate is lowered to stay below it.
    pub cpu_budget: f64,
    /// The time between two profiles.
    pub interval: Span,
    /// Maximum bytes of the profiles that wait for the hub. The oldest are removed first.
    pub spool_limit: Size,
    /// The region of this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// The part of a crash that is sent to the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendPolicy {
    /// The report, and the bundle if the hub asks for it.
    #[default]
    Bundles,
    /// The report with its stack. Memory and history stay on the host.
    Stacks,
    /// Nothing.
    None,
}

/// `[crash]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CrashConfig {
    /// Signals that count as a crash if the process does not handle them.
    pub signals: SignalSet,
    /// How the probe attaches to the kernel: `auto`, or the name of one attach type.
    pub attach: String,
    /// How a crashing process is held while it is read.
    pub hold: HoldMethod,
    /// The longest time that a process is held.
    pub hold_limit: Span,
    /// How much of its memory is saved.
    pub core: CorePolicy,
    /// Maximum size of a full core. A larger process is saved with its stacks only.
    pub core_limit: Size,
    /// Whether the core is also passed on to the previous `core_pattern`.
    pub chain: bool,
    /// Real-time priority of the thread that reads crashes, 1 to 99. 0: none.
    pub priority: u8,
}

/// How a crashing process is held while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldMethod {
    /// By `core_pattern`, in the best way that this kernel supports.
    Auto,
    /// By a handler that the kernel starts, with the core on its standard input.
    Pipe,
    /// By a socket that the kernel connects to (Linux 6.17).
    Socket,
    /// The process is not held. Only the probe's data is saved.
    None,
}

/// How much of a crashed process's memory is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorePolicy {
    /// The memory that the process's `coredump_filter` selects, up to `core_limit`.
    Full,
    /// All stacks, and the pages that registers and stacks point to.
    Stacks,
    /// Registers only.
    None,
}

/// `[limit]`: bundles by user, and by executable of a user.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Bundles that are allowed at once.
    pub burst: u32,
    /// Bundles that are allowed per second after the burst.
    pub per_second: f64,
}

/// `[trace]`: Intel PT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceConfig {
    /// Whether Intel PT is used.
    pub source: TraceSource,
    /// Bytes of each processor's trace ring.
    pub ring: Size,
    /// Whether kernel code is traced too.
    pub kernel: bool,
    /// Trace only the processes of this cgroup, a path under `/sys/fs/cgroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Trace only these processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Trace only this code: offset and size in a file, such as `0x1000/0x200@/usr/bin/server`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// Bytes between PSB packets, as a power of two: 2^(n+11).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psb_period: Option<u8>,
    /// Period of MTC packets, as a power of two of the crystal clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtc_period: Option<u8>,
    /// Threshold of CYC packets. 0: no CYC packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cyc_threshold: Option<u8>,
    /// Whether a return to the address after its call takes one bit (RET compression).
    pub compress_returns: bool,
    /// Bytes of the sideband history.
    pub sideband: Size,
}

/// The source of the control-flow history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceSource {
    /// Intel PT where the machine has it.
    Auto,
    /// Intel PT. The daemon does not start without it.
    Hardware,
    /// None. Only software recorders record history.
    None,
}

/// `[heap]`: services whose allocator calls are noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeapConfig {
    /// The names of the services. `*` is any text. A program without a service has the name of its
    /// file. Empty: no calls are noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Bytes of the newest calls of each process.
    pub ring: Size,
}

/// `[[function]]`: a function whose calls cause a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionConfig {
    /// The file that contains the function.
    pub binary: PathBuf,
    /// Its name in the symbol table, or `0x` and its file offset.
    pub symbol: String,
    /// Report only calls that took longer than this. `None`: report each call at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_than: Option<Span>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            spool: PathBuf::from("/var/spool/backtrail"),
            spool_limit: Size(8 << 30),
            spool_free: Size(256 << 20),
            runtime: PathBuf::from("/run/backtrail"),
            user: None,
            log: "info".to_owned(),
            log_json: false,
            crash: CrashConfig::default(),
            limit: LimitConfig::default(),
            trace: TraceConfig::default(),
            heap: HeapConfig::default(),
            hub: HubConfig::default(),
            profile: ProfileConfig::default(),
            function: Vec::new(),
        }
    }
}

impl Default for CrashConfig {
    fn default() -> Self {
        Self {
            signals: SignalSet::default(),
            attach: "auto".to_owned(),
            hold: HoldMethod::Auto,
            hold_limit: Span(Duration::from_secs(30)),
            core: CorePolicy::Full,
            core_limit: Size(1 << 30),
            chain: true,
            priority: 50,
        }
    }
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            burst: 2000,
            per_second: 20.0,
        }
    }
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            source: TraceSource::Auto,
            ring: Size(4 << 20),
            kernel: false,
            cgroup: None,
            pids: Vec::new(),
            filters: Vec::new(),
            psb_period: None,
            mtc_period: None,
            cyc_threshold: None,
            compress_returns: true,
            sideband: Size(16 << 20),
        }
    }
}

impl Default for HeapConfig {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            ring: Size(16 << 20),
        }
    }
}

impl Default for ProfileConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            frequency: 49,
            cpu_budget: 1.0,
            interval: Span(Duration::from_secs(10)),
            spool_limit: Size(1 << 30),
            region: None,
        }
    }
}

impl Config {
    /// Reads a configuration file. `None`: reads [`DEFAULT_FILE`] if it exists, else returns the
    /// defaults.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid.
    pub fn load(file: Option<&Path>) -> Result<Self> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// When the text is invalid. The error names the problem and its line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let wrong = |problem: String| Error::Config {
            path: path.to_owned(),
            problem,
        };
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| 1 + text.get(..span.start).unwrap_or_default().matches('\n').count());
            let position = line.map_or_else(String::new, |line| format!("line {line}: "));
            wrong(format!("{position}{}", error.message()))
        })?;
        config.check().map_err(wrong)?;
        Ok(config)
    }

    /// Checks the rules that the types do not express.
    fn check(&self) -> std::result::Result<(), String> {
        let absolute = [("spool", &self.spool), ("runtime", &self.runtime)];
        for (key, path) in absolute {
            if !path.is_absolute() {
                return Err(format!("{key} = {path:?} must begin with a slash"));
            }
        }
        if self.runtime.to_string_lossy().contains([' ', '%', '|']) {
            return Err(
                "runtime must not contain a space, % or |, because the kernel could not find the handler"
                    .to_owned(),
            );
        }
        if self.crash.attach != "auto" {
            self.crash
                .attach
                .parse::<crate::probe::AttachKind>()
                .map_err(|error| format!("crash.attach: {error}"))?;
        }
        if self.crash.priority > 99 {
            return Err("crash.priority is a real-time priority: 0 to 99".to_owned());
        }
        self.hub.check()?;
        self.profile.check(&self.hub)?;
        self.heap.check()?;
        let ring = self.trace.ring.0;
        if !ring.is_power_of_two() || !(8 << 10..=4 << 30).contains(&ring) {
            return Err("trace.ring must be a power of two, from 8K to 4G".to_owned());
        }
        for text in &self.trace.filters {
            text.parse::<crate::hardware::Filter>()
                .map_err(|error| format!("trace.filters: {error}"))?;
        }
        if !(self.limit.per_second.is_finite() && self.limit.per_second >= 0.0) {
            return Err("limit.per_second must be a number, 0 or more".to_owned());
        }
        if self.crash.hold_limit.0 < Duration::from_millis(100) {
            return Err(
                "crash.hold_limit must be at least 100ms, so that there is time to read the process"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns the configuration as a TOML file with all keys.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }
}

impl HeapConfig {
    /// Returns whether the calls of a service are noted. `name` is without `.service`.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        self.services.iter().any(|pattern| matches_name(pattern, name))
    }

    /// Checks the rules that the types do not express.
    fn check(&self) -> std::result::Result<(), String> {
        const MAX_NAMES: usize = 64;
        if self.services.len() > MAX_NAMES || !self.services.iter().all(|name| is_name(name)) {
            return Err(format!(
                "heap.services must have at most {MAX_NAMES} names of 1 to {MAX_NAME} printable characters"
            ));
        }
        match (64 << 10..=256 << 20).contains(&self.ring.0) {
            true => Ok(()),
            false => Err("heap.ring must be from 64K to 256M".to_owned()),
        }
    }
}

/// Returns whether a name is printable and not too long.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

impl ProfileConfig {
    /// Checks the rules that the types do not express.
    fn check(&self, hub: &HubConfig) -> std::result::Result<(), String> {
        if self.enabled && hub.url.is_none() {
            return Err("profile.enabled needs hub.url, the hub that gets the profiles".to_owned());
        }
        if !(1..=20_000).contains(&self.frequency) {
            return Err("profile.frequency must be from 1 to 20000".to_owned());
        }
        if !(self.cpu_budget > 0.0 && self.cpu_budget <= 100.0) {
            return Err("profile.cpu_budget must be above 0 and at most 100 percent".to_owned());
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.interval.0) {
            return Err("profile.interval must be from 1s to 1h".to_owned());
        }
        if !self.region.as_deref().is_none_or(is_name) {
            return Err(format!(
                "profile.region must have 1 to {MAX_NAME} printable characters"
            ));
        }
        Ok(())
    }
}

impl HubConfig {
    /// Checks the rules that the types do not express. The sender checks the address.
    fn check(&self) -> std::result::Result<(), String> {
        for (key, name) in [
            ("url", &self.url),
            ("build", &self.build),
            ("service", &self.service),
        ] {
            if !name.as_deref().is_none_or(is_name) {
                return Err(format!(
                    "hub.{key} must have 1 to {MAX_NAME} printable characters"
                ));
            }
        }
        EnvironmentRules::new(&self.redact_environment)
            .map_err(|error| format!("hub.redact_environment: {error}"))?;
        if let Some(wrong) = self
            .sources
            .iter()
            .find(|path| !path.is_absolute() || path.parent().is_none())
        {
            return Err(format!(
                "hub.sources: {wrong:?} must begin with a slash and name a directory below /"
            ));
        }
        match &self.token_file {
            Some(file) if !file.is_absolute() => {
                Err(format!("hub.token_file = {file:?} must begin with a slash"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Config, String> {
        Config::parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_file_has_defaults_and_output_parses_back() {
        assert_eq!(parse("").unwrap(), Config::default());
        assert_eq!(parse(&Config::default().to_toml()).unwrap(), Config::default());
    }

    #[test]
    fn heap_services_are_checked_and_matched() {
        let heap = parse("[heap]\nservices = [\"web-*\"]\nring = \"1M\"\n")
            .unwrap()
            .heap;
        assert!(heap.includes("web-one") && !heap.includes("ledger") && heap.ring == Size(1 << 20));
        assert!(!HeapConfig::default().includes("web-one"), "it is off by default");
        for (text, expected) in [
            ("[heap]\nservices = [\"\"]\n", "heap.services must have"),
            ("[heap]\nring = \"1G\"\n", "heap.ring must be from 64K to 256M"),
        ] {
            assert!(parse(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn all_kinds_of_settings_are_parsed() {
        let config = parse(
            "spool = \"/s\"\nspool_limit = \"2G\"\n[crash]\nsignals = [\"SIGSEGV\", \"ABRT\"]\nhold = \"pipe\"\n\
             core = \"stacks\"\nhold_limit = \"500ms\"\n[trace]\nsource = \"none\"\nring = 8388608\n\
             [hub]\nurl = \"https://hub.example.com\"\nsend = \"stacks\"\n\
             [[function]]\nbinary = \"/bin/x\"\nsymbol = \"handle\"\nlonger_than = \"50ms\"\n",
        )
        .unwrap();
        assert_eq!(config.spool_limit, Size(2 << 30));
        assert_eq!(config.crash.signals.iter().collect::<Vec<_>>(), [6, 11]);
        assert_eq!(config.trace.ring, Size(8 << 20));
        assert_eq!(config.hub.send, SendPolicy::Stacks);
        assert_eq!(
            config.function[0].longer_than,
            Some(Span(Duration::from_millis(50)))
        );
        assert_eq!(parse(&config.to_toml()).unwrap(), config);
    }

    #[test]
    fn errors_name_the_problem_and_its_line() {
        for (text, expected) in [
            ("\nspol = \"/s\"", "c.toml: line 2: unknown field `spol`"),
            ("spool_limit = \"9 apples\"", "line 1"),
            ("spool = \"here\"", "must begin with a slash"),
            (
                "[crash]\n\nsignals = [\"SIGNOPE\"]",
                "line 3: \"SIGNOPE\" is not a signal",
            ),
            ("[crash]\nsignals = [\"SIGKILL\"]", "SIGKILL"),
            ("[crash]\nhold = \"tight\"", "line 2: unknown variant `tight`"),
            ("[crash]\nattach = \"magic\"", "crash.attach"),
            ("[trace]\nring = \"3M\"", "power of two"),
            ("[limit]\nper_second = nan", "limit.per_second"),
            ("[hub]\nbuild = \"\"", "hub.build"),
            ("[hub]\nredact_environment = [\"A=B\"]", "hub.redact_environment"),
            ("[hub]\nsources = [\"/\"]", "hub.sources"),
            ("[hub]\nsources = [\"src\"]", "hub.sources"),
            ("[hub]\ntoken_file = \"token\"", "hub.token_file"),
            ("[hub]\nsend = \"cores\"", "line 2: unknown variant `cores`"),
            ("[profile]\nenabled = true", "profile.enabled needs hub.url"),
            ("[profile]\nfrequency = 0", "profile.frequency"),
            ("[profile]\ncpu_budget = nan", "profile.cpu_budget"),
            ("[profile]\ninterval = \"1ms\"", "profile.interval"),
            ("[profile]\nregion = \"\"", "profile.region"),
            ("= 7", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
