//! Changes of the table of sites.

use super::scope::check_name;
use crate::database::sites::SiteText;
use crate::error::{Error, Result};
use crate::hub::Hub;

/// The longest address in bytes.
const MAX_URL: usize = 1000;
/// The longest token in bytes.
const MAX_TOKEN: usize = 1000;

/// Adds a site, or changes the one of this name.
///
/// # Errors
/// Fails if a part is malformed or refused, a token is missing, or the database fails.
pub async fn set(hub: &Hub, site: &SiteText<'_>, actor: &str) -> Result<()> {
    check_name(site.name)?;
    let url = site.url.trim().trim_end_matches('/');
    if url.len() > MAX_URL {
        return Err(Error::TooLarge(format!(
            "the address is longer than {MAX_URL} bytes"
        )));
    }
    hub.sites.check_url(url)?;
    let token = site.token.map(str::trim).filter(|token| !token.is_empty());
    let is_sendable =
        |token: &str| token.len() <= MAX_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !token.is_none_or(is_sendable) {
        return Err(Error::Invalid(format!(
            "a token has at most {MAX_TOKEN} printable characters of ASCII"
        )));
    }
    let site = SiteText { url, token, ..*site };
    hub.database.set_site(&site, actor).await
}
