//! The debugger: every command on recorded crashes, compared with GDB, LLDB and simple definitions.
#![cfg(test)]

mod all_threads;
mod clang_types;
mod completion;
mod cores;
mod debian;
mod definition;
mod first_screen;
mod gdb;
mod gdb_answers;
mod hase;
mod heap;
mod inlined;
mod inlined_functions;
mod interrupted;
mod investigations;
mod latency;
mod lazily;
mod lldb;
mod locals_matrix;
mod modules;
mod my_code;
mod pager;
mod partial_values;
mod past;
mod search;
mod split_dwarf;
mod stacks;
mod thread_local;
mod timeline;
mod transcript;
mod typed;
mod types;
mod usage;
mod value_kinds;
mod values;
