//! The page for SQL over profiles: a query, and its answer as a table or another view.

use super::layout::{PageFrame, Section, page};
use super::saved_views::{self, SavedRow};
use super::text::{shown, shown_to};
use crate::profiles::sql_view::AnswerView;
use maud::{Markup, html};

/// The longest query in characters.
const MAX_QUERY: usize = 100_000;

/// A query that a button puts into the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Example {
    /// The text of the button.
    label: &'static str,
    /// The name of the view that fits. Empty: the table.
    view: &'static str,
    /// The query.
    sql: &'static str,
}

/// Queries to begin with.
const EXAMPLES: [Example; 7] = [
    Example {
        label: "Services by processor time",
        view: "",
        sql: "SELECT service, host, SUM(weight) / 1e9 AS seconds\nFROM samples\nWHERE event = 'cpu'\nGROUP BY service, host\nORDER BY seconds DESC\nLIMIT 20",
    },
    Example {
        label: "Flame graph of services",
        view: "graph",
        sql: "SELECT service, flamegraph(stack, weight) AS graph\nFROM samples\nWHERE event = 'cpu'\nGROUP BY service",
    },
    Example {
        label: "Events by minute",
        view: "series",
        sql: "SELECT date_trunc('minute', time) AS minute, event, COUNT(*) AS samples\nFROM samples\nGROUP BY minute, event\nORDER BY minute",
    },
    Example {
        label: "Hosts by minute",
        view: "heat",
        sql: "SELECT date_trunc('minute', time) AS minute, host, SUM(weight) / 1e9 AS seconds\nFROM samples\nWHERE event = 'cpu'\nGROUP BY minute, host",
    },
    Example {
        label: "Waits by time and length",
        view: "heat",
        sql: "SELECT time, weight / 1e6 AS milliseconds\nFROM samples\nWHERE event = 'off-cpu'\nORDER BY time DESC",
    },
    Example {
        label: "Seconds of processor time by thread",
        view: "distribution",
        sql: "SELECT SUM(weight) / 1e9 AS seconds\nFROM samples\nWHERE event = 'cpu'\nGROUP BY host, process, tid, thread",
    },
    Example {
        label: "Threads of a service",
        view: "",
        sql: "SELECT process, thread, COUNT(*) AS samples\nFROM samples\nWHERE service = 'NAME'\nGROUP BY process, thread\nORDER BY samples DESC\nLIMIT 50",
    },
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
    /// The end of the time.
    pub until: String,
    /// Other sites that are asked too.
    pub sites: String,
    /// A query over the rows of all sites.
    pub combine: String,
    /// The names of the sites that can be asked.
    pub known: Vec<String>,
    /// The name of the view. Empty: the table.
    pub view: String,
    /// The saved views.
    pub saved: Vec<SavedRow>,
    /// The query of the page's address.
    pub query: String,
}

/// Returns the page.
#[must_use]
pub fn render(view: &SqlPage) -> Markup {
    let first = EXAMPLES.first().map_or("", |example| example.sql);
    let sql = match view.sql.as_str() {
        "" => first,
        sql => sql,
    };
    let has_sites = !view.known.is_empty() || !view.sites.is_empty();
    let content = html! {
        div class="headline" {
            h1 { "SQL" }
            p class="count" { a href="/profiles" { "Profiles" } }
            (saved_views::menu(&view.saved, view.frame.viewer.as_ref(), Some(&view.query)))
        }
        form class="sql" id="sql" method="get" action="/profiles/sql" {
            label { span class="spoken" { "Query" }
                textarea name="sql" rows="9" spellcheck="false" maxlength=(MAX_QUERY) { (field_text(sql)) }
            }
            div class="row" {
                label { span { "From" }
                    input type="text" name="from" value=(shown(&view.from)) placeholder="1d" maxlength="40" autocomplete="off";
                }
                label { span { "Until (UTC)" }
                    input type="text" name="until" value=(shown(&view.until)) placeholder="now" maxlength="40" autocomplete="off";
                }
                @if has_sites {
                    label { span { "Other sites" }
                        input type="text" name="sites" value=(shown(&view.sites)) list="sites" placeholder="none" maxlength="4096" autocomplete="off" spellcheck="false";
                        datalist id="sites" {
                            option value="all" {}
                            @for site in &view.known { option value=(shown(site)) {} }
                        }
                    }
                }
                label { span { "Show as" }
                    select name="as" {
                        option value="" { "table" }
                        @for (_, name, label) in AnswerView::ALL { option value=(name) selected[view.view == name] { (label) } }
                    }
                }
                button type="submit" class="button primary" { "Run" }
                button type="button" class="button" id="cancel" hidden { "Cancel" }
            }
            @if has_sites {
                label { span { "Then, over the rows of all sites in the table answers" }
                    textarea name="combine" rows="3" spellcheck="false" maxlength=(MAX_QUERY) { (field_text(&view.combine)) }
                }
            }
            div class="row" role="group" aria-label="Examples" {
                @for example in EXAMPLES {
                    button type="button" class="ghost" data-sql=(example.sql) data-as=(example.view) { (example.label) }
                }
            }
        }
        p id="state" role="status" {}
        div class="result" id="answer" role="region" aria-label="Answer" tabindex="0" hidden { table id="result" {} }
        div id="chart" {}
        p { "The tables are " code { "samples" } ", " code { "stacks" } ", " code { "frames" } " and " code { "contexts" }
            ". Control and Enter run the query." }
    };
    page(&view.frame, Section::Profiles, &["brush.js", "sql.js"], &content)
}

/// Returns a query with its lines.
fn field_text(sql: &str) -> String {
    let sql: String = sql.chars().take(MAX_QUERY).collect();
    let lines = sql
        .split('\n')
        .map(|line| shown_to(line.trim_end_matches('\r'), MAX_QUERY));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_has_an_example() {
        let names = AnswerView::ALL.map(|(_, name, _)| name);
        for name in names.into_iter().chain([""]) {
            assert!(EXAMPLES.iter().any(|example| example.view == name), "{name}");
        }
        assert!(
            EXAMPLES
                .iter()
                .all(|example| example.view.is_empty() || names.contains(&example.view))
        );
    }

    #[test]
    fn fields_are_those_of_the_address() {
        let view = SqlPage {
            sql: "SELECT '<b>'\r\nFROM\0a".to_owned(),
            from: "1h".to_owned(),
            until: "2026-11-29".to_owned(),
            view: "heat".to_owned(),
            ..SqlPage::default()
        };
        let page = render(&view).into_string();
        for text in [
            "SELECT '&lt;b&gt;'\nFROM␀a</textarea>",
            "name=\"from\" value=\"1h\"",
            "name=\"until\" value=\"2026-11-29\"",
            "<option value=\"heat\" selected>heat map</option>",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains("name=\"sites\""));
        let with_sites = SqlPage {
            sites: "all".to_owned(),
            ..view
        };
        assert!(
            render(&with_sites)
                .into_string()
                .contains("name=\"sites\" value=\"all\"")
        );
    }
}
