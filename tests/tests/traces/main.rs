//! Traces and bundles: decode engines compared, captures of real processors, exports.
#![cfg(test)]

mod bundles;
mod captures;
mod debian_stacks;
mod ebpf_stacks;
mod engines;
mod export;
mod fdo;
mod fdo_bolt;
mod fdo_contexts;
mod fdo_recordings;
mod fdo_samples;
mod gdb_stacks;
mod generated_code;
mod imports;
mod jfr;
mod kernel_names;
mod lower_rates;
mod profile_recordings;
mod profile_users;
mod profiles;
mod python_stacks;
mod sample_requests;
