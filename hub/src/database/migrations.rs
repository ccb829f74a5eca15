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
    ("listing", include_str!("../../migrations/0007_listing.sql")),
];

/// Applies the changes that the database has not got.
///
/// # Errors
/// Fails if the database fails, or has changes that this program does not know.
pub async fn run(pool: &AnyPool) -> Result<()> {
    let migrations = MIGRATIONS.iter().zip(1..).map(|(&(name, sql), version)| {
        Migration::new(
            version,
            Cow::Borrowed(name),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    });
    Ok(Migrator::with_migrations(migrations.collect()).run(pool).await?)
}
