//! Values: variables, expressions, memory.
//!
//! A [`EvalContext`] is a frame with its names. What it knows of registers and memory comes from a [`ValueSource`]: the
//! core at the crash, and before it what the code gives away. A value that is not certain is `<unknown: why>`.
#![forbid(unsafe_code)]

mod arithmetic;
mod casts;
mod containers;
mod context;
mod cpp;
mod cpp_access;
mod equality;
mod error;
mod evaluate;
mod float;
mod formatter;
mod layout;
mod lexer;
mod member_pointers;
mod members;
mod parser;
mod pieces;
mod pretty;
mod ptype;
mod ptype_class;
mod ptype_rust;
mod registers;
mod rust;
mod rust_access;
mod rust_containers;
mod scalar;
mod source;
mod symbols;
mod text;
mod thread_local;
pub mod tree;
mod type_formatter;
mod types;
mod units;
mod value;

pub use arithmetic::{Number, integer};
pub use context::EvalContext;
pub use error::{Error, Result};
pub use evaluate::{Evaluated, Failure};
pub use formatter::{FormattedMember, FormattedValue, ValueFormatter};
pub use parser::{Expression, parse};
pub use ptype::ptype;
pub use registers::plain;
pub use scalar::lettered;
pub use source::{Frame, NoSource, ValueSource};
pub use symbols::code_symbol;
pub use text::{ELEMENTS, MAX_ELEMENTS};
pub use types::Ty;
pub use units::Units;
pub use value::Value;
