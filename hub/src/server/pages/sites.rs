//! The sites: other hubs that this one asks for profiles.

use super::layout::{PageFrame, Section, csrf, page};
use super::text::{Ago, shown, shown_to};
use maud::{Markup, html};

/// The page of sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SitesPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The sites by name.
    pub sites: Vec<SiteLine>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteLine {
    /// The name.
    pub name: String,
    /// The address of its hub.
    pub url: String,
    /// Whether its token is known.
    pub has_token: bool,
    /// Whether it is asked.
    pub is_enabled: bool,
    /// The person who added it.
    pub author: String,
    /// The time of its addition.
    pub created: i64,
}

/// Returns the page.
#[must_use]
pub fn render(view: &SitesPage) -> Markup {
    let viewer = view.frame.viewer.as_ref();
    let content = html! {
        div class="headline" { h1 { "Sites" } p class="count" { a href="/settings" { "Settings" } } }
        section class="panel" {
            p { "This hub asks the hubs of other sites for sums of profiles if a selection names them. Samples stay where they are." }
            @if view.sites.is_empty() { p class="none" { "No site is known." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Sites" { table class="list" {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Hub" } th scope="col" { "State" }
                        th scope="col" { "Added" } th scope="col" { span class="spoken" { "Action" } }
                    } }
                    tbody { @for site in &view.sites { tr {
                        td { b { (shown_to(&site.name, 64)) } }
                        td { (shown_to(&site.url, 200)) }
                        td {
                            @if !site.has_token { span class="state bad" { "no token" } }
                            @else if site.is_enabled { span class="state ok" { "asked" } }
                            @else { span class="state dim" { "off" } }
                        }
                        td { (shown_to(&site.author, 60)) ", " (Ago { time: site.created, now: view.now }) }
                        td class="num" {
                            form method="post" action={ "/settings/sites/" (shown(&site.name)) "/remove" } {
                                (csrf(viewer)) button type="submit" class="button small" { "Remove" }
                            }
                        }
                    } } }
                } }
            }
            form method="post" action="/settings/sites" class="row" {
                (csrf(viewer))
                label { span { "Name" } input name="name" required maxlength="64" placeholder="eu-1" autocomplete="off"; }
                label class="grow" { span { "Address of its hub" } input name="url" type="url" required maxlength="1000" placeholder="https://hub.eu.example.com" autocomplete="off"; }
                label class="grow" { span { "Token (scope read)" } input name="token" type="password" maxlength="1000" placeholder="unchanged" autocomplete="off"; }
                label class="check" { input type="checkbox" name="enabled" value="1" checked; "Asked" }
                button type="submit" class="button primary" { "Add or change" }
            }
        }
    };
    page(&view.frame, Section::Settings, &[], &content)
}
