//! Profiles on request: a person asks, the agent of the host takes the request and sends a profile.

use crate::database::profile_requests::{ProfileOrder, ProfileRequest};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::server::api::json::{Body, Parameters};
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time in seconds that a question of an agent waits for a request. It is below the
/// limits of proxies.
const LONGEST_WAIT: u64 = 20;
/// The time between two looks, for requests that another hub took from a person.
const LOOK: Duration = Duration::from_secs(1);
/// The length of a profile in seconds.
const SECONDS: RangeInclusive<i64> = 1..=600;
/// The samples a second.
const FREQUENCY: RangeInclusive<i64> = 1..=2000;
/// The longest name of a host, in bytes.
const MAX_HOST: usize = 255;
/// The longest reason of an agent, in characters.
const MAX_PROBLEM: usize = 500;
/// Events that can be asked for.
const EVENTS: [&str; 6] = [
    "cpu",
    "off-cpu",
    "cycles",
    "instructions",
    "cache-misses",
    "page-faults",
];

/// A request of a person.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRequest {
    /// The host.
    pub host: String,
    /// The event.
    #[serde(default = "cpu")]
    pub event: String,
    /// The samples a second of each busy processor.
    #[serde(default = "frequency")]
    pub frequency: i64,
    /// The length in seconds.
    #[serde(default = "seconds")]
    pub seconds: i64,
}

fn cpu() -> String {
    "cpu".to_owned()
}

const fn frequency() -> i64 {
    199
}

const fn seconds() -> i64 {
    10
}

/// The answer to a request.
#[derive(Serialize)]
pub struct Created {
    id: String,
    /// The page that shows the state, and then the profile.
    link: String,
}

/// Adds a request, and wakes the agents that wait.
///
/// # Errors
/// Fails if a value is out of range, or the database fails.
pub async fn add(hub: &Hub, caller: &Caller, request: &NewRequest) -> Result<String> {
    let NewRequest {
        host,
        event,
        frequency,
        seconds,
    } = request;
    if host.is_empty() || host.len() > MAX_HOST {
        return Err(Error::Invalid("a request names a host".to_owned()));
    }
    if !EVENTS.contains(&event.as_str()) {
        let known = EVENTS.join(", ");
        return Err(Error::Invalid(format!("the event is one of {known}")));
    }
    if !SECONDS.contains(seconds) || !FREQUENCY.contains(frequency) {
        return Err(Error::Invalid(format!(
            "a profile takes {} to {} seconds, with {} to {} samples a second",
            SECONDS.start(),
            SECONDS.end(),
            FREQUENCY.start(),
            FREQUENCY.end()
        )));
    }
    let order = ProfileOrder {
        id: String::new(),
        event: event.clone(),
        frequency: *frequency,
        seconds: *seconds,
    };
    let id = hub
        .database
        .add_profile_request(host, &caller.name, &order)
        .await?;
    hub.database.log_action(&caller.name, "profile", host).await?;
    hub.wake_agents.notify_waiters();
    Ok(id)
}

/// Takes a request of a program.
///
/// # Errors
/// As [`add`].
pub async fn create(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<NewRequest>,
) -> Result<(StatusCode, Json<Created>)> {
    let id = add(&hub, &caller, &request).await?;
    let link = format!("{}/profiles/now/{id}", hub.config.public_url());
    Ok((StatusCode::CREATED, Json(Created { id, link })))
}

/// The agent that asks.
#[derive(Deserialize)]
pub struct AgentParameters {
    host: String,
}

/// Returns the next request of a host, or 204 if there is none. The header `Prefer: wait=SECONDS`
/// (RFC 7240) waits for one.
///
/// # Errors
/// Fails if the database fails.
pub async fn next(
    State(hub): State<Arc<Hub>>,
    Parameters(AgentParameters { host }): Parameters<AgentParameters>,
    headers: HeaderMap,
) -> Result<Response> {
    if host.is_empty() || host.len() > MAX_HOST {
        return Err(Error::Invalid("an agent names its host".to_owned()));
    }
    hub.database.note_profile_agent(&host).await?;
    let end = Instant::now() + wait(&headers);
    loop {
        // The wait begins before the look, so that no request comes between them.
        let woken = hub.wake_agents.notified();
        if let Some(order) = hub.database.take_profile_request(&host).await? {
            return Ok(Json(order).into_response());
        }
        if Instant::now() >= end {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let _ = tokio::time::timeout(LOOK, woken).await;
    }
}

/// Returns the time that the sender wants to wait.
fn wait(headers: &HeaderMap) -> Duration {
    let preferences = headers.get("prefer").and_then(|value| value.to_str().ok());
    let seconds = preferences
        .unwrap_or_default()
        .split(',')
        .find_map(|one| one.trim().strip_prefix("wait=")?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0).min(LONGEST_WAIT))
}

/// The end of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    host: String,
    /// The reason for which there is no profile.
    #[serde(default)]
    problem: Option<String>,
}

/// Notes that the profile of a request is stored, or that there is none.
///
/// # Errors
/// Fails if the host has no such request, or the database fails.
pub async fn end(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(Ended { host, problem }): Body<Ended>,
) -> Result<StatusCode> {
    let problem = problem.map(|problem| problem.chars().take(MAX_PROBLEM).collect::<String>());
    hub.database
        .end_profile_request(&id, &host, problem.as_deref())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns a request with its state.
///
/// # Errors
/// Fails if there is no such request, or the database fails.
pub async fn one(State(hub): State<Arc<Hub>>, Path(id): Path<String>) -> Result<Json<ProfileRequest>> {
    Ok(Json(hub.database.profile_request(&id).await?))
}
