//! Pushes over gRPC: OpenTelemetry's profiles, and `WriteRaw` of Parca's clients.

use super::push::{self, REQUEST_LIMIT};
use crate::error::Error;
use crate::hub::Hub;
use crate::profiles::push::PushedProfile;
use crate::profiles::push::parca::{self, WriteRawRequest, WriteRawResponse};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use backtrail_store::Origin;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use prost::Message;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// The future of a call.
type Call<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, Status>> + Send>>;

/// Stores profiles of OTLP.
pub async fn export(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<ExportProfilesServiceRequest, ExportProfilesServiceResponse, _>(Export(hub), request).await
}

/// Stores profiles of a client of Parca.
pub async fn write_raw(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<WriteRawRequest, WriteRawResponse, _>(WriteRaw(hub), request).await
}

/// Answers a unary call.
async fn unary<Q, A, S>(service: S, request: Request) -> Response
where
    Q: Message + Default + Send + 'static,
    A: Message + Default + Send + 'static,
    S: UnaryService<Q, Response = A>,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default())
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(REQUEST_LIMIT);
    grpc.unary(service, request).await.map(Body::new)
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
    stored.map_err(|error| status(&error))
}

/// Returns the status of gRPC for an error, with the sentence that HTTP has.
fn status(error: &Error) -> Status {
    let code = match error.status() {
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => {
            tracing::error!("{error}");
            return Status::unavailable("the hub cannot do this now; its log has the reason");
        }
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}
