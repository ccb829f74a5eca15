//! Queries of profiles for programs and for the explorer.

use super::selected::{Selected, SelectionQuery};
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::build_units::{self, BuildUnits};
use crate::profiles::query;
use crate::profiles::regressions::{self, INTERVALS, MAX_INTERVALS, RegressionParameters, RegressionReport};
use crate::profiles::selection::{Column, SelectionParameters};
use crate::profiles::sites::answer::SiteAnswer;
use crate::profiles::sites::client::SITE_HEADER;
use crate::profiles::sites::queries::{self, SeriesAnswer};
use crate::profiles::sites::scope::SiteScope;
use crate::profiles::sites::sql as sites_sql;
use crate::profiles::sql::{SqlAnswer, SqlRequest};
use crate::profiles::top::{self, TopFunctions};
use crate::profiles::view::{self, ExportFormat};
use crate::server::api::json::{Body, Parameters};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
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

impl SelectionQuery for MergeParameters {
    const MORE: &'static [&'static str] = &["format"];
}

/// Returns the sum of a selection in the format of a tool.
///
/// # Errors
/// Fails if the selection or the format is malformed, or the query fails.
pub async fn merge(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Selected(MergeParameters { selection, format }): Selected<MergeParameters>,
) -> Result<Response> {
    let is_of_site = check_site(&headers, &selection.selection()?.sites)?;
    let format = if format.is_empty() { "pprof" } else { &format };
    let known = ExportFormat::ALL.iter().find(|(_, name, ..)| *name == format);
    let Some((format, _, _, media)) = known else {
        let names: Vec<_> = EXPORTS.iter().map(|(name, _)| *name).collect();
        return Err(Error::Invalid(format!(
            "the format is one of {}",
            names.join(", ")
        )));
    };
    let (bytes, sites) = match view::export(&hub, &selection, *format).await {
        // Another hub must distinguish an empty part from a wrong address.
        Err(Error::Absent(_)) if is_of_site => return Ok(StatusCode::NO_CONTENT.into_response()),
        done => done?,
    };
    let file = format!("attachment; filename=\"profile.{}\"", format.extension());
    let file = HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        (header::CONTENT_DISPOSITION, file),
    ];
    let mut response = (headers, bytes).into_response();
    if let Some(partial) = partial_header(&sites) {
        response.headers_mut().insert(PARTIAL_HEADER, partial);
    }
    Ok(response)
}

/// The header of a result that lacks the part of a site.
const PARTIAL_HEADER: &str = "backtrail-partial";
/// The longest value of the header in characters.
const MAX_PARTIAL: usize = 2000;

/// Returns the missing parts as the value of a header.
fn partial_header(sites: &[SiteAnswer]) -> Option<HeaderValue> {
    let missing = sites
        .iter()
        .filter_map(|site| Some((&site.name, site.reason.as_ref()?)));
    let missing: Vec<String> = missing
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    let shown = |letter: char| if letter.is_ascii_graphic() { letter } else { ' ' };
    let text: String = missing.join("; ").chars().take(MAX_PARTIAL).map(shown).collect();
    (!missing.is_empty()).then(|| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("yes")))
}

/// Returns whether another hub asks. Its request names no further sites, so that no request goes
/// around.
fn check_site(headers: &HeaderMap, sites: &SiteScope) -> Result<bool> {
    let is_of_site = headers.contains_key(SITE_HEADER);
    if is_of_site && *sites != SiteScope::Own {
        return Err(Error::Invalid(
            "a hub that another hub asks does not ask further ones; leave out sites".to_owned(),
        ));
    }
    Ok(is_of_site)
}

/// The most rows and intervals of an answer.
const MOST: u64 = 1000;

/// The parameters of a list of functions.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopParameters {
    #[serde(flatten)]
    selection: SelectionParameters,
    /// The most rows. Empty: 20.
    rows: String,
}

impl SelectionQuery for TopParameters {
    const MORE: &'static [&'static str] = &["rows"];
}

/// Returns the functions with the largest own weight.
///
/// # Errors
/// Fails if a parameter is malformed, or the query fails.
pub async fn top(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Selected(parameters): Selected<TopParameters>,
) -> Result<Json<TopFunctions>> {
    let selection = parameters.selection.selection()?;
    check_site(&headers, &selection.sites)?;
    let rows = number("rows", &parameters.rows, 20, MOST)?;
    Ok(Json(top::top(&hub, &selection, rows as usize).await?))
}

/// The parameters of weights over time.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SeriesParameters {
    #[serde(flatten)]
    selection: SelectionParameters,
    /// The intervals. Empty: 60.
    intervals: String,
}

impl SelectionQuery for SeriesParameters {
    const MORE: &'static [&'static str] = &["intervals"];
}

/// Returns the weights of each event over time.
///
/// # Errors
/// Fails if a parameter is malformed, or the query fails.
pub async fn series(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Selected(parameters): Selected<SeriesParameters>,
) -> Result<Json<SeriesAnswer>> {
    let selection = parameters.selection.selection()?;
    check_site(&headers, &selection.sites)?;
    let intervals = number("intervals", &parameters.intervals, 60, MOST)?;
    Ok(Json(queries::series(&hub, &selection, intervals).await?))
}

fn number(name: &str, text: &str, usual: u64, most: u64) -> Result<u64> {
    if text.is_empty() {
        return Ok(usual);
    }
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Error::Invalid(format!("{name} is a number from 1 to {most}")))
}

/// Returns the functions whose cost differs between two builds of a service.
///
/// # Errors
/// Fails if a parameter is malformed, a build has too few samples, or the query fails.
pub async fn regressions(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Parameters(parameters): Parameters<RegressionParameters>,
) -> Result<Json<RegressionReport>> {
    check_site(&headers, &SiteScope::read(&parameters.sites)?)?;
    Ok(Json(regressions::compare(&hub, &parameters).await?))
}

/// Returns the weights of functions by host and interval of time, of this hub alone.
///
/// # Errors
/// Fails if a parameter is malformed, or the query fails.
pub async fn units(
    State(hub): State<Arc<Hub>>,
    Selected(parameters): Selected<SeriesParameters>,
) -> Result<Json<BuildUnits>> {
    let selection = parameters.selection.selection()?;
    if selection.sites != SiteScope::Own || !selection.rules.is_empty() {
        return Err(Error::Invalid(
            "units are those of this hub and of all stacks; leave out sites and expressions".to_owned(),
        ));
    }
    let intervals = number("intervals", &parameters.intervals, INTERVALS, MAX_INTERVALS)?;
    Ok(Json(build_units::units(&hub, &selection, intervals).await?))
}

/// Answers a query in SQL.
///
/// # Errors
/// Fails if the query is refused, reaches a limit, or nothing here answers SQL.
pub async fn sql(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Body(request): Body<SqlRequest>,
) -> Result<Json<SqlAnswer>> {
    check_site(&headers, &SiteScope::read(&request.sites)?)?;
    Ok(Json(sites_sql::answer_at(&hub, &request, clock::now()).await?))
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

impl SelectionQuery for ValuesParameters {
    const MORE: &'static [&'static str] = &["column", "prefix"];
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
    Selected(parameters): Selected<ValuesParameters>,
) -> Result<Json<Values>> {
    let column = Column::named(&parameters.column).ok_or_else(|| {
        let names = Column::ALL.map(Column::name).join(", ");
        Error::Invalid(format!("the column is one of {names}"))
    })?;
    let selection = parameters.selection.selection()?;
    let (values, has_more) = query::values(&hub, &selection, column, &parameters.prefix).await?;
    Ok(Json(Values { values, has_more }))
}
