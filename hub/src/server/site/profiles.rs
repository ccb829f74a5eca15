//! The explorer of profiles, its view, and requests for profiles.

use super::frame::{check_form, frame, see};
use crate::clock;
use crate::database::profile_requests::PATIENCE;
use crate::error::Result;
use crate::hub::Hub;
use crate::profiles::compare::CompareParameters;
use crate::profiles::selection::{Column, Selection, SelectionParameters};
use crate::profiles::sites::answer::SiteAnswer;
use crate::profiles::sites::queries;
use crate::profiles::view;
use crate::server::api::json::Parameters;
use crate::server::caller::Caller;
use crate::server::pages::profile_request::{self, RequestPage, RequestState};
use crate::server::pages::profile_series::SeriesChart;
use crate::server::pages::profiles::{self, ProfilesPage};
use crate::server::pages::sql::{self, SqlPage};
use crate::server::profiles::queries::EXPORTS;
use crate::server::profiles::requests::{self, NewRequest};
use axum::extract::{Form, Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use maud::Markup;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The policy of the view, whose own policy allows its script by hash. Only our pages show it.
const VIEW_POLICY: &str = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'";

/// The intervals of the chart over time.
const INTERVALS: u64 = 120;

/// The parameters of the explorer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExplorerParameters {
    #[serde(flatten)]
    selection: SelectionParameters,
    #[serde(flatten)]
    compare: CompareParameters,
}

impl ExplorerParameters {
    /// Returns the query of an address with these parameters, and one more if it is not empty.
    fn query(&self, more: Option<(&str, &str)>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let pairs = self.selection.pairs().into_iter().chain(self.compare.pairs());
        for (name, value) in pairs.chain(more) {
            query.append_pair(name, value);
        }
        query.finish()
    }
}

/// Returns the explorer.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Parameters(parameters): Parameters<ExplorerParameters>,
) -> Result<Markup> {
    let (_, samples, bytes) = hub.database.profile_totals().await?;
    let ExplorerParameters { selection, compare } = &parameters;
    let problem = match (selection.selection(), compare.base(selection)) {
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        _ => None,
    };
    let labels = [
        "Service", "Event", "Host", "Build", "Region", "Language", "Thread",
    ];
    let columns = Column::ALL.into_iter().zip(labels);
    let fields = selection.pairs().into_iter().chain(compare.pairs());
    let exports = EXPORTS.iter().filter(|_| compare.pairs().is_empty());
    let sites = hub.database.sites().await?;
    let has_any = samples > 0 || !sites.is_empty();
    let (series, missing) = match selection.selection() {
        Ok(selection) if has_any => series(&hub, &selection).await?,
        _ => (None, Vec::new()),
    };
    let view = ProfilesPage {
        frame: frame(&caller, "Profiles"),
        series,
        missing,
        sites: sites
            .into_iter()
            .filter(|site| site.is_enabled)
            .map(|site| site.name)
            .collect(),
        columns: columns
            .map(|(column, label)| (column.name(), label, selection.column(column).to_owned()))
            .collect(),
        fields: fields.map(|(name, value)| (name, value.to_owned())).collect(),
        view: problem
            .is_none()
            .then(|| format!("/profiles/view?{}", parameters.query(None))),
        exports: exports
            .map(|(name, label)| {
                let query = parameters.query(Some(("format", name)));
                (*label, format!("/api/v1/profiles/merge?{query}"))
            })
            .collect(),
        problem,
        samples: samples.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
        address: hub.config.public_url(),
        hosts: hub.database.profile_hosts().await?,
    };
    Ok(profiles::render(&view))
}

/// Returns the weights of the event that the view shows first, and the missing parts of sites.
async fn series(hub: &Arc<Hub>, selection: &Selection) -> Result<(Option<SeriesChart>, Vec<String>)> {
    let found = queries::series(hub, selection, INTERVALS).await?;
    let missing = found.sites.iter().filter_map(SiteAnswer::note).collect();
    let micros = |nanoseconds: u64| i64::try_from(nanoseconds / 1000).unwrap_or(i64::MAX);
    let chart = found.series.into_iter().next().map(|one| SeriesChart {
        event: one.event,
        unit: one.unit,
        start: micros(one.start),
        step: micros(one.step),
        weights: one.weights,
    });
    Ok((chart, missing))
}

