//! Perfetto's trace format: one packet per event, one track per thread.
//!
//! Each slice has its start in the trace, `position`, which the debugger's `goto` accepts. Names
//! are written once and then numbered (interned).

mod schema;

use crate::{Event, FunctionId, Functions, Kind, Result, Timeline, Track};
use backtrail_decoder::Watch;
use prost::Message;
use schema::{
    DebugAnnotation, InternedData, Named, ProcessDescriptor, SourceLocation, ThreadDescriptor, TracePacket,
    TrackDescriptor, TrackEvent, sequence, slice,
};
use std::io::Write;

/// The number of the annotation `position`.
const POSITION: u64 = 1;

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let mut writer = Writer {
        out,
        bytes: Vec::new(),
        sent: 0,
    };
    for (number, track) in timeline.tracks().iter().enumerate() {
        // Numbers of tracks and of sequences are ours to choose, and not 0.
        let (thread, process) = (2 * number as u64 + 2, 2 * number as u64 + 1);
        writer.describe(timeline, track, thread, process)?;
        timeline.tell(track, &mut functions, watch, &mut |functions, event| {
            writer.event(track, thread, functions, &event)
        })?;
    }
    Ok(())
}

struct Writer<'o> {
    out: &'o mut dyn Write,
    bytes: Vec<u8>,
    /// How many functions have been named.
    sent: u32,
}

impl Writer<'_> {
    /// A trace is a message with packets in field 1.
    fn packet(&mut self, packet: &TracePacket) -> Result<()> {
        self.bytes.clear();
        prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut self.bytes);
        packet
            .encode_length_delimited(&mut self.bytes)
            .map_err(|_| std::io::ErrorKind::OutOfMemory)
            .map_err(std::io::Error::from)?;
        Ok(self.out.write_all(&self.bytes)?)
    }

    fn describe(
        &mut self,
        timeline: &Timeline<'_>,
        track: &Track<'_>,
        thread: u64,
        process: u64,
    ) -> Result<()> {
        let pid = track.process.pid.0 as i32;
        self.packet(&TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(process),
                process: Some(ProcessDescriptor {
                    pid: Some(pid),
                    process_name: Some(timeline.program_of(track)),
                }),
                ..TrackDescriptor::default()
            }),
            ..TracePacket::default()
        })?;
        let first = self.sent == 0 && thread == 2;
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: first.then_some(sequence::INCREMENTAL_STATE_CLEARED),
            interned_data: first.then(|| InternedData {
                debug_annotation_names: vec![Named::new(POSITION, "position")],
                ..InternedData::default()
            }),
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(thread),
                parent_uuid: Some(process),
                thread: Some(ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(i64::from(track.thread.tid.0)),
                    thread_name: Some(track.label()),
                }),
                ..TrackDescriptor::default()
            }),
            ..TracePacket::default()
        })
    }

    fn event(&mut self, track: &Track<'_>, uuid: u64, functions: &Functions, event: &Event) -> Result<()> {
        let position = || {
            vec![DebugAnnotation {
                name_iid: Some(POSITION),
                string_value: Some(track.thread.position(event.index).to_string()),
            }]
        };
        let mut interned_data = None;
        let track_event = match &event.kind {
            Kind::Enter(function) => {
                interned_data = self.name(*function, functions);
                let declared = functions
                    .get(*function)
                    .is_some_and(|function| function.declared.is_some());
                TrackEvent {
                    kind: Some(slice::BEGIN),
                    name_iid: Some(number(*function)),
                    source_location_iid: declared.then_some(number(*function)),
                    debug_annotations: position(),
                    ..TrackEvent::default()
                }
            }
            Kind::Leave => TrackEvent {
                kind: Some(slice::END),
                ..TrackEvent::default()
            },
            Kind::Moment(what) => TrackEvent {
                kind: Some(slice::INSTANT),
                name: Some(what.clone()),
                debug_annotations: position(),
                ..TrackEvent::default()
            },
        };
        self.packet(&TracePacket {
            timestamp: Some(event.at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(sequence::NEEDS_INCREMENTAL_STATE),
            interned_data,
            track_event: Some(TrackEvent {
                track_uuid: Some(uuid),
                ..track_event
            }),
            ..TracePacket::default()
        })
    }

    /// The name of a function that is called for the first time: they are numbered in that order.
    fn name(&mut self, id: FunctionId, functions: &Functions) -> Option<InternedData> {
        if id.0 < self.sent {
            return None;
        }
        let mut data = InternedData::default();
        for (id, function) in functions.iter().skip(self.sent as usize) {
            data.event_names.push(Named::new(number(id), &function.name));
            data.source_locations
                .extend(function.declared.as_ref().map(|(file, line)| SourceLocation {
                    iid: Some(number(id)),
                    file_name: Some(file.to_string()),
                    function_name: Some(function.name.to_string()),
                    line_number: Some(*line),
                }));
        }
        self.sent = functions.len() as u32;
        Some(data)
    }
}

/// All packets are of one sequence of packets.
const SEQUENCE: u32 = 1;

/// Interned numbers are not 0.
fn number(id: FunctionId) -> u64 {
    u64::from(id.0) + 1
}
