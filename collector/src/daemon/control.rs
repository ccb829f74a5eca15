//! The control socket: metrics, health and snapshot requests, by HTTP over a Unix socket.

use super::state::DaemonState;
use crate::control::{self, ControlRequest, ControlResponse};
use crate::crash::SaveOutcome;
use crate::error::{Error, Result};
use crate::heap::HeapHistory;
use crate::history::History;
use backtrail_pt::Pid;
use hyper::StatusCode;
use std::io::{PipeReader, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The listening socket.
pub(super) type Socket = UnixListener;

/// Listens at a path, and replaces a file there. Only the owner may connect.
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

/// Answers requests until the other end of `stop` is closed.
pub(super) fn run(shared: &Arc<DaemonState>, socket: Socket, mut stop: PipeReader) {
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
                        tokio::spawn(control::serve(stream, move |request| {
                            answer(Arc::clone(&shared), request)
                        }));
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

async fn answer(shared: Arc<DaemonState>, request: ControlRequest) -> ControlResponse {
    match request {
        ControlRequest::Metrics => ControlResponse::metrics(metrics(&shared)),
        ControlRequest::Health => ControlResponse::json(&health(&shared)),
        ControlRequest::Snapshot(pid) => snapshot(shared, pid).await,
    }
}

/// Saves a process, or the traces of all processors.
async fn snapshot(shared: Arc<DaemonState>, pid: Option<Pid>) -> ControlResponse {
    let saved = tokio::task::spawn_blocking(move || {
        let path = |id: &str| shared.saver.spool.directory().join(id);
        shared.snapshot(pid).map(|saved| match saved {
            SaveOutcome::Bundle(id) => Some((path(&id), id)),
            SaveOutcome::Limited => None,
        })
    });
    match saved.await {
        Ok(Ok(Some((bundle, id)))) => {
            ControlResponse::json(&serde_json::json!({ "id": id, "bundle": bundle }))
        }
        Ok(Ok(None)) => {
            ControlResponse::error(StatusCode::TOO_MANY_REQUESTS, "too many snapshots were requested")
        }
        Ok(Err(error)) => ControlResponse::error(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        Err(_) => ControlResponse::error(StatusCode::INTERNAL_SERVER_ERROR, "saving the snapshot failed"),
    }
}

fn metrics(shared: &DaemonState) -> String {
    let saver = &shared.saver;
    let mut gauges = vec![
        (
            "up_seconds",
            "Seconds since the start.",
            shared.started.elapsed().as_secs_f64(),
        ),
        (
            "spool_dropped",
            "Unsent bundles removed since the spool was made.",
            saver.spool.dropped() as f64,
        ),
        (
            "workers_stuck",
            "Killed workers that a file system blocks in the kernel.",
            saver.workers.stuck() as f64,
        ),
        (
            "recorders",
            "Processes that software recorders claim.",
            shared.claimed.count() as f64,
        ),
    ];
    gauges.extend(saver.history.iter().flat_map(History::gauges));
    gauges.extend(saver.heap.iter().flat_map(HeapHistory::gauges));
    saver.metrics.to_text(&gauges)
}

fn health(shared: &DaemonState) -> serde_json::Value {
    serde_json::json!({
        "status": "ok",
        "pid": std::process::id(),
        "up_seconds": shared.started.elapsed().as_secs(),
        "probe": shared.saver.probe,
        "bundles": shared.saver.metrics.bundles_written.get(),
    })
}
