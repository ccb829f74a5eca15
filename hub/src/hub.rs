//! The state of a running hub, which all requests share.

use crate::analysis::{ChildLimits, Limits, Redaction, Supervisor};
use crate::config::Config;
use crate::database::Database;
use crate::database::tokens::new_id;
use crate::error::{Error, Result};
use crate::ingest::arrivals::Arrivals;
use crate::ingest::deliver::Sender;
use crate::ingest::journal::{self, Journal};
use crate::ingest::outbox::Outbox;
use crate::ingest::record::Recorder;
use crate::objects::Objects;
use crate::objects::bucket::{self, BucketAddress};
use crate::profiles::body_memory::BodyMemory;
use crate::profiles::catalog::{self, ProfileCatalog};
use crate::profiles::compaction_counts::CompactionCounts;
use crate::profiles::idle::IdleRule;
use crate::profiles::intake::Intake;
use crate::profiles::query_program;
use crate::profiles::sites::client::SiteClient;
use crate::server::rate::Rates;
use crate::symbols::index_cache::IndexCache;
use crate::symbols::upstream::Upstream;
use backtrail_store::{Store, StoreOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, Notify, Semaphore};

/// Child processes at once that copy a section.
const SECTIONS: usize = 2;
/// Queries of profiles at once.
const QUERIES: usize = 2;
/// Pushes of profiles at once that are read.
pub const READINGS: u32 = 4;

/// A running hub.
pub struct Hub {
    /// The configuration.
    pub config: Config,
    /// The database.
    pub database: Database,
    /// The object store.
    pub objects: Objects,
    /// The journal.
    pub journal: Journal<Recorder>,
    /// The recorder of the journal's entries.
    pub recorder: Recorder,
    /// The sender of alerts.
    pub sender: Arc<Sender>,
    /// The requests per token.
    pub rates: Rates,
    /// The start of the process.
    pub started: Instant,
    /// A name that no other hub has.
    pub name: String,
    /// How fast bundles arrive.
    pub arrivals: Arrivals,
    /// Wakes the worker when a job was added.
    pub wake: Notify,
    /// Held while a bundle is packed for a download, so that memory and disk are bounded.
    pub packing: Mutex<()>,
    /// Upstream servers of debug files.
    pub upstream: Arc<Upstream>,
    /// Child processes at once that copy a section.
    pub sections: Semaphore,
    /// Wakes agents that wait for a request.
    pub wake_agents: Notify,
    /// Wakes the runner of jobs when a person wants a run.
    pub wake_jobs: Notify,
    /// The profile store.
    pub profiles: Store,
    /// Queries of profiles at once, so that memory is bounded.
    pub queries: Semaphore,
    /// Queries in SQL at once. They do not keep those of the explorer waiting.
    pub sql_queries: Semaphore,
    /// The intake of profiles.
    pub intake: Intake,
    /// Counters of compactions.
    pub compactions: CompactionCounts,
    /// Pushes of profiles at once that are read, so that memory is bounded.
    pub reading: Arc<Semaphore>,
    /// The memory of bodies of pushes.
    pub bodies: BodyMemory,
    /// The client of other hubs.
    pub sites: SiteClient,
    /// The identity of this hub and of those that share its database.
    pub identity: String,
    /// Open indexes of builds.
    pub indexes: IndexCache,
}

impl Hub {
    /// Opens the database and the object store, and applies the rest of an earlier hub's journal.
    ///
    /// # Errors
    /// Fails if one of them cannot be opened.
    pub async fn open(config: Config) -> Result<Arc<Self>> {
        query_program::check_workers(&config.query.workers)?;
        std::fs::create_dir_all(&config.data).map_err(Error::file("create", &config.data))?;
        let objects = open_objects(&config)?;
        let upstream = Arc::new(Upstream::new(&config.symbols)?);
        let database = Database::open(&config.database_url()).await?;
        let outbox = Outbox::new(config.public_url(), &config.alert);
        let recorder = Recorder::new(outbox);
        let sender = Arc::new(Sender::new(database.clone(), &config)?);
        let name = new_id()?;
        // With SQLite no other hub shares the journal.
        let is_alone = database.kind() == crate::database::Kind::Sqlite;
        let (segments, damaged) = journal::replay(&database, &objects, &recorder, is_alone).await?;
        if segments > 0 {
            tracing::info!(
                "applied {segments} segments that an earlier hub left, with {damaged} damaged lines"
            );
        }
        let journal = Journal::start(database.clone(), objects.clone(), recorder.clone(), &name);
        let catalog = Arc::new(ProfileCatalog::new(database.clone(), objects.clone()));
        let profiles = Store::new(objects.below(catalog::PREFIX), catalog, StoreOptions::default());
        let idle = IdleRule::new(&config.profiles.drop_idle)?;
        let intake = Intake::start(database.clone(), objects.clone(), idle);
        Ok(Arc::new(Self {
            rates: Rates::new(config.limits.requests_per_second),
            arrivals: Arrivals::new(config.limits.analyses),
            indexes: IndexCache::new(config.symbols.index_bytes),
            sites: SiteClient::new(&config.sites)?,
            identity: database.identity().await?,
            config,
            database,
            objects,
            journal,
            recorder,
            sender,
            started: Instant::now(),
            name,
            wake: Notify::new(),
            packing: Mutex::new(()),
            upstream,
            sections: Semaphore::new(SECTIONS),
            wake_agents: Notify::new(),
            wake_jobs: Notify::new(),
            profiles,
            queries: Semaphore::new(QUERIES),
            sql_queries: Semaphore::new(QUERIES),
            intake,
            compactions: CompactionCounts::default(),
            reading: Arc::new(Semaphore::new(READINGS as usize)),
            bodies: BodyMemory::default(),
        }))
    }

    /// Makes a new folder below the hub's directory, which is removed with the value.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub async fn work_folder(&self, prefix: &str) -> Result<TempDir> {
        let parent = self.config.data.join("work");
        tokio::fs::create_dir_all(&parent)
            .await
            .map_err(Error::file("create", &parent))?;
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(&parent)
            .map_err(Error::file("create a directory in", &parent))
    }

    /// Returns what starts child processes.
    ///
    /// # Errors
    /// Fails if the path of this program is unknown.
    pub fn supervisor(&self) -> Result<Supervisor> {
        let limits = &self.config.limits;
        let child = ChildLimits {
            memory_mib: limits.analysis_mib,
            cpu_seconds: limits.analysis_seconds,
            file_mib: limits.unpacked_bytes >> 20,
        };
        let limits = Limits {
            child,
            wall: Duration::from_secs(limits.analysis_seconds),
            ..Limits::default()
        };
        Supervisor::of_this_program(limits).map_err(Error::system("find this program"))
    }

    /// Returns the data that analyses leave out.
    #[must_use]
    pub fn redactions(&self) -> Vec<Redaction> {
        if self.config.redact.arguments {
            vec![Redaction::Arguments]
        } else {
            Vec::new()
        }
    }
}

/// Opens the configured object store.
///
/// # Errors
/// Fails if the directory cannot be created or the bucket cannot be opened.
pub fn open_objects(config: &Config) -> Result<Objects> {
    let Some(address) = &config.objects else {
        return Objects::directory(&config.data.join("objects"));
    };
    let store = bucket::open(&BucketAddress {
        url: address,
        endpoint: config.s3.endpoint.as_deref(),
        region: config.s3.region.as_deref(),
        allow_http: config.s3.allow_http,
    })?;
    Ok(Objects::bucket(store))
}
