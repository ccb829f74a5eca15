//! The pages: functions from views to HTML.
//!
//! A view has all that a page shows, as plain data. The functions escape each text and bound its
//! length. Pages need no inline script or style, so that a strict policy (CSP) can hold:
//! [`POLICY`].

pub mod audit;
pub mod calls;
pub mod crash;
mod crash_parts;
mod crash_state;
pub mod error;
pub mod group;
mod group_parts;
mod group_view;
pub mod grouping;
pub mod groups;
mod heat_colors;
mod icons;
pub mod job_chart;
pub mod jobs;
pub mod layout;
pub mod profile_distribution;
pub mod profile_heat_map;
pub mod profile_request;
pub mod profile_series;
pub mod profiles;
pub mod saved_views;
pub mod settings;
pub mod sign_in;
pub mod sites;
pub mod sql;
pub mod sql_distribution;
pub mod sql_heat_map;
pub mod sql_series;
pub mod sql_view;
mod stack;
mod text;
mod time_axis;
pub mod trend;

/// The `Content-Security-Policy` of all pages.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests;
