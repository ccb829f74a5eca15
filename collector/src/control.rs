//! HTTP of the control socket: parses requests and serves connections.
//!
//! Only the daemon's owner may connect (`daemon/control.rs`). Request bodies are not read.

use backtrail_pt::Pid;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long a client may take to send the head of its request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;
const JSON: &str = "application/json";

/// A request to the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// `GET /metrics`.
    Metrics,
    /// `GET /health`.
    Health,
    /// `POST /snapshot`, with `?pid=PID` for the state of one process.
    Snapshot(Option<Pid>),
}

/// An answer of the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResponse {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl ControlRequest {
    /// Parses method, path and query.
    ///
    /// # Errors
    /// The HTTP answer for an unknown request.
    ///
    /// # Examples
    /// ```
    /// use backtrail_collector::control::ControlRequest;
    ///
    /// let query = Some("pid=7");
    /// let request = ControlRequest::parse("POST", "/snapshot", query).unwrap();
    /// assert_eq!(request, ControlRequest::Snapshot(Some(backtrail_pt::Pid(7))));
    /// ```
    pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Self, ControlResponse> {
        match (method, path) {
            ("GET", "/metrics") => Ok(Self::Metrics),
            ("GET", "/health") => Ok(Self::Health),
            ("POST", "/snapshot") => {
                let mut pairs = query.unwrap_or_default().split('&');
                let Some(text) = pairs.find_map(|pair| pair.strip_prefix("pid=")) else {
                    return Ok(Self::Snapshot(None));
                };
                match text.parse() {
                    Ok(pid) if pid != 0 => Ok(Self::Snapshot(Some(Pid(pid)))),
                    _ => Err(ControlResponse::error(
                        StatusCode::BAD_REQUEST,
                        "pid must be a process id",
                    )),
                }
            }
            _ => Err(ControlResponse {
                status: StatusCode::NOT_FOUND,
                kind: "text/plain",
                text: "unknown request; use GET /metrics, GET /health or POST /snapshot?pid=PID\n".to_owned(),
            }),
        }
    }
}

impl ControlResponse {
    /// Returns metrics in Prometheus's text format.
    #[must_use]
    pub fn metrics(text: String) -> Self {
        Self {
            status: StatusCode::OK,
            kind: "text/plain; version=0.0.4",
            text,
        }
    }

    /// Returns a JSON value on one line.
    #[must_use]
    pub fn json(value: &serde_json::Value) -> Self {
        Self {
            status: StatusCode::OK,
            kind: JSON,
            text: format!("{value}\n"),
        }
    }

    /// Returns an error message as JSON.
    #[must_use]
    pub fn error(status: StatusCode, why: &str) -> Self {
        Self {
            status,
            ..Self::json(&serde_json::json!({ "error": why }))
        }
    }

    fn into_http(self) -> hyper::Response<Full<Bytes>> {
        let mut response = hyper::Response::new(Full::new(Bytes::from(self.text)));
        *response.status_mut() = self.status;
        let kind = hyper::header::HeaderValue::from_static(self.kind);
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
        response
    }
}

/// Answers the requests of a connection until it ends. Bytes that are not HTTP end it.
pub async fn serve<S, A, F>(stream: S, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(ControlRequest) -> F,
    F: Future<Output = ControlResponse>,
{
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (method, uri) = (request.method(), request.uri());
        let known = [Method::GET, Method::POST].contains(method);
        let method = if known { method.as_str() } else { "" };
        let asked = ControlRequest::parse(method, uri.path(), uri.query()).map(&answer);
        async move {
            let response = match asked {
                Ok(answered) => answered.await,
                Err(refused) => refused,
            };
            Ok::<_, Infallible>(response.into_http())
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: &str, path: &str, query: Option<&str>) -> StatusCode {
        ControlRequest::parse(method, path, query).unwrap_err().status
    }

    #[test]
    fn invalid_requests_are_refused() {
        assert_eq!(
            ControlRequest::parse("GET", "/metrics", None),
            Ok(ControlRequest::Metrics)
        );
        assert_eq!(
            ControlRequest::parse("GET", "/health", Some("x=1")),
            Ok(ControlRequest::Health)
        );
        let all = ControlRequest::parse("POST", "/snapshot", Some("y=2"));
        assert_eq!(all, Ok(ControlRequest::Snapshot(None)));
        for query in ["pid=", "pid=0", "pid=-1", "pid=4294967296", "pid=7x"] {
            assert_eq!(refused("POST", "/snapshot", Some(query)), StatusCode::BAD_REQUEST);
        }
        for (method, path) in [
            ("GET", "/snapshot"),
            ("POST", "/health"),
            ("", "/metrics"),
            ("GET", "/"),
        ] {
            assert_eq!(
                refused(method, path, None),
                StatusCode::NOT_FOUND,
                "{method} {path}"
            );
        }
    }
}
