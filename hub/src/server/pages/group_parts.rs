//! The sections of the page of a group.

use super::group_view::{CrashRow, CrashWay, ExplainedFrame, GroupPage, NextSignatures, OverValue};
use super::layout::{chip, csrf};
use super::text::{Ago, compact, number, percent, shown, shown_to, utc};
use maud::{Markup, html};

/// The most rows of a list on the page.
const ROWS: usize = 50;
/// The crashes that are not folded.
const OPEN: usize = 12;

/// Returns the forms that change the state.
pub(super) fn actions(view: &GroupPage) -> Markup {
    let Some(viewer) = view.frame.viewer.as_ref().filter(|viewer| viewer.is_admin) else {
        return html! {};
    };
    let action = format!("/g/{}/state", view.id);
    let is_open = !matches!(view.state.as_str(), "resolved" | "archived");
    html! {
        div class="actions" {
            @if is_open {
                details class="menu" {
                    summary class="button primary" { "Resolve" }
                    form method="post" action=(action) {
                        (csrf(Some(viewer)))
                        input type="hidden" name="state" value="resolved";
                        label { span { "Fixed in the build" }
                            input name="build" list="builds" maxlength="255" required autocomplete="off" placeholder="2026.11.4";
                        }
                        datalist id="builds" { @for build in view.builds.iter().take(ROWS) { option value=(shown(&build.build)) {} } }
                        p class="hint" { "The build need not exist yet. A crash of this build or of a later one is a regression." }
                        button type="submit" class="button primary" { "Resolve" }
                    }
                }
                details class="menu" {
                    summary class="button" { "Archive" }
                    form method="post" action=(action) {
                        (csrf(Some(viewer)))
                        input type="hidden" name="state" value="archived";
                        label { span { "Until" }
                            select name="until" {
                                option value="escalating" { "it escalates" }
                                option value="reports" { "100 more reports arrive" }
                                option value="forever" { "somebody opens it again" }
                            }
                        }
                        button type="submit" class="button" { "Archive" }
                    }
                }
            } @else {
                form method="post" action=(action) {
                    (csrf(Some(viewer)))
                    input type="hidden" name="state" value="ongoing";
                    button type="submit" class="button" { "Reopen" }
                }
            }
            details class="menu" {
                summary class="button" { "Assign" }
                form method="post" action={ "/g/" (view.id) "/assignee" } {
                    (csrf(Some(viewer)))
                    label { span { "Person" }
                        input name="assignee" maxlength="255" value=(shown(view.assignee.as_deref().unwrap_or_default()));
                    }
                    button type="submit" class="button" { "Assign" }
                }
            }
        }
    }
}

/// Returns the latest crashes, of which the oldest are folded.
pub(super) fn latest(view: &GroupPage) -> Markup {
    let crashes = view
        .crashes
        .get(..view.crashes.len().min(ROWS))
        .unwrap_or_default();
    let (first, rest) = crashes.split_at(crashes.len().min(OPEN));
    let with_history = crashes.iter().find(|crash| crash.bundle == "stored");
    html! {
        section class="panel" {
            div class="bar-of-buttons" {
                h2 { "Latest crashes" }
                @if let Some(crash) = with_history {
                    a class="button small" href={ "/c/" (crash.id) } { "Open the latest with a history" }
                }
            }
            @if crashes.is_empty() { p class="none" { "No crash is kept." } }
            @else { (crash_table(first, view.now)) }
            @if !rest.is_empty() {
                details { summary { (rest.len()) " older crashes" } (crash_table(rest, view.now)) }
            }
        }
    }
}

fn crash_table(crashes: &[CrashRow], now: i64) -> Markup {
    let has_labels = crashes.iter().any(|crash| !crash.labels.is_empty());
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Crashes" {
            table class="list" {
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "Host" } th scope="col" { "Build" } th scope="col" { "Bundle" }
                    @if has_labels { th scope="col" { "Labels" } }
                } }
                tbody { @for crash in crashes { (crash_row(crash, has_labels, now)) } }
            }
        }
    }
}

fn crash_row(crash: &CrashRow, has_labels: bool, now: i64) -> Markup {
    let bundle = match crash.bundle.as_str() {
        "stored" => ("ok", "history"),
        "wanted" => ("wait", "awaited"),
        "uploading" => ("wait", "uploading"),
        "checking" => ("wait", "being checked"),
        "refused" => ("bad", "refused"),
        "expired" => ("dim", "expired"),
        "none" => ("dim", "counted only"),
        other => ("dim", other),
    };
    html! {
        tr {
            td { a href={ "/c/" (crash.id) } { (Ago { time: crash.time, now }) } @if crash.is_pinned { " " span class="tag" { "pinned" } } }
            td { (shown_to(&crash.host, 60)) }
            td { (shown_to(&crash.build, 60)) }
            td { span class={ "state " (bundle.0) } { (shown_to(bundle.1, 30)) } }
            @if has_labels {
                td class="labels" { @for label in crash.labels.iter().take(6) { span class="tag" { (shown_to(label, 60)) } } }
            }
        }
    }
}

