//! The Debug Adapter Protocol over the debugger of a trace: what editors drive it by.
#![forbid(unsafe_code)]

pub mod protocol;
