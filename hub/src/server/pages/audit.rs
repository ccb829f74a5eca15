//! The audit log: who did what.

use super::layout::{PageFrame, Section, page};
use super::text::{Ago, shown_to};
use maud::{Markup, html};

/// A page of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The entries, newest first.
    pub entries: Vec<AuditEntry>,
    /// The address of the page with older entries.
    pub next: Option<String>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditEntry {
    /// The time.
    pub time: i64,
    /// The person or token.
    pub actor: String,
    /// The action, such as `opened crash`.
    pub action: String,
    /// The object of the action.
    pub subject: String,
    /// The address of the object's page.
    pub address: Option<String>,
}

/// Returns the page.
#[must_use]
pub fn render(view: &AuditPage) -> Markup {
    let content = html! {
        div class="headline" { h1 { "Audit log" } }
        section class="panel" {
            @if view.entries.is_empty() { p class="none" { "No entries." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Entries" {
                    table class="list" {
                        thead { tr { th scope="col" { "Time" } th scope="col" { "Who" } th scope="col" { "Action" } th scope="col" { "Object" } } }
                        tbody {
                            @for entry in view.entries.iter().take(500) {
                                tr {
                                    td { (Ago { time: entry.time, now: view.now }) }
                                    td { (shown_to(&entry.actor, 80)) }
                                    td { (shown_to(&entry.action, 80)) }
                                    td {
                                        @match entry.address.as_deref().filter(|address| address.starts_with('/')) {
                                            Some(address) => { a href=(address) { (shown_to(&entry.subject, 160)) } },
                                            None => (shown_to(&entry.subject, 160)),
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if let Some(next) = &view.next { nav class="pages" { a class="button" href=(next) rel="next" { "Older" } } }
        }
    };
    page(&view.frame, Section::Audit, &[], &content)
}
