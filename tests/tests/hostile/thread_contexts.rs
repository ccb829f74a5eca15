//! The contexts that processes publish for OpenTelemetry, and the binaries with their variable.

use crate::harness::fuzz;
use crate::mutate;
use backtrail_process::maps::Map;
use backtrail_process::thread_context::tls::{Libc, TlsSlot};
use backtrail_process::thread_context::{ContextReader, process_context, symbol};
use backtrail_pt::{Avma, Tid};
use backtrail_tests::built;
use backtrail_tests::programs::Variant;

/// The address of the memory, and the offsets of the variable and of the record in it.
const START: u64 = 0x1000;
const VARIABLE: usize = 256;
const RECORD: usize = 264;

/// A memory with a process context, a variable and its record.
fn memory() -> Vec<u8> {
    let payload = [
        &b"\x0a\x18\x0a\x16\x0a\x0cservice.name\x12\x06\x0a\x04shop"[..],
        b"\x12\x2e\x0a\x1athreadlocal.schema_version\x12\x10\x0a\x0etlsdesc_v1_dev",
        b"\x12\x2f\x0a\x1dthreadlocal.attribute_key_map\x12\x0e\x2a\x0c\x0a\x0a\x0a\x08route.id",
    ]
    .concat();
    let mut memory = b"OTEL_CTX".to_vec();
    memory.extend(2u32.to_le_bytes());
    memory.extend((payload.len() as u32).to_le_bytes());
    memory.extend(7u64.to_le_bytes());
    memory.extend((START + 32).to_le_bytes());
    memory.extend(payload);
    memory.resize(VARIABLE, 0);
    memory.extend((START + RECORD as u64).to_le_bytes());
    memory.extend([&[1; 24][..], &[1, 1, 14, 0], b"\0\x05/cart\0\x05/shop"].concat());
    memory
}

#[test]
fn thread_contexts() {
    fuzz("thread_contexts", &[memory()], mutate::bytes, |bytes| {
        let mut memory = |address: Avma, out: &mut [u8]| {
            let from = address
                .0
                .checked_sub(START)
                .and_then(|at| usize::try_from(at).ok());
            let from = from.and_then(|at| bytes.get(at..)).unwrap_or_default();
            let size = out.len().min(from.len());
            out[..size].copy_from_slice(&from[..size]);
            size
        };
        let map = Map {
            start: START,
            end: START + bytes.len() as u64,
            path: "/memfd:OTEL_CTX (deleted)".to_owned(),
            ..Map::default()
        };
        let Some(process) = process_context::read(&[map], &mut memory) else {
            return false;
        };
        assert!(process.keys.len() <= 256 && process.resource.len() <= 256);
        let slots = vec![TlsSlot::Static(VARIABLE as i64)];
        let reader = ContextReader { process, slots };
        let found = reader.read([(Tid(1), START)], &mut memory);
        let threads = found.map(|found| found.threads).unwrap_or_default();
        for attribute in threads.iter().flat_map(|thread| &thread.attributes) {
            assert!(attribute.1.len() <= 255);
        }
        !threads.is_empty()
    });
}

#[test]
fn thread_variables() {
    let program = |variant| std::fs::read(built("request_context", variant).unwrap()).unwrap();
    let seeds = [program(Variant::Pie), program(Variant::NoPie)];
    fuzz("thread_variables", &seeds, mutate::bytes, |bytes| {
        let Some(access) = symbol::find(bytes) else {
            return false;
        };
        let mut memory = |address: Avma, out: &mut [u8]| {
            let from = usize::try_from(address.0).ok().and_then(|at| bytes.get(at..));
            let from = from.unwrap_or_default();
            let size = out.len().min(from.len());
            out[..size].copy_from_slice(&from[..size]);
            size
        };
        if let Some(slot) = access.resolve(0, Some(Libc::Glibc), &mut memory) {
            let _ = slot.address(0x100, &mut memory);
        }
        true
    });
}
