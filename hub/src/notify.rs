//! Alerts to webhooks, Slack and mail.
//!
//! The database keeps one delivery for each change and channel. [`schedule`] decides which
//! deliveries are sent now, [`message`] and [`job_message`] build their
//! content, and [`webhook`] and [`mail`] send
//! them. [`channel`] is the configuration. docs/hub-alerts.md describes all for administrators.

pub mod address;
pub mod channel;
pub mod error;
pub mod guarded_agent;
pub mod job_message;
pub mod mail;
pub mod message;
pub mod schedule;
pub mod webhook;

pub use address::AddressPolicy;
pub use channel::{AlertChannel, ChannelTarget};
pub use error::DeliveryError;
pub use message::{Alert, HeldBack, Mail};
