//! Icons as SVG. They have no meaning of their own: a text is always beside them.

use maud::{Markup, html};

/// Returns an icon of 16 by 16 units by the path of its lines.
fn icon(path: &str) -> Markup {
    html! {
        svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" { path d=(path) {} }
    }
}

/// Steps back in time.
pub(super) fn rewind() -> Markup {
    icon("M7 3.5 2 8l5 4.5zM14 3.5 9 8l5 4.5z")
}

/// Copies.
pub(super) fn copy() -> Markup {
    icon("M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3")
}

/// Downloads.
pub(super) fn download() -> Markup {
    icon("M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11")
}

/// Searches.
pub(super) fn search() -> Markup {
    icon("M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.8 10.8 14 14")
}

/// Light and dark.
pub(super) fn theme() -> Markup {
    icon("M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12")
}

/// Pins.
pub(super) fn pin() -> Markup {
    icon("M6 2h4l-.5 5 2.5 2.5H4L6.500 7zM8 9.500V14")
}

/// The mark of the product: a trail that turns back.
pub(super) fn mark() -> Markup {
    html! {
        svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" {
            path d="M4 6h11a5 5 0 0 1 0 10H8" {}
            path d="M11.500 12 7.500 16l4 4" {}
        }
    }
}
