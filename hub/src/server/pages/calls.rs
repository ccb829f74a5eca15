//! The exact calls of a function in stored bundles.

use super::icons;
use super::layout::{PageFrame, Section, page};
use super::text::{Ago, counted, number, shown, shown_to};
use maud::{Markup, html};

/// The page of a function's exact calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The function.
    pub function: String,
    /// The bundles with complete calls, the newest crashes first.
    pub rows: Vec<CallRow>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A bundle with complete calls of the function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRow {
    /// The address of the crash's page, at the newest call.
    pub address: String,
    /// The link that opens VS Code at the newest call.
    pub editor: String,
    /// The title of the crash.
    pub title: String,
    /// The time of the crash, in microseconds since 1970.
    pub time: i64,
    /// The service.
    pub service: String,
    /// The build.
    pub build: String,
    /// The host.
    pub host: String,
    /// The position of the newest call.
    pub position: String,
    /// The number of calls.
    pub calls: u64,
    /// The instructions of the newest call and its callees.
    pub instructions: u64,
    /// The duration of the newest call. `None`: unknown.
    pub duration: Option<String>,
}

/// Returns the page.
#[must_use]
pub fn render(view: &CallsPage) -> Markup {
    let content = html! {
        div class="headline" {
            h1 { "Exact calls of " code { (shown_to(&view.function, 200)) } }
            p class="count" { (counted(view.rows.len() as u64, "bundle")) }
        }
        section class="panel" {
            p { "Each crash below has a bundle whose crashed thread called the function, from its first instruction to its return. The link opens the newest such call." }
            @if view.rows.is_empty() {
                p class="none" { "No stored bundle has a complete call of this function. Inlined calls, and calls of other threads, are not listed." }
            } @else {
                div class="scroll" tabindex="0" role="region" aria-label="Exact calls" { table class="list" {
                    thead { tr {
                        th scope="col" { "Newest call" } th scope="col" class="num" { "Duration" }
                        th scope="col" class="num" { "Instructions" } th scope="col" class="num" { "Calls" }
                        th scope="col" { "Crash" } th scope="col" { "Service and host" } th scope="col" { "Time" }
                    } }
                    tbody { @for row in &view.rows { (line(row, view.now)) } }
                } }
            }
        }
    };
    page(&view.frame, Section::Profiles, &[], &content)
}

fn line(row: &CallRow, now: i64) -> Markup {
    html! { tr {
        td {
            a class="button small" href=(row.editor) aria-label={ "Reverse debug at " (shown(&row.position)) } { (icons::rewind()) "Reverse debug" }
            " " a class="button small" href=(row.address) { code { (shown_to(&row.position, 60)) } }
        }
        td class="num" { @match &row.duration { Some(duration) => (shown(duration)), None => span class="dim" { "unknown" } } }
        td class="num" { (number(row.instructions)) }
        td class="num" { (number(row.calls)) }
        td { (shown_to(&row.title, 120)) }
        td { (shown_to(&row.service, 80)) " " (shown_to(&row.build, 60)) ", " (shown_to(&row.host, 80)) }
        td { (Ago { time: row.time, now }) }
    } }
}
