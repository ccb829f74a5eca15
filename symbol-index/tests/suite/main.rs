//! Compares indexes with the symbols they come from, with LLVM and with blazesym.

mod agreement;
mod hostile;
mod peers;
mod support;