/// Returns the view of a selection as a page of its own, for the frame of the explorer.
///
/// # Errors
/// Fails if the selection is malformed, or the query reaches a limit of memory.
pub async fn show(
    State(hub): State<Arc<Hub>>,
    Parameters(ExplorerParameters { selection, compare }): Parameters<ExplorerParameters>,
) -> Result<Response> {
    let base = compare.base(&selection)?;
    let page = view::page(&hub, &selection, base.as_ref()).await?;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(VIEW_POLICY),
        ),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN")),
    ];
    Ok((headers, page).into_response())
}

/// The parameters of the page for SQL.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SqlParameters {
    sql: String,
    from: String,
}

/// Returns the page for SQL.
pub async fn sql(
    Extension(caller): Extension<Caller>,
    Parameters(SqlParameters { sql, from }): Parameters<SqlParameters>,
) -> Markup {
    sql::render(&SqlPage {
        frame: frame(&caller, "SQL"),
        sql,
        from,
    })
}

/// The form of a request.
#[derive(Deserialize)]
pub struct NowForm {
    #[serde(default)]
    csrf: String,
    host: String,
    event: String,
    seconds: i64,
    frequency: i64,
}

/// Asks the agent of a host for a profile.
///
/// # Errors
/// Fails if a value is out of range, or the database fails.
pub async fn now(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<NowForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    let request = NewRequest {
        host: form.host,
        event: form.event,
        frequency: form.frequency,
        seconds: form.seconds,
    };
    let id = requests::add(&hub, &caller, &request).await?;
    Ok(see(&format!("/profiles/now/{id}")))
}

/// Returns the page of a request.
///
/// # Errors
/// Fails if there is no such request, or the database fails.
pub async fn request(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Markup> {
    let request = hub.database.profile_request(&id).await?;
    let view = RequestPage {
        frame: frame(&caller, "Profile now"),
        state: state_of(&request),
        id: request.order.id,
        host: request.host,
        event: request.order.event,
        seconds: request.order.seconds,
        frequency: request.order.frequency,
    };
    Ok(profile_request::render(&view))
}

/// Returns the state of a request, for the script of its page.
///
/// # Errors
/// Fails if there is no such request, or the database fails.
pub async fn request_state(State(hub): State<Arc<Hub>>, Path(id): Path<String>) -> Result<Json<Value>> {
    let request = hub.database.profile_request(&id).await?;
    let state = state_of(&request);
    let length = request.order.seconds.max(1) * clock::SECOND;
    let done = request.taken.map(|taken| {
        let elapsed = (clock::now() - taken).clamp(0, length);
        elapsed as f64 / length as f64
    });
    Ok(Json(json!({
        "state": state.name(),
        "text": state.text(&request.host),
        "done": done,
    })))
}

fn state_of(request: &crate::database::profile_requests::ProfileRequest) -> RequestState {
    match (request.ended, &request.problem, request.taken) {
        (Some(_), Some(problem), _) => RequestState::Failed(problem.clone()),
        (Some(ended), None, _) => RequestState::Stored(address(request, ended)),
        (None, _, Some(_)) => RequestState::Running,
        (None, _, None) if request.created < clock::now() - PATIENCE => RequestState::Expired,
        (None, _, None) => RequestState::Waiting,
    }
}

/// Returns the address of the explorer with the samples of a request.
fn address(request: &crate::database::profile_requests::ProfileRequest, ended: i64) -> String {
    let time = |micros: i64| {
        let seconds = micros.div_euclid(clock::SECOND).unsigned_abs();
        crate::profiles::selection::time_text(seconds.saturating_mul(1_000_000_000))
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("labels", &format!("request={}", request.order.id));
    // Clocks of hosts differ.
    query.append_pair("from", &time(request.created - 5 * 60 * clock::SECOND));
    query.append_pair("until", &time(ended + 5 * 60 * clock::SECOND));
    format!("/profiles?{}", query.finish())
}
