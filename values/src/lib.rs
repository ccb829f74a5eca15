//! Values: variables, expressions, memory.
//!
//! A [`Scene`] is a frame with its names. What it knows of registers and memory comes from a [`ValueSource`]: the
//! core at the crash, and before it what the code gives away. A value that is not certain is `<unknown: why>`.
#![forbid(unsafe_code)]

mod arithmetic;
mod casts;
mod containers;
mod cpp;
mod cpp_access;
mod error;
mod evaluate;
mod expanded;
mod expanded_class;
mod expanded_rust;
mod float;
mod layout;
mod lexer;
mod member_pointers;
mod members;
mod names;
mod parser;
mod pieces;
mod pretty;
mod registers;
mod rust;
mod rust_access;
mod rust_containers;
mod same;
mod scalar;
mod scene;
mod show;
mod source;
mod symbols;
mod text;
mod thread_local;
pub mod tree;
mod types;
mod units;
mod value;

pub use arithmetic::{Number, integer};
pub use error::{Error, Result};
pub use evaluate::{Evaluated, Failure};
pub use expanded::expanded;
pub use parser::{Expression, parse};
pub use registers::plain;
pub use scalar::lettered;
pub use scene::Scene;
pub use show::{Shower, Shown, ShownMember};
pub use source::{Frame, NoSource, ValueSource};
pub use symbols::code_symbol;
pub use text::{ELEMENTS, MAX_ELEMENTS};
pub use types::Ty;
pub use units::Units;
pub use value::Value;
