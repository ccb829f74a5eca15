//! Every reader of outside bytes.

use crate::harness::fuzz;
use crate::seeds::{CODE, CODE_AT};
use crate::{mutate, seeds};
use backtrail_bundle::import::{self, PerfImport, RawImport};
use backtrail_bundle::{Bundle, CancelToken, Overwrite, SharedBytes, check, core::Core, pack, unpack};
use backtrail_debugger::OpenOptions;
use backtrail_debugger::session::Prepared;
use backtrail_decoder::{
    AuxEnd, Config, DecodeCachePool, Decoder, Forest, Functions, History, Image, Input, NewCode, Section,
    Switch, TimedChange, Watch,
};
use backtrail_pt::{Avma, Cpu, Packet, Parser, Pid, Tid, TimingParams, Tsc};
use backtrail_tests::perf_data::{elf, page_list};
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

#[test]
fn packets() {
    fuzz("packets", &seeds::packets(), mutate::bytes, |bytes| {
        let mut parser = Parser::new(bytes);
        let mut sound = true;
        while parser.sync_forward().is_some() {
            for item in parser.by_ref() {
                match item {
                    Ok((_, packet)) => {
                        assert_eq!(
                            packet.to_string().parse::<Packet>().ok(),
                            Some(packet),
                            "{packet}"
                        );
                    }
                    Err(_) => sound = false,
                }
            }
        }
        sound
    });
}

/// The first byte of a case is the length of the code that follows; the rest is packets.
#[test]
fn decoder() {
    let seeds: Vec<Vec<u8>> = seeds::packets()
        .into_iter()
        .map(|packets| [&[seeds::CODE.len() as u8], seeds::CODE, &packets].concat())
        .collect();
    fuzz("decoder", &seeds, mutate::bytes, |case| {
        let Some((&length, rest)) = case.split_first() else {
            return false;
        };
        let Some((code, packets)) = rest.split_at_checked(length.into()) else {
            return false;
        };
        let mut image = Image::new();
        image.add(Section {
            start: Avma(seeds::CODE_AT),
            bytes: Arc::new(code.to_vec()),
        });
        let (image, knowledge) = (Arc::new(image), DecodeCachePool::default());
        let decode = |packets: &[u8]| {
            let input = Input::Thread {
                tid: Tid(1),
                trace: Arc::new(packets.to_vec()),
                image: Arc::clone(&image),
            };
            let config = Config::default();
            let decoder = Decoder::new(&config).caches(&knowledge);
            let decoded = decoder.decode(&[input], &BTreeMap::new());
            decoded.unwrap().threads
        };
        let first = decode(packets);
        let [history] = &*first else {
            return false;
        };
        // Caches filled by some traces do not change the results of others.
        decode(&packets[packets.len() / 2..]);
        let again = decode(packets);
        let [again] = &*again else {
            return false;
        };
        let told = |history: &History| (history.len(), history.digest(), history.marks().to_vec());
        assert_eq!(told(again), told(history));
        // No instruction outside the code was executed.
        for pc in history.executed_pcs() {
            assert!(
                (seeds::CODE_AT..seeds::CODE_AT + u64::from(length)).contains(&pc.0),
                "{pc}"
            );
        }
        calls_lie_in_one_another(history);
        true
    });
}

/// Two threads produce the same result and time as one.
#[test]
fn segments() {
    let mut image = Image::new();
    image.add(Section {
        start: Avma(seeds::CODE_AT),
        bytes: Arc::new(seeds::CODE.to_vec()),
    });
    let image = Arc::new(image);
    let config = Config {
        timing: seeds::TIMING,
        ..Config::default()
    };
    fuzz("segments", &[seeds::cut()], mutate::bytes, |packets| {
        let input = [Input::Thread {
            tid: Tid(1),
            trace: Arc::new(packets.to_vec()),
            image: Arc::clone(&image),
        }];
        let by = |jobs| {
            let decoder = Decoder::new(&config)
                .jobs(NonZeroUsize::new(jobs).unwrap())
                .segment(64);
            decoder.decode(&input, &BTreeMap::new()).unwrap()
        };
        let (one, two) = (by(1), by(2));
        let ([one], [two]) = (&*one.threads, &*two.threads) else {
            return false;
        };
        let told = |history: &History| {
            let times: Vec<_> = (0..=history.len().min(2000)).map(|at| history.time(at)).collect();
            let counts = (history.len(), history.errors(), history.lost_time_packets());
            (counts, history.digest(), history.marks().to_vec(), times)
        };
        assert_eq!(told(two), told(one));
        one.errors() == 0
    });
}

/// A function for each 8 bytes, except the last 8 of 32.
struct Small;

impl Functions for Small {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !7);
        (start.0 & 0x18 != 0x18).then(|| start..start + 8)
    }
}

