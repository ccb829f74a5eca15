//! Buckets: how one is opened, and its failures as sentences.

use crate::error::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// Attempts of a request that a bucket does not answer, beyond the first one.
const RETRIES: usize = 12;
/// The time after which a request is not repeated. Senders wait for the answer.
const RETRY_TIME: Duration = Duration::from_secs(30);
/// The longest time of one request, which has 8 MiB at most.
const REQUEST_TIME: &str = "60s";
/// The longest reason in a sentence, in characters.
const SHOWN: usize = 300;

/// The place and the server of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketAddress<'a> {
    /// `s3://BUCKET/PREFIX`.
    pub url: &'a str,
    /// The server's address, if it is not Amazon's.
    pub endpoint: Option<&'a str>,
    /// The region.
    pub region: Option<&'a str>,
    /// Whether plain HTTP is allowed.
    pub allow_http: bool,
}

/// Opens a bucket with the keys of the environment. No request is sent yet.
///
/// # Errors
/// Fails if the address is malformed, or the keys of a server that is not Amazon's are missing.
pub fn open(address: &BucketAddress<'_>) -> Result<Arc<dyn ObjectStore>> {
    let url = address.url;
    let malformed = || Error::Configuration(format!("\"{url}\" is no bucket; use s3://BUCKET/PREFIX"));
    let place = url.strip_prefix("s3://").ok_or_else(malformed)?;
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err(malformed());
    }
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_TIME)
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                max_backoff: Duration::from_secs(4),
                ..BackoffConfig::default()
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
        });
    if address.allow_http {
        builder = builder.with_allow_http(true);
    }
    if let Some(endpoint) = address.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = address.region {
        builder = builder.with_region(region);
    }
    check(&builder, url)?;
    let store = builder.build().map_err(|source| Error::Object {
        key: url.to_owned(),
        reason: reason(&source),
    })?;
    let prefix = prefix.trim_matches('/');
    Ok(if prefix.is_empty() {
        Arc::new(store)
    } else {
        Arc::new(PrefixStore::new(store, prefix))
    })
}

/// Fails if requests to a server would fail for a reason that is known before.
fn check(builder: &AmazonS3Builder, url: &str) -> Result<()> {
    let value = |key| builder.get_config_value(&key);
    let Some(endpoint) = value(AmazonS3ConfigKey::Endpoint) else {
        // Amazon's own machines may have keys in another way.
        return Ok(());
    };
    let is_allowed = value(AmazonS3ConfigKey::Client(
        object_store::ClientConfigKey::AllowHttp,
    ))
    .is_some_and(|value| value == "true");
    if endpoint.starts_with("http://") && !is_allowed {
        return Err(Error::Configuration(format!(
            "the bucket's server {endpoint} has no TLS; use https://, or set `s3.allow_http = true`"
        )));
    }
    let has_keys = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey]
        .into_iter()
        .all(|key| value(key).is_some_and(|value| !value.is_empty()));
    if !has_keys {
        return Err(Error::Configuration(format!(
            "no keys for the bucket {url}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )));
    }
    Ok(())
}

/// Returns a failure of a store as words for a sentence, without the server's XML.
#[must_use]
pub fn reason(error: &object_store::Error) -> String {
    let text = error.to_string();
    let words = match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), message) => advice(code).map_or_else(
            || {
                format!(
                    "the server answered {code}{}",
                    message.map_or(String::new(), |message| format!(" ({message})"))
                )
            },
            str::to_owned,
        ),
        (None, _) => status(&text).unwrap_or_else(|| innermost(error)),
    };
    let clean = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(SHOWN).collect()
}

/// Returns what to do about a failure, by S3's name of it.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "NoSuchBucket" => "the server has no such bucket; create it, or correct `objects`",
        "InvalidAccessKeyId" | "NotSignedUp" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken" => {
            "the server refuses the keys; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        }
        "AccessDenied" => {
            "the server permits no access with these keys; give them read, write, list and delete"
        }
        "NoSuchUpload" => "the server has forgotten an upload in parts",
        _ => return None,
    })
}

/// Returns the content of the first element of a name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once("</")?;
    Some(content.trim())
}

/// Returns the status of an answer without a name.
fn status(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("status code: ")?;
    let status = rest.split(':').next()?.trim();
    (!status.is_empty()).then(|| format!("the server answered {status}"))
}

/// Returns the last error in the chain of causes.
fn innermost(error: &object_store::Error) -> String {
    let mut found: &dyn std::error::Error = error;
    while let Some(source) = found.source() {
        found = source;
    }
    found.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn failures_are_sentences_without_xml() {
        let denied = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>\
                      SignatureDoesNotMatch</Code><Message>The signature\nis wrong</Message></Error>";
        assert!(reason(&generic(denied)).starts_with("the server refuses the keys"));
        let odd = denied.replace("SignatureDoesNotMatch", "OddThing");
        assert_eq!(
            reason(&generic(&odd)),
            "the server answered OddThing (The signature is wrong)"
        );
        let busy = "Error performing PUT http://127.0.0.1/a in 3s, after 12 retries - Server returned non-2xx \
                    status code: 503 Service Unavailable: ";
        assert_eq!(
            reason(&generic(busy)),
            "the server answered 503 Service Unavailable"
        );
        assert_eq!(reason(&generic("connection refused")), "connection refused");
        assert_eq!(reason(&generic(&"x".repeat(9000))).len(), SHOWN);
    }

    #[test]
    fn addresses_without_a_bucket_are_refused() {
        for url in ["s3://", "s3:///prefix", "bucket", "https://bucket"] {
            let address = BucketAddress {
                url,
                endpoint: None,
                region: None,
                allow_http: false,
            };
            let error = open(&address).map(|_| ()).unwrap_err().to_string();
            assert_eq!(error, format!("\"{url}\" is no bucket; use s3://BUCKET/PREFIX"));
        }
    }

    #[test]
    fn servers_without_tls_need_permission() {
        let address = BucketAddress {
            url: "s3://crashes/hub",
            endpoint: Some("http://127.0.0.1:9"),
            region: None,
            allow_http: false,
        };
        let error = open(&address).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("set `s3.allow_http = true`"), "{error}");
    }
}
