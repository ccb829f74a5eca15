//! Packets are read again with the schema, and added up.

use super::schema::TracePacket;
use super::write;
use crate::format::folded;
use crate::frame::{Frame, Function, Line, Module};
use crate::profile::Profile;
use crate::sample::{Sample, Thread, UnixNanos};
use crate::stacks::StackId;
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn packets(profile: &Profile) -> Vec<TracePacket> {
    let mut bytes = Vec::new();
    write(profile, &mut bytes).unwrap();
    Trace::decode(&bytes[..]).unwrap().packet
}

/// Returns the weight of each stack of names, the outermost first.
fn weights(packets: &[TracePacket]) -> BTreeMap<String, u64> {
    let (mut names, mut frames, mut stacks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut weights = BTreeMap::new();
    for packet in packets {
        if let Some(data) = &packet.interned_data {
            for name in &data.function_names {
                names.insert(name.iid, String::from_utf8(name.str.clone().unwrap()).unwrap());
            }
            frames.extend(
                data.frames
                    .iter()
                    .map(|frame| (frame.iid, frame.function_name_id)),
            );
            stacks.extend(
                data.callstacks
                    .iter()
                    .map(|stack| (stack.iid, stack.frame_ids.clone())),
            );
        }
        if let Some(sample) = &packet.stack_sample {
            let stack = stacks[&sample.callstack_iid].iter();
            let stack: Vec<&str> = stack
                .map(|frame| frames[&Some(*frame)].map_or("?", |_| &names[&frames[&Some(*frame)]]))
                .collect();
            *weights.entry(stack.join(";")).or_default() += sample.primary_weight.unwrap();
        }
    }
    weights
}

#[test]
fn stacks_have_their_weights() {
    let profile = folded::read("main;f 30\nmain 10\nmain;f 2\nmain;g;f -4\n".as_bytes()).unwrap();
    let expected = [("main", 10), ("main;f", 32)].map(|(stack, weight)| (stack.to_owned(), weight));
    let packets = packets(&profile);
    assert_eq!(weights(&packets), expected.into());
    let times = packets.iter().filter(|packet| packet.stack_sample.is_some());
    let times: Vec<_> = times.map(|packet| packet.timestamp.unwrap()).collect();
    assert_eq!(times, [0, 30, 40]);
}

#[test]
fn frames_have_modules_lines_and_inlined_functions() {
    let mut profile = Profile::default();
    let path = profile.string("/usr/bin/server").unwrap();
    let module = profile
        .modules
        .intern(Module {
            build_id: BuildId::new(&[0xab, 0xcd]),
            path,
        })
        .unwrap();
    let code = |offset| Frame::Code {
        module,
        offset: FileOffset(offset),
    };
    let outer = profile.frames.intern(code(0x20)).unwrap();
    let inner = profile.frames.intern(code(0x10)).unwrap();
    let lost = profile.frames.intern(Frame::Lost).unwrap();
    let file = profile.string("server.c").unwrap();
    let lines = ["leaf", "work"].map(|name| {
        let name = profile.string(name).unwrap();
        let function = profile
            .functions
            .intern(Function {
                name,
                linkage_name: name,
                file: Some(file),
                start_line: 3,
            })
            .unwrap();
        Line { function, line: 7 }
    });
    profile.lines.insert(inner, lines.into());
    let mut stack = StackId::EMPTY;
    for frame in [lost, outer, inner] {
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let name = profile.string("worker").unwrap();
    let thread = profile
        .threads
        .intern(Thread {
            pid: Pid(40),
            tid: Tid(41),
            process_name: path,
            name,
        })
        .unwrap();
    let event = profile.event("cycles", "cycles", 1).unwrap();
    let labels = profile.label_set(Vec::new()).unwrap();
    profile.samples.push(Sample {
        event,
        weight: 5,
        stack,
        time: Some(UnixNanos(900)),
        thread: Some(thread),
        cpu: Some(Cpu(3)),
        labels,
    });
    let packets = packets(&profile);
    let expected = "[the stack could not be read further];?;work;leaf".to_owned();
    assert_eq!(weights(&packets), [(expected, 5)].into());
    let data = packets[0].interned_data.as_ref().unwrap();
    assert_eq!(
        data.stack_sample_counter_descriptors[0].unit_str.as_deref(),
        Some("cycles")
    );
    assert_eq!(data.build_ids[0].str.as_deref(), Some(&[0xab, 0xcd][..]));
    let leaf = data.frames.iter().filter(|frame| frame.rel_pc == Some(0x10));
    assert!(leaf.clone().all(|frame| frame.line_number == Some(7)));
    assert_eq!(leaf.count(), 2);
    let sample = packets.last().unwrap();
    assert_eq!(sample.timestamp, Some(900));
    let sample = sample.stack_sample.as_ref().unwrap();
    assert_eq!(sample.execution_context.as_ref().unwrap().cpu, Some(3));
    let context = &data.stack_sample_task_contexts[0];
    assert_eq!((context.pid, context.tid), (Some(40), Some(41)));
    assert_eq!(context.iid, sample.task_context_iid);
}
