//! The secret that coordinators and workers share.

use crate::{Error, Result};
use http::{HeaderMap, HeaderValue};
use tonic::{Request, Status};

/// The variable of the environment with the secret.
const VARIABLE: &str = "BACKTRAIL_QUERY_TOKEN";
/// The header of requests with the secret.
const HEADER: &str = "authorization";

/// The secret, or none.
#[derive(Clone)]
pub(crate) struct Token(Option<HeaderValue>);

impl Token {
    /// Reads the secret from the environment.
    pub(crate) fn of_environment() -> Result<Self> {
        Self::new(std::env::var(VARIABLE).ok().as_deref())
    }

    fn new(secret: Option<&str>) -> Result<Self> {
        let Some(secret) = secret.filter(|secret| !secret.is_empty()) else {
            return Ok(Self(None));
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| Error::System {
            action: "use the secret of BACKTRAIL_QUERY_TOKEN",
            reason: "it has characters that headers cannot have".into(),
        })?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    /// Returns whether there is a secret.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the headers of requests.
    pub(super) fn headers(&self) -> HeaderMap {
        let pairs = self.0.iter().map(|value| (HEADER, value.clone()));
        pairs
            .filter_map(|(name, value)| Some((name.parse().ok()?, value)))
            .collect()
    }

    /// Checks the header of a request.
    pub(super) fn check(&self, request: Request<()>) -> std::result::Result<Request<()>, Status> {
        let Some(wanted) = &self.0 else {
            return Ok(request);
        };
        let given = request.metadata().get(HEADER).map(|value| value.as_bytes());
        match given.is_some_and(|given| is_same(given, wanted.as_bytes())) {
            true => Ok(request),
            false => Err(Status::unauthenticated("the token of the worker is another one")),
        }
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: Option<&'static str>) -> Request<()> {
        let mut request = Request::new(());
        if let Some(value) = value {
            request.metadata_mut().insert(HEADER, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn requests_without_the_secret_are_refused() {
        let token = Token::new(Some("s3cret")).unwrap();
        assert!(token.check(request(Some("Bearer s3cret"))).is_ok());
        for wrong in [None, Some("Bearer s3creT"), Some("s3cret"), Some("")] {
            assert!(token.check(request(wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(token.headers().len(), 1);
        assert!(Token::new(Some("a\nb")).is_err());
        let none = Token::new(Some("")).unwrap();
        assert!(!none.is_set() && none.check(request(None)).is_ok());
    }
}
