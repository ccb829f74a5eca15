//! The hub's address and token: options, environment, and the file that `backtrail login` writes.
//!
//! A token is sent to its own hub only. The stored token is not sent to a hub that an option or a
//! link names, unless it is the stored one.

use crate::args::HubOptions;
use crate::exit::Failure;
use backtrail_report::client::{HubAddress, HubClient, Token};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The environment variables.
const HUB: &str = "BACKTRAIL_HUB";
const HUB_TOKEN: &str = "BACKTRAIL_HUB_TOKEN";
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// `~/.config/backtrail/hub.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// The hub's address.
    pub url: String,
    /// The token.
    pub token: String,
    /// Whether HTTP to other machines is allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
}

/// An address with the token for it.
type Access = (HubAddress, Option<Token>);

impl HubFile {
    /// Reads the file. Returns `None` if it does not exist.
    pub fn load() -> Result<Option<Self>, Failure> {
        let Some(path) = path() else { return Ok(None) };
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::failed(format_args!(
                    "cannot read {}: {error}",
                    path.display()
                )));
            }
        };
        let parsed = toml::from_str(&text);
        parsed.map(Some).map_err(|error| {
            let path = path.display();
            Failure::failed(format_args!(
                "{path}: {}; `backtrail login URL` writes this file",
                error.message()
            ))
        })
    }

    /// Writes the file, which only its owner can read, and returns its path.
    pub fn store(&self) -> Result<PathBuf, Failure> {
        let path =
            path().ok_or_else(|| Failure::failed("HOME is not set, so there is no place for the token"))?;
        let failed =
            |error: std::io::Error| Failure::failed(format_args!("cannot write {}: {error}", path.display()));
        let text = toml::to_string(self).map_err(Failure::failed)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(failed)?;
        // The temporary file has the mode 0600, and keeps it.
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(path)
    }

    fn access(&self) -> Result<Access, Failure> {
        let address = HubAddress::parse(&self.url, self.insecure_http)?;
        Ok((address, Some(parse_token(&self.token)?)))
    }
}

/// Returns the client of the hub that the options, the environment or the file name.
pub fn client(options: &HubOptions) -> Result<HubClient, Failure> {
    let stored = HubFile::load()?;
    let stored = stored.map(|file| file.access()).transpose()?;
    let address = match options.hub.clone().or_else(|| variable(HUB)) {
        Some(text) => HubAddress::parse(&text, options.insecure_http)?,
        None => match &stored {
            Some((address, _)) => address.clone(),
            None => {
                return Err(Failure::usage(
                    "no hub is known; `--hub URL` names one, and `backtrail login URL` stores one",
                ));
            }
        },
    };
    let token = match &options.token_file {
        Some(file) => Some(token_in(file)?),
        None => token_for(&address, stored, options.insecure_http, options.hub.is_some())?,
    };
    Ok(HubClient::new(address, token))
}

/// Returns the client of the hub that a link names.
pub fn client_of(address: &HubAddress, allows_http: bool) -> Result<HubClient, Failure> {
    let stored = HubFile::load()?;
    let stored = stored.map(|file| file.access()).transpose()?;
    let token = token_for(address, stored, allows_http, false)?;
    Ok(HubClient::new(address.clone(), token))
}

/// Returns whether the stored hub is this one and may be reached by HTTP.
pub fn allows_http() -> bool {
    matches!(HubFile::load(), Ok(Some(file)) if file.insecure_http)
}

/// Returns the token of the environment or of the file that belongs to a hub. `is_named`: an option
/// named the hub, so that a token without an address belongs to it.
fn token_for(
    address: &HubAddress,
    stored: Option<Access>,
    allows_http: bool,
    is_named: bool,
) -> Result<Option<Token>, Failure> {
    let stored = stored.filter(|(known, _)| known == address);
    if let Some(token) = variable(HUB_TOKEN) {
        let belongs = match variable(HUB) {
            Some(hub) => HubAddress::parse(&hub, allows_http).is_ok_and(|hub| hub == *address),
            None => is_named || stored.is_some(),
        };
        if belongs {
            return parse_token(&token).map(Some);
        }
    }
    Ok(stored.and_then(|(_, token)| token))
}

/// Reads a token from a file.
pub fn token_in(file: &Path) -> Result<Token, Failure> {
    let text = read_text(file)
        .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", file.display())))?;
    parse_token(&text).map_err(|_| {
        let problem = backtrail_report::client::InvalidToken;
        Failure::failed(format_args!("{}: {problem}", file.display()))
    })
}

/// Parses a token.
pub fn parse_token(text: &str) -> Result<Token, Failure> {
    text.parse::<Token>().map_err(Failure::failed)
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_FILE)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Returns `$XDG_CONFIG_HOME/backtrail/hub.toml`, by default below `~/.config`.
fn path() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("backtrail/hub.toml"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
