//! The messages of pprof's profiles. Fields without a unit refer to the string table.

use crate::format::decoded_size::{FieldShape, MessageShape};
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
    /// Nanoseconds since the Unix epoch.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueTypeMessage>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
}

/// The numbers of the repeated fields of [`Profile`], which are read one by one.
pub mod tag {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING: u32 = 6;
    pub const TIME: u32 = 9;
    pub const DURATION: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const COMMENT: u32 = 13;
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueTypeMessage {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SampleMessage {
    /// The stack, the innermost location first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<LabelMessage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LabelMessage {
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// 0: the label is a number.
    #[prost(int64, tag = "2")]
    pub text: i64,
    #[prost(int64, tag = "3")]
    pub number: i64,
    #[prost(int64, tag = "4")]
    pub unit: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MappingMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct LocationMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// The innermost inlined function first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<LineMessage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LineMessage {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
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

pub static VALUE_TYPE: MessageShape = MessageShape {
    size: size_of::<ValueTypeMessage>(),
    fields: &[],
};

pub static SAMPLE: MessageShape = MessageShape {
    size: size_of::<SampleMessage>(),
    fields: &[
        (1, FieldShape::Numbers(8)),
        (2, FieldShape::Numbers(8)),
        (3, FieldShape::Message(&LABEL)),
    ],
};

static LABEL: MessageShape = MessageShape {
    size: size_of::<LabelMessage>(),
    fields: &[],
};

pub static MAPPING: MessageShape = MessageShape {
    size: size_of::<MappingMessage>(),
    fields: &[],
};

pub static LOCATION: MessageShape = MessageShape {
    size: size_of::<LocationMessage>(),
    fields: &[(4, FieldShape::Message(&LINE))],
};

static LINE: MessageShape = MessageShape {
    size: size_of::<LineMessage>(),
    fields: &[],
};

pub static FUNCTION: MessageShape = MessageShape {
    size: size_of::<FunctionMessage>(),
    fields: &[],
};
