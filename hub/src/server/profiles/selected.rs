//! The parameters of a route that selects samples.

use crate::error::Error;
use crate::profiles::explorer::ExplorerParameters;
use crate::profiles::parameter_names;
use crate::server::api::json::Parameters;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// Parameters that contain a selection.
pub trait SelectionQuery: DeserializeOwned {
    /// The names of the other parameters.
    const MORE: &'static [&'static str];
}

impl SelectionQuery for ExplorerParameters {
    const MORE: &'static [&'static str] = &Self::MORE_NAMES;
}

/// Parameters of an address. Unknown ones are refused.
pub struct Selected<T>(pub T);

impl<T: SelectionQuery, S: Send + Sync> FromRequestParts<S> for Selected<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        parameter_names::check(parts.uri.query().unwrap_or_default(), T::MORE)?;
        let Parameters(found) = Parameters::<T>::from_request_parts(parts, state).await?;
        Ok(Self(found))
    }
}
