//! The page on which a person signs in with a token.

use super::layout::{PageFrame, Section, page};
use super::text::{shown, shown_to};
use maud::{Markup, html};

/// The page of the sign-in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignInPage {
    /// The path on this hub that is shown after the sign-in.
    pub then: String,
    /// The reason for which the last attempt failed.
    pub problem: Option<String>,
    /// The value of the field `csrf`.
    pub csrf: String,
}

/// Returns the page.
#[must_use]
pub fn render(view: &SignInPage) -> Markup {
    let content = html! {
        section class="panel narrow" {
            h1 { "Sign in" }
            @if let Some(problem) = &view.problem { p class="notice bad" role="alert" { (shown_to(problem, 300)) } }
            form method="post" action="/sign-in" class="stacked" {
                input type="hidden" name="csrf" value=(view.csrf);
                input type="hidden" name="then" value=(shown(&view.then));
                // Managers of passwords want a name.
                input type="text" name="username" value="token" autocomplete="username" hidden;
                label { span { "Token" }
                    input type="password" name="token" required autofocus autocomplete="current-password" spellcheck="false" maxlength="200";
                }
                button type="submit" class="button primary" { "Sign in" }
            }
            p class="dim" { "An administrator creates a token with the scope " code { "read" } " under Settings, or on the hub's machine with "
                code { "backtrail-hub token NAME --scope read" } "." }
        }
    };
    let frame = PageFrame {
        title: "Sign in".to_owned(),
        ..PageFrame::default()
    };
    page(&frame, Section::None, &[], &content)
}
