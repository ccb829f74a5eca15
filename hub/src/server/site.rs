//! The handlers of pages: they read the database, fill views, and render them.

pub mod audit;
pub mod calls;
pub mod crash;
pub mod download;
pub mod failed;
pub mod frame;
pub mod group;
pub mod group_actions;
pub mod groups;
pub mod job_form;
pub mod jobs;
pub mod key_view;
pub mod over_values;
pub mod profiles;
pub mod rules;
pub mod saved_views;
pub mod session;
pub mod settings;
pub mod sites;
pub mod sql_view;
