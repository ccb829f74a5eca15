//! The versions of the schema, applied in order.

use crate::error::Result;
use sqlx::AnyPool;
use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use std::borrow::Cow;

/// The changes of the schema. A released one is never edited.
const MIGRATIONS: &[(&str, &str)] = &[
    ("reports", include_str!("../../migrations/0001_reports.sql")),
    ("service", include_str!("../../migrations/0002_service.sql")),
    ("symbols", include_str!("../../migrations/0003_symbols.sql")),
    ("grouping", include_str!("../../migrations/0004_grouping.sql")),
    ("durability", include_str!("../../migrations/0005_durability.sql")),
    ("refusals", include_str!("../../migrations/0006_refusals.sql")),
    ("listing", include_str!("../../migrations/0007_listing.sql")),
    ("samples", include_str!("../../migrations/0008_samples.sql")),
    ("profiles", include_str!("../../migrations/0009_profiles.sql")),
    ("jobs", include_str!("../../migrations/0010_jobs.sql")),
    ("sites", include_str!("../../migrations/0011_sites.sql")),
    ("pages", include_str!("../../migrations/0012_pages.sql")),
    (
        "exact calls",
        include_str!("../../migrations/0013_exact_calls.sql"),
    ),
    ("identity", include_str!("../../migrations/0014_identity.sql")),
];

/// Applies the changes that the database has not got.
///
/// # Errors
/// Fails if the database fails, or has changes that this program does not know.
pub async fn run(pool: &AnyPool) -> Result<()> {
    Ok(Migrator::with_migrations(migrations()).run(pool).await?)
}

fn migrations() -> Vec<Migration> {
    let migrations = MIGRATIONS.iter().zip(1..).map(|(&(name, sql), version)| {
        Migration::new(
            version,
            Cow::Borrowed(name),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    });
    migrations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn version(pool: &AnyPool) -> i64 {
        let select = "SELECT version FROM grouping_state";
        sqlx::query_scalar(select).fetch_one(pool).await.unwrap()
    }

    #[tokio::test]
    async fn hub_with_groups_keeps_the_version_of_their_signatures() {
        sqlx::any::install_default_drivers();
        let pool = || {
            sqlx::any::AnyPoolOptions::new()
                .max_connections(1)
                .connect("sqlite::memory:")
        };
        let (old, new) = (pool().await.unwrap(), pool().await.unwrap());
        let before = migrations().into_iter().filter(|migration| migration.version < 4);
        Migrator::with_migrations(before.collect())
            .run(&old)
            .await
            .unwrap();
        let insert = "INSERT INTO groups (id, service, title, signature, grouping_version, provisional, signal, state, \
                      state_since, first_seen, last_seen, first_build, last_build, reports, hosts, bundles) \
                      VALUES ('a', '', '', '', 1, 0, 11, 'new', 0, 0, 0, '', '', 0, 0, 0)";
        sqlx::query(insert).execute(&old).await.unwrap();
        for pool in [&old, &new] {
            run(pool).await.unwrap();
        }
        assert_eq!((version(&old).await, version(&new).await), (1, 2));
    }
}
