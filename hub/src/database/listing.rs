//! Lists of groups and crashes, with filters and pages.

use super::Database;
use super::groups::{GroupRow, search_words};
use super::reports::BundleState;
use crate::clock;
use crate::error::{Error, Result};
use crate::grouping::normalize;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Arguments, AssertSqlSafe, Row};
use std::collections::HashMap;

/// The order of groups, always the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupOrder {
    /// By the last crash.
    #[default]
    LastSeen,
    /// By the first crash.
    FirstSeen,
    /// By the number of reports.
    Reports,
    /// By the number of hosts.
    Hosts,
}

impl GroupOrder {
    const fn column(self) -> &'static str {
        match self {
            Self::LastSeen => "last_seen",
            Self::FirstSeen => "first_seen",
            Self::Reports => "reports",
            Self::Hosts => "hosts",
        }
    }

    fn value(self, group: &GroupRow) -> i64 {
        match self {
            Self::LastSeen => group.last_seen,
            Self::FirstSeen => group.first_seen,
            Self::Reports => group.reports,
            Self::Hosts => group.hosts,
        }
    }
}

/// Which groups are listed.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// Words that all must be found. The last one may be the start of a word.
    pub words: String,
    /// The service.
    pub service: Option<String>,
    /// The state.
    pub state: Option<String>,
    /// A build that crashed.
    pub build: Option<String>,
    /// A host that crashed.
    pub host: Option<String>,
    /// A function on the stack.
    pub function: Option<String>,
    /// The order.
    pub order: GroupOrder,
    /// The end of the page before.
    pub after: Option<String>,
    /// The most entries.
    pub limit: i64,
}

/// Which crashes are listed.
#[derive(Clone, Debug, Default)]
pub struct CrashFilter {
    /// The group.
    pub group: Option<String>,
    /// The service.
    pub service: Option<String>,
    /// The build.
    pub build: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// A function on the stack.
    pub function: Option<String>,
    /// Only crashes with a stored bundle.
    pub only_stored: bool,
    /// The end of the page before.
    pub after: Option<String>,
    /// The most entries.
    pub limit: i64,
}

/// A crash in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCrash {
    /// The report.
    pub id: String,
    /// The time of the crash.
    pub time: i64,
    /// The group's title.
    pub title: String,
    /// The signal.
    pub signal: i64,
    /// The host.
    pub host: String,
    /// The service.
    pub service: String,
    /// The build.
    pub build: String,
    /// The group.
    pub group: String,
    /// How far the bundle has come.
    pub bundle: BundleState,
    /// Whether retention keeps it.
    pub is_pinned: bool,
}

/// A statement whose conditions are added one by one. All texts are parameters.
#[derive(Default)]
struct Query {
    sql: String,
    arguments: AnyArguments,
    count: usize,
}

