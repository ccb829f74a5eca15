//! People's decisions, as JSON lines: the part of the database that no object has.

use super::rows;
use crate::database::{Database, transact};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use sqlx::{AnyConnection, AssertSqlSafe, Row};
use std::fmt::Write as _;

/// A table with decisions, and its columns.
struct Table {
    name: &'static str,
    texts: &'static [&'static str],
    numbers: &'static [&'static str],
    /// The rows that are decisions.
    filter: &'static str,
}

/// The tables whose rows are decisions as a whole.
const TABLES: [Table; 11] = [
    Table {
        name: "rules",
        texts: &["id", "service", "action", "pattern", "author"],
        numbers: &["position", "created"],
        filter: "",
    },
    // Addresses of groups before a change of rules or versions. Those before symbols are derived.
    Table {
        name: "key_moves",
        texts: &["id", "key", "from_group", "to_group", "reason"],
        numbers: &["time"],
        filter: " WHERE reason <> 'symbols'",
    },
    Table {
        name: "saved_views",
        texts: &["id", "name", "query", "creator"],
        numbers: &["created"],
        filter: "",
    },
    Table {
        name: "comments",
        texts: &["id", "group_id", "author", "text"],
        numbers: &["time"],
        filter: "",
    },
    Table {
        name: "tokens",
        texts: &["id", "name", "hash", "scopes"],
        numbers: &["created", "expires", "last_used", "revoked"],
        filter: "",
    },
    Table {
        name: "audit",
        texts: &["id", "actor", "action", "subject"],
        numbers: &["time"],
        filter: "",
    },
    // Events that are known are not announced again.
    Table {
        name: "changes",
        texts: &["id", "group_id", "event", "build", "report", "actor", "once"],
        numbers: &["time"],
        filter: "",
    },
    Table {
        name: "deliveries",
        texts: &[
            "id",
            "change_id",
            "channel",
            "kind",
            "payload",
            "state",
            "problem",
        ],
        numbers: &["created", "attempts", "next_try", "ended", "summarized"],
        filter: "",
    },
    // Results are computed again. Runs are not exported, so that no claim is.
    Table {
        name: "query_jobs",
        texts: &["id", "name", "definition", "author"],
        numbers: &[
            "enabled",
            "created",
            "revision",
            "next_run",
            "run_now",
            "lease_until",
            "alerting",
            "failing",
        ],
        filter: "",
    },
    // Tokens of other hubs are secrets, which a backup has not.
    Table {
        name: "sites",
        texts: &["id", "name", "url", "author"],
        numbers: &["enabled", "created"],
        filter: "",
    },
    Table {
        name: "query_job_findings",
        texts: &["id", "job"],
        numbers: &["found"],
        filter: "",
    },
];

/// The version of the signatures, and the one beside it.
const GROUPING: Table = Table {
    name: "grouping_state",
    texts: &["id", "revision"],
    numbers: &["version", "next_version", "next_since", "switch_at"],
    filter: "",
};

/// The state of groups, which a report or a person decided.
const GROUPS: Table = Table {
    name: "groups",
    texts: &["id", "state", "state_detail", "undetermined", "assignee"],
    numbers: &["state_since"],
    filter: "",
};

/// The pins of reports.
const REPORTS: Table = Table {
    name: "reports",
    texts: &["id"],
    numbers: &["pinned"],
    filter: " WHERE pinned <> 0",
};

/// Bundles that were refused, with the reason.
const REFUSED: Table = Table {
    name: "refused",
    texts: &["id", "bundle", "bundle_problem"],
    numbers: &[],
    filter: " WHERE bundle = 'refused'",
};

/// The tables whose rows are in the new index already, and get their decisions back.
const UPDATED: [&Table; 4] = [&GROUPING, &GROUPS, &REPORTS, &REFUSED];

impl Table {
    /// Returns the name in the database.
    fn sql_name(&self) -> &'static str {
        if self.name == REFUSED.name {
            REPORTS.name
        } else {
            self.name
        }
    }
}

