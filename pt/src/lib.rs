//! Intel Processor Trace packets, and the plain types the whole project speaks in.
//!
//! This crate does no I/O and knows nothing else of the project: addresses ([`address`]),
//! identities ([`id`]), clocks ([`time`]), processors ([`cpu`]), the change-of-flow kinds that
//! decide which packet an instruction gives ([`cofi`]), and the packets themselves
//! ([`packet`], [`parser`], [`encoder`], [`text`]).
//!
//! Source of every format: Intel SDM volume 3, chapter "Intel Processor Trace".
#![forbid(unsafe_code)]

pub mod address;
pub mod cofi;
pub mod cpu;
pub mod encoder;
pub mod id;
pub mod instruction;
pub mod last_ip;
pub mod packet;
pub mod parser;
pub mod text;
pub mod time;
mod wire;

pub use address::{Avma, FileOffset, Svma};
pub use cofi::Cofi;
pub use cpu::CpuModel;
pub use encoder::{Branches, Encoder, EncoderOptions};
pub use id::{BuildId, Cpu, Pid, Tid};
pub use last_ip::LastIp;
pub use packet::Packet;
pub use parser::Parser;
pub use time::{Nanos, TimingParams, Tsc, TscConversion};
