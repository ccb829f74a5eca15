//! Headers of requests to a collector of OpenTelemetry.
//!
//! Source: "OpenTelemetry Protocol Exporter", "Specifying headers via environment variables".

use ureq::http::{HeaderMap, HeaderName, HeaderValue};

/// The variable with headers for all signals.
pub const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Returns the headers of the variable, `NAME=VALUE,…` with encoded values, and those of options.
/// An option replaces the header of its name.
///
/// # Errors
/// Fails with a sentence for a malformed header. It has no value, since that may be a token.
pub fn headers(variable: Option<&str>, options: &[String]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let members = variable.unwrap_or_default().split(',').map(str::trim);
    for member in members.filter(|member| !member.is_empty()) {
        let (name, value) = parse(VARIABLE, member, true)?;
        headers.insert(name, value);
    }
    for option in options {
        let (name, value) = parse("--header", option, false)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn parse(origin: &str, text: &str, is_encoded: bool) -> Result<(HeaderName, HeaderValue), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{origin} is not NAME=VALUE"));
    };
    let (name, value) = (name.trim(), value.trim());
    let Ok(known) = name.parse::<HeaderName>() else {
        return Err(format!(
            "{origin}: '{}' is no name of a header",
            name.escape_debug()
        ));
    };
    let bytes = match is_encoded {
        true => percent_encoding::percent_decode_str(value).collect(),
        false => value.as_bytes().to_vec(),
    };
    let Ok(mut value) = HeaderValue::from_bytes(&bytes) else {
        return Err(format!("{origin}: the value of '{name}' has control characters"));
    };
    value.set_sensitive(true);
    Ok((known, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variable: &str, options: &[&str]) -> Result<Vec<(String, String)>, String> {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let headers = headers(Some(variable), &options)?;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        };
        let mut headers: Vec<_> = headers.iter().map(text).collect();
        headers.sort();
        Ok(headers)
    }

    #[test]
    fn options_replace_headers_of_the_variable() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of("", &[]).unwrap(), []);
        assert_eq!(
            of("Authorization=Bearer%20a%3Db , X-Scope=shop,", &["x-scope=a b=c"]).unwrap(),
            [pair("authorization", "Bearer a=b"), pair("x-scope", "a b=c")]
        );
    }

    #[test]
    fn malformed_headers_are_refused_without_their_values() {
        for (variable, options, problem) in [
            ("secret", &[][..], "OTEL_EXPORTER_OTLP_HEADERS is not NAME=VALUE"),
            (
                "a b=secret",
                &[],
                "OTEL_EXPORTER_OTLP_HEADERS: 'a b' is no name of a header",
            ),
            (
                "a=secret%0A",
                &[],
                "OTEL_EXPORTER_OTLP_HEADERS: the value of 'a' has control characters",
            ),
            ("", &["=secret"], "--header: '' is no name of a header"),
            (
                "",
                &["a=secret\r\nb: c"],
                "--header: the value of 'a' has control characters",
            ),
        ] {
            let refused = of(variable, options).unwrap_err();
            assert_eq!(refused, problem);
        }
    }
}