/// Returns the values that are more frequent inside the group.
pub(super) fn values(view: &GroupPage) -> Markup {
    html! {
        section class="panel" {
            h2 { "Over-represented values" }
            @if view.values.is_empty() { p class="none" { "No build, host, kernel, processor or label stands out." } }
            @else {
                table class="list over" {
                    thead { tr { th scope="col" { "Value" } th scope="col" { "In this group" } th scope="col" { "In other groups" } } }
                    tbody { @for value in view.values.iter().take(ROWS) { (value_row(value)) } }
                }
            }
        }
    }
}

fn value_row(value: &OverValue) -> Markup {
    let share = |part: u64, all: u64| match all {
        0 => 0.0,
        _ => (part as f64 * 100.0 / all as f64).clamp(0.0, 100.0),
    };
    let bar = |part: u64, all: u64, class: &str| {
        html! {
            div class="bar" {
                svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
                    rect class="track" width="100" height="8" rx="2" {}
                    rect class=(class) width=(format!("{:.1}", share(part, all))) height="8" rx="2" {}
                }
                span { (percent(part, all).unwrap_or_else(|| "–".to_owned())) }
            }
        }
    };
    html! {
        tr {
            td { span class="dim" { (shown_to(&value.field, 40)) " " } b { (shown_to(&value.value, 80)) } }
            td { (bar(value.inside, value.inside_all, "in")) }
            td { (bar(value.outside, value.outside_all, "out")) }
        }
    }
}

