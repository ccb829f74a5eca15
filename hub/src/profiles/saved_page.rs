//! The pages whose addresses can be saved under a name.

use super::explorer::ExplorerParameters;
use super::sql_parameters::SqlParameters;
use crate::error::Result;

/// A page with saved views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedPage {
    /// The explorer of profiles.
    Explorer,
    /// The page for SQL.
    Sql,
}

impl SavedPage {
    /// Returns the page of a query. That of the page for SQL has the parameter `sql`.
    #[must_use]
    pub fn of(query: &str) -> Self {
        let query = query.trim_start_matches('?').as_bytes();
        match form_urlencoded::parse(query).any(|(name, _)| name == "sql") {
            true => Self::Sql,
            false => Self::Explorer,
        }
    }

    /// Returns the path of the page.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Explorer => "/profiles",
            Self::Sql => "/profiles/sql",
        }
    }

    /// Checks the query of a view at a time in microseconds since 1970, and returns what of it is
    /// saved.
    ///
    /// # Errors
    /// Fails if the query is too long or malformed.
    pub fn checked(query: &str, now: i64) -> Result<String> {
        match Self::of(query) {
            Self::Explorer => Ok(ExplorerParameters::read(query)?.query()),
            Self::Sql => Ok(SqlParameters::read(query, now)?.query()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_belong_to_their_pages() {
        assert_eq!(SavedPage::of("?from=1h&sql=SELECT+1").path(), "/profiles/sql");
        assert_eq!(SavedPage::of("service=sql").path(), "/profiles");
        let checked = |query: &str| SavedPage::checked(query, crate::clock::now());
        assert_eq!(checked("?sql=a&as=graph").unwrap(), "sql=a&as=graph");
        assert_eq!(checked("service=shop&chart=").unwrap(), "service=shop");
        assert!(checked("service=shop&color=red").is_err());
        assert!(checked("sql=a&x=1").is_err());
        assert!(checked("sql=").is_err());
    }
}