/// Checks the nesting of the calls of a short history, after any flow.
fn calls_lie_in_one_another(history: &History) {
    if history.len() > 1 << 16 {
        return;
    }
    for functions in [&Small as &dyn Functions, &()] {
        let forest = Forest::build(history, functions, &Watch::none()).unwrap();
        assert_eq!(forest.is_empty(), history.is_empty());
        let mut begun = 0;
        for id in forest.ids() {
            let call = forest.call(id);
            assert!(begun <= call.first && call.first <= call.end && call.end <= history.len());
            begun = call.first;
            if let Some(parent) = call.parent {
                let caller = forest.call(parent);
                assert!(parent < id && caller.first <= call.first && call.end <= caller.end);
                assert_eq!(forest.depth(id), forest.depth(parent) + 1);
            }
        }
    }
}

/// A processor's trace, split into threads. The first two bytes of a case are the length of the
/// code and the number of switches. A switch has four bytes: ticks since the last, thread, and
/// whether out. The rest is packets.
#[test]
fn processor() {
    const SWITCHES: [u8; 16] = [100, 0, 1, 0, 200, 0, 1, 1, 50, 0, 2, 0, 0, 200, 2, 1];
    let heads = [&[seeds::CODE.len() as u8, 4][..], seeds::CODE, &SWITCHES].concat();
    let seeds: Vec<Vec<u8>> = seeds::packets()
        .into_iter()
        .chain([seeds::timed()])
        .map(|packets| [&*heads, &packets].concat())
        .collect();
    let config = Config {
        timing: seeds::TIMING,
        ..Config::default()
    };
    fuzz("processor", &seeds, mutate::bytes, |case| {
        let Some((&[length, count], rest)) = case.split_first_chunk() else {
            return false;
        };
        let Some((code, rest)) = rest.split_at_checked(length.into()) else {
            return false;
        };
        let Some((switches, packets)) = rest.split_at_checked(usize::from(count) * 4) else {
            return false;
        };
        let mut image = Image::new();
        image.add(Section {
            start: Avma(seeds::CODE_AT),
            bytes: Arc::new(code.to_vec()),
        });
        // In half of the cases, the code changes at two times.
        let change = |at, code| TimedChange {
            at: Some(Tsc(at)),
            code,
        };
        let moved = Section {
            start: Avma(seeds::CODE_AT + 1),
            bytes: Arc::new(code.to_vec()),
        };
        if packets.len() % 2 == 0 {
            image.set_timed_versions(vec![
                change(120, NewCode::Known(moved)),
                change(
                    260,
                    NewCode::Unknown(Avma(seeds::CODE_AT), Avma(seeds::CODE_AT + 3)),
                ),
            ]);
        }
        let mut at = Tsc(0);
        let switches = switches.as_chunks().0.iter().map(|&[low, high, tid, out]| {
            at.0 += u64::from(u16::from_le_bytes([low, high]));
            Switch {
                at,
                pid: Pid(u32::from(tid != 0)),
                tid: Tid(tid.into()),
                out: out & 1 == 1,
            }
        });
        let input = Input::Cpu {
            cpu: Cpu(0),
            trace: Arc::new(packets.to_vec()),
            switches: switches.collect(),
            aux_ends: (1..8)
                .map(|part| AuxEnd {
                    offset: part * packets.len() as u64 / 8,
                    at: Tsc(part * 50),
                })
                .collect(),
        };
        let images = BTreeMap::from([(Pid(1), Arc::new(image))]);
        let decoded = Decoder::new(&config).decode(&[input], &images).unwrap();
        let [report] = &*decoded.cpus else { return false };
        // Each instruction belongs to a thread or is counted as unattributed.
        let lost: u64 = report.unattributed.values().map(|sum| sum.instructions).sum();
        let given: u64 = decoded.threads.iter().map(|history| history.len()).sum();
        assert_eq!(
            (report.attributed, report.attributed + lost),
            (given, report.instructions)
        );
        true
    });
}

/// Opens a bundle and reads everything in it.
fn read_bundle(path: &Path) -> bool {
    let Ok(bundle) = Bundle::open(path) else {
        return false;
    };
    let manifest = bundle.manifest();
    let code = manifest
        .processes
        .iter()
        .all(|process| bundle.code(process.pid).is_ok());
    let switches = manifest.cpus.iter().all(|cpu| bundle.switches(cpu).is_ok());
    code && switches && bundle.core().is_ok() && check(path).is_ok_and(|report| report.is_clean())
}

#[test]
fn trace_json() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = seeds::bundle(folder.path());
    let file = bundle.join("trace.json");
    let seeds = [fs::read(&file).unwrap()];
    fuzz("trace_json", &seeds, mutate::json, |json| {
        fs::write(&file, json).unwrap();
        read_bundle(&bundle)
    });
}

