//! The service of `docs/symbolize.proto` over gRPC.

use super::proto::{self, RequestMessage, ResponseMessage};
use super::{MAX_BODY, answers};
use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use crate::server::grpc::{Call, status, unary};
use axum::extract::{Request, State};
use axum::response::Response;
use std::sync::Arc;
use tonic::server::UnaryService;

/// Returns the frames at offsets of builds.
pub async fn symbolize_call(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    unary::<RequestMessage, ResponseMessage, _>(Symbolize(hub), request, MAX_BODY).await
}

struct Symbolize(Arc<Hub>);

impl UnaryService<RequestMessage> for Symbolize {
    type Response = ResponseMessage;
    type Future = Call<Self::Response>;

    fn call(&mut self, request: tonic::Request<RequestMessage>) -> Self::Future {
        let hub = self.0.clone();
        Box::pin(async move {
            let answered = answer(&hub, request.into_inner()).await;
            answered.map(tonic::Response::new).map_err(|error| status(&error))
        })
    }
}

async fn answer(hub: &Arc<Hub>, request: RequestMessage) -> Result<ResponseMessage> {
    let answers = answers(hub, request.into()).await?;
    blocking(move || Ok(proto::message(&answers))).await
}
