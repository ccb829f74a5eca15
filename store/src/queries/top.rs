//! The query for the functions with the largest weights.

use crate::Result;
use crate::limits::Coverage;
use crate::query::Query;
use crate::store::Store;
use backtrail_profile::{CallTree, FunctionProfile, top};

/// The functions with the largest own weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    /// The sum of all weights.
    pub total: i64,
    /// The functions, the largest own weight first.
    pub rows: Vec<TopRow>,
}

/// A function with its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The name, or module and offset if the frame is not symbolized.
    pub name: String,
    /// The name of the module's file. Empty: unknown.
    pub module: String,
    /// The weight of the samples in which it is the innermost function.
    pub own: i64,
    /// The weight of the samples in which it is on the stack.
    pub total: i64,
}

impl Store {
    /// Returns the functions with the largest own weights. A query should select one event, because
    /// weights of several units are added up otherwise.
    ///
    /// # Errors
    ///
    /// As [`Store::merge`].
    pub async fn top(&self, query: &Query, limit: usize) -> Result<(Top, Coverage)> {
        let (profile, coverage) = self.merge(query, &[]).await?;
        let functions = FunctionProfile::new(&profile)?;
        let tree = CallTree::<1>::new(&functions, |sample| Some((0, sample.weight)));
        let weights = profile.samples.iter().map(|sample| sample.weight);
        let rows = top(&tree).into_iter().take(limit).map(|row| TopRow {
            name: functions.name(row.symbol).to_owned(),
            module: functions
                .symbol(row.symbol)
                .map_or_else(String::new, |symbol| symbol.module.to_string()),
            own: row.own[0],
            total: row.total[0],
        });
        let top = Top {
            total: weights.fold(0, i64::saturating_add),
            rows: rows.collect(),
        };
        Ok((top, coverage))
    }
}
