//! Stacks on the page of a crash.

use super::layout::{Viewer, csrf};
use super::text::{compact, file_name, shown, shown_to};
use crate::analysis::{Analysis, FrameView, StackView, ValueKind, is_library_source, is_system};
use crate::grouping::rules::pattern_of;
use crate::stack::Frame;
use maud::{Markup, html};

/// The number of frames that are not folded.
const OPEN: usize = 24;

/// The frames of which a rule of grouping can be made: those that signatures consider.
const RULED: usize = 40;

/// Returns the stack of the crashed thread. An administrator can make rules of its frames.
pub(super) fn crashed(stack: &StackView, service: &str, viewer: Option<&Viewer>) -> Markup {
    let is_admin = viewer.is_some_and(|viewer| viewer.is_admin);
    html! {
        section class="panel" {
            h2 { "Stack" @if let Some(name) = &stack.name { " " span class="dim" { "thread " (shown_to(name, 60)) } } }
            @if is_admin { (rule_form(service, viewer)) }
            (frames(stack, true, if is_admin { RULED } else { 0 }))
        }
    }
}

/// Returns the form that the menus of all frames send.
fn rule_form(service: &str, viewer: Option<&Viewer>) -> Markup {
    html! {
        form id="frame-rule" method="post" action="/settings/rules/try" {
            (csrf(viewer))
            input type="hidden" name="service" value=(shown_to(service, 255));
        }
    }
}

/// Returns the menu that makes a rule of a frame. The rule is tried before it is saved.
fn rule_menu(frame: &Frame) -> Markup {
    let Some(pattern) = pattern_of(frame) else {
        return html! {};
    };
    html! {
        details class="menu rule" {
            summary { "Rule" }
            div class="choices" {
                p class="hint" { "A rule for " code { (shown_to(&pattern, 200)) } ", tried on past crashes before it is saved:" }
                @for (action, label) in [
                    ("group-by", "Group by this frame"),
                    ("ignore", "Ignore this frame"),
                    ("ignore-up-to", "Ignore up to this frame"),
                ] {
                    button type="submit" class="button" form="frame-rule" name="rule" value={ (action) " " (pattern) } { (label) }
                }
            }
        }
    }
}

/// Returns the other threads, folded.
pub(super) fn others(analysis: &Analysis) -> Markup {
    html! {
        @if !analysis.threads.is_empty() {
            section class="panel" {
                h2 { "Other threads " span class="dim" { (analysis.threads.len() + analysis.more_threads) } }
                @for thread in &analysis.threads { (folded(thread)) }
                @if analysis.more_threads > 0 { p class="dim" { "and " (analysis.more_threads) " more threads" } }
            }
        }
    }
}

fn folded(thread: &StackView) -> Markup {
    let innermost = thread
        .frames
        .iter()
        .find_map(|frame| frame.frame.function.as_deref());
    html! {
        details class="thread" {
            summary {
                span class="tid" { (thread.thread) }
                @if let Some(name) = &thread.name { b { (shown_to(name, 40)) } }
                code { (shown_to(innermost.unwrap_or("no symbols"), 160)) }
                span class="dim" { (compact(thread.instructions)) " instructions" }
            }
            (frames(thread, false, 0))
        }
    }
}

fn frames(stack: &StackView, with_values: bool, ruled: usize) -> Markup {
    let open = stack.frames.len().min(OPEN);
    let (first, rest) = stack.frames.split_at(open);
    html! {
        @if stack.frames.is_empty() { p class="none" { "The stack is unknown." } }
        ol class="frames" start="0" { @for (at, frame) in first.iter().enumerate() { (frame_item(frame, with_values, at < ruled)) } }
        @if !rest.is_empty() {
            details { summary { (rest.len()) " more frames" }
                ol class="frames" start=(open) { @for (at, frame) in rest.iter().enumerate() { (frame_item(frame, with_values, at + open < ruled)) } }
            }
        }
        @if stack.more { p class="dim" { "The stack has more frames. " code { "backtrace" } " in the debugger shows them." } }
        @if let Some(reason) = &stack.unknown_beyond { p class="dim" { "Older frames are unknown: " (shown_to(reason, 400)) "." } }
    }
}