/// Returns all decisions as JSON lines.
///
/// # Errors
/// Fails if the database fails.
pub async fn export(database: &Database) -> Result<String> {
    // Before the states of groups, which change the rows of these.
    let mut lines = rows::export(database, &rows::SETTLED).await?;
    for table in TABLES.iter().chain(UPDATED) {
        let columns: Vec<_> = table.texts.iter().chain(table.numbers).copied().collect();
        let select = format!(
            "SELECT {} FROM {}{} ORDER BY id",
            columns.join(", "),
            table.sql_name(),
            table.filter
        );
        let rows = sqlx::query(AssertSqlSafe(select))
            .fetch_all(database.reader())
            .await?;
        for row in rows {
            let mut values = Map::new();
            for &name in table.texts {
                values.insert(name.to_owned(), row.try_get::<Option<String>, _>(name)?.into());
            }
            for &name in table.numbers {
                values.insert(name.to_owned(), row.try_get::<Option<i64>, _>(name)?.into());
            }
            let line = serde_json::json!({ "table": table.name, "row": values });
            let _ = writeln!(lines, "{line}");
        }
    }
    Ok(lines)
}

/// Puts decisions into a database that has the groups and reports. Rows that are there stay.
/// Returns the number of lines.
///
/// # Errors
/// Fails if a line is malformed, or the database fails. Nothing is changed then.
pub async fn import(database: &Database, lines: &str) -> Result<usize> {
    import_tables(database, lines, |_| true).await
}

/// Puts the rules and versions of grouping into a database, before groups are computed by them.
///
/// # Errors
/// Fails if a line is malformed, or the database fails. Nothing is changed then.
pub async fn import_grouping(database: &Database, lines: &str) -> Result<usize> {
    import_tables(database, lines, |table| {
        matches!(table, "rules" | "grouping_state")
    })
    .await
}

async fn import_tables(database: &Database, lines: &str, is_in: impl Fn(&str) -> bool) -> Result<usize> {
    let (mut settled, mut found) = (Vec::new(), Vec::new());
    for (at, line) in lines.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let malformed = || Error::Invalid(format!("line {} of the decisions is malformed", at + 1));
        let mut value: Value = serde_json::from_str(line).map_err(|_| malformed())?;
        if let Some((table, row)) = rows::read(&mut value).map_err(|_| malformed())? {
            if is_in(table) {
                settled.push((table, row));
            }
            continue;
        }
        let name = value["table"].as_str().ok_or_else(malformed)?.to_owned();
        let mut tables = TABLES.iter().chain(UPDATED);
        let table = tables.find(|table| table.name == name).ok_or_else(malformed)?;
        let Value::Object(row) = value["row"].take() else {
            return Err(malformed());
        };
        if is_in(table.name) {
            found.push((table, row));
        }
    }
    transact!(database, connection => {
        for (table, row) in &settled {
            rows::insert(connection, table, row).await?;
        }
        for (table, row) in &found {
            import_row(connection, table, row).await?;
        }
        Ok(found.len())
    })
}

async fn import_row(connection: &mut AnyConnection, table: &Table, row: &Map<String, Value>) -> Result<()> {
    let columns: Vec<_> = table.texts.iter().chain(table.numbers).copied().collect();
    let is_update = UPDATED.iter().any(|updated| updated.name == table.name);
    let statement = if is_update {
        let mut sets = Vec::new();
        for (at, column) in columns.iter().enumerate().skip(1) {
            sets.push(format!("{column} = ${}", at + 1));
        }
        let name = table.sql_name();
        format!("UPDATE {name} SET {} WHERE id = $1", sets.join(", "))
    } else {
        let places: Vec<_> = (1..=columns.len()).map(|at| format!("${at}")).collect();
        let (columns, places) = (columns.join(", "), places.join(", "));
        format!(
            "INSERT INTO {} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING",
            table.name
        )
    };
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for &name in table.texts {
        query = query.bind(row.get(name).and_then(Value::as_str).map(str::to_owned));
    }
    for &name in table.numbers {
        query = query.bind(row.get(name).and_then(Value::as_i64));
    }
    query.execute(&mut *connection).await?;
    Ok(())
}

/// Puts decisions in the place of what an index derived, such as events that were announced.
///
/// # Errors
/// Fails if a line is malformed, or the database fails.
pub async fn replace(database: &Database, lines: &str) -> Result<usize> {
    transact!(database, connection => {
        sqlx::query("DELETE FROM changes").execute(&mut *connection).await?;
        Ok(())
    })?;
    import(database, lines).await
}
