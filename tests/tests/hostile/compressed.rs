//! Compressed cores, and the builds of the files in cores.

use crate::harness::{alone, fuzz};
use crate::{mutate, seeds};
use backtrail_bundle::SharedBytes;
use backtrail_bundle::core::{
    Core, CoreContents, CoreThread, MappedBuild, MappedFile, Segment, UnpackLimits, is_core_file,
    open_core_file, write,
};
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use backtrail_pt::{Avma, FileOffset};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Small limits, because memory is counted for the compressed size. Parsing costs several times the
/// unpacked size.
const LIMITS: UnpackLimits = UnpackLimits {
    size: 256 << 10,
    window: 16 << 20,
};

/// Compresses a file by the tools that are installed.
fn compressed(file: &Path) -> Vec<Vec<u8>> {
    let tools = ["zstd", "xz", "gzip", "lz4"].into_iter();
    let outputs = tools.filter_map(|tool| {
        let mut command = Command::new(tool);
        command
            .arg("-c")
            .stdin(fs::File::open(file).ok()?)
            .stderr(Stdio::null());
        let output = command.output().ok()?;
        output.status.success().then_some(output.stdout)
    });
    outputs.collect()
}

#[test]
fn compressed_cores() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core");
    fs::write(&file, seeds::core()).unwrap();
    let mut seeds = compressed(&file);
    // Zeros: little input, much output.
    let mut large = seeds::core();
    large.resize(200 << 10, 0);
    fs::write(&file, large).unwrap();
    seeds.extend(compressed(&file));
    seeds.push(seeds::core());
    fuzz("compressed_cores", &seeds, mutate::bytes, |bytes| {
        fs::write(&file, bytes).unwrap();
        let _ = is_core_file(&file);
        let Ok(core) = open_core_file(&file, &LIMITS, |_, _| true) else {
            return false;
        };
        assert!(core.bytes.len() as u64 <= LIMITS.size.max(bytes.len() as u64));
        Core::parse(core.bytes, "core").is_ok()
    });
}

/// A file that ends early is never taken for a whole one.
#[test]
fn every_cut_is_noted_or_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core");
    let mut plain = seeds::core();
    plain.resize(100 << 10, 0);
    plain.extend((0..20_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()));
    fs::write(&file, &plain).unwrap();
    for whole in compressed(&file) {
        let open = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            open_core_file(&file, &LIMITS, |_, _| true)
        };
        let core = open(&whole).unwrap();
        assert!(core.note.is_none() && *core.bytes == *plain);
        let step = whole.len() / 1000 + 1;
        let last = whole.len().saturating_sub(200)..whole.len();
        for end in (8..whole.len()).step_by(step).chain(last) {
            match open(&whole[..end]) {
                Err(error) => assert!(error.is_refused(), "{end}: {error}"),
                Ok(core) => {
                    assert!(core.note.is_some(), "{:?} cut at {end}", &whole[..4]);
                    assert!(plain.starts_with(&core.bytes), "{end}");
                }
            }
        }
    }
}

/// A frame of zstd whose blocks repeat one byte: 4 bytes make 128 KiB.
#[test]
fn bomb_is_refused_at_the_limit() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core");
    let core = seeds::core();
    let block = |kind: u32, size: usize| (kind << 1 | (size as u32) << 3).to_le_bytes()[..3].to_vec();
    // The descriptor of a frame without size and checksum, and a window of 128 KiB.
    let mut bomb = b"\x28\xb5\x2f\xfd\x00\x38".to_vec();
    for part in core.chunks(64 << 10) {
        bomb.extend(block(0, part.len()));
        bomb.extend(part);
    }
    for _ in 0..1 << 20 {
        bomb.extend(block(1, 128 << 10));
        bomb.push(0);
    }
    fs::write(&file, &bomb).unwrap();
    let started = Instant::now();
    let error = open_core_file(&file, &LIMITS, |_, _| true).unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert!(error.to_string().contains("unpacks to more than"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Every file claims all memory, and every segment is a page.
#[test]
fn many_segments_and_files_open_in_time() {
    let _alone = alone();
    const COUNT: u64 = 40_000;
    let segment = |index: u64| Segment {
        start: Avma(0x10_0000 + index * 0x2000),
        size: 0x1000,
        readable: true,
        executable: index.is_multiple_of(2),
        ..Segment::default()
    };
    let file = |index: u64| MappedFile {
        start: Avma(0x1000),
        end: Avma(u64::MAX - 0xfff),
        offset: FileOffset((index % 2) << 12),
        path: format!("/no/such/file{}", index / 2),
    };
    let contents = CoreContents {
        threads: vec![CoreThread::default()],
        files: (0..COUNT).map(file).collect(),
        segments: (0..COUNT).map(segment).collect(),
        ..CoreContents::default()
    };
    let mut core = std::io::Cursor::new(Vec::new());
    write(&mut core, &contents, |_: Avma, _: &mut [u8]| 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core");
    fs::write(&path, core.into_inner()).unwrap();
    let started = Instant::now();
    let session = Session::open(&path, &OpenOptions::default(), &Watch::none()).unwrap();
    assert_eq!(session.threads().len(), 1);
    // Twenty are named, and the others are counted.
    assert!(session.notes().len() < 30, "{:?}", session.notes().len());
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The first page of a mapped file is that of a program, as the kernel saves it.
#[test]
fn core_builds() {
    const BASE: Avma = Avma(0x40_0000);
    // A small file, because its memory counts for targets that run at this time.
    let program = fs::read("/bin/true").unwrap();
    let file = SharedBytes::from(program.clone());
    let seeds = [program[..0x1000].to_vec()];
    fuzz("core_builds", &seeds, mutate::bytes, |page| {
        let core = seeds::core_with(BASE, page);
        let core = Core::parse(SharedBytes::from(core), "core").unwrap();
        let known = core.mapped_build(BASE);
        let listed = &core.contents().files;
        let _ = core.compare_file(BASE, listed, &file);
        let _ = core.compare_file(BASE, listed, &SharedBytes::from(page.to_vec()));
        known != MappedBuild::Unknown
    });
}
