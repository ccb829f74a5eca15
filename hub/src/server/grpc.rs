//! Unary calls of gRPC, which the HTTP server answers itself.

use crate::error::Error;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::{Buf, Bytes};
use prost::Message;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use tonic::codec::{BufferSettings, Codec, CompressionEncoding, DecodeBuf, Decoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// The future of a call.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, Status>> + Send>>;

/// Answers a unary call, whose message has at most `limit` bytes. The service decodes it, because a
/// decoded message may take many times its bytes.
pub async fn unary<A, S>(service: S, request: Request, limit: usize) -> Response
where
    A: Message + Default + Send + 'static,
    S: UnaryService<Bytes, Response = A>,
{
    let mut grpc = Grpc::new(BytesCodec::<A>(PhantomData))
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

/// Encodes answers, and leaves requests as they are.
struct BytesCodec<A>(PhantomData<A>);

impl<A: Message + Send + 'static> Codec for BytesCodec<A> {
    type Encode = A;
    type Decode = Bytes;
    type Encoder = <ProstCodec<A, ()> as Codec>::Encoder;
    type Decoder = BytesDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<A, ()>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> BytesDecoder {
        BytesDecoder
    }
}

struct BytesDecoder;

impl Decoder for BytesDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
