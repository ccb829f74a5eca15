//! The frame of all pages: head, navigation, search, and the state of the sign-in.

use super::icons;
use super::text::{shown, shown_to};
use crate::server::assets;
use maud::{DOCTYPE, Markup, html};

/// The sections of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Groups of crashes, and all below.
    Groups,
    /// Profiles.
    Profiles,
    /// Jobs.
    Jobs,
    /// Settings.
    Settings,
    /// The audit log.
    Audit,
    /// None of them.
    None,
}

/// The person who reads a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// The name of the person or of the token.
    pub name: String,
    /// Whether the person may change states and settings.
    pub is_admin: bool,
    /// The value of the field `csrf` in forms.
    pub csrf: String,
}

/// The frame of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFrame {
    /// The title in the browser's tab.
    pub title: String,
    /// The signed-in person. `None`: there is none.
    pub viewer: Option<Viewer>,
    /// The text in the search field.
    pub search: String,
}

/// Returns a whole page.
pub(super) fn page(frame: &PageFrame, section: Section, scripts: &[&str], content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="same-origin";
                title { (shown_to(&frame.title, 120)) " · Backtrail" }
                link rel="icon" href=(assets::address("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::address("hub.css"));
                // The theme is set before the first paint, so this script is not deferred.
                script src=(assets::address("theme.js")) {}
                @for script in scripts {
                    script src=(assets::address(script)) defer {}
                }
            }
            body {
                a class="skip" href="#main" { "Skip to the content" }
                (header(frame, section))
                main id="main" { (content) }
                footer class="foot" { "Backtrail hub " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

fn header(frame: &PageFrame, section: Section) -> Markup {
    html! {
        header class="top" {
            a class="brand" href="/" { (icons::mark()) span { "Backtrail" } }
            @if let Some(viewer) = &frame.viewer {
                nav class="sections" aria-label="Sections" {
                    (link("/", "Crashes", section == Section::Groups))
                    (link("/profiles", "Profiles", section == Section::Profiles))
                    (link("/jobs", "Jobs", section == Section::Jobs))
                    @if viewer.is_admin {
                        (link("/settings", "Settings", section == Section::Settings))
                        (link("/audit", "Audit", section == Section::Audit))
                    }
                }
                form class="find" action="/" method="get" role="search" {
                    (icons::search())
                    input type="search" name="q" value=(shown(&frame.search)) maxlength="200"
                        aria-label="Search functions, files, modules and services"
                        placeholder="Search functions, files, services…";
                }
            }
            div class="aside" {
                button type="button" class="ghost" id="theme" title="Theme: system, light, dark" {
                    (icons::theme()) span class="spoken" { "Change the theme" }
                }
                @if let Some(viewer) = &frame.viewer {
                    span class="viewer" title=(shown(&viewer.name)) { (shown_to(&viewer.name, 40)) }
                    form action="/sign-out" method="post" {
                        (csrf(Some(viewer)))
                        button type="submit" class="ghost" { "Sign out" }
                    }
                }
            }
        }
    }
}

fn link(to: &str, text: &str, is_current: bool) -> Markup {
    html! {
        @if is_current { a href=(to) aria-current="page" { (text) } }
        @else { a href=(to) { (text) } }
    }
}

/// Returns the hidden field that proves that a form is of this hub.
pub(super) fn csrf(viewer: Option<&Viewer>) -> Markup {
    html! {
        @if let Some(viewer) = viewer { input type="hidden" name="csrf" value=(viewer.csrf); }
    }
}

/// Returns the state of a group as a chip.
pub(super) fn chip(state: &str) -> Markup {
    let class = match state {
        "new" => "chip new",
        "escalating" => "chip escalating",
        "regressed" => "chip regressed",
        "resolved" => "chip resolved",
        "archived" => "chip archived",
        "undetermined" => "chip undetermined",
        _ => "chip",
    };
    html! { span class=(class) { (shown_to(state, 24)) } }
}
