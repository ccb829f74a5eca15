//! JSON bodies, with errors of one sentence.

use crate::error::Error;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use serde::de::DeserializeOwned;

/// The largest JSON body of any route in bytes.
const LARGEST: u64 = 8 << 20;

/// A JSON body of a request.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let too_large = || Error::TooLarge("the request has more bytes than this address takes".to_owned());
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|bytes| bytes > LARGEST) {
            // The sender need not send them first.
            return Err(too_large());
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
                too_large()
            } else {
                Error::Invalid("the request ended early".to_owned())
            }
        })?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| Error::Invalid(format!("the request's JSON is not as documented: {error}")))
    }
}

/// The parameters after the question mark of an address.
pub struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> axum::extract::FromRequestParts<S> for Parameters<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<Self, Error> {
        let found = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        found
            .map(|query| Self(query.0))
            .map_err(|rejection| Error::Invalid(rejection.body_text()))
    }
}
