//! Tokens.

use super::json::Body;
use crate::access::{self, Scope};
use crate::clock;
use crate::database::tokens::Token;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest name of a token, in characters.
const MAX_NAME: usize = 100;

/// A token in lists.
#[derive(Serialize)]
pub struct TokenView {
    id: String,
    name: String,
    scopes: Vec<&'static str>,
    created: String,
    expires: Option<String>,
    last_used: Option<String>,
    revoked: Option<String>,
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        Self {
            id: token.id,
            name: token.name,
            scopes: token.scopes.iter().map(|scope| scope.name()).collect(),
            created: clock::iso_date(token.created),
            expires: token.expires.map(clock::iso_date),
            last_used: token.last_used.map(clock::iso_date),
            revoked: token.revoked.map(clock::iso_date),
        }
    }
}

/// A wish for a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    name: String,
    scopes: Vec<Scope>,
    /// Days until it expires. `None`: never.
    #[serde(default)]
    days: Option<u32>,
}

/// A new token with its secret, which is shown once.
#[derive(Serialize)]
pub struct CreatedToken {
    id: String,
    token: String,
}

/// Lists tokens.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>) -> Result<Json<Vec<TokenView>>> {
    let tokens = hub.database.tokens().await?;
    Ok(Json(tokens.into_iter().map(TokenView::from).collect()))
}

/// Creates a token.
///
/// # Errors
/// Fails if the wish is malformed, or the database fails.
pub async fn create(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>)> {
    let length = new.name.chars().count();
    if length == 0 || length > MAX_NAME || new.name.chars().any(char::is_control) {
        return Err(Error::Invalid(format!(
            "a token's name has 1 to {MAX_NAME} printable characters"
        )));
    }
    if new.scopes.is_empty() {
        return Err(Error::Invalid(
            "a token needs a scope: ingest, read or admin".to_owned(),
        ));
    }
    let expires = access::expiry(new.days)?;
    let (id, secret) = hub.database.create_token(&new.name, &new.scopes, expires).await?;
    hub.database
        .log_action(&caller.name, "create token", &new.name)
        .await?;
    let created = CreatedToken {
        id,
        token: secret.reveal().to_owned(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Revokes a token.
///
/// # Errors
/// Fails if there is no such token, or the database fails.
pub async fn revoke(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    hub.database.revoke_token(&id).await?;
    hub.database.log_action(&caller.name, "revoke token", &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
