//! Intel Processor Trace packets, and basic types that the whole project uses.
//!
//! This crate does no I/O and depends on no other crate of the project. It defines addresses
//! ([`address`]), ids ([`id`]), clocks ([`time`]) and processors ([`cpu`]). [`cofi`] classifies
//! instructions by the packets that they produce. [`packet`], [`parser`], [`encoder`] and [`text`]
//! handle the packets themselves.
//!
//! Source of every format: Intel SDM volume 3, chapter "Intel Processor Trace".
//!
//! # Example
//!
//! Write packets, and read them back as text:
//!
//! ```
//! use backtrail_pt::{Avma, Encoder, EncoderOptions, Parser};
//!
//! let mut encoder = Encoder::new(EncoderOptions::default());
//! encoder.start();
//! encoder.enable(Avma(0x1000));
//! encoder.conditional(true);
//! encoder.disable_async(Avma(0x1010));
//! let trace = encoder.take();
//!
//! let mut parser = Parser::new(&trace);
//! parser.sync_forward();
//! for item in parser {
//!     let (offset, packet) = item?;
//!     println!("{offset:#x} {packet}");
//! }
//! # Ok::<(), backtrail_pt::parser::ParseError>(())
//! ```
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
