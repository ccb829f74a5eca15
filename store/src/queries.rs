//! The fixed queries of the store.

mod distribution;
mod heat_map;
mod merge;
mod series;
mod top;
mod unnamed;
mod values;

pub use distribution::{Bucket, Distribution};
pub use heat_map::HeatMap;
pub use series::{Series, SeriesGroup};
pub use top::{Top, TopRow};
pub use unnamed::UnnamedCode;
pub use values::ColumnValue;
