//! The side of the processes that run parts of plans.

use super::codec::WorkerCodec;
use super::token::Token;
use crate::functions::{self, Names};
use crate::objects::CountingStore;
use crate::request::Limits;
use crate::{Error, Result, session};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use object_store::ObjectStore;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;

/// The limits of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLimits {
    /// The memory of all queries together.
    pub(crate) memory_bytes: u64,
}

/// Runs parts of plans until the process ends. `listening` is called with the address.
pub(crate) async fn serve(
    address: SocketAddr,
    objects: Arc<dyn ObjectStore>,
    limits: WorkerLimits,
    spill: &Path,
    token: Token,
    listening: impl FnOnce(SocketAddr),
) -> Result<()> {
    if !address.ip().is_loopback() && !token.is_set() {
        return Err(Error::System {
            action: "listen on an address of the network",
            reason: "there is no secret; set BACKTRAIL_QUERY_TOKEN for workers and coordinators".into(),
        });
    }
    let store = Arc::new(CountingStore::new(objects, u64::MAX));
    let memory = limits.memory_bytes;
    let limits = Limits {
        memory_bytes: memory,
        ..Limits::default()
    };
    let runtime = session::runtime(Arc::clone(&store), &limits, spill)?;
    let of_sessions = token.clone();
    let worker = Worker::from_session_builder(move |query: WorkerQueryContext| {
        let state = session_of(query, Arc::clone(&store), memory, &of_sessions);
        async move { state }
    })
    .with_runtime_env(runtime);
    let failed = |error: &dyn std::fmt::Display| Error::System {
        action: "listen for coordinators",
        reason: format!("{address}: {error}"),
    };
    let listener = TcpListener::bind(address).await.map_err(|error| failed(&error))?;
    listening(listener.local_addr().map_err(|error| failed(&error))?);
    let check = move |request| token.check(request);
    Server::builder()
        .layer(InterceptorLayer::new(check))
        .add_service(worker.into_worker_server())
        .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener))
        .await
        .map_err(|error| failed(&error))
}

/// Builds the session of a part of a plan.
fn session_of(
    query: WorkerQueryContext,
    store: Arc<CountingStore>,
    memory: u64,
    token: &Token,
) -> std::result::Result<SessionState, DataFusionError> {
    let names = Names::default();
    let codec = WorkerCodec {
        store,
        names: names.clone(),
        memory,
    };
    // Workers ask other workers for rows, with the same secret.
    let builder = query.builder.with_distributed_user_codec(codec);
    let mut state = builder
        .with_distributed_passthrough_headers(token.headers())?
        .build();
    functions::register(&mut state, &names)?;
    Ok(state)
}
