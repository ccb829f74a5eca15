//! The readers of profiles, and what is computed from them.

use crate::harness::fuzz;
use crate::mutate;
use crate::seeds::{self, CODE, CODE_AT};
use backtrail_profile::fdo::autofdo::SampleProfile;
use backtrail_profile::fdo::csspgo::{ContextOptions, ContextSampleProfile};
use backtrail_profile::fdo::pseudo_probe::{ProbeSections, PseudoProbes, guid};
use backtrail_profile::fdo::{
    Binary, Branch, CodeRange, ContextProfile, HybridSample, LinkedFunction, SourceFrame, Transfer, fdata,
};
use backtrail_profile::format::{self, firefox, folded, otlp, perf_data, perf_script, pprof, speedscope};
use backtrail_profile::{CallTree, FunctionProfile, top};
use backtrail_pt::Svma;
use backtrail_tests::jfr;
use backtrail_tests::perf_data::elf;
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

const FOLDED: &str = "main;parse;memcpy 30\nmain;parse 20\nmain;idle 50\n";
const SCRIPT: &str = "\
PERF_RECORD_MMAP2 28/29: [0x400000(0x1000) @ 0x2000 00:1d 12 52]: r-xp /home/a b
\t          40067e
\t5541f689495641d7
 0x4006c8/0x40067e/P/-/-/0  0x40069b/0x400670/-/-/-/3

  400691 0x400691/0x400669/P/-/-/4  0x400677/0x400650/M/-/-/1
";

/// Reads a profile, and computes and writes everything from it.
fn is_usable(bytes: &[u8]) -> bool {
    let Ok(profile) = format::read(bytes) else {
        return false;
    };
    let Ok(functions) = FunctionProfile::new(&profile) else {
        return false;
    };
    let tree = CallTree::<1>::new(&functions, |sample| Some((0, sample.weight)));
    let _ = top(&tree);
    let mut written = Vec::new();
    pprof::write(&profile, &mut written).unwrap();
    assert!(format::read(&written).is_ok(), "what is written is read");
    written.clear();
    otlp::write(&profile, &mut written).unwrap();
    assert!(otlp::read(&written).is_ok(), "what is written is read");
    written.clear();
    speedscope::write(&profile, &functions, "case", &mut written).unwrap();
    if let Some((event, _)) = profile.events.iter().last() {
        folded::write(&functions, event, &mut written).unwrap();
        // A weight may exceed the format's limit.
        let _ = firefox::write(&profile, &functions, event, "case", &mut written);
    }
    true
}

#[test]
fn profiles() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, elf(32, CODE_AT, CODE)).unwrap();
    let mut packed = Vec::new();
    pprof::write(&format::read(FOLDED.as_bytes()).unwrap(), &mut packed).unwrap();
    let mut request = Vec::new();
    otlp::write(&format::read(FOLDED.as_bytes()).unwrap(), &mut request).unwrap();
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
    let seeds = [
        FOLDED.as_bytes().to_vec(),
        packed,
        unpacked,
        request,
        seeds::perf_data(&program).into_file(),
        seeds::perf_data(&program).into_pipe(),
        jfr::recording(),
    ];
    fuzz("profiles", &seeds, mutate::bytes, is_usable);
}

#[test]
fn branch_records() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, elf(32, CODE_AT, CODE)).unwrap();
    let seeds = [SCRIPT.as_bytes().to_vec(), seeds::perf_data(&program).into_file()];
    fuzz("branch_records", &seeds, mutate::bytes, |bytes| {
        if perf_data::is_perf_data(bytes) {
            return perf_data::read_branches(bytes, &mut |_, _| {}).is_ok();
        }
        perf_script::read(bytes).is_ok_and(|script| !script.samples.is_empty())
    });
}

/// A binary with 32 functions of 16 instructions, which do what their addresses say. Functions are
/// inlined into every second one.
struct Code {
    probes: Option<PseudoProbes>,
}

/// The size of an instruction.
const WORD: u64 = 4;
/// The size of a function.
const FUNCTION: u64 = 16 * WORD;
/// The addresses.
const ALL: Range<u64> = 0x1000..0x1000 + 32 * FUNCTION;

impl Code {
    fn function(at: Svma) -> Option<Range<Svma>> {
        let start = at.0 / FUNCTION * FUNCTION;
        ALL.contains(&at.0).then_some(Svma(start)..Svma(start + FUNCTION))
    }

    fn name(at: Svma) -> Arc<str> {
        format!("f{}", at.0 / FUNCTION).into()
    }
}

impl Binary for Code {
    fn instruction(&self, at: Svma) -> Option<(Svma, u8)> {
        let start = at.0.checked_next_multiple_of(WORD)?;
        ALL.contains(&start).then_some((Svma(start), 4))
    }

    fn is_interrupted(&self, range: CodeRange) -> bool {
        range.last.0 - range.first.0 > 2 * FUNCTION
    }

    fn source_frames(&self, at: Svma) -> Vec<SourceFrame> {
        let line = |function: Arc<str>, line: u64| SourceFrame {
            function,
            line: line as u32,
            declared_line: 1,
            discriminator: (line % 3) as u32,
        };
        let place = at.0 / WORD;
        match place % 32 {
            _ if !ALL.contains(&at.0) => Vec::new(),
            16..20 => vec![line(Self::name(at), place), line("inlined".into(), place % 7)],
            31 => Vec::new(),
            _ => vec![line(Self::name(at), place)],
        }
    }

