//! The explorer of profiles, its view, and requests for profiles.

use super::frame::{check_form, frame, see};
use super::saved_views;
use crate::clock;
use crate::database::profile_requests::{PATIENCE, ProfileRequest};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::charts::{self as data, DistributionOf};
use crate::profiles::explorer::ExplorerParameters;
use crate::profiles::parameter_names;
use crate::profiles::saved_page::SavedPage;
use crate::profiles::selection::{Column, Selection};
use crate::profiles::sites::answer::SiteAnswer;
use crate::profiles::sites::queries;
use crate::profiles::sql_parameters::SqlParameters;
use crate::profiles::view;
use crate::server::api::json::Parameters;
use crate::server::caller::Caller;
use crate::server::pages::profile_distribution::DistributionChart;
use crate::server::pages::profile_heat_map::HeatMapChart;
use crate::server::pages::profile_request::{self, RequestPage, RequestState};
use crate::server::pages::profile_series::SeriesChart;
use crate::server::pages::profiles::{self, Chart, ProfilesPage};
use crate::server::pages::sql::{self, SqlPage};
use crate::server::pages::sql_view::problem as problem_page;
use crate::server::profiles::queries::EXPORTS;
use crate::server::profiles::requests::{self, NewRequest};
use crate::server::profiles::selected::Selected;
use axum::extract::{Form, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
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
/// The charts, with their names in addresses and their labels.
const CHARTS: [(&str, &str); 3] = [
    ("", "Over time"),
    ("heat", "Heat map"),
    ("distribution", "Distribution"),
];

/// Returns the explorer.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    Parameters(parameters): Parameters<ExplorerParameters>,
) -> Result<Markup> {
    let (_, samples, bytes) = hub.database.profile_totals().await?;
    let ExplorerParameters {
        selection, compare, ..
    } = &parameters;
    let shown = parameters.view_selection();
    let chosen = selection.selection();
    let problem = match (&chosen, shown.selection(), compare.base(&shown)) {
        (Err(error), ..) => Some(error.to_string()),
        (_, Err(error), _) | (.., Err(error)) => Some(error.to_string()),
        _ => None,
    };
    let sites = hub.database.sites().await?;
    let has_any = samples > 0 || !sites.is_empty();
    let (mut missing, mut problem) = (Vec::new(), problem);
    let mut chart = Chart::Nothing;
    let mut has_view = true;
    if let (Ok(selection), None, true) = (&chosen, &problem, has_any) {
        match chart_of(&hub, selection, &parameters).await {
            Ok(found) => (chart, missing) = found,
            Err(error @ Error::Invalid(_)) => problem = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        if problem.is_none() && chart != Chart::Nothing {
            let without_base = missing_base(&hub, &parameters).await?;
            has_view = without_base.is_none();
            missing.extend(without_base);
        }
    }
    let names = parameter_names::check(uri.query().unwrap_or_default(), &ExplorerParameters::MORE_NAMES);
    missing.extend(names.err().map(|error| error.to_string()));
    let labels = [
        "Service", "Event", "Host", "Build", "Region", "Language", "Thread",
    ];
    let columns = Column::ALL.into_iter().zip(labels);
    let exports = EXPORTS.iter().filter(|_| compare.pairs().is_empty());
    let address = hub.config.public_url();
    let view = ProfilesPage {
        view: (problem.is_none() && chart != Chart::Nothing && has_view).then(|| view_address(&parameters)),
        chart,
        charts: charts(&parameters),
        missing,
        sites: sites
            .into_iter()
            .filter(|site| site.is_enabled)
            .map(|site| site.name)
            .collect(),
        columns: columns
            .map(|(column, label)| (column.name(), label, selection.column(column).to_owned()))
            .collect(),
        fields: parameters
            .pairs()
            .into_iter()
            .map(|(name, value)| (name, value.to_owned()))
            .collect(),
        exports: exports
            .map(|(name, label)| {
                let query = parameters.view_query(Some(("format", name)));
                (*label, format!("/api/v1/profiles/merge?{query}"))
            })
            .collect(),
        share: chosen
            .as_ref()
            .ok()
            .map(|chosen| format!("{address}/profiles?{}", parameters.with_times_of(chosen).query())),
        query: parameters.query(),
        saved: saved_views::rows(&hub, &caller, SavedPage::Explorer).await?,
        frame: frame(&caller, "Profiles"),
        problem,
        samples: samples.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
        address,
        hosts: hub.database.profile_hosts().await?,
    };
    Ok(profiles::render(&view))
}

/// Returns the address of the view, with what a person chose in it.
fn view_address(parameters: &ExplorerParameters) -> String {
    let address = format!("/profiles/view?{}", parameters.view_query(None));
    match parameters.view_choices() {
        choices if choices.is_empty() => address,
        choices => format!("{address}#{choices}"),
    }
}

/// Returns the addresses of the charts: label, address, and whether it is shown.
fn charts(parameters: &ExplorerParameters) -> Vec<(&'static str, String, bool)> {
    let chart = |(name, label)| {
        let address = format!("/profiles?{}", parameters.with_chart(name, "").query());
        (label, address, parameters.shown.chart == name)
    };
    CHARTS.map(chart).to_vec()
}

/// Returns the chart that is chosen, and the missing parts of sites.
async fn chart_of(
    hub: &Arc<Hub>,
    selection: &Selection,
    parameters: &ExplorerParameters,
) -> Result<(Chart, Vec<String>)> {
    let micros = |nanoseconds: u64| i64::try_from(nanoseconds / 1000).unwrap_or(i64::MAX);
    let of = DistributionOf::named(&parameters.shown.per)?;
    let mut missing = Vec::new();
    let chart = match parameters.shown.chart.as_str() {
        "" => {
            let found = queries::series(hub, selection, INTERVALS).await?;
            let sites = found.sites.iter().filter_map(SiteAnswer::note);
            missing = sites.chain(found.notes).collect();
            match found.series.into_iter().next() {
                None => Chart::Nothing,
                Some(one) => Chart::Series(SeriesChart {
                    event: one.event,
                    unit: one.unit,
                    start: micros(one.start),
                    step: micros(one.step),
                    weights: one.weights,
                }),
            }
        }
        "heat" => match data::heat_map(hub, selection).await? {
            None => Chart::Nothing,
            Some(map) => Chart::HeatMap(HeatMapChart {
                event: map.event.event,
                unit: map.event.unit,
                start: micros(map.start),
                step: micros(map.step),
                columns: map.columns,
                notes: map.notes,
            }),
        },
        "distribution" => match data::distribution(hub, selection, of).await? {
            None => Chart::Nothing,
            Some(found) => Chart::Distribution(DistributionChart {
                event: found.event.event,
                unit: found.event.unit,
                choices: values(parameters, of),
                step: if of == DistributionOf::Samples {
                    0
                } else {
                    micros(found.step)
                },
                distribution: found.distribution,
                notes: found.notes,
            }),
        },
        other => {
            return Err(Error::Invalid(format!(
                "the chart is heat or distribution, not \"{}\"",
                other.escape_debug()
            )));
        }
    };
    Ok((chart, missing))
}

/// Returns the addresses of the values of a distribution.
fn values(parameters: &ExplorerParameters, shown: DistributionOf) -> Vec<(&'static str, String, bool)> {
    let labels = ["Samples", "Hosts", "Threads"];
    let all = DistributionOf::ALL.into_iter().zip(labels);
    let value = |((of, name), label)| {
        let address = format!(
            "/profiles?{}",
            parameters.with_chart("distribution", name).query()
        );
        (label, address, of == shown)
    };
    all.map(value).collect()
}

/// Returns the view of a selection as a page of its own, for the frame of the explorer.
///
/// # Errors
/// Fails if the selection is malformed, if nothing is selected, or if the query reaches a limit of
/// memory. A person gets a page for the frame.
pub async fn show(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Selected(parameters): Selected<ExplorerParameters>,
) -> Result<Response> {
    let selection = parameters.view_selection();
    let base = parameters.compare.base(&selection)?;
    match view::page(&hub, &selection, base.as_ref()).await {
        Ok(page) => Ok(framed(StatusCode::OK, page)),
        Err(error) => framed_failure(&headers, error),
    }
}

/// Returns the sentence about a comparison that has no view. `None`: there is no comparison, or it
/// has one.
async fn missing_base(hub: &Arc<Hub>, parameters: &ExplorerParameters) -> Result<Option<String>> {
    let shown = parameters.view_selection();
    let Some(base) = parameters.compare.base(&shown)? else {
        return Ok(None);
    };
    let before = queries::series(hub, &base, 1).await?.series;
    if before.is_empty() {
        let text = "the base of the comparison has no samples; choose another time, build or labels";
        return Ok(Some(text.to_owned()));
    }
    let after = queries::series(hub, &shown.selection()?, 1).await?.series;
    let is_shared = after.iter().any(|one| {
        let mut others = before.iter();
        others.any(|other| (&other.event, &other.unit) == (&one.event, &one.unit))
    });
    let text = "the base of the comparison has no event of the selection; choose other times";
    Ok((!is_shared).then(|| text.to_owned()))
}

/// Returns an error as a page for a frame, if a person asks.
pub(super) fn framed_failure(headers: &HeaderMap, error: Error) -> Result<Response> {
    if !is_person(headers) {
        return Err(error);
    }
    let page = problem_page(&message(&error)).into_string();
    Ok(framed(error.status(), page.into_bytes()))
}

/// Returns whether a browser asks for a page.
fn is_person(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns the sentence of an error for a person. Failures of the hub are in its log.
fn message(error: &Error) -> String {
    if error.status() == StatusCode::SERVICE_UNAVAILABLE {
        tracing::error!("{error}");
        return "the hub cannot do this now; its log has the reason".to_owned();
    }
    error.to_string()
}

/// Returns a page for the frame of one of our pages.
pub(super) fn framed(status: StatusCode, page: Vec<u8>) -> Response {
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
    (status, headers, page).into_response()
}

/// Returns the page for SQL.
///
/// # Errors
/// Fails if the database fails.
pub async fn sql(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Parameters(parameters): Parameters<SqlParameters>,
) -> Result<Markup> {
    let sites = hub.database.sites().await?;
    Ok(sql::render(&SqlPage {
        frame: frame(&caller, "SQL"),
        query: parameters.query(),
        saved: saved_views::rows(&hub, &caller, SavedPage::Sql).await?,
        sql: parameters.sql,
        from: parameters.from,
        until: parameters.until,
        sites: parameters.sites,
        combine: parameters.combine,
        known: sites
            .into_iter()
            .filter(|site| site.is_enabled)
            .map(|site| site.name)
            .collect(),
        view: parameters.view,
    }))
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
        "again": pause(&request, clock::now()),
    })))
}

/// Returns the milliseconds after which the page asks again: few while a change is near.
fn pause(request: &ProfileRequest, now: i64) -> i64 {
    /// The pause while a change is near, and the longest one.
    const NEAR: i64 = 300;
    const FAR: i64 = 2000;
    let length = request.order.seconds.max(1) * clock::SECOND;
    let left = request.taken.map_or(0, |taken| taken + length - now);
    (left / (clock::SECOND / 1000)).clamp(NEAR, FAR)
}

fn state_of(request: &ProfileRequest) -> RequestState {
    match (request.ended, &request.problem, request.taken) {
        (Some(_), Some(problem), _) => RequestState::Failed(problem.clone()),
        (Some(ended), None, _) => RequestState::Stored(address(request, ended)),
        (None, _, Some(_)) => RequestState::Running,
        (None, _, None) if request.created < clock::now() - PATIENCE => RequestState::Expired,
        (None, _, None) => RequestState::Waiting,
    }
}

/// Returns the address of the explorer with the samples of a request.
fn address(request: &ProfileRequest, ended: i64) -> String {
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
