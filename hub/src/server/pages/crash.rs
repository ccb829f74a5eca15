//! The page of one crash.

use super::crash_parts as parts;
use super::crash_state;
use super::icons;
use super::layout::{PageFrame, Section, chip, csrf, page};
use super::stack;
use super::text::{Ago, bytes, shown, shown_to, utc};
use crate::analysis::Analysis;
use crate::stack::Frame;
use backtrail_report::CrashReport;
use maud::{Markup, html};

pub use super::crash_parts::cause_in_words;
pub use super::crash_state::BundleState;

/// The page of a crash.
#[derive(Clone, Debug, PartialEq)]
pub struct CrashPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The report. Its modules and frames are not needed.
    pub report: CrashReport,
    /// The group: its id, title and state.
    pub group: Option<(String, String, String)>,
    /// The stack of the report, with symbols where they are known, for a crash without an analysis.
    pub stack: Vec<Frame>,
    /// The bundle.
    pub bundle: BundleState,
    /// The analysis of the bundle.
    pub analysis: Option<Analysis>,
    /// The reason for which there is no analysis of a stored bundle.
    pub analysis_problem: Option<String>,
    /// The time at which the report arrived, in microseconds since 1970.
    pub received: i64,
    /// Whether the bundle is kept for ever.
    pub is_pinned: bool,
    /// The address of this page, `https://HUB/c/ID`.
    pub link: String,
    /// The link that opens VS Code, `vscode://…`.
    pub editor_link: String,
    /// The address of the bundle, and its size.
    pub download: Option<(String, u64)>,
    /// The time at which new symbols were applied.
    pub symbolized: Option<i64>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// Returns the page.
#[must_use]
pub fn render(view: &CrashPage) -> Markup {
    let content = html! {
        (headline(view))
        (facts(view))
        @match &view.analysis {
            Some(analysis) => (analyzed(view, analysis)),
            None => (not_analyzed(view)),
        }
    };
    let scripts: &[&str] = match (&view.analysis, view.bundle.is_moving()) {
        (Some(_), _) => &["crash.js", "timeline.js"],
        (None, true) => &["crash.js", "progress.js"],
        (None, false) => &["crash.js"],
    };
    page(&view.frame, Section::Groups, scripts, &content)
}

/// Returns the title: the innermost function that has a name, and the signal.
fn title(view: &CrashPage) -> String {
    if let Some((_, title, _)) = &view.group {
        return title.clone();
    }
    let frames = view.analysis.as_ref().map(|analysis| &analysis.crashed.frames);
    let analyzed = frames.and_then(|frames| frames.iter().find_map(|frame| frame.frame.function.clone()));
    let reported = || view.stack.iter().find_map(|frame| frame.function.clone());
    let executable = || view.report.executable.clone();
    analyzed.or_else(reported).unwrap_or_else(executable)
}

fn headline(view: &CrashPage) -> Markup {
    html! {
        nav class="crumbs" aria-label="Path" {
            a href="/" { "Crashes" }
            @if let Some((id, title, _)) = &view.group { a href={ "/g/" (id) } { (shown_to(title, 80)) } }
            span { (view.report.id) }
        }
        div class="headline rows" {
            div class="names" {
                @if let Some((_, _, state)) = &view.group {
                    p class="over" { (chip(state)) @if view.is_pinned { span class="tag" { (icons::pin()) "pinned" } } }
                }
                h1 { (shown_to(&title(view), 400)) }
                p class="under" {
                    span class="head" {
                        @match &view.analysis {
                            Some(analysis) => (shown(&analysis.cause.description)),
                            None => (parts::signal_in_words(&view.report)),
                        }
                    }
                }
            }
            (actions(view))
        }
    }
}

