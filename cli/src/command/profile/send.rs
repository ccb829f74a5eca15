//! Sends a profile to a collector of OpenTelemetry (OTLP over HTTP, `v1development`).

use super::otlp_headers;
use crate::exit::Failure;
use backtrail_profile::Profile;
use backtrail_profile::format::otlp;
use std::time::Duration;

/// The path of exports below a collector's address.
const PATH: &str = "/v1development/profiles";
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const MAX_ANSWER: u64 = 1 << 16;
/// The most characters of a collector's own words.
const MAX_WORDS: usize = 200;

/// Sends a profile as one request. `headers` are those of the command line.
pub fn run(profile: &Profile, url: &str, headers: &[String]) -> Result<(), Failure> {
    let variable = std::env::var(otlp_headers::VARIABLE).ok();
    let headers = otlp_headers::headers(variable.as_deref(), headers).map_err(Failure::usage)?;
    let failed = |problem: &dyn std::fmt::Display| {
        Failure::failed(format_args!("cannot send the profile to {url}: {problem}"))
    };
    let mut request = Vec::new();
    otlp::write(profile, &mut request)?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .user_agent(concat!("backtrail/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let mut post = agent.post(&address(url));
    for (name, value) in &headers {
        post = post.header(name, value);
    }
    let post = post.content_type("application/x-protobuf");
    let response = post.send(&request).map_err(|error| failed(&error))?;
    let status = response.status();
    let body = response
        .into_body()
        .into_with_config()
        .limit(MAX_ANSWER)
        .read_to_vec();
    if !status.is_success() {
        let body = body.unwrap_or_default();
        let words = String::from_utf8_lossy(&body);
        let words: String = words.chars().take(MAX_WORDS).collect();
        return Err(match words.is_empty() {
            true => failed(&format_args!("it answered {status}")),
            false => failed(&format_args!("it answered {status}: {words}")),
        });
    }
    let body = body.map_err(|error| failed(&error))?;
    let answer = otlp::read_response(&body).map_err(|error| failed(&error))?;
    if answer.rejected > 0 {
        return Err(failed(&format_args!(
            "it rejected {} profiles: {}",
            answer.rejected, answer.message
        )));
    }
    eprintln!(
        "sent {} samples, {} bytes, to {url}",
        profile.samples.len(),
        request.len()
    );
    Ok(())
}

/// Adds the path of exports to an address without a path.
fn address(url: &str) -> String {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    match after.trim_end_matches('/').contains('/') {
        true => url.to_owned(),
        false => format!("{}{PATH}", url.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_path_get_one() {
        let with_path = "http://localhost:4318/v1development/profiles";
        assert_eq!(address("http://localhost:4318"), with_path);
        assert_eq!(address("http://localhost:4318/"), with_path);
        assert_eq!(address(with_path), with_path);
        assert_eq!(address("https://example.com/in"), "https://example.com/in");
    }
}
