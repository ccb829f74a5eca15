//! Runs a hub until a signal ends it.

use crate::access::Scope;
use crate::admin::maintain;
use crate::config::Config;
use crate::data_lock::DataLock;
use crate::database::Kind;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::{deliver, tick, worker};
use crate::profiles;
use crate::query_jobs;
use crate::server::{listen, routes};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Raises the limit of open files to the most that the system allows. Each connection is one.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

/// Opens a hub, and serves until SIGTERM or SIGINT. The first start prints a token for its
/// administrator.
///
/// # Errors
/// Fails if the address cannot be used.
pub async fn serve(mut config: Config) -> Result<()> {
    raise_open_files();
    let tls = config.tls.as_ref().map(listen::acceptor).transpose()?;
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| {
        let hint = if source.kind() == std::io::ErrorKind::AddrInUse {
            "; another program uses it, choose another one with --listen"
        } else {
            ""
        };
        Error::Configuration(format!("cannot listen at {address}: {source}{hint}"))
    })?;
    let address = listener
        .local_addr()
        .map_err(Error::system("read the address of the socket"))?;
    // Links name the port that the system chose for port 0.
    config.listen = address;
    let lock = DataLock::take(&config.data)?;
    let hub = Hub::open(config).await?;
    if hub.database.kind() == Kind::Sqlite {
        // Only this hub has jobs, and it has none yet.
        hub.database.end_leases().await?;
        hub.database.end_query_job_claims().await?;
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut term = signal(SignalKind::terminate()).map_err(Error::system("wait for signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::system("wait for signals"))?;
    println!("listening on {scheme}://{address}");
    if hub.database.tokens().await?.is_empty() {
        let (_, secret) = hub
            .database
            .create_token("first administrator", &[Scope::Admin], None)
            .await?;
        println!(
            "sign in with this token, which is shown once: {}",
            secret.reveal()
        );
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let end = async {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    };
    let (stop, stopped) = watch::channel(false);
    let worker = tokio::spawn(worker::run(hub.clone(), stopped.clone()));
    let alerts = tokio::spawn(deliver::run(hub.sender.clone(), stopped.clone()));
    let outbox = hub.recorder.outbox().clone();
    let ticks = tokio::spawn(tick::run(hub.database.clone(), outbox, stopped.clone()));
    let profiles = tokio::spawn(profiles::maintain::run(hub.clone(), stopped.clone()));
    let jobs = tokio::spawn(query_jobs::run::run(hub.clone(), stopped.clone()));
    let maintenance = tokio::spawn(maintain::run(hub.clone(), stopped));
    listen::serve(listener, tls, routes::router(hub.clone()), end).await;
    let _ = stop.send(true);
    for task in [worker, alerts, ticks, profiles, jobs, maintenance] {
        let _ = task.await;
    }
    hub.database.close().await;
    drop(lock);
    Ok(())
}