    fn function_ranges(&self, at: Svma) -> Vec<Range<Svma>> {
        Self::function(at).into_iter().collect()
    }

    fn entry(&self, at: Svma) -> Option<Arc<str>> {
        let function = Self::function(at)?;
        (function.start == at).then(|| Self::name(at))
    }

    fn transfer(&self, at: Svma) -> Option<Transfer> {
        let is_code = ALL.contains(&at.0) && at.0.is_multiple_of(WORD);
        is_code.then(|| match at.0 / WORD % 8 {
            1 | 5 => Transfer::Call,
            3 => Transfer::Conditional(Svma(at.0 / FUNCTION * FUNCTION)),
            6 => Transfer::Jump(Some(Svma(at.0 ^ 0x100))),
            7 => Transfer::Return,
            _ => Transfer::None,
        })
    }

    fn instruction_before(&self, at: Svma) -> Option<Svma> {
        let before = at.0.checked_sub(1)? / WORD * WORD;
        ALL.contains(&before).then_some(Svma(before))
    }

    fn probes(&self) -> Option<&PseudoProbes> {
        self.probes.as_ref()
    }

    fn linked_function(&self, at: Svma) -> Option<LinkedFunction> {
        let range = Self::function(at)?;
        Some(LinkedFunction {
            name: Self::name(at),
            range,
        })
    }
}

/// Reads samples: a number of frames, a number of branches, and their addresses as words from the
/// start of the code.
fn samples(bytes: &[u8]) -> Vec<HybridSample> {
    let place = |bytes: &[u8]| match *bytes {
        [low, high] if high < 0x10 => Some(Svma(
            ALL.start + WORD * u64::from(u16::from_le_bytes([low, high])),
        )),
        _ => None,
    };
    let mut rest = bytes;
    let mut samples = Vec::new();
    while let Some(([frames, branches], after)) = rest.split_first_chunk::<2>() {
        let (frames, branches) = (usize::from(*frames), usize::from(*branches % 33));
        let taken = after.len().min(2 * frames + 4 * branches);
        let (words, after) = after.split_at(taken);
        let (chain, ends) = words.split_at(words.len().min(2 * frames));
        let branches = ends.chunks_exact(4).map(|ends| {
            let branch = Branch {
                from: place(&ends[..2]),
                to: place(&ends[2..]),
            };
            (branch, ends[0] % 2 == 0)
        });
        samples.push(HybridSample {
            chain: chain.chunks_exact(2).map(place).collect(),
            branches: branches.collect(),
        });
        rest = after;
    }
    samples
}

/// Returns a case: the sizes of two sections with probes, the sections, and samples.
fn probes_and_samples() -> Vec<u8> {
    let mut descriptions = Vec::new();
    let mut probes = Vec::new();
    for number in 0..8_u64 {
        let name = format!("f{}", ALL.start / FUNCTION + number);
        descriptions.extend(guid(&name).to_le_bytes());
        descriptions.extend(number.to_le_bytes());
        descriptions.push(name.len() as u8);
        descriptions.extend(name.as_bytes());
        probes.extend(guid(&name).to_le_bytes());
        // Two probes and one inlined function.
        probes.extend([2, 1]);
        probes.extend([1, 0]);
        probes.extend((ALL.start + number * FUNCTION).to_le_bytes());
        probes.extend([2, 0x82, 4]);
        probes.push(3);
        probes.extend(guid("inlined").to_le_bytes());
        probes.extend([1, 0, 1, 0x80, 8]);
    }
    let mut case = Vec::new();
    case.extend((descriptions.len() as u16).to_le_bytes());
    case.extend((probes.len() as u16).to_le_bytes());
    case.extend(descriptions);
    case.extend(probes);
    for turn in 0..4_u8 {
        case.extend([3, 4]);
        case.extend([10 + turn, 0, 18, 0, 34, 0]);
        case.extend([1, 0, 16, 0, 23, 0, 2, 0, 17, 0, 32, 0, 39, 0, 18, 0]);
    }
    case
}

#[test]
fn calling_contexts() {
    let seeds = [probes_and_samples(), vec![0, 0, 0, 0, 1, 1, 20, 0, 1, 0, 16, 0]];
    fuzz("calling_contexts", &seeds, mutate::bytes, |bytes| {
        let Some(([a, b, c, d], rest)) = bytes.split_first_chunk::<4>() else {
            return false;
        };
        let sizes = [u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d])].map(usize::from);
        let (descriptions, rest) = rest.split_at(sizes[0].min(rest.len()));
        let (probes, rest) = rest.split_at(sizes[1].min(rest.len()));
        let sections = ProbeSections { descriptions, probes };
        let start_of = |guid: u64| Some(Svma(ALL.start + guid % 32 * FUNCTION));
        let read = PseudoProbes::read(sections, &start_of);
        let is_read = read.is_ok();
        let code = Code {
            probes: read.ok().filter(|_| !probes.is_empty()),
        };
        let mut profile = ContextProfile::default();
        for sample in samples(rest) {
            profile.add_sample(&sample, 3, &code);
        }
        for keep_all in [false, true] {
            let options = ContextOptions {
                keep_all,
                max_depth: None,
            };
            let _ = ContextSampleProfile::new(&profile, &code, options).text();
        }
        let branches = profile.without_contexts();
        let _ = SampleProfile::new(&branches, &code).text();
        fdata::write(&branches, &code, &mut Vec::new()).unwrap();
        is_read && !profile.is_empty()
    });
}
