//! The effect of an x86-64 instruction on registers, flags and memory.
//!
//! [`Model::of`] returns the model of an instruction, or [`NotModeled`]. [`Model::execute`] applies
//! it to a [`State`] and a [`Memory`]. A model does exactly what the processor does, and a test
//! compares both. Flags that the manual leaves undefined are undefined in the state too. The source
//! of all models is the Intel SDM, volume 2, and the AMD APM, volumes 3 and 4, where they differ.
//!
//! # Example
//! ```
//! use backtrail_semantics::{Model, NoMemory, State};
//! use iced_x86::{Decoder, DecoderOptions};
//!
//! // add eax, ecx
//! let instruction = Decoder::with_ip(64, &[0x01, 0xc8], 0x1000, DecoderOptions::NONE).decode();
//! let model = Model::of(&instruction)?;
//! let mut state = State::default();
//! state.general[0] = 2;
//! state.general[1] = 40;
//! let next = model.execute(&mut state, &mut NoMemory).unwrap();
//! assert_eq!((next, state.general[0]), (0x1002, 42));
//! # Ok::<(), backtrail_semantics::NotModeled>(())
//! ```

mod effect;
mod execute;
mod inverse;
mod lift;
mod log;
mod memory;
mod model;
mod operand;
mod registers;
mod state;
mod stored_bytes;

pub use effect::{Effect, LoggedResults, NoObserver, Observer, Prediction, Unrecorded, address_part};
pub use inverse::Before;
pub use log::{LogEnd, LogReader, LogWriter};
pub use memory::{Memory, NoMemory, Stop};
pub use model::{Model, NotModeled};
pub use operand::{Address, Operand};
pub use registers::{RegisterSet, Registers};
pub use state::{ENCODED, Segment, State, flag};
