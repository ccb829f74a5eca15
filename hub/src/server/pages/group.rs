//! The page of a group.

use super::group_parts;
use super::groups::hosts;
use super::layout::{Section, chip, page};
use super::text::{Ago, number, shown, shown_to};
use super::trend::chart;
use maud::{Markup, html};

pub use super::group_view::{
    BuildRow, Comment, CrashRow, CrashWay, ExplainedFrame, Explanation, GroupPage, KeyMove, NextSignatures,
    OverValue, SimilarGroup, StateChange,
};

/// Returns the page.
#[must_use]
pub fn render(view: &GroupPage) -> Markup {
    let content = html! {
        (headline(view))
        (facts(view))
        @if !view.missing_symbols.is_empty() { (missing(view)) }
        section class="panel" {
            h2 { "Reports by build " span class="dim" { "28 days, a bar for each 6 hours" } }
            (chart(&view.trend))
        }
        div class="columns" {
            div {
                (group_parts::latest(view))
                (group_parts::ways(view))
                (group_parts::explanation(view))
            }
            div {
                (group_parts::values(view))
                (group_parts::builds(view))
                (group_parts::comments(view))
                (group_parts::changes(view))
                (group_parts::similar(view))
                (group_parts::moves(view))
            }
        }
    };
    page(&view.frame, Section::Groups, &["groups.js"], &content)
}

fn headline(view: &GroupPage) -> Markup {
    html! {
        nav class="crumbs" aria-label="Path" { a href="/" { "Crashes" } span { (shown_to(&view.service, 80)) } }
        div class="headline" {
            div class="names" {
                p class="over" {
                    (chip(&view.state))
                    @if let Some(detail) = &view.state_detail { span class="dim" { (shown_to(detail, 120)) } }
                    span class="dim" { "since " (Ago { time: view.state_since, now: view.now }) }
                }
                h1 { (shown(&view.title)) }
                p class="under" {
                    span class="head" { (shown_to(&view.head, 120)) }
                    @if let Some(place) = &view.place { code { (shown_to(place, 120)) } }
                }
            }
            (group_parts::actions(view))
        }
    }
}

fn facts(view: &GroupPage) -> Markup {
    let now = view.now;
    html! {
        dl class="facts" {
            div { dt { "Reports" } dd { strong { (number(view.reports)) } } dd class="dim" {
                @match view.bundles { 0 => "no bundle stored", 1 => "1 bundle stored", count => { (number(count)) " bundles stored" } }
            } }
            div { dt { "Hosts affected" } dd { strong { (hosts(view.hosts, view.hosts_reporting)) } } }
            div {
                dt { "First seen" } dd { (Ago { time: view.first_seen, now }) " in " b { (shown_to(&view.first_build, 60)) } }
                dd class="dim" {
                    @match view.first_build_ran {
                        Some(time) => { "deployed " (Ago { time, now }) },
                        None => "time of its deploy unknown",
                    }
                }
            }
            div { dt { "Last seen" } dd { (Ago { time: view.last_seen, now }) } dd class="dim" { "in " (shown_to(&view.last_build, 60)) } }
            div {
                dt { "Assignee" }
                dd { @match &view.assignee { Some(name) => (shown_to(name, 60)), None => { span class="dim" { "nobody" } } } }
            }
        }
    }
}

fn missing(view: &GroupPage) -> Markup {
    html! {
        div class="notice warn" role="note" {
            p {
                b { "Symbols are missing." } " "
                @match view.missing_symbols.len() { 1 => "A module of this stack lacks", count => { (count) " modules of this stack lack" } }
                " debug information. Upload it with "
                code { "sentry-cli debug-files upload" } ". The group is symbolized again within a minute."
            }
            details { summary { "Build ids" }
                ul class="ids" { @for id in view.missing_symbols.iter().take(50) { li { code { (shown_to(id, 64)) } } } }
            }
        }
    }
}