fn actions(view: &CrashPage) -> Markup {
    let can_open = view.download.is_some() && view.analysis.is_some();
    let command = format!("backtrail open {}", view.link);
    html! {
        div class="actions" {
            @if can_open {
                a class="button primary" id="open-editor" href=(view.editor_link) { (icons::rewind()) "Reverse debug in VS Code" }
                button type="button" class="button" id="copy-command" data-copy=(command)
                    title="A terminal command that opens this crash" { (icons::copy()) "Copy " code { "backtrail open" } }
            }
            button type="button" class="button" id="copy-link" data-copy=(view.link) { (icons::copy()) "Copy link" }
            @if let Some((address, size)) = &view.download {
                a class="button" href=(address) download { (icons::download()) "Download " span class="dim" { (bytes(*size)) } }
            }
            @if let Some(viewer) = view.frame.viewer.as_ref().filter(|viewer| viewer.is_admin && view.download.is_some()) {
                form method="post" action={ "/c/" (view.report.id) "/pin" } {
                    (csrf(Some(viewer)))
                    input type="hidden" name="pinned" value=(if view.is_pinned { "0" } else { "1" });
                    button type="submit" class="button" title="A pinned bundle is never removed" { (icons::pin()) (if view.is_pinned { "Unpin" } else { "Pin" }) }
                }
            }
            p class="at" id="at" hidden { "at " code id="at-position" {} " " button type="button" class="ghost" id="at-crash" { "back to the crash" } }
            p class="spoken" role="status" aria-live="polite" id="said" {}
        }
    }
}

fn facts(view: &CrashPage) -> Markup {
    let report = &view.report;
    let time = i64::try_from(report.time).unwrap_or(i64::MAX);
    let labels = || {
        let analyzed = view.analysis.iter().flat_map(|analysis| &analysis.labels);
        let new = analyzed.filter(|(name, _)| !report.labels.contains_key(*name));
        report.labels.iter().chain(new)
    };
    html! {
        dl class="facts" {
            div { dt { "Time" } dd { (Ago { time, now: view.now }) } dd class="dim" { (utc(time)) } }
            div { dt { "Service" } dd { (shown_to(&report.service, 80)) } dd class="dim" { "build " (shown_to(&report.build, 60)) } }
            div { dt { "Host" } dd { (shown_to(&report.host, 80)) }
                dd class="dim" { (shown_to(report.kernel.as_deref().unwrap_or("kernel unknown"), 60)) } }
            div { dt { "Thread" } dd { (shown_to(report.thread.as_deref().unwrap_or("without a name"), 40)) " " span class="dim" { (report.tid) } }
                dd class="dim" { "process " (report.pid) } }
            div { dt { "Processor" } dd { (shown_to(report.cpu.as_deref().unwrap_or("unknown"), 40)) } }
            @if labels().next().is_some() {
                div class="wide" { dt { "Request" } dd class="labels" {
                    @for (name, value) in labels().take(24) {
                        span class="tag" { span class="dim" { (shown_to(name, 60)) } " " (shown_to(value, 120)) }
                    }
                } }
            }
        }
    }
}

fn analyzed(view: &CrashPage, analysis: &Analysis) -> Markup {
    let id = view.report.id.to_string();
    html! {
        @if let Some(time) = view.symbolized {
            p class="notice" role="note" { "New symbols were applied " (Ago { time, now: view.now }) "." }
        }
        div class="columns crash" {
            div {
                (parts::cause(analysis))
                (stack::crashed(&analysis.crashed, &view.report.service, view.frame.viewer.as_ref()))
            }
            div {
                (parts::last_lines(analysis))
                (parts::last_calls(analysis))
            }
        }
        (parts::timeline(analysis, &id))
        (stack::others(analysis))
        (parts::gaps(analysis))
        (parts::modules(analysis))
        (parts::snapshot(analysis))
    }
}

fn not_analyzed(view: &CrashPage) -> Markup {
    html! {
        (crash_state::panel(&view.bundle, view.analysis_problem.as_deref(), &view.report.id.to_string()))
        (stack::reported(&view.stack, view.report.frames_end.as_deref(), &view.report.service, view.frame.viewer.as_ref()))
    }
}
