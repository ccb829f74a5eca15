//! Unary calls of gRPC, which the HTTP server answers itself.

use crate::error::Error;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use prost::Message;
use std::future::Future;
use std::pin::Pin;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// The future of a call.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, Status>> + Send>>;

/// Answers a unary call, whose message has at most `limit` bytes.
pub async fn unary<Q, A, S>(service: S, request: Request, limit: usize) -> Response
where
    Q: Message + Default + Send + 'static,
    A: Message + Default + Send + 'static,
    S: UnaryService<Q, Response = A>,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default())
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit);
    grpc.unary(service, request).await.map(Body::new)
}

/// Returns the status of gRPC for an error, with the sentence that HTTP has.
#[must_use]
pub fn status(error: &Error) -> Status {
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