impl Query {
    fn new(sql: &str) -> Self {
        Self {
            sql: sql.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a text in which each `?` is the parameter.
    fn text(&mut self, sql: &str, value: &str) -> Result<()> {
        self.arguments
            .add(value.to_owned())
            .map_err(sqlx::Error::Encode)?;
        self.push(sql);
        Ok(())
    }

    /// Adds a text in which each `?` is the parameter.
    fn number(&mut self, sql: &str, value: i64) -> Result<()> {
        self.arguments.add(value).map_err(sqlx::Error::Encode)?;
        self.push(sql);
        Ok(())
    }

    fn push(&mut self, sql: &str) {
        self.count += 1;
        self.sql += &sql.replace('?', &format!("${}", self.count));
    }

    async fn fetch(self, database: &Database) -> Result<Vec<AnyRow>> {
        let query = sqlx::query_with(AssertSqlSafe(self.sql), self.arguments);
        Ok(query.fetch_all(database.reader()).await?)
    }
}

impl Database {
    /// Returns a page of groups, and where the next one begins.
    ///
    /// # Errors
    /// Fails if the page's start is malformed, or the database fails.
    pub async fn list_groups(&self, filter: &GroupFilter) -> Result<(Vec<GroupRow>, Option<String>)> {
        let column = filter.order.column();
        let mut query = Query::new("SELECT g.* FROM groups g WHERE 1 = 1");
        let words = search_words(&[&filter.words]);
        let last = filter
            .words
            .trim_end()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .to_lowercase();
        for word in &words {
            // The words are looked up once, not once for each group.
            let found = "SELECT w.group_id FROM group_words w WHERE w.word";
            if last.starts_with(&**word) || *word == last {
                // The start of a word: from it on, and before the next text of the same length.
                query.text(&format!(" AND g.id IN ({found} >= ?"), word)?;
                query.text(" AND w.word < ?)", &format!("{word}\u{10ffff}"))?;
            } else {
                query.text(&format!(" AND g.id IN ({found} = ?)"), word)?;
            }
        }
        if let Some(service) = &filter.service {
            query.text(" AND g.service = ?", service)?;
        }
        if let Some(state) = &filter.state {
            query.text(" AND g.state = ?", state)?;
        }
        if let Some(build) = &filter.build {
            query.text(
                " AND EXISTS (SELECT 1 FROM group_hours h WHERE h.group_id = g.id AND h.build = ?)",
                build,
            )?;
        }
        if let Some(host) = &filter.host {
            query.text(
                " AND EXISTS (SELECT 1 FROM group_hosts h WHERE h.group_id = g.id AND h.host = ?)",
                host,
            )?;
        }
        if let Some(function) = &filter.function {
            let keys = "SELECT k.group_id FROM key_functions f JOIN stack_keys k ON k.key = f.key";
            query.text(
                &format!(" AND g.id IN ({keys} WHERE f.function = ?)"),
                &normalize(function),
            )?;
        }
        if let Some(after) = &filter.after {
            let (value, id) = cursor(after)?;
            query.number(&format!(" AND (g.{column} < ? OR (g.{column} = ?"), value)?;
            query.text(" AND g.id > ?))", id)?;
        }
        query.number(
            &format!(" ORDER BY g.{column} DESC, g.id LIMIT ?"),
            filter.limit + 1,
        )?;
        let rows = query.fetch(self).await?;
        let mut groups: Vec<_> = rows.iter().map(GroupRow::read).collect::<Result<_>>()?;
        let next = next_page(&mut groups, filter.limit, |group| {
            format!("{}.{}", filter.order.value(group), group.id)
        });
        Ok((groups, next))
    }

    /// Returns a page of crashes, the newest first, and where the next one begins.
    ///
    /// # Errors
    /// Fails if the page's start is malformed, or the database fails.
    pub async fn list_crashes(&self, filter: &CrashFilter) -> Result<(Vec<ListedCrash>, Option<String>)> {
        let mut query = Query::new(
            "SELECT r.id, r.time, r.host, r.service, r.build, r.bundle, r.pinned, k.group_id, k.signal, g.title \
             FROM reports r JOIN stack_keys k ON k.key = r.key JOIN groups g ON g.id = k.group_id WHERE 1 = 1",
        );
        if let Some(group) = &filter.group {
            query.text(" AND k.group_id = ?", group)?;
        }
        if let Some(service) = &filter.service {
            query.text(" AND r.service = ?", service)?;
        }
        if let Some(build) = &filter.build {
            query.text(" AND r.build = ?", build)?;
        }
        if let Some(host) = &filter.host {
            query.text(" AND r.host = ?", host)?;
        }
        if let Some(function) = &filter.function {
            let keys = " AND k.key IN (SELECT f.key FROM key_functions f WHERE f.function = ?)";
            query.text(keys, &normalize(function))?;
        }
        if filter.only_stored {
            query.text(" AND r.bundle = ?", BundleState::Stored.name())?;
        }
        if let Some(after) = &filter.after {
            let (value, id) = cursor(after)?;
            query.number(" AND (r.time < ? OR (r.time = ?", value)?;
            query.text(" AND r.id > ?))", id)?;
        }
        query.number(" ORDER BY r.time DESC, r.id LIMIT ?", filter.limit + 1)?;
        let rows = query.fetch(self).await?;
        let mut crashes: Vec<_> = rows.iter().map(listed_crash).collect::<Result<_>>()?;
        let next = next_page(&mut crashes, filter.limit, |crash| {
            format!("{}.{}", crash.time, crash.id)
        });
        Ok((crashes, next))
    }

    /// Returns the reports of groups in equal parts of time from `first` on, up to now. A part has
    /// a number of hours, and `first` is the number of parts since 1970.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn series(&self, groups: &[&str], hours: i64, first: i64) -> Result<HashMap<String, Vec<u64>>> {
        let last = clock::now().div_euclid(clock::HOUR * hours);
        let length = usize::try_from(last - first + 1).unwrap_or_default();
        let mut series: HashMap<String, Vec<u64>> = groups
            .iter()
            .map(|group| ((*group).to_owned(), vec![0; length]))
            .collect();
        if groups.is_empty() {
            return Ok(series);
        }
        let mut query = Query::new("SELECT group_id, hour");
        query.number(" / ? AS part, CAST(SUM(reports) AS BIGINT) AS reports", hours)?;
        query.number(" FROM group_hours WHERE hour >= ?", first * hours)?;
        for (at, group) in groups.iter().enumerate() {
            query.text(if at == 0 { " AND group_id IN (?" } else { ", ?" }, group)?;
        }
        // The first parameter again: PostgreSQL compares the expressions, not their texts.
        query.sql += ") GROUP BY group_id, hour / $1";
        for row in query.fetch(self).await? {
            let group: String = row.try_get("group_id")?;
            let (part, reports): (i64, i64) = (row.try_get("part")?, row.try_get("reports")?);
            let counts = series.get_mut(&group);
            let at = usize::try_from(part - first).ok();
            if let Some(count) = counts.zip(at).and_then(|(counts, at)| counts.get_mut(at)) {
                *count = reports.unsigned_abs();
            }
        }
        Ok(series)
    }

    /// Returns the group of a stack key.
    ///
    /// # Errors
    /// Fails if there is no such key, or the database fails.
    pub async fn group_of_key(&self, key: &str) -> Result<String> {
        let found = sqlx::query_scalar("SELECT group_id FROM stack_keys WHERE key = $1")
            .bind(key)
            .fetch_optional(self.reader())
            .await?;
        found.ok_or_else(|| Error::Absent(format!("stack key {key}")))
    }

    /// Returns the services, by name.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn services(&self) -> Result<Vec<String>> {
        let query = "SELECT DISTINCT service FROM groups ORDER BY service LIMIT 1000";
        Ok(sqlx::query_scalar(query).fetch_all(self.reader()).await?)
    }
}

fn listed_crash(row: &AnyRow) -> Result<ListedCrash> {
    let bundle: String = row.try_get("bundle")?;
    let pinned: i64 = row.try_get("pinned")?;
    Ok(ListedCrash {
        id: row.try_get("id")?,
        time: row.try_get("time")?,
        title: row.try_get("title")?,
        signal: row.try_get("signal")?,
        host: row.try_get("host")?,
        service: row.try_get("service")?,
        build: row.try_get("build")?,
        group: row.try_get("group_id")?,
        bundle: BundleState::named(&bundle)?,
        is_pinned: pinned != 0,
    })
}

/// Returns the value and the identifier of a page's end.
fn cursor(after: &str) -> Result<(i64, &str)> {
    let parts = after.split_once('.');
    let parsed = parts.and_then(|(value, id)| Some((value.parse().ok()?, id)));
    parsed.ok_or_else(|| Error::Invalid("`after` is not the `next` of a page".to_owned()))
}

/// Removes the entry beyond the page, and returns where the next page begins, if there is one.
fn next_page<T>(entries: &mut Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Option<String> {
    let limit = usize::try_from(limit).unwrap_or_default();
    if entries.len() <= limit {
        return None;
    }
    entries.truncate(limit);
    entries.last().map(cursor)
}
