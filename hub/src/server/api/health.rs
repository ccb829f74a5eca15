//! The state of the hub, for load balancers and Prometheus.

use crate::error::Result;
use crate::hub::Hub;
use crate::query_jobs::metrics;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// Returns that the hub works, after a look into the database and the object store.
///
/// # Errors
/// Fails if one of them fails.
pub async fn health(State(hub): State<Arc<Hub>>) -> Result<Json<Value>> {
    let _: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM segments WHERE name = ''")
        .fetch_one(hub.database.reader())
        .await?;
    let _ = hub.objects.size("health").await?;
    Ok(Json(
        json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }),
    ))
}

/// Returns counters in the text format of Prometheus.
///
/// # Errors
/// Fails if the database fails.
pub async fn metrics(State(hub): State<Arc<Hub>>) -> Result<Response> {
    let counts = [
        (
            "backtrail_hub_reports",
            "Reports that are kept.",
            "SELECT COUNT(*) FROM reports",
        ),
        (
            "backtrail_hub_groups",
            "Groups of crashes.",
            "SELECT COUNT(*) FROM groups",
        ),
        (
            "backtrail_hub_bundles",
            "Bundles that are stored.",
            "SELECT COUNT(*) FROM reports WHERE bundle = 'stored'",
        ),
        (
            "backtrail_hub_jobs",
            "Jobs that wait or run.",
            "SELECT COUNT(*) FROM jobs",
        ),
        (
            "backtrail_hub_uploads",
            "Uploads that are not complete.",
            "SELECT COUNT(*) FROM uploads WHERE state = 'open'",
        ),
        (
            "backtrail_hub_hosts",
            "Hosts that have sent anything.",
            "SELECT COUNT(*) FROM hosts",
        ),
    ];
    let mut text = String::new();
    for (name, help, query) in counts {
        let value: i64 = sqlx::query_scalar(query).fetch_one(hub.database.reader()).await?;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    let seconds = hub.started.elapsed().as_secs();
    let name = "backtrail_hub_uptime_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} Seconds since the start.\n# TYPE {name} gauge\n{name} {seconds}"
    );
    let indexes = hub.indexes.counts();
    let counts = [
        (
            "hits_total",
            "counter",
            "Requests for open indexes.",
            indexes.hits,
        ),
        (
            "misses_total",
            "counter",
            "Requests for other indexes.",
            indexes.misses,
        ),
        ("open", "gauge", "Open indexes.", indexes.open),
        ("bytes", "gauge", "Bytes of open indexes.", indexes.bytes),
    ];
    for (part, kind, help, value) in counts {
        let name = format!("backtrail_hub_symbol_index_{part}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    metrics::write(&hub, &mut text).await?;
    crate::profiles::metrics::write(&hub, &mut text).await?;
    let media = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    Ok(([media], text).into_response())
}
