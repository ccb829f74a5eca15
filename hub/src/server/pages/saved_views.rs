//! The menu of saved views, with the form for a new one.

use super::layout::{Viewer, csrf};
use super::text::shown_to;
use maud::{Markup, html};

/// The most saved views.
const MOST: usize = 500;

/// A saved view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedRow {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The address of the view.
    pub address: String,
    /// The person who saved it.
    pub creator: String,
    /// Whether the reader may delete it.
    pub may_delete: bool,
}

/// Returns the menu. The script of the page puts the newest query into the form.
pub(super) fn menu(saved: &[SavedRow], viewer: Option<&Viewer>, query: Option<&String>) -> Markup {
    html! {
        details class="menu saved" {
            summary class="button" { "Saved views" }
            div class="list" {
                @if saved.is_empty() { p class="none" { "No view is saved yet." } }
                @else {
                    ul {
                        @for one in saved.iter().take(MOST) {
                            li {
                                a href=(one.address) title={ "Saved by " (shown_to(&one.creator, 60)) } { (shown_to(&one.name, 100)) }
                                @if one.may_delete {
                                    form action={ "/profiles/views/" (one.id) "/delete" } method="post" {
                                        (csrf(viewer))
                                        button type="submit" class="ghost" aria-label={ "Delete " (shown_to(&one.name, 100)) } { "Delete" }
                                    }
                                }
                            }
                        }
                    }
                }
                @if let Some(query) = query {
                    form class="row" id="save" action="/profiles/views" method="post" {
                        (csrf(viewer))
                        input type="hidden" name="query" value=(query);
                        label class="grow" { span { "Name" } input type="text" name="name" required maxlength="100" autocomplete="off"; }
                        button type="submit" class="button primary" { "Save this view" }
                    }
                }
            }
        }
    }
}
