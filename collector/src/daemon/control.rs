//! The control socket: HTTP over a Unix socket, for metrics, health and requests.

use super::Shared;
use crate::crash::Saved;
use crate::error::{Error, Result};
use crate::history::History;
use backtrail_pt::Pid;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::{PipeReader, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where requests come in.
pub(super) type Socket = UnixListener;

/// How long a client may take with the head of its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens at a path; what stood there goes. Only its owner may connect.
pub(super) fn bind(path: &Path) -> Result<Socket> {
    let _ = std::fs::remove_file(path);
    let bind = || {
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    bind().map_err(Error::file("listen at", path))
}

/// Answers until the other end of `stop` is closed.
pub(super) fn run(shared: &Arc<Shared>, socket: Socket, mut stop: PipeReader) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        tracing::error!("the control socket cannot be served");
        return;
    };
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = stop.read(&mut [0]);
        let _ = ended.send(());
    });
    runtime.block_on(async {
        let Ok(listener) = tokio::net::UnixListener::from_std(socket) else {
            return;
        };
        let serve = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let shared = Arc::clone(shared);
                        tokio::spawn(async move {
                            let answer = service_fn(move |request| answer(Arc::clone(&shared), request));
                            let _ = hyper::server::conn::http1::Builder::new()
                                .timer(TokioTimer::new())
                                .header_read_timeout(PATIENCE)
                                .serve_connection(TokioIo::new(stream), answer)
                                .await;
                        });
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        tokio::select! {
            () = serve => {}
            _ = end => {}
        }
    });
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, "text/plain; version=0.0.4", metrics(&shared)),
        (&Method::GET, "/health") => (StatusCode::OK, "application/json", health(&shared)),
        (&Method::POST, "/snapshot") => snapshot(shared, request.uri().query().unwrap_or_default()).await,
        _ => {
            let text = "there are: GET /metrics, GET /health, POST /snapshot?pid=PID\n".to_owned();
            (StatusCode::NOT_FOUND, "text/plain", text)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Saves the process that the query names, or the traces of all.
async fn snapshot(shared: Arc<Shared>, query: &str) -> (StatusCode, &'static str, String) {
    const JSON: &str = "application/json";
    let refused = |status, why: &str| (status, JSON, format!("{}\n", serde_json::json!({ "error": why })));
    let pid = match query.split('&').find_map(|pair| pair.strip_prefix("pid=")) {
        Some(text) => match text.parse() {
            Ok(pid) if pid != 0 => Some(Pid(pid)),
            _ => return refused(StatusCode::BAD_REQUEST, "pid is the number of a process"),
        },
        None => None,
    };
    let saved = tokio::task::spawn_blocking(move || {
        let path = |id: &str| shared.saver.spool.directory().join(id);
        shared.snapshot(pid).map(|saved| match saved {
            Saved::Bundle(id) => Some((path(&id), id)),
            Saved::Limited => None,
        })
    });
    match saved.await {
        Ok(Ok(Some((bundle, id)))) => {
            let answer = serde_json::json!({ "id": id, "bundle": bundle });
            (StatusCode::OK, JSON, format!("{answer}\n"))
        }
        Ok(Ok(None)) => refused(StatusCode::TOO_MANY_REQUESTS, "too many were asked for"),
        Ok(Err(error)) => refused(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "saving failed"),
    }
}

fn metrics(shared: &Shared) -> String {
    let saver = &shared.saver;
    let mut gauges = vec![
        (
            "up_seconds",
            "Since the start.",
            shared.started.elapsed().as_secs_f64(),
        ),
        (
            "spool_dropped",
            "Unsent bundles removed since the spool was made.",
            saver.spool.dropped() as f64,
        ),
        (
            "workers_stuck",
            "Workers that a file system without an answer keeps from ending.",
            saver.workers.stuck() as f64,
        ),
        (
            "recorders",
            "Processes that software recorders mind.",
            shared.minded.count() as f64,
        ),
    ];
    gauges.extend(saver.history.iter().flat_map(History::gauges));
    saver.metrics.to_text(&gauges)
}

fn health(shared: &Shared) -> String {
    let health = serde_json::json!({
        "status": "ok",
        "pid": std::process::id(),
        "up_seconds": shared.started.elapsed().as_secs(),
        "probe": shared.saver.probe,
        "bundles": shared.saver.metrics.bundles_written.get(),
    });
    format!("{health}\n")
}
