//! Queries of profiles for programs and for the explorer.

use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::query;
use crate::profiles::regressions::{self, RegressionParameters, RegressionReport};
use crate::profiles::selection::{Column, SelectionParameters};
use crate::profiles::sql::{self, SqlAnswer, SqlRequest};
use crate::profiles::view::{self, ExportFormat};
use crate::server::api::json::{Body, Parameters};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The formats of exports: the name in addresses, and the label.
pub const EXPORTS: [(&str, &str); 7] = {
    let mut exports = [("", ""); 7];
    let mut at = 0;
    while at < exports.len() {
        exports[at] = (ExportFormat::ALL[at].1, ExportFormat::ALL[at].2);
        at += 1;
    }
    exports
};

/// The parameters of an export.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MergeParameters {
    #[serde(flatten)]
    selection: SelectionParameters,
    /// The format.
    format: String,
}

/// Returns the sum of a selection in the format of a tool.
///
/// # Errors
/// Fails if the selection or the format is malformed, or the query fails.
pub async fn merge(
    State(hub): State<Arc<Hub>>,
    Parameters(MergeParameters { selection, format }): Parameters<MergeParameters>,
) -> Result<Response> {
    let format = if format.is_empty() { "pprof" } else { &format };
    let known = ExportFormat::ALL.iter().find(|(_, name, ..)| *name == format);
    let Some((format, _, _, media)) = known else {
        let names: Vec<_> = EXPORTS.iter().map(|(name, _)| *name).collect();
        return Err(Error::Invalid(format!(
            "the format is one of {}",
            names.join(", ")
        )));
    };
    let bytes = view::export(&hub, &selection, *format).await?;
    let file = format!("attachment; filename=\"profile.{}\"", format.extension());
    let file = HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        (header::CONTENT_DISPOSITION, file),
    ];
    Ok((headers, bytes).into_response())
}

/// Returns the functions whose cost differs between two builds of a service.
///
/// # Errors
/// Fails if a parameter is malformed, a build has too few samples, or the query fails.
pub async fn regressions(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<RegressionParameters>,
) -> Result<Json<RegressionReport>> {
    Ok(Json(regressions::compare(&hub, &parameters).await?))
}

/// Answers a query in SQL.
///
/// # Errors
/// Fails if the query is refused, reaches a limit, or nothing here answers SQL.
pub async fn sql(State(hub): State<Arc<Hub>>, Body(request): Body<SqlRequest>) -> Result<Json<SqlAnswer>> {
    Ok(Json(sql::answer(&hub, &request).await?))
}

/// The parameters of a completion.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ValuesParameters {
    #[serde(flatten)]
    selection: SelectionParameters,
    /// The column.
    column: String,
    /// The start of the values.
    prefix: String,
}

/// Values of a column.
#[derive(Debug, Serialize)]
pub struct Values {
    values: Vec<String>,
    /// Whether there are more.
    has_more: bool,
}

/// Returns the values of a column with a prefix, in their order.
///
/// # Errors
/// Fails if there is no such column, or the query fails.
pub async fn values(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<ValuesParameters>,
) -> Result<Json<Values>> {
    let column = Column::named(&parameters.column).ok_or_else(|| {
        let names = Column::ALL.map(Column::name).join(", ");
        Error::Invalid(format!("the column is one of {names}"))
    })?;
    let selection = parameters.selection.selection()?;
    let (values, has_more) = query::values(&hub, &selection, column, &parameters.prefix).await?;
    Ok(Json(Values { values, has_more }))
}
