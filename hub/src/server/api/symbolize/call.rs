//! The service of `docs/symbolize.proto` over gRPC.

use super::proto::{self, RequestMessage, ResponseMessage};
use super::{MAX_BODY, answers};
use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use crate::server::grpc::{Call, status, unary};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use tonic::Status;
use tonic::server::UnaryService;

/// Returns the frames at offsets of builds.
pub async fn symbolize_call(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<ResponseMessage, _>(Symbolize(hub), request, MAX_BODY).await
}

struct Symbolize(Arc<Hub>);

impl UnaryService<Bytes> for Symbolize {
    type Response = ResponseMessage;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let request = RequestMessage::decode(request.into_inner())
                .map_err(|error| Status::invalid_argument(format!("the message is damaged: {error}")))?;
            let answered = answer(&hub, request).await;
            answered.map(tonic::Response::new).map_err(|error| status(&error))
        })
    }
}

async fn answer(hub: &Arc<Hub>, request: RequestMessage) -> Result<ResponseMessage> {
    let answers = answers(hub, request.into()).await?;
    blocking(move || Ok(proto::message(&answers))).await
}
