//! The configuration of the hub: defaults, a TOML file, and the command line.

use crate::error::{Error, Result};
use crate::notify::channel::{AlertChannel, MailServer};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The largest bundle unless configured.
const BUNDLE_LIMIT: u64 = 4 << 30;

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// The directory of the hub's files.
    pub data: PathBuf,
    /// The database. `None`: `hub.db` in the directory.
    pub database: Option<String>,
    /// The bucket as `s3://BUCKET/PREFIX`. `None`: `objects` in the directory.
    pub objects: Option<String>,
    /// How to reach the bucket.
    pub s3: S3,
    /// The address under which people and hosts reach the hub. `None`: the address to listen at.
    pub public_url: Option<String>,
    /// The certificate, if the hub itself speaks TLS.
    pub tls: Option<Tls>,
    /// Sign-in by a proxy.
    pub proxy: Option<Proxy>,
    /// The channels of alerts: `[[alert]]` tables.
    pub alert: Vec<AlertChannel>,
    /// The server that takes mail.
    pub mail: Option<MailServer>,
    /// Networks and hosts that alerts may go to although they are internal.
    pub allowed_addresses: Vec<String>,
    /// How long and how much is kept.
    pub retention: Retention,
    /// Data that the hub does not keep.
    pub redact: Redact,
    /// Debug files and upstream servers.
    pub symbols: Symbols,
    /// Versions of the grouping.
    pub grouping: Grouping,
    /// The profile store.
    pub profiles: Profiles,
    /// Other sites.
    pub sites: Sites,
    /// SQL over the profile store.
    pub query: Query,
    /// Limits.
    pub limits: Limits,
}

/// How to reach a bucket. Keys come from the environment, as the AWS tools have them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3 {
    /// The server's address, if it is not Amazon's.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Whether plain HTTP is allowed.
    pub allow_http: bool,
}

/// A certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The chain of certificates in PEM.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// Sign-in by a proxy that authenticates people.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The header that names the person, such as `X-Forwarded-User`.
    pub header: String,
    /// The addresses of the proxy. The header of others is ignored.
    pub addresses: Vec<IpAddr>,
    /// The people who may change rules and tokens. All others may read and change states.
    #[serde(default)]
    pub admins: Vec<String>,
}

/// How long and how much is kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// The age in days after which reports and bundles are removed.
    pub days: u32,
    /// The size in GiB above which the oldest bundles are removed.
    pub gib: u64,
}

/// Data that the hub does not keep.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Redact {
    /// The arguments of programs.
    pub arguments: bool,
    /// The names of environment variables whose values are removed. `*` is any text.
    pub environment: Vec<String>,
}

/// Debug files and upstream servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Symbols {
    /// Whether everybody who reaches the hub may read files of builds, without a token.
    pub public: bool,
    /// The addresses of debuginfod servers that are asked for files that the hub has not got.
    pub upstream: Vec<String>,
    /// Internal networks and hosts of upstream servers, such as `10.1.0.0/16`.
    pub allowed_addresses: Vec<String>,
    /// The largest file of an upstream server in bytes.
    pub upstream_bytes: u64,
    /// The most bytes of open indexes in memory.
    pub index_bytes: u64,
    /// The days without use after which the index of a build without files is removed. It is kept
    /// at least as long as profiles.
    pub index_days: u32,
}

/// SQL over the profile store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// The program `backtrail-query`. `None`: the one beside the hub.
    pub program: Option<PathBuf>,
    /// The addresses of workers, such as `http://10.0.0.2:8476`.
    pub workers: Vec<String>,
    /// The address at which `backtrail-hub worker` listens. `None`: on this machine only.
    pub listen: Option<SocketAddr>,
}

/// The profile store.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profiles {
    /// The age in days after which samples are removed.
    pub days: u32,
    /// Whether samples of idle threads are left out: no, by the list of the page, or by
    /// expressions for the names of functions.
    pub drop_idle: DropIdle,
}

/// The samples of idle threads that are not stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "drop_idle is true, false, or a list of regular expressions"
)]
pub enum DropIdle {
    /// None, or those of the list of the page.
    Listed(bool),
    /// Those with a function that matches an expression as a whole.
    Functions(Vec<String>),
}

impl Default for DropIdle {
    fn default() -> Self {
        Self::Listed(false)
    }
}

/// Other sites, whose hubs this one asks for profiles.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sites {
    /// Internal networks and hosts of other hubs, such as `10.1.0.0/16`.
    pub allowed_addresses: Vec<String>,
    /// The time in seconds that a site has for its answer.
    pub seconds: u64,
}

/// Versions of the grouping.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grouping {
    /// The days for which a new version is computed beside the old one, before it replaces it.
    pub compare_days: u32,
}

/// Limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The largest packed bundle in bytes.
    pub bundle_bytes: u64,
    /// The largest unpacked bundle in bytes.
    pub unpacked_bytes: u64,
    /// Requests a second and token.
    pub requests_per_second: u32,
    /// The time in seconds that a child process may take.
    pub analysis_seconds: u64,
    /// The memory in MiB that a child process may take.
    pub analysis_mib: u64,
    /// Child processes at once.
    pub analyses: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7777),
            data: PathBuf::from("/var/lib/backtrail-hub"),
            database: None,
            objects: None,
            s3: S3::default(),
            public_url: None,
            tls: None,
            proxy: None,
            alert: Vec::new(),
            mail: None,
            allowed_addresses: Vec::new(),
            retention: Retention::default(),
            redact: Redact::default(),
            symbols: Symbols::default(),
            grouping: Grouping::default(),
            profiles: Profiles::default(),
            sites: Sites::default(),
            query: Query::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: 90, gib: 500 }
    }
}

impl Default for Symbols {
    fn default() -> Self {
        Self {
            public: false,
            upstream: Vec::new(),
            allowed_addresses: Vec::new(),
            index_bytes: 1 << 30,
            index_days: 90,
            upstream_bytes: 2 << 30,
        }
    }
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            days: backtrail_store::DEFAULT_DAYS,
            drop_idle: DropIdle::default(),
        }
    }
}

impl Default for Sites {
    fn default() -> Self {
        Self {
            allowed_addresses: Vec::new(),
            seconds: 25,
        }
    }
}

impl Default for Grouping {
    fn default() -> Self {
        Self { compare_days: 30 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bundle_bytes: BUNDLE_LIMIT,
            unpacked_bytes: 8 * BUNDLE_LIMIT,
            requests_per_second: 200,
            analysis_seconds: 300,
            analysis_mib: 4096,
            analyses: 1,
        }
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has an unknown key or an impossible value.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
        let config: Self = toml::from_str(&text).map_err(|error| {
            let error = error.to_string();
            Error::Configuration(format!("{}: {}", path.display(), error.trim_end()))
        })?;
        match config.problem() {
            Some(problem) => Err(Error::Configuration(format!("{}: {problem}", path.display()))),
            None => Ok(config),
        }
    }

    /// Returns what is impossible about the values.
    fn problem(&self) -> Option<String> {
        let zeros = [
            ("retention.days", u64::from(self.retention.days)),
            ("retention.gib", self.retention.gib),
            ("profiles.days", u64::from(self.profiles.days)),
            ("symbols.index_bytes", self.symbols.index_bytes),
            ("grouping.compare_days", u64::from(self.grouping.compare_days)),
            ("limits.bundle_bytes", self.limits.bundle_bytes),
            ("limits.unpacked_bytes", self.limits.unpacked_bytes),
            (
                "limits.requests_per_second",
                u64::from(self.limits.requests_per_second),
            ),
            ("limits.analyses", self.limits.analyses as u64),
        ];
        if let Some((key, _)) = zeros.iter().find(|(_, value)| *value == 0) {
            return Some(format!("`{key}` must be 1 or more"));
        }
        let url = self.public_url.as_ref()?;
        let is_address = ["https://", "http://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        (!is_address)
            .then(|| format!("`public_url` must begin with https:// or http://, as in https://{url}"))
    }

    /// Returns the address of the database.
    #[must_use]
    pub fn database_url(&self) -> String {
        self.database.clone().unwrap_or_else(|| {
            let path = self.data.join("hub.db");
            format!("sqlite://{}?mode=rwc", path.display())
        })
    }

    /// Returns the address for links, without a slash at its end.
    #[must_use]
    pub fn public_url(&self) -> String {
        match &self.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => {
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                format!("{scheme}://{}", self.listen)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        let problem = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Config::read(&path).unwrap_err().to_string()
        };
        assert!(problem("retention.days = 0").contains("`retention.days` must be 1 or more"));
        assert!(problem("limits.analyses = 0").contains("`limits.analyses` must be 1 or more"));
        let refusal = problem("public_url = 'hub.example'");
        assert!(refusal.contains("as in https://hub.example"), "{refusal}");
        std::fs::write(&path, "public_url = 'https://hub.example'\nretention.days = 1").unwrap();
        Config::read(&path).unwrap();
    }

    #[test]
    fn unknown_keys_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        std::fs::write(&path, "listen = \"127.0.0.1:1\"\nretain = 3\n").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains("unknown field `retain`"), "{error}");
    }

    #[test]
    fn idle_threads_are_a_switch_or_expressions() {
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.profiles.drop_idle);
        assert_eq!(read("").unwrap(), DropIdle::Listed(false));
        assert_eq!(
            read("[profiles]\ndrop_idle = true").unwrap(),
            DropIdle::Listed(true)
        );
        assert_eq!(
            read("[profiles]\ndrop_idle = [\"park\"]").unwrap(),
            DropIdle::Functions(vec!["park".to_owned()])
        );
        let error = read("[profiles]\ndrop_idle = 7").unwrap_err().to_string();
        assert!(error.contains("true, false, or a list"), "{error}");
    }

    #[test]
    fn defaults_need_no_other_service() {
        let config: Config = toml::from_str("data = \"/srv/hub\"").unwrap();
        assert_eq!(config.database_url(), "sqlite:///srv/hub/hub.db?mode=rwc");
        assert_eq!(config.public_url(), "http://127.0.0.1:7777");
        let config: Config = toml::from_str("public_url = \"https://crash.example.com/\"").unwrap();
        assert_eq!(config.public_url(), "https://crash.example.com");
    }
}
