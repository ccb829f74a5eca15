//! The parts that all handlers of pages share.

use crate::access::Scope;
use crate::error::{Error, Result};
use crate::server::caller::Caller;
use crate::server::guard;
use crate::server::pages::layout::{PageFrame, Viewer};
use axum::response::Redirect;
use serde::Deserialize;

/// A form with nothing but its key.
#[derive(Deserialize)]
pub struct KeyForm {
    /// The key.
    #[serde(default)]
    pub csrf: String,
}

/// Returns the frame of a page with a title.
#[must_use]
pub fn frame(caller: &Caller, title: &str) -> PageFrame {
    PageFrame {
        title: title.to_owned(),
        viewer: Some(Viewer {
            name: caller.name.clone(),
            is_admin: caller.allows(Scope::Admin),
            csrf: guard::form_key(form_secret(caller)),
        }),
        search: String::new(),
    }
}

/// Checks that a form comes from a page that this caller got.
///
/// # Errors
/// Fails if its key is another one.
pub fn check_form(caller: &Caller, key: &str) -> Result<()> {
    guard::check_form_key(form_secret(caller), key)
}

/// Returns the redirect after a form.
pub fn see(path: &str) -> Redirect {
    Redirect::to(path)
}

/// Checks a text that a person typed.
///
/// # Errors
/// Fails if it is empty, too long, or has control characters other than line ends.
pub fn typed<'a>(field: &str, text: &'a str, limit: usize) -> Result<&'a str> {
    let text = text.trim();
    let is_odd = |char: char| char.is_control() && char != '\n' && char != '\r' && char != '\t';
    if text.is_empty() || text.chars().count() > limit || text.chars().any(is_odd) {
        return Err(Error::Invalid(format!(
            "{field} needs 1 to {limit} printable characters"
        )));
    }
    Ok(text)
}

/// A session has a secret. A person whom a proxy named has none: the browser's headers protect.
fn form_secret(caller: &Caller) -> &str {
    caller.session.as_deref().unwrap_or(&caller.name)
}
