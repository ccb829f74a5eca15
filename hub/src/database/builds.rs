//! Hosts, and the builds of services that they run.

use super::Database;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;

/// A build of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRow {
    /// The build.
    pub build: String,
    /// The time at which a host first ran it, if a heartbeat said so.
    pub first_ran: Option<i64>,
    /// The time of its first crash report.
    pub first_reported: Option<i64>,
    /// The number of hosts that ran it.
    pub hosts: i64,
}

/// A host and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRow {
    /// The host.
    pub host: String,
    /// The version of its collector. Empty: it sent no heartbeat.
    pub collector: String,
    /// The time at which it last sent anything.
    pub last_seen: i64,
    /// The services and builds that it runs.
    pub builds: Vec<(String, String)>,
}

/// Notes that a host exists.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_host(
    connection: &mut AnyConnection,
    host: &str,
    collector: Option<&str>,
    time: i64,
) -> Result<()> {
    let upsert = "INSERT INTO hosts (host, collector, first_seen, last_seen) VALUES ($1, $2, $3, $3) \
                  ON CONFLICT (host) DO UPDATE SET \
                  collector = CASE WHEN $2 = '' THEN hosts.collector ELSE $2 END, \
                  first_seen = CASE WHEN hosts.first_seen > $3 THEN $3 ELSE hosts.first_seen END, \
                  last_seen = CASE WHEN hosts.last_seen < $3 THEN $3 ELSE hosts.last_seen END";
    sqlx::query(upsert)
        .bind(host)
        .bind(collector.unwrap_or_default())
        .bind(time)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Notes that a build crashed.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_crash(connection: &mut AnyConnection, service: &str, build: &str, time: i64) -> Result<()> {
    let upsert = "INSERT INTO builds (service, build, first_reported) VALUES ($1, $2, $3) \
                  ON CONFLICT (service, build) DO UPDATE SET first_reported = CASE \
                  WHEN builds.first_reported IS NULL OR builds.first_reported > $3 THEN $3 ELSE builds.first_reported END";
    sqlx::query(upsert)
        .bind(service)
        .bind(build)
        .bind(time)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Notes that a host runs a build. Returns whether that was not known.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_run(
    connection: &mut AnyConnection,
    service: &str,
    build: &str,
    host: &str,
    since: i64,
    now: i64,
) -> Result<bool> {
    let known: Option<i64> = sqlx::query_scalar(
        "SELECT first_ran FROM host_builds WHERE service = $1 AND build = $2 AND host = $3",
    )
    .bind(service)
    .bind(build)
    .bind(host)
    .fetch_optional(&mut *connection)
    .await?;
    let upsert = "INSERT INTO host_builds (service, build, host, first_ran, last_ran) VALUES ($1, $2, $3, $4, $5) \
                  ON CONFLICT (service, build, host) DO UPDATE SET \
                  first_ran = CASE WHEN host_builds.first_ran > $4 THEN $4 ELSE host_builds.first_ran END, \
                  last_ran = CASE WHEN host_builds.last_ran < $5 THEN $5 ELSE host_builds.last_ran END";
    sqlx::query(upsert)
        .bind(service)
        .bind(build)
        .bind(host)
        .bind(since)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    if known.is_some_and(|known| known <= since) {
        return Ok(false);
    }
    let upsert = "INSERT INTO builds (service, build, first_ran) VALUES ($1, $2, $3) \
                  ON CONFLICT (service, build) DO UPDATE SET first_ran = CASE \
                  WHEN builds.first_ran IS NULL OR builds.first_ran > $3 THEN $3 ELSE builds.first_ran END";
    sqlx::query(upsert)
        .bind(service)
        .bind(build)
        .bind(since)
        .execute(&mut *connection)
        .await?;
    Ok(true)
}

/// Notes that a host still runs a build that is known.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_still_runs(
    connection: &mut AnyConnection,
    service: &str,
    build: &str,
    host: &str,
    now: i64,
) -> Result<()> {
    sqlx::query("UPDATE host_builds SET last_ran = $1 WHERE service = $2 AND build = $3 AND host = $4")
        .bind(now)
        .bind(service)
        .bind(build)
        .bind(host)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Returns the builds of a service in the order in which hosts first ran them. Builds that no
/// heartbeat named are last.
///
/// # Errors
/// Fails if the database fails.
pub async fn of_service(connection: &mut AnyConnection, service: &str) -> Result<Vec<BuildRow>> {
    let select = "SELECT b.build, b.first_ran, b.first_reported, \
                  (SELECT COUNT(*) FROM host_builds h WHERE h.service = b.service AND h.build = b.build) AS hosts \
                  FROM builds b WHERE b.service = $1 \
                  ORDER BY CASE WHEN b.first_ran IS NULL THEN 1 ELSE 0 END, b.first_ran, b.first_reported, b.build LIMIT 2000";
    let rows = sqlx::query(select)
        .bind(service)
        .fetch_all(&mut *connection)
        .await?;
    let build = |row: &sqlx::any::AnyRow| {
        Ok(BuildRow {
            build: row.try_get("build")?,
            first_ran: row.try_get("first_ran")?,
            first_reported: row.try_get("first_reported")?,
            hosts: row.try_get("hosts")?,
        })
    };
    rows.iter().map(build).collect()
}

/// Returns when hosts first ran the builds of a service.
///
/// # Errors
/// Fails if the database fails.
pub async fn first_runs(connection: &mut AnyConnection, service: &str) -> Result<Vec<(String, Option<i64>)>> {
    let rows = sqlx::query("SELECT build, first_ran FROM builds WHERE service = $1")
        .bind(service)
        .fetch_all(&mut *connection)
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("build")?, row.try_get("first_ran")?)))
        .collect()
}

