//! The messages of pprof's profiles that this crate writes.
//!
//! Source: `proto/profile.proto` of pprof. Fields without a unit refer to the string table.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct ProfileMessage {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueTypeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<SampleMessage>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<MappingMessage>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<LocationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<FunctionMessage>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueTypeMessage {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SampleMessage {
    /// The stack, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<LabelMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LabelMessage {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub text: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct MappingMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct LocationMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The mapping's number; 0 for none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<LineMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LineMessage {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct FunctionMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
