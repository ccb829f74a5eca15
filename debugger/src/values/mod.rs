//! Values: variables, expressions, memory.
//!
//! A [`Scene`] is a frame with its names. What it knows of registers and memory comes from a [`ValueSource`]: the
//! core at the crash, and before it what the code gives away. A value that is not certain is `<unknown: why>`.

mod arithmetic;
mod casts;
mod containers;
mod cpp;
mod cpp_access;
mod evaluate;
mod expanded;
mod expanded_class;
mod expanded_rust;
mod float;
mod frame;
mod layout;
mod lexer;
mod member_pointers;
mod members;
pub mod memory;
mod names;
mod parser;
mod past;
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
mod text;
mod thread_local;
pub mod tree;
mod truth;
mod types;
mod units;
mod value;

pub use show::{Shown, ShownMember};

pub(crate) use arithmetic::{Number, integer};
pub(crate) use evaluate::{Evaluated, Failure};
pub(crate) use expanded::expanded;
pub(crate) use frame::{SelectedFrame, known};
pub(crate) use parser::{Expression, parse};
pub(crate) use registers::plain;
pub(crate) use scalar::lettered;
pub(crate) use scene::{Scene, with_scene};
pub(crate) use show::Shower;
pub(crate) use text::{ELEMENTS, MAX_ELEMENTS};
pub(crate) use truth::{check, truth};
pub(crate) use types::Ty;
pub(crate) use units::Units;
pub(crate) use value::Value;
