//! Views of an answer to SQL: parts of pages for charts, and a page for a flame graph.

use super::profiles::{framed, framed_failure};
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use crate::profiles::sites::sql;
use crate::profiles::sql::SqlRequest;
use crate::profiles::sql_parameters::SqlParameters;
use crate::profiles::sql_view::{self, AnswerView, ChartKind};
use crate::server::api::json::Parameters;
use crate::server::pages::sql_view as pages;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::Markup;
use std::sync::Arc;

/// Runs a query, and returns a view of its answer.
///
/// # Errors
/// Fails if the query fails, or its answer does not fit the view. The failure of a flame graph is a
/// page for the frame, if a person asks.
pub async fn show(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Parameters(parameters): Parameters<SqlParameters>,
) -> Result<Response> {
    let view = AnswerView::named(&parameters.view)?;
    let request = parameters.request();
    match view {
        AnswerView::Chart(kind) => Ok(chart(&hub, &request, kind).await?.into_response()),
        AnswerView::Graph => match graph(&hub, &request).await {
            Ok(page) => Ok(framed(StatusCode::OK, page)),
            Err(error) => framed_failure(&headers, error),
        },
    }
}

async fn chart(hub: &Arc<Hub>, request: &SqlRequest, kind: ChartKind) -> Result<Markup> {
    let now = clock::now();
    let times = request.times_at(now)?;
    let micros = |nanoseconds: u64| i64::try_from(nanoseconds / 1000).unwrap_or(i64::MAX);
    let range = micros(times.start)..micros(times.end).saturating_add(1);
    let answer = sql::answer_at(hub, request, now).await?;
    blocking(move || {
        let chart = sql_view::chart(&answer, kind, &range)?;
        Ok(pages::chart(&chart, &sql_view::missing_parts(&answer)))
    })
    .await
}

async fn graph(hub: &Arc<Hub>, request: &SqlRequest) -> Result<Vec<u8>> {
    let answer = sql::answer_at(hub, request, clock::now()).await?;
    blocking(move || sql_view::graph_page(&answer)).await
}
