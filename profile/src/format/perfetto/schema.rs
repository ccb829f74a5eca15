//! The messages of Perfetto's trace format that timelines and profiles need.
//!
//! Source: `protos/perfetto/trace/{trace_packet,interned_data/interned_data}.proto`,
//! `track_event/{track_event,track_descriptor,debug_annotation,source_location}.proto` and
//! `profiling/{profile_common,stack_sample}.proto` of Perfetto. Fields have the names of Perfetto.

use prost::Message;

/// `TracePacket.SequenceFlags`.
pub mod sequence {
    pub const INCREMENTAL_STATE_CLEARED: u32 = 1;
    pub const NEEDS_INCREMENTAL_STATE: u32 = 2;
}

/// `TrackEvent.Type`.
pub mod slice {
    pub const BEGIN: i32 = 1;
    pub const END: i32 = 2;
    pub const INSTANT: i32 = 3;
}

#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// The timestamp in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "135")]
    pub stack_sample: Option<StackSample>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// One of [`slice`].
    #[prost(int32, optional, tag = "9")]
    pub kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(uint64, optional, tag = "34")]
    pub source_location_iid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "4")]
    pub source_locations: Vec<SourceLocation>,
    #[prost(message, repeated, tag = "5")]
    pub function_names: Vec<InternedBytes>,
    #[prost(message, repeated, tag = "6")]
    pub frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    pub build_ids: Vec<InternedBytes>,
    #[prost(message, repeated, tag = "17")]
    pub mapping_paths: Vec<InternedBytes>,
    #[prost(message, repeated, tag = "18")]
    pub source_paths: Vec<InternedBytes>,
    #[prost(message, repeated, tag = "19")]
    pub mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "48")]
    pub stack_sample_task_contexts: Vec<TaskContext>,
    #[prost(message, repeated, tag = "50")]
    pub stack_sample_counter_descriptors: Vec<CounterDescriptor>,
}

/// `EventName` and `DebugAnnotationName`: a string and its number.
#[derive(Clone, PartialEq, Message)]
pub struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

impl InternedString {
    pub fn new(iid: u64, name: &str) -> Self {
        Self {
            iid: Some(iid),
            name: Some(name.to_owned()),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct SourceLocation {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub file_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub function_name: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    pub line_number: Option<u32>,
}

/// `InternedString`: bytes and their number.
#[derive(Clone, PartialEq, Message)]
pub struct InternedBytes {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub str: Option<Vec<u8>>,
}

/// A file with code.
#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub build_id: Option<u64>,
    /// The parts of the path.
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub path_string_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub rel_pc: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub line_number: Option<u32>,
}

/// A stack, the outermost frame first.
#[derive(Clone, PartialEq, Message)]
pub struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub frame_ids: Vec<u64>,
}

/// A sample with its weight.
#[derive(Clone, PartialEq, Message)]
pub struct StackSample {
    #[prost(uint64, optional, tag = "2")]
    pub task_context_iid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub execution_context: Option<ExecutionContext>,
    #[prost(uint64, optional, tag = "6")]
    pub callstack_iid: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub primary_descriptor_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub primary_weight: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskContext {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pub pid: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub tid: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExecutionContext {
    #[prost(uint32, optional, tag = "2")]
    pub cpu: Option<u32>,
}

/// An event and the unit of its weights.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// One of [`unit`].
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub unit_str: Option<String>,
}

/// `StackSample.CounterDescriptor.Unit`.
pub mod unit {
    pub const NANOSECONDS: i32 = 1;
    pub const BYTES: i32 = 4;
    pub const COUNT: i32 = 9;
}
