//! The page of a requested profile: its state, until the profile is there.

use super::layout::{PageFrame, Section, page};
use super::text::shown_to;
use maud::{Markup, html};

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// The agent has not taken it.
    Waiting,
    /// No agent took it in time.
    Expired,
    /// The agent takes the profile.
    Running,
    /// The profile is stored at this address.
    Stored(String),
    /// There is no profile, for this reason.
    Failed(String),
}

impl RequestState {
    /// Returns the name, by which the script sees a change.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Expired => "expired",
            Self::Running => "running",
            Self::Stored(_) => "stored",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns a sentence about the state.
    #[must_use]
    pub fn text(&self, host: &str) -> String {
        match self {
            Self::Waiting => format!("Waiting for the agent of {host}."),
            Self::Expired => {
                format!(
                    "No agent of {host} took the request; check that `backtrail profile agent` runs there."
                )
            }
            Self::Running => format!("The agent of {host} takes the profile."),
            Self::Stored(_) => "The profile is stored.".to_owned(),
            Self::Failed(problem) => format!("There is no profile: {problem}"),
        }
    }
}

/// A request as its page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The identifier.
    pub id: String,
    /// The host.
    pub host: String,
    /// The event.
    pub event: String,
    /// The length in seconds.
    pub seconds: i64,
    /// The samples a second.
    pub frequency: i64,
    /// The state.
    pub state: RequestState,
}

/// Returns the page.
#[must_use]
pub fn render(view: &RequestPage) -> Markup {
    let is_open = matches!(view.state, RequestState::Waiting | RequestState::Running);
    let content = html! {
        div class="headline" { h1 { "Profile of " (shown_to(&view.host, 80)) } }
        p { (view.seconds) " s of " (shown_to(&view.event, 40)) " with " (view.frequency) " samples a second" }
        @if is_open {
            div class="panel" id="progress" data-source={ "/profiles/now/" (view.id) "/state" } data-state=(view.state.name()) {
                p id="progress-text" role="status" { (shown_to(&view.state.text(&view.host), 600)) }
                progress id="progress-bar" max="1" aria-label="Progress" {}
            }
        } @else {
            p role="status" { (shown_to(&view.state.text(&view.host), 600)) }
            @if let RequestState::Stored(address) = &view.state {
                p { a class="button primary" href=(address) { "Show the profile" } }
                iframe class="profile" title="The requested profile" src=(address.replacen("/profiles?", "/profiles/view?", 1)) {}
            } @else {
                p { a class="button" href="/profiles" { "Back to the profiles" } }
            }
        }
    };
    page(&view.frame, Section::Profiles, &["progress.js"], &content)
}
