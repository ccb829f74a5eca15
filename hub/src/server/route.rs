//! One route, and the check of its callers.

use self::Access::{Open, With};
use super::caller::{self, Credentials};
use super::listen::Peer;
use crate::access::Scope;
use crate::error::Error;
use crate::hub::Hub;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::MethodRouter;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The callers that may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All, without a token.
    Open,
    /// All with a valid token.
    SignedIn,
    /// Those with a scope.
    With(Scope),
}

/// A route.
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The callers that may use it.
    pub access: Access,
    /// The task, one sentence.
    pub summary: &'static str,
    /// The handler.
    pub handler: fn() -> MethodRouter<Arc<Hub>>,
}

/// Builds a route.
pub const fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    summary: &'static str,
    handler: fn() -> MethodRouter<Arc<Hub>>,
) -> Route {
    Route {
        method,
        path,
        access,
        summary,
        handler,
    }
}

/// Returns the handler of a route, with the check of its scope before it.
pub fn guarded(route: &Route, hub: &Arc<Hub>) -> MethodRouter<Arc<Hub>> {
    let handler = (route.handler)();
    if route.access == Open {
        return handler;
    }
    let state = (hub.clone(), route.access);
    handler.route_layer(middleware::from_fn_with_state(state, authorize))
}

/// Checks the sender of a request, and hands it to the handler.
async fn authorize(
    State((hub, access)): State<(Arc<Hub>, Access)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Error> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let credentials = Credentials {
        method: request.method(),
        headers: request.headers(),
        peer: peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let caller =
        caller::authenticate(&hub.database, hub.config.proxy.as_ref(), &hub.rates, &credentials).await?;
    if let With(scope) = access {
        caller.require(scope)?;
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}
