//! Connections: their number and time are bounded, and the last ones end in peace.

use crate::config::Tls;
use crate::error::{Error, Result};
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tower_http::timeout::TimeoutBody;

/// Connections at once. Others wait.
const CONNECTIONS: usize = 2048;
/// The time for the headers of a request, and for a TLS handshake.
const HEADERS: Duration = Duration::from_secs(15);
/// The longest pause in the body of a request.
const BODY: Duration = Duration::from_secs(30);
/// The size of the headers of a request.
const HEADER_BYTES: usize = 32 << 10;
/// Requests of one connection at once, for HTTP/2.
const STREAMS: u32 = 64;
/// The name of HTTP/2 in TLS.
const HTTP2: &[u8] = b"h2";
/// The first bytes of a client of HTTP/2.
const PREFACE: &[u8; 4] = b"PRI ";
/// The time that the last requests have after the signal to end.
const GRACE: Duration = Duration::from_secs(20);

/// The address of the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Returns what accepts TLS connections with a certificate.
///
/// # Errors
/// Fails if the certificate or the key cannot be read, or do not belong together.
pub fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let unusable = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        Error::Configuration(format!("cannot use {}: {error}", path.display()))
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(&tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| unusable(&tls.key, &error))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&tls.certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&tls.certificate, &error))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves connections until `end` completes. Then no new one is taken, and the last requests have
/// some seconds.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    end: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut end = std::pin::pin!(end);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut end => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, or a connection that has gone already.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (router, tls, watcher) = (router.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _place = place;
            let Ok(peer) = stream.peer_addr() else {
                return;
            };
            let _ = stream.set_nodelay(true);
            connection(stream, tls, router, Peer(peer.ip()), watcher).await;
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("ended with requests that took too long");
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    peer: Peer,
    watcher: Watcher,
) {
    let ended = match tls {
        None => {
            let Ok(is_http2) = tokio::time::timeout(HEADERS, begins_as_http2(&stream)).await else {
                return;
            };
            serve_one(TokioIo::new(stream), is_http2, router, peer, watcher).await
        }
        Some(tls) => match tokio::time::timeout(HEADERS, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
                serve_one(TokioIo::new(stream), is_http2, router, peer, watcher).await
            }
            _ => return,
        },
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// Returns whether a client begins with the preface of HTTP/2 (RFC 9113, section 3.4).
async fn begins_as_http2(stream: &TcpStream) -> bool {
    let mut start = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut start).await {
            Ok(0) | Err(_) => return false,
            Ok(count) if start.get(..count) != PREFACE.get(..count) => return false,
            Ok(count) if count == PREFACE.len() => return true,
            // A peek returns at once while there are bytes.
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Serves a connection. Clients of gRPC speak HTTP/2.
async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: TokioIo<S>,
    is_http2: bool,
    router: Router,
    peer: Peer,
    watcher: Watcher,
) -> hyper::Result<()> {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        use tower_service::Service;
        request.extensions_mut().insert(peer);
        let bounded = |body| Body::new(TimeoutBody::new(BODY, body));
        router.clone().call(request.map(bounded))
    });
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(BODY)
            .keep_alive_timeout(HEADERS)
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADER_BYTES as u32);
        return watcher.watch(builder.serve_connection(stream, service)).await;
    }
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HEADER_BYTES.max(8192));
    watcher.watch(builder.serve_connection(stream, service)).await
}
