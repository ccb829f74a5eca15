//! Signing in and out.

use super::frame::{KeyForm, check_form, see};
use crate::access::Scope;
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use crate::server::api::json::Parameters;
use crate::server::caller::{COOKIE, Caller};
use crate::server::guard;
use crate::server::pages::sign_in::{self, SignInPage};
use axum::Extension;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;

/// Days after which a session ends.
const DAYS: i64 = 30;

/// The parameters of the page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SignInParameters {
    then: String,
}

/// The form.
#[derive(Deserialize)]
pub struct SignInForm {
    token: String,
    #[serde(default)]
    then: String,
}

/// Returns the page where one signs in.
pub async fn page(Parameters(parameters): Parameters<SignInParameters>) -> Response {
    let view = SignInPage {
        then: own_path(&parameters.then).to_owned(),
        problem: None,
        csrf: String::new(),
    };
    sign_in::render(&view).into_response()
}

/// Begins a session by a token, and leads to the page that was asked for.
///
/// # Errors
/// Fails if the form comes from another site, or the database fails.
pub async fn sign_in(
    State(hub): State<Arc<Hub>>,
    headers: HeaderMap,
    Form(form): Form<SignInForm>,
) -> Result<Response> {
    guard::require_own_page(&Method::POST, &headers)?;
    hub.rates.count("sign-in")?;
    let then = own_path(&form.then).to_owned();
    let refuse = |problem: &str| {
        let view = SignInPage {
            then: then.clone(),
            problem: Some(problem.to_owned()),
            csrf: String::new(),
        };
        (StatusCode::UNAUTHORIZED, sign_in::render(&view)).into_response()
    };
    let Some(token) = hub.database.token(form.token.trim()).await? else {
        return Ok(refuse(
            "This token is not valid. `backtrail-hub token NAME --scope read` makes one.",
        ));
    };
    if !Scope::Read.is_within(&token.scopes) {
        return Ok(refuse(
            "This token may not read. `backtrail-hub token NAME --scope read` makes one that may.",
        ));
    }
    let scopes: Vec<_> = [Scope::Read, Scope::Admin]
        .into_iter()
        .filter(|scope| token.scopes.contains(scope))
        .collect();
    let expires = clock::now() + DAYS * clock::DAY;
    let (_, secret) = hub
        .database
        .create_token(&token.name, &scopes, Some(expires))
        .await?;
    hub.database.log_action(&token.name, "sign in", "").await?;
    let mut response = see(&then).into_response();
    set_cookie(&mut response, secret.reveal(), DAYS * 86_400, &hub);
    Ok(response)
}

/// Ends a session.
///
/// # Errors
/// Fails if the form comes from another site, or the database fails.
pub async fn sign_out(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<KeyForm>,
) -> Result<Response> {
    check_form(&caller, &form.csrf)?;
    if let (Some(token), Some(_)) = (&caller.token, &caller.session) {
        hub.database.revoke_token(token).await?;
    }
    let mut response = see("/sign-in").into_response();
    set_cookie(&mut response, "", 0, &hub);
    Ok(response)
}

fn set_cookie(response: &mut Response, value: &str, seconds: i64, hub: &Hub) {
    let secure = if hub.config.public_url().starts_with("https:") {
        "; Secure"
    } else {
        ""
    };
    // A link in a chat must open signed in, so the cookie is sent with it: `Lax`.
    let cookie = format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

/// Returns a path of this hub, or the first page. An address of another site is not followed.
fn own_path(path: &str) -> &str {
    let is_own = path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n']);
    if is_own { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sites_are_not_followed() {
        assert_eq!(own_path("/c/abc?x=1"), "/c/abc?x=1");
        for path in [
            "",
            "https://evil.example/",
            "//evil.example/",
            "/\\evil.example",
            "/a\nb",
        ] {
            assert_eq!(own_path(path), "/", "{path:?}");
        }
    }
}
