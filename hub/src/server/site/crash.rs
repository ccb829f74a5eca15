//! The page of a crash.

use super::frame::{check_form, frame, see};
use crate::access::Scope;
use crate::analysis::Analysis;
use crate::clock;
use crate::database::jobs::JobKind;
use crate::database::reports::{BundleState as State, ReportRow};
use crate::error::Result;
use crate::hub::Hub;
use crate::server::caller::Caller;
use crate::server::pages::crash::{self, BundleState, CrashPage};
use axum::extract::{Form, Path};
use axum::response::Redirect;
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use maud::Markup;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Progress of a job, as its hub noted it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Noted {
    stage: String,
    done: f64,
}

/// The form that pins a crash.
#[derive(Deserialize)]
pub struct PinForm {
    #[serde(default)]
    csrf: String,
    pinned: String,
}

/// Returns the page.
///
/// # Errors
/// Fails if there is no such crash, or the database or the object store fails.
pub async fn page(
    axum::extract::State(hub): axum::extract::State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Markup> {
    let row = hub.database.report(&id).await?;
    hub.database.log_action(&caller.name, "open", &row.id).await?;
    let group = hub.database.group_of_key(&row.key).await?;
    let group = hub.database.group(&group).await?;
    let key = hub.database.stack_key(&row.key).await?;
    let bundle = bundle_state(&hub, &row).await?;
    let analysis = match bundle {
        BundleState::Stored => read_analysis(&hub, &row.id).await?,
        _ => None,
    };
    let is_stored = matches!(bundle, BundleState::Stored);
    let public = hub.config.public_url();
    let view = CrashPage {
        frame: frame(&caller, &format!("{} on {}", group.title, row.host)),
        report: row.parsed()?,
        group: Some((group.id, group.title, group.state_name)),
        stack: key
            .map(|key| key.frames.unwrap_or(key.addresses))
            .unwrap_or_default(),
        analysis_problem: (is_stored && analysis.is_none())
            .then(|| "The analysis is missing, or was written by another version of the hub.".to_owned()),
        bundle,
        analysis,
        received: row.received,
        is_pinned: row.is_pinned,
        link: format!("{public}/c/{}", row.id),
        editor_link: editor_link(&public, &row.id, None),
        download: is_stored.then(|| {
            let size = row.bundle_size.unwrap_or_default().unsigned_abs();
            (format!("/crash/{}.btz", row.id), size)
        }),
        symbolized: hub.database.symbolized(&row.id).await?,
        now: clock::now(),
    };
    Ok(crash::render(&view))
}

/// Returns the state of the bundle, for the script of the page.
///
/// # Errors
/// Fails if there is no such crash, or the database fails.
pub async fn state(
    axum::extract::State(hub): axum::extract::State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let row = hub.database.report(&id).await?;
    let state = bundle_state(&hub, &row).await?;
    Ok(Json(
        json!({ "state": state.name(), "text": state.sentence(), "done": state.done() }),
    ))
}

/// Returns the timelines of the analysis.
///
/// # Errors
/// Fails if there is no such crash, or the object store fails.
pub async fn timeline(
    axum::extract::State(hub): axum::extract::State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let row = hub.database.report(&id).await?;
    let analysis = read_analysis(&hub, &row.id).await?;
    let timelines = analysis.map(|analysis| analysis.timelines).unwrap_or_default();
    Ok(Json(serde_json::to_value(timelines).unwrap_or_default()))
}

/// Pins a crash, or unpins it.
///
/// # Errors
/// Fails if the form is foreign, or the database fails.
pub async fn pin(
    axum::extract::State(hub): axum::extract::State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<PinForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let is_pinned = form.pinned == "1";
    hub.database.pin_report(&id, is_pinned).await?;
    let action = if is_pinned { "pin" } else { "unpin" };
    hub.database.log_action(&caller.name, action, &id).await?;
    Ok(see(&format!("/c/{id}")))
}

async fn read_analysis(hub: &Hub, id: &str) -> Result<Option<Analysis>> {
    let bytes = hub.objects.get(&crate::objects::analysis(id)).await?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

async fn bundle_state(hub: &Hub, row: &ReportRow) -> Result<BundleState> {
    Ok(match row.bundle {
        // A host that can send a bundle states its size.
        State::None if row.parsed()?.bundle_size.is_none() => BundleState::Kept,
        State::None => BundleState::None,
        State::Removed => BundleState::Expired,
        State::Refused => BundleState::Refused(row.bundle_problem.clone().unwrap_or_default()),
        State::Stored => BundleState::Stored,
        State::Checking => {
            let upload = hub.database.upload_of(&row.id).await?;
            let noted = match upload {
                Some(upload) => hub.database.job_progress(JobKind::Accept, &upload.id).await?,
                None => None,
            };
            let noted: Noted = noted
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default();
            let stage = if noted.stage.is_empty() {
                "waiting".to_owned()
            } else {
                noted.stage
            };
            BundleState::Checking {
                stage,
                done: noted.done,
            }
        }
        State::Wanted => match hub.database.upload_of(&row.id).await? {
            Some(upload) => BundleState::Uploading {
                received: upload.received.unsigned_abs(),
                total: upload.length.unsigned_abs(),
            },
            None if row.bundle_until.is_some_and(|until| until < clock::now()) => BundleState::Expired,
            None => BundleState::Wanted,
        },
    })
}

/// Returns the link that opens a crash of this hub in VS Code, at its end or at a position
/// (docs/vscode.md).
pub(super) fn editor_link(public_url: &str, id: &str, position: Option<&str>) -> String {
    let mut payload = json!({ "v": 1, "origin": public_url, "crash": id });
    if let Some(position) = position {
        payload["at"] = position.into();
    }
    let payload = URL_SAFE_NO_PAD.encode(payload.to_string());
    format!("vscode://backtrail.backtrail/open?j={payload}")
}