/// Returns the number of hosts that run a service, by heartbeats.
///
/// # Errors
/// Fails if the database fails.
pub async fn hosts_of(connection: &mut AnyConnection, service: &str) -> Result<i64> {
    let select = "SELECT COUNT(DISTINCT host) FROM host_builds WHERE service = $1";
    Ok(sqlx::query_scalar(select)
        .bind(service)
        .fetch_one(&mut *connection)
        .await?)
}

impl Database {
    /// Returns when hosts first ran the builds of a service, by heartbeats.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn first_runs(&self, service: &str) -> Result<Vec<(String, i64)>> {
        let select = "SELECT build, first_ran FROM builds WHERE service = $1 AND first_ran IS NOT NULL";
        let rows = sqlx::query(select).bind(service).fetch_all(self.reader()).await?;
        let read = |row: &sqlx::any::AnyRow| Ok((row.try_get("build")?, row.try_get("first_ran")?));
        rows.iter().map(read).collect()
    }

    /// Returns the time of the first crash of a build. `None`: none is known.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn first_crash(&self, service: &str, build: &str) -> Result<Option<i64>> {
        let select = "SELECT first_reported FROM builds WHERE service = $1 AND build = $2";
        let found: Option<Option<i64>> = sqlx::query_scalar(select)
            .bind(service)
            .bind(build)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.flatten())
    }

    /// Returns hosts, those seen last first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn hosts(&self, limit: i64) -> Result<Vec<HostRow>> {
        let select = "SELECT host, collector, last_seen FROM hosts ORDER BY last_seen DESC, host LIMIT $1";
        let rows = sqlx::query(select).bind(limit).fetch_all(self.reader()).await?;
        let mut hosts = Vec::with_capacity(rows.len());
        for row in rows {
            let host: String = row.try_get("host")?;
            let select = "SELECT service, build FROM host_builds WHERE host = $1 ORDER BY service, last_ran DESC LIMIT 50";
            let builds = sqlx::query(select).bind(&host).fetch_all(self.reader()).await?;
            let builds = builds
                .iter()
                .map(|row| Ok((row.try_get("service")?, row.try_get("build")?)));
            hosts.push(HostRow {
                collector: row.try_get("collector")?,
                last_seen: row.try_get("last_seen")?,
                builds: builds.collect::<Result<_>>()?,
                host,
            });
        }
        Ok(hosts)
    }

    /// Returns the builds that a host runs, as service, build and time of the first run. `None`: no
    /// heartbeat of the host is known.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn known_runs(&self, host: &str) -> Result<Option<Vec<(String, String, i64)>>> {
        let collector: Option<String> = sqlx::query_scalar("SELECT collector FROM hosts WHERE host = $1")
            .bind(host)
            .fetch_optional(self.reader())
            .await?;
        if collector.is_none_or(|collector| collector.is_empty()) {
            return Ok(None);
        }
        let rows = sqlx::query("SELECT service, build, first_ran FROM host_builds WHERE host = $1")
            .bind(host)
            .fetch_all(self.reader())
            .await?;
        let runs = rows.iter().map(|row| {
            Ok((
                row.try_get("service")?,
                row.try_get("build")?,
                row.try_get("first_ran")?,
            ))
        });
        runs.collect::<Result<_>>().map(Some)
    }
}
