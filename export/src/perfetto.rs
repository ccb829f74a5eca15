//! Perfetto's trace format: one packet for each event, and one track for each thread.
//!
//! Slices state their trace position as the annotation `position`, so that a user can go there in
//! the debugger. Each name is sent once, and then referred to by its number (interning).

use crate::{Event, EventKind, FunctionId, FunctionKind, Functions, Result, Timeline, Track};
use backtrail_decoder::Watch;
use backtrail_profile::format::perfetto::PacketWriter;
use backtrail_profile::format::perfetto::schema::{
    DebugAnnotation, InternedData, InternedString, ProcessDescriptor, SourceLocation, ThreadDescriptor,
    TracePacket, TrackDescriptor, TrackEvent, sequence, slice,
};
use std::io::Write;

/// The number of the annotation `position`.
const POSITION: u64 = 1;
/// The number of the annotation `inlined`.
const INLINED: u64 = 2;

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let mut writer = Writer {
        out: PacketWriter::new(out),
        sent: 0,
    };
    for (number, track) in timeline.tracks().iter().enumerate() {
        // Tracks and sequences may have any numbers except 0.
        let (thread, process) = (2 * number as u64 + 2, 2 * number as u64 + 1);
        writer.describe(timeline, track, thread, process)?;
        timeline.for_each_event(track, &mut functions, watch, &mut |functions, event| {
            writer.event(track, thread, functions, &event)
        })?;
    }
    Ok(())
}

struct Writer<'o> {
    out: PacketWriter<'o>,
    /// The number of functions whose name was sent.
    sent: u32,
}

impl Writer<'_> {
    fn packet(&mut self, packet: &TracePacket) -> Result<()> {
        Ok(self.out.write(packet)?)
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
                debug_annotation_names: vec![
                    InternedString::new(POSITION, "position"),
                    InternedString::new(INLINED, "inlined"),
                ],
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
            EventKind::Enter(function) => {
                interned_data = self.name(*function, functions);
                let kind = functions.get(*function).map(|function| function.kind);
                let mut annotations = position();
                annotations.extend((kind == Some(FunctionKind::Inlined)).then(|| DebugAnnotation {
                    name_iid: Some(INLINED),
                    string_value: Some("yes".to_owned()),
                }));
                let declared = functions
                    .get(*function)
                    .is_some_and(|function| function.declared.is_some());
                TrackEvent {
                    kind: Some(slice::BEGIN),
                    name_iid: Some(number(*function)),
                    source_location_iid: declared.then_some(number(*function)),
                    debug_annotations: annotations,
                    ..TrackEvent::default()
                }
            }
            EventKind::Leave => TrackEvent {
                kind: Some(slice::END),
                ..TrackEvent::default()
            },
            EventKind::Instant(text) => TrackEvent {
                kind: Some(slice::INSTANT),
                name: Some(text.clone()),
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

    /// Returns the name of a function on its first call. Functions are numbered in that order.
    fn name(&mut self, id: FunctionId, functions: &Functions) -> Option<InternedData> {
        if id.0 < self.sent {
            return None;
        }
        let mut data = InternedData::default();
        for (id, function) in functions.iter().skip(self.sent as usize) {
            data.event_names
                .push(InternedString::new(number(id), &function.name));
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

/// The sequence of all packets.
const SEQUENCE: u32 = 1;

/// Returns the interned number of a function, which must not be 0.
fn number(id: FunctionId) -> u64 {
    u64::from(id.0) + 1
}