fn frame_item(view: &FrameView, with_values: bool, with_rule: bool) -> Markup {
    html! {
        li class=(if is_own(&view.frame) { "own" } else { "foreign" }) {
            (name(&view.frame))
            @if view.frame.inlined { span class="tag" title="The compiler inlined this call into the next frame" { "inlined" } }
            @if view.signal_handler { span class="tag warn" title="A signal interrupted the next frame" { "signal handler" } }
            @if view.tail_caller { span class="tag" title="The function ended by a jump to the frame above" { "tail call" } }
            @if view.bad_pointer { span class="tag warn" { "not code" } }
            (place(&view.frame))
            @if with_rule { (rule_menu(&view.frame)) }
            @if with_values && !view.values.is_empty() {
                @if is_own(&view.frame) { (values(view)) }
                @else { details class="more" { summary class="dim" { "values " (view.values.len()) } (values(view)) } }
            }
        }
    }
}

/// Returns whether a frame has a line, and is neither in a library of the system nor of the
/// language.
fn is_own(frame: &Frame) -> bool {
    let is_foreign = frame.module.as_deref().is_some_and(is_system)
        || frame.file.as_deref().is_some_and(is_library_source);
    frame.line.is_some() && !is_foreign
}

fn values(view: &FrameView) -> Markup {
    html! {
        dl class="values" {
            @for value in view.values.iter().take(20) {
                div class=(match value.kind { ValueKind::Argument => "argument", ValueKind::Local => "local" }) {
                    dt { (shown_to(&value.name, 80)) } dd title=[(value.value.len() > 100).then(|| shown_to(&value.value, 400))] { (shown_to(&value.value, 240)) }
                }
            }
            @if view.values.len() > 20 { div { dt { "" } dd class="dim" { "and " (view.values.len() - 20) " more" } } }
        }
    }
}

/// Returns the function of a frame, or its module and offset.
fn name(frame: &Frame) -> Markup {
    html! {
        @match (&frame.function, &frame.module, frame.offset) {
            (Some(function), _, _) => { code class="function" { (shown_to(function, 600)) } },
            (None, Some(module), Some(offset)) => { code class="function unknown" { (file_name(module)) (format!("+{offset:#x}")) } },
            (None, Some(module), None) => { code class="function unknown" { (file_name(module)) } },
            (None, None, _) => { code class="function unknown" { "code of no file" } },
        }
    }
}

fn place(frame: &Frame) -> Markup {
    html! {
        span class="place" {
            @if let Some(file) = &frame.file {
                span title=(shown(file)) { (file_name(file)) @if let Some(line) = frame.line { ":" (line) } }
            } @else if frame.function.is_some() {
                @if let Some(module) = &frame.module { span title=(shown(module)) { (file_name(module)) } }
            }
        }
    }
}

/// Returns the stack of a report, which has no values.
pub(super) fn reported(
    frames: &[Frame],
    end: Option<&str>,
    service: &str,
    viewer: Option<&Viewer>,
) -> Markup {
    let is_admin = viewer.is_some_and(|viewer| viewer.is_admin);
    html! {
        section class="panel" {
            h2 { "Stack " span class="dim" { "as the host reported it" } }
            @if frames.is_empty() { p class="none" { "The report has no stack." } }
            @if is_admin && !frames.is_empty() { (rule_form(service, viewer)) }
            ol class="frames" start="0" {
                @for (at, frame) in frames.iter().take(128).enumerate() {
                    li class=(if is_own(frame) { "own" } else { "foreign" }) {
                        (name(frame))
                        @if frame.inlined { span class="tag" { "inlined" } }
                        (place(frame))
                        @if is_admin && at < RULED { (rule_menu(frame)) }
                    }
                }
            }
            @if let Some(end) = end { p class="dim" { "The stack ends early: " (shown_to(end, 300)) "." } }
        }
    }
}
