//! `perf.data` files as `perf record -e intel_pt//u` writes them, made record by record.
//!
//! Times are ticks of the TSC: the time conversion of the files is the identity.

use std::fmt::Write as _;

/// `PERF_SAMPLE_TID | TIME | CPU | IDENTIFIER`.
const SAMPLE_TYPE: u64 = 0x1_0086;
/// `perf_event_attr.type` of the trace.
const PMU_TYPE: u32 = 8;
/// The ids of the trace event and of the event with all other records.
const TRACE_ID: u64 = 11;
const SIDEBAND_ID: u64 = 22;
/// `PERF_ATTR_SIZE_VER8`.
const ATTR_SIZE: u32 = 136;

/// The tasks or processors that a recording was bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A thread and its children: `perf record -e intel_pt// PROGRAM`.
    Thread(u32),
    /// Processors: `perf record -a`.
    Processors,
}

/// The source and time of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The time.
    pub time: u64,
    /// The processor.
    pub cpu: u32,
}

/// A file in the making.
#[derive(Clone, Debug)]
pub struct PerfData {
    records: Vec<u8>,
}

impl PerfData {
    /// Starts a file.
    pub fn new(bound: Bound) -> Self {
        let mut file = Self { records: Vec::new() };
        // The PMU. The time conversion: shift, multiplier, zero, whether there is a zero. The TSC
        // bit, NoRETComp bit, context switches of all processors, snapshot, buffers by processor.
        let info = [
            PMU_TYPE.into(),
            0,
            1,
            0,
            1,
            1 << 10,
            1 << 11,
            3,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        let mut body = words(&[1]);
        body.extend(words(&info));
        file.raw(70, 0, &body);
        let tid = match bound {
            Bound::Thread(tid) => tid.into(),
            Bound::Processors => u64::MAX,
        };
        file.raw(
            69,
            0,
            &words(&[2, TRACE_ID, 0, 0, tid, SIDEBAND_ID, 0, 0, u64::MAX]),
        );
        file
    }

    /// Adds a record with this type, `misc` and body.
    pub fn raw(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = u16::try_from(8 + body.len()).unwrap_or(u16::MAX);
        self.records.extend(kind.to_le_bytes());
        self.records.extend(misc.to_le_bytes());
        self.records.extend(size.to_le_bytes());
        self.records.extend(body);
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8], origin: Origin, id: u64) {
        let mut body = body.to_vec();
        body.extend(words(&[
            pair(origin.pid, origin.tid),
            origin.time,
            origin.cpu.into(),
            id,
        ]));
        self.raw(kind, misc, &body);
    }

    /// Adds `PERF_RECORD_COMM`; `exec`: the thread executed a program.
    pub fn comm(&mut self, origin: Origin, name: &str, exec: bool) {
        let mut body = words(&[pair(origin.pid, origin.tid)]);
        body.extend(text(name));
        self.record(3, u16::from(exec) << 13, &body, origin, SIDEBAND_ID);
    }

    /// Adds `PERF_RECORD_FORK` of a thread of `parent`.
    pub fn fork(&mut self, origin: Origin, parent: u32) {
        let body = words(&[pair(origin.pid, parent), pair(origin.tid, parent), origin.time]);
        self.record(7, 0, &body, origin, SIDEBAND_ID);
    }

    /// Adds `PERF_RECORD_MMAP2` of executable memory: the first address, the size, the file offset,
    /// the path and the inode.
    pub fn mmap(&mut self, origin: Origin, area: (u64, u64, u64), path: &str, inode: u64) {
        const USER: u16 = 2;
        const EXECUTABLE: u64 = 5;
        let mut body = words(&[pair(origin.pid, origin.tid), area.0, area.1, area.2]);
        body.extend(words(&[pair(8, 1), inode, 0, EXECUTABLE]));
        body.extend(text(path));
        self.record(10, USER, &body, origin, SIDEBAND_ID);
    }

    /// Adds `PERF_RECORD_ITRACE_START`.
    pub fn itrace_start(&mut self, origin: Origin) {
        let body = words(&[pair(origin.pid, origin.tid)]);
        self.record(12, 0, &body, origin, TRACE_ID);
    }

    /// Adds `PERF_RECORD_SWITCH_CPU_WIDE` of a thread that starts or, if `out`, stops running.
    pub fn switch(&mut self, origin: Origin, out: bool) {
        self.record(15, u16::from(out) << 13, &words(&[0]), origin, SIDEBAND_ID);
    }

    /// Adds both switches of a thread that ran from one time to another.
    pub fn ran(&mut self, pid: u32, tid: u32, cpu: u32, times: std::ops::Range<u64>) {
        for (time, out) in [(times.start, false), (times.end, true)] {
            let origin = Origin { pid, tid, time, cpu };
            self.switch(origin, out);
        }
    }

    /// Adds `PERF_RECORD_AUX`: a part of the trace at an offset, of this size.
    pub fn aux(&mut self, origin: Origin, offset: u64, size: u64) {
        self.record(11, 0, &words(&[offset, size, 0]), origin, TRACE_ID);
    }

    /// Adds `PERF_RECORD_LOST`.
    pub fn lost(&mut self, origin: Origin, count: u64) {
        self.record(2, 0, &words(&[SIDEBAND_ID, count]), origin, SIDEBAND_ID);
    }

