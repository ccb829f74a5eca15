//! Pushes over gRPC: OpenTelemetry's profiles, and `WriteRaw` of Parca's clients.

use super::push::{self, REQUEST_LIMIT};
use crate::hub::Hub;
use crate::profiles::push::PushedProfile;
use crate::profiles::push::parca::{self, WriteRawRequest, WriteRawResponse};
use crate::server::grpc::{Call, status, unary};
use axum::extract::{Request, State};
use axum::response::Response;
use backtrail_store::Origin;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use prost::Message;
use std::sync::Arc;
use tonic::Status;
use tonic::server::UnaryService;

/// Stores profiles of OTLP.
pub async fn export(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<ExportProfilesServiceRequest, ExportProfilesServiceResponse, _>(
        Export(hub),
        request,
        REQUEST_LIMIT,
    )
    .await
}

/// Stores profiles of a client of Parca.
pub async fn write_raw(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<WriteRawRequest, WriteRawResponse, _>(WriteRaw(hub), request, REQUEST_LIMIT).await
}

struct Export(Arc<Hub>);

impl UnaryService<ExportProfilesServiceRequest> for Export {
    type Response = ExportProfilesServiceResponse;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<ExportProfilesServiceRequest>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let request = request.into_inner();
            if !request.resource_profiles.is_empty() {
                let pushed = PushedProfile {
                    bytes: request.encode_to_vec(),
                    may_be_empty: true,
                    ..PushedProfile::default()
                };
                store(&hub, vec![pushed]).await?;
            }
            Ok(tonic::Response::new(ExportProfilesServiceResponse::default()))
        })
    }
}

struct WriteRaw(Arc<Hub>);

impl UnaryService<WriteRawRequest> for WriteRaw {
    type Response = WriteRawResponse;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<WriteRawRequest>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let pushed = parca::of_message(request.into_inner()).map_err(|error| status(&error))?;
            store(&hub, pushed).await?;
            Ok(tonic::Response::new(WriteRawResponse {}))
        })
    }
}

async fn store(hub: &Arc<Hub>, pushed: Vec<PushedProfile>) -> Result<(), Status> {
    let stored = push::store(hub, pushed, Origin::default()).await;
    stored.map(|_| ()).map_err(|error| status(&error))
}
