//! The expression language, and the printers of C, C++ and Rust values.
//!
//! An [`EvalContext`] is a frame with the names in scope. It reads registers and memory through a
//! [`ValueSource`] alone. A value that is not certain is `<unknown: why>`.
#![forbid(unsafe_code)]

mod arithmetic;
mod array_bounds;
mod casts;
mod complex;
mod containers;
mod context;
mod cpp;
mod cpp_access;
mod equality;
mod error;
mod evaluate;
mod failure;
mod float;
mod formatted;
mod formatter;
mod go;
mod layout;
mod lexer;
mod member_names;
mod member_pointers;
mod members;
mod number;
mod parser;
mod pieces;
mod pretty;
mod printable;
mod ptype;
mod ptype_class;
mod ptype_line;
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
mod variable_location;

pub use arithmetic::integer;
pub use context::EvalContext;
pub use error::{Error, Result};
pub use failure::{Evaluated, Failure};
pub use formatted::{FormattedMember, FormattedValue};
pub use formatter::ValueFormatter;
pub use member_names::member_names;
pub use number::{Complex, Number};
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
