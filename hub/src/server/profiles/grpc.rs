//! Pushes over gRPC: OpenTelemetry's profiles, and `WriteRaw` of Parca's clients.

use super::body::REQUEST_LIMIT;
use super::push;
use crate::hub::Hub;
use crate::profiles::push::parca::{self, WriteRawResponse};
use crate::server::grpc::{Call, status, unary};
use axum::extract::{Request, State};
use axum::response::Response;
use backtrail_store::Origin;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::server::UnaryService;

/// Stores profiles of OTLP.
pub async fn export(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<ExportProfilesServiceResponse, _>(Export(hub), request, REQUEST_LIMIT).await
}

/// Stores profiles of a client of Parca.
pub async fn write_raw(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<WriteRawResponse, _>(WriteRaw(hub), request, REQUEST_LIMIT).await
}

struct Export(Arc<Hub>);

impl UnaryService<Bytes> for Export {
    type Response = ExportProfilesServiceResponse;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let bytes = request.into_inner();
            let memory = memory_of(&hub).await?;
            let stored = push::store_otlp(&hub, bytes.into(), memory).await;
            stored.map_err(|error| status(&error))?;
            Ok(tonic::Response::new(ExportProfilesServiceResponse::default()))
        })
    }
}

struct WriteRaw(Arc<Hub>);

impl UnaryService<Bytes> for WriteRaw {
    type Response = WriteRawResponse;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let bytes = request.into_inner();
            let memory = memory_of(&hub).await?;
            let pushed = parca::read(&bytes).map_err(|error| status(&error))?;
            drop(bytes);
            let stored = push::store(&hub, pushed, Origin::default(), memory).await;
            stored.map_err(|error| status(&error))?;
            Ok(tonic::Response::new(WriteRawResponse {}))
        })
    }
}

/// Waits until there is memory for decoding a message.
async fn memory_of(hub: &Arc<Hub>) -> Result<OwnedSemaphorePermit, Status> {
    let memory = hub.bodies.message().await;
    memory.map_err(|error| status(&error))
}