/// Returns the builds in the order of their first run.
pub(super) fn builds(view: &GroupPage) -> Markup {
    html! {
        section class="panel" {
            h2 { "Builds" }
            @if view.builds.is_empty() { p class="none" { "No host has named a build." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Builds" {
                    table class="list" {
                        thead { tr { th scope="col" { "Build" } th scope="col" { "First ran" } th scope="col" class="num" { "Reports" } th scope="col" class="num" { "Hosts" } } }
                        tbody {
                            @for build in view.builds.iter().take(ROWS) {
                                tr {
                                    td { a href=(build.address) title="Groups that crashed with this build" { (shown_to(&build.build, 60)) } @if build.is_first { " " span class="tag" { "first seen" } } }
                                    td {
                                        @match build.first_ran {
                                            Some(time) => (Ago { time, now: view.now }),
                                            None => { span class="dim" title="No heartbeat named the build, so its order is undetermined" { "undetermined" } },
                                        }
                                    }
                                    td class="num" { (compact(build.reports)) }
                                    td class="num" {
                                        (compact(build.hosts))
                                        @if let Some(ran) = build.hosts_ran { span class="dim" { " of " (compact(ran)) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the ways into the crash.
pub(super) fn ways(view: &GroupPage) -> Markup {
    html! {
        section class="panel" {
            h2 { @match view.ways.len() { 1 => "One way into this crash", count => { (count) " ways into this crash" } } }
            @if view.ways.is_empty() { p class="none" { "No bundle with a history is stored yet." } }
            @for (number, way) in view.ways.iter().enumerate().take(ROWS) { (one_way(number + 1, way)) }
        }
    }
}

fn one_way(number: usize, way: &CrashWay) -> Markup {
    html! {
        div class="way" {
            h3 {
                "Way " (number) " "
                span class="dim" { (way.bundles) @if way.bundles == 1 { " bundle, " } @else { " bundles, " } }
                a href={ "/c/" (way.crash) } { "open one" }
            }
            ol reversed {
                @for (caller, callee) in way.edges.iter().take(12) {
                    li { code { (shown_to(callee, 160)) } span class="dim" { " from " } code class="dim" { (shown_to(caller, 160)) } }
                }
            }
        }
    }
}

/// Returns the explanation of the grouping.
pub(super) fn explanation(view: &GroupPage) -> Markup {
    let explained = &view.explanation;
    let frames = explained
        .frames
        .get(..explained.frames.len().min(ROWS))
        .unwrap_or_default();
    // The frames after the last kept one are its callers.
    let last = frames.iter().rposition(|frame| frame.kept_as.is_some());
    let last = last.map_or(frames.len(), |last| last + 1);
    html! {
        section class="panel" {
            h2 { "Why these crashes are one group" }
            p class="dim" { "Rules of version " (explained.version) ". The signature is made of the kept frames:" }
            p { code class="signature" { (shown(&explained.signature)) } }
            @let (first, callers) = frames.split_at(last);
            ol class="frames why" start="0" { @for frame in first { (explained_frame(frame)) } }
            @if !callers.is_empty() {
                p class="dim" {
                    @match callers.len() { 1 => "The caller of the last frame does", count => { "The " (count) " callers of the last frame do" } }
                    " not count."
                }
            }
            @if let Some(next) = &explained.next { (next_signatures(next)) }
        }
    }
}

/// Returns what the version beside would change in this group.
fn next_signatures(next: &NextSignatures) -> Markup {
    html! {
        h3 { "By version " (next.version) }
        p class="dim" { "Version " (next.version) " replaces this one on " (utc(next.switch_at)) "." }
        @match (next.groups.len(), next.merged_with.is_empty()) {
            (0, _) => { p { "These crashes are not compared yet." } },
            (1, true) => { p { "The group stays as it is, with this signature:" } },
            (1, false) => { p { "The group becomes one with others, with this signature:" } },
            (count, _) => { p { "The group is split into " (count) " groups with these signatures:" } },
        }
        ul class="plain" {
            @for (signature, reports) in next.groups.iter().take(ROWS) {
                li { code class="signature" { (shown(signature)) } span class="dim" { " " (number(*reports)) " reports" } }
            }
        }
        @if !next.merged_with.is_empty() {
            p { "These groups join it, or a part of it:" }
            ul class="plain" {
                @for (id, title) in next.merged_with.iter().take(ROWS) { li { a href={ "/g/" (id) } { (shown_to(title, 160)) } } }
            }
        }
    }
}

fn explained_frame(frame: &ExplainedFrame) -> Markup {
    html! {
        li class=(if frame.kept_as.is_some() { "kept" } else { "dropped" }) {
            code { (shown_to(&frame.frame, 240)) }
            span class="tag" { (shown_to(&frame.reason, 60)) }
            @if let Some(rule) = &frame.rule { div class="dim" { "rule " code { (shown_to(rule, 240)) } } }
            @if let Some(kept) = frame.kept_as.as_ref().filter(|kept| **kept != frame.frame) {
                div class="dim" { "as " code { (shown_to(kept, 240)) } }
            }
        }
    }
}

/// Returns similar groups.
pub(super) fn similar(view: &GroupPage) -> Markup {
    html! {
        @if !view.similar.is_empty() {
            section class="panel" {
                h2 { "Similar groups" }
                ul class="plain" {
                    @for group in view.similar.iter().take(ROWS) {
                        li { a href={ "/g/" (group.id) } { (shown_to(&group.title, 160)) } span class="dim" { (format!(" {:.0} % alike", group.similarity.clamp(0.0, 1.0) * 100.0)) } }
                    }
                }
            }
        }
    }
}

/// Returns the moves of keys between groups.
pub(super) fn moves(view: &GroupPage) -> Markup {
    html! {
        @if !view.moves.is_empty() {
            section class="panel" {
                h2 { "Moved between groups" }
                ul class="plain" {
                    @for moved in view.moves.iter().take(ROWS) {
                        li {
                            (Ago { time: moved.time, now: view.now }) ": " (number(moved.reports)) " reports from "
                            a href={ "/g/" (moved.from.0) } { (shown_to(&moved.from.1, 120)) } " to "
                            a href={ "/g/" (moved.to.0) } { (shown_to(&moved.to.1, 120)) }
                            span class="tag" { (shown_to(&moved.reason, 40)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the changes of the state.
pub(super) fn changes(view: &GroupPage) -> Markup {
    html! {
        section class="panel" {
            h2 { "History of the state" }
            @if view.changes.is_empty() { p class="none" { "The state has not changed." } }
            ul class="plain events" {
                @for change in view.changes.iter().take(ROWS) {
                    li {
                        (chip(&change.event)) " "
                        @if let Some(build) = &change.build { "in " b { (shown_to(build, 60)) } " " }
                        @match (&change.actor, &change.report) {
                            (Some(actor), _) => { "by " (shown_to(actor, 60)) },
                            (None, Some(report)) => { "by " a href={ "/c/" (report) } { "a crash" } },
                            (None, None) => {},
                        }
                        " " span class="dim" { (Ago { time: change.time, now: view.now }) }
                    }
                }
            }
        }
    }
}

/// Returns the comments and the form for one more.
pub(super) fn comments(view: &GroupPage) -> Markup {
    html! {
        section class="panel" id="comments" {
            h2 { "Comments" }
            @if view.comments.is_empty() { p class="none" { "No comments." } }
            @for comment in view.comments.iter().rev().take(ROWS).rev() {
                article class="comment" {
                    p class="dim" { b { (shown_to(&comment.author, 60)) } " " (Ago { time: comment.time, now: view.now }) }
                    p class="said" { (lines(&comment.text)) }
                }
            }
            @if let Some(viewer) = &view.frame.viewer {
                form class="write" method="post" action={ "/g/" (view.id) "/comments" } {
                    (csrf(Some(viewer)))
                    label { span class="spoken" { "New comment" } textarea name="text" rows="2" maxlength="4000" required placeholder="Write a comment" {} }
                    button type="submit" class="button" { "Comment" }
                }
            }
        }
    }
}

/// Returns the lines of a text.
fn lines(text: &str) -> Markup {
    html! { @for line in text.lines().take(100) { (shown_to(line, 1000)) br; } }
}