#[test]
fn meta_json() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = seeds::bundle(folder.path());
    let file = bundle.join("meta.json");
    let seeds = [fs::read(&file).unwrap()];
    fuzz("meta_json", &seeds, mutate::json, |json| {
        fs::write(&file, json).unwrap();
        read_bundle(&bundle)
    });
}

#[test]
fn packed_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = seeds::bundle(folder.path());
    let (packed, unpacked) = (folder.path().join("bundle.btz"), folder.path().join("unpacked"));
    pack(&bundle, &packed, &CancelToken::default()).unwrap();
    let seeds = [fs::read(&packed).unwrap()];
    fuzz("packed_bundle", &seeds, mutate::bytes, |bytes| {
        fs::write(&packed, bytes).unwrap();
        let _ = fs::remove_dir_all(&unpacked);
        unpack(&packed, &unpacked, &CancelToken::default()).is_ok() && read_bundle(&unpacked)
    });
}

#[test]
fn context_switches() {
    let mut seeds = seeds::read_all(&[
        "pt/lldb/intelpt-multi-core-trace/cores/45.perf_context_switch_trace",
        "pt/lldb/intelpt-multi-core-trace/cores/51.perf_context_switch_trace",
    ]);
    if seeds.is_empty() {
        return;
    }
    seeds.push(Vec::new());
    fuzz("context_switches", &seeds, mutate::bytes, |bytes| {
        backtrail_perf::switch::parse(bytes).is_ok() && backtrail_perf::switch::parse_aux(bytes).is_ok()
    });
}

#[test]
fn core_files() {
    let mut seeds = seeds::read_all(&[
        "pt/hase/20180404/loopy/loopy-20180404T162955.coredump",
        "pt/hase/20180404/control_flow/control_flow-20180404T163033.coredump",
    ]);
    seeds.push(seeds::core());
    fuzz("core_files", &seeds, mutate::bytes, |bytes| {
        let Ok(core) = Core::parse(SharedBytes::from(bytes.to_vec()), "core") else {
            return false;
        };
        let mut word = [0; 8];
        let thread = core.crashed_thread().map_or(0, |thread| thread.registers.rsp);
        let _ = core.memory(Avma(thread), &mut word);
        true
    });
}

#[test]
fn perf_data() {
    let mut seeds = seeds::read_all(&[
        "pt/hase/20180404/loopy/loopy-20180404T162955.perf",
        "pt/hase/20180404/control_flow/control_flow-20180404T163033.perf",
        "pt/quipper/perf.data.intel_pt-4.14",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("bundle");
    let import = PerfImport {
        data: folder.path().join("perf.data"),
        core: None,
        symfs: Vec::new(),
    };
    let program = folder.path().join("program");
    fs::write(&program, elf(32, CODE_AT, CODE)).unwrap();
    seeds.push(seeds::perf_data(&program).into_file());
    seeds.push(seeds::perf_data(&program).into_pipe());
    fuzz("perf_data", &seeds, mutate::bytes, |bytes| {
        fs::write(&import.data, bytes).unwrap();
        import::perf(&import, &target, Overwrite::Bundle, &CancelToken::default()).is_ok()
            && Bundle::open(&target).is_ok_and(|bundle| decodes(&bundle))
    });
}

/// Decodes a bundle's threads and processors.
fn decodes(bundle: &Bundle) -> bool {
    let Ok(prepared) = Prepared::new(bundle, &OpenOptions::default()) else {
        return false;
    };
    let decoded = Decoder::new(&prepared.config).decode(&prepared.inputs, &prepared.images);
    decoded.is_ok()
}

#[test]
fn page_lists() {
    let folder = tempfile::tempdir().unwrap();
    let (pt, pages) = (folder.path().join("pt"), folder.path().join("pages"));
    fs::write(&pt, &seeds::packets()[0]).unwrap();
    let target = folder.path().join("bundle");
    let import = RawImport {
        pt,
        images: Vec::new(),
        pages: vec![pages.clone()],
        filters: Vec::new(),
        cpu: None,
        timing: TimingParams::default(),
        core: None,
    };
    let list = page_list(&[
        (CODE_AT, CODE),
        (CODE_AT + 4, &CODE[4..]),
        (0x7fff_0000, &[0x90; 64]),
    ]);
    let seeds = [list.clone(), format!("# comment\n\n{list}4096 90")].map(String::into_bytes);
    fuzz("page_lists", &seeds, mutate::bytes, |bytes| {
        fs::write(&pages, bytes).unwrap();
        import::raw(&import, &target, Overwrite::Bundle, &CancelToken::default()).is_ok()
            && Bundle::open(&target).is_ok_and(|bundle| decodes(&bundle))
    });
}
