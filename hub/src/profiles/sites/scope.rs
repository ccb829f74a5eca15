//! The sites that a query asks.

use crate::error::{Error, Result};

/// The longest name of a site in bytes.
const MAX_NAME: usize = 64;
/// The name of all sites.
const ALL: &str = "all";
/// The name of this hub beside its sites.
pub const LOCAL: &str = "local";

/// The sites that a query asks beside this hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SiteScope {
    /// None: samples of this hub only.
    #[default]
    Own,
    /// All that are enabled.
    All,
    /// Those of these names.
    Named(Vec<String>),
}

impl SiteScope {
    /// Reads `all`, or names that are separated by commas. An empty text is no site.
    ///
    /// # Errors
    /// Fails if a name is malformed.
    pub fn read(text: &str) -> Result<Self> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<&str> = names.collect();
        match names.as_slice() {
            [] => Ok(Self::Own),
            [ALL] => Ok(Self::All),
            names => {
                for name in names {
                    check_name(name)?;
                }
                Ok(Self::Named(names.iter().map(|name| (*name).to_owned()).collect()))
            }
        }
    }
}

/// Checks the name of a site.
///
/// # Errors
/// Fails if the name is empty, too long, reserved, or has other characters.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_reserved = [ALL, LOCAL].contains(&name);
    if name.is_empty() || name.len() > MAX_NAME || is_reserved || !name.bytes().all(is_plain) {
        return Err(Error::Invalid(format!(
            "the name of a site has 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, \
             and is not `{ALL}` or `{LOCAL}`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_all_or_names() {
        assert_eq!(SiteScope::read("").unwrap(), SiteScope::Own);
        assert_eq!(SiteScope::read(" all ").unwrap(), SiteScope::All);
        let named = SiteScope::Named(vec!["eu-1".to_owned(), "us".to_owned()]);
        assert_eq!(SiteScope::read("eu-1, us,").unwrap(), named);
        for wrong in ["a b", "eu,all", "local", "é", "a/b", &"x".repeat(65)] {
            assert!(SiteScope::read(wrong).is_err(), "{wrong}");
        }
    }
}