    /// Adds `PERF_RECORD_AUXTRACE`: packets of a processor, at an offset of its stream.
    pub fn packets(&mut self, cpu: u32, offset: u64, packets: &[u8]) {
        let mut body = words(&[packets.len() as u64, offset, 0]);
        body.extend(words(&[pair(cpu, u32::MAX), cpu.into()]));
        self.raw(71, 0, &body);
        self.records.extend(packets);
    }

    /// Returns the file.
    pub fn into_file(self) -> Vec<u8> {
        let attrs = attributes();
        let attrs_at = 104;
        let ids_at = attrs_at + attrs.len() as u64 + 32;
        let data_at = ids_at + 16;
        let mut file = b"PERFILE2".to_vec();
        file.extend(words(&[
            104,
            u64::from(ATTR_SIZE) + 16,
            attrs_at,
            ids_at - attrs_at,
            data_at,
            self.records.len() as u64,
        ]));
        // No event types, and no features.
        file.extend(words(&[0; 6]));
        for (index, attr) in attrs.chunks_exact(ATTR_SIZE as usize).enumerate() {
            file.extend(attr);
            file.extend(words(&[ids_at + 8 * index as u64, 8]));
        }
        file.extend(words(&[TRACE_ID, SIDEBAND_ID]));
        file.extend(self.records);
        file
    }

    /// Returns what `perf record -o -` writes: events and features as records.
    pub fn into_pipe(self) -> Vec<u8> {
        let mut pipe = Self { records: Vec::new() };
        let feature = |pipe: &mut Self, number: u64, value: &str| {
            let mut body = words(&[number]);
            let value = text(value);
            body.extend((value.len() as u32).to_le_bytes());
            body.extend(value);
            pipe.raw(80, 0, &body);
        };
        // HEADER_HOSTNAME and HEADER_CPUID.
        feature(&mut pipe, 3, "piped");
        feature(&mut pipe, 9, "GenuineIntel,6,94,3");
        let attrs = attributes();
        for (attr, id) in attrs
            .chunks_exact(ATTR_SIZE as usize)
            .zip([TRACE_ID, SIDEBAND_ID])
        {
            let mut body = attr.to_vec();
            body.extend(words(&[id]));
            pipe.raw(64, 0, &body);
        }
        // PERF_RECORD_HEADER_TRACING_DATA, with data that looks like a record.
        pipe.raw(66, 0, &words(&[16]));
        pipe.records.extend(words(&[u64::MAX, 0]));
        let mut file = b"PERFILE2".to_vec();
        file.extend(words(&[16]));
        file.extend(pipe.records);
        file.extend(self.records);
        file
    }
}

/// The attributes of both events.
fn attributes() -> Vec<u8> {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    let attribute = |kind: u32, config: u64| {
        let mut attr = words(&[pair(kind, ATTR_SIZE), config, 1, SAMPLE_TYPE, 4]);
        attr.extend(words(&[SAMPLE_ID_ALL | EXCLUDE_KERNEL]));
        attr.resize(ATTR_SIZE as usize, 0);
        attr
    };
    // TSC and branches; PERF_COUNT_SW_DUMMY.
    [attribute(PMU_TYPE, 0x2400), attribute(1, 9)].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A text that ends with a NUL, padded to a multiple of 8 bytes.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns an ELF file of one executable segment: its class (32 or 64), address and code. The code
/// is at file offset 0x1000.
pub fn elf(class: u32, address: u64, code: &[u8]) -> Vec<u8> {
    let (word, machine, header_size, entry_size) = match class {
        32 => (4, 3u16, 52u16, 32u16),
        _ => (8, 62u16, 64u16, 56u16),
    };
    let number = |value: u64| value.to_le_bytes()[..word].to_vec();
    let half = |value: u16| value.to_le_bytes().to_vec();
    let mut file = b"\x7fELF".to_vec();
    file.extend([if class == 32 { 1 } else { 2 }, 1, 1]);
    file.resize(16, 0);
    file.extend([half(2), half(machine), 1u32.to_le_bytes().to_vec()].concat());
    // The entry, the program headers, no section headers, no flags.
    file.extend([number(address), number(header_size.into()), number(0), vec![0; 4]].concat());
    file.extend(
        [header_size, entry_size, 1, 0, 0, 0]
            .map(u16::to_le_bytes)
            .concat(),
    );
    let (offset, size) = (number(0x1000), number(code.len() as u64));
    let (load, flags) = (1u32.to_le_bytes().to_vec(), 5u32.to_le_bytes().to_vec());
    let (place, align) = (number(address), number(0x1000));
    let fields = match class {
        32 => [
            load,
            offset,
            place.clone(),
            place,
            size.clone(),
            size,
            flags,
            align,
        ],
        _ => [
            load,
            flags,
            offset,
            place.clone(),
            place,
            size.clone(),
            size,
            align,
        ],
    };
    file.extend(fields.concat());
    file.resize(0x1000, 0);
    file.extend(code);
    file
}

/// Returns a page list of this code.
pub fn page_list(pages: &[(u64, &[u8])]) -> String {
    let mut list = String::new();
    for (address, bytes) in pages {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(list, "{address:#x} {digits}");
    }
    list
}
