//! The page of an error.

use super::layout::{PageFrame, Section, page};
use super::text::shown_to;
use maud::{Markup, html};

/// Returns the page of an error: the status, what happened, and what to do next.
#[must_use]
pub fn render(frame: &PageFrame, status: u16, message: &str, hint: Option<&str>) -> Markup {
    let title = match status {
        400 => "Bad request",
        401 => "Sign in first",
        403 => "Not permitted",
        404 => "Not found",
        413 => "Too large",
        429 => "Too many requests",
        503 => "Busy",
        _ => "Something went wrong",
    };
    let content = html! {
        section class="empty" {
            p class="code" { (status) }
            h1 { (title) }
            p { (shown_to(message, 500)) }
            @if let Some(hint) = hint { p class="dim" { (shown_to(hint, 500)) } }
            p { a class="button" href="/" { "All crashes" } }
        }
    };
    let frame = PageFrame {
        title: title.to_owned(),
        ..frame.clone()
    };
    page(&frame, Section::None, &[], &content)
}
