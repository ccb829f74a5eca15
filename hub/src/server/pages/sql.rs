//! The page for SQL over profiles: a query, and its answer as a table.

use super::layout::{PageFrame, Section, page};
use super::text::shown;
use maud::{Markup, html};

/// A query with its name.
pub type Example = (&'static str, &'static str);

/// Queries to begin with.
const EXAMPLES: [Example; 3] = [
    (
        "Services by processor time",
        "SELECT service, host, SUM(weight) / 1e9 AS seconds\nFROM samples\nWHERE event = 'cpu'\nGROUP BY service, host\nORDER BY seconds DESC\nLIMIT 20",
    ),
    (
        "Events by minute",
        "SELECT date_trunc('minute', time) AS minute, event, COUNT(*) AS samples\nFROM samples\nGROUP BY minute, event\nORDER BY minute",
    ),
    (
        "Threads of a service",
        "SELECT process, thread, COUNT(*) AS samples\nFROM samples\nWHERE service = 'NAME'\nGROUP BY process, thread\nORDER BY samples DESC\nLIMIT 50",
    ),
];

/// The page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The query.
    pub sql: String,
    /// The start of the time.
    pub from: String,
}

/// Returns the page.
#[must_use]
pub fn render(view: &SqlPage) -> Markup {
    let sql = match view.sql.as_str() {
        "" => EXAMPLES.first().map_or("", |(_, sql)| sql),
        sql => sql,
    };
    let content = html! {
        div class="headline" { h1 { "SQL" } p class="count" { a href="/profiles" { "Profiles" } } }
        form class="sql" id="sql" method="get" action="/profiles/sql" {
            label { span class="spoken" { "Query" }
                textarea name="sql" rows="9" spellcheck="false" maxlength="100000" { (shown(sql)) }
            }
            div class="row" {
                label { span { "From" }
                    input type="text" name="from" value=(shown(&view.from)) placeholder="1d" maxlength="40" autocomplete="off";
                }
                button type="submit" class="button primary" { "Run" }
                button type="button" class="button" id="cancel" hidden { "Cancel" }
                @for (name, sql) in EXAMPLES { button type="button" class="ghost" data-sql=(sql) { (name) } }
            }
        }
        p id="state" role="status" {}
        div class="result" { table id="result" {} }
        p { "The tables are " code { "samples" } ", " code { "stacks" } ", " code { "frames" } " and " code { "contexts" }
            ". Control and Enter run the query." }
    };
    page(&view.frame, Section::Profiles, &["sql.js"], &content)
}
