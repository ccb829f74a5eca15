//! Raw packets with each form of image argument.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::import::{self, RawImport};
use backtrail_bundle::manifest::Manifest;
use backtrail_bundle::{Bundle, CancelToken, Error, Overwrite};
use backtrail_pt::{Avma, Pid, Tid, TimingParams};
use std::path::{Path, PathBuf};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt");

/// Imports the packets of `capture` with `images` from the same directory. Returns `None` if the
/// captures are absent.
fn raw(target: &Path, capture: &str, images: &[&str], core: Option<&str>) -> Option<Result<Manifest, Error>> {
    let dir = PathBuf::from(CAPTURES).join(capture).parent().unwrap().to_owned();
    if !dir.exists() {
        println!("skipped: {} is absent", dir.display());
        return None;
    }
    let request = RawImport {
        pt: PathBuf::from(CAPTURES).join(capture),
        images: images
            .iter()
            .map(|image| format!("{}/{image}", dir.display()).parse().unwrap())
            .collect(),
        pages: Vec::new(),
        filters: Vec::new(),
        cpu: Some("6/85/4".parse().unwrap()),
        timing: TimingParams::default(),
        core: core.map(|core| dir.join(core)),
    };
    Some(import::raw(
        &request,
        target,
        Overwrite::Never,
        &CancelToken::default(),
    ))
}

#[test]
fn each_form_of_image_is_placed_as_requested() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let images = [
        "a.out",
        "libfoo.so@0x7ffff7bd9000",
        "libbar.so:0x10:0x20@0x5000",
        "multi-file.trace@0x9000",
    ];
    let Some(imported) = raw(
        &target,
        "lldb/intelpt-trace-multi-file/multi-file.trace",
        &images,
        None,
    ) else {
        return;
    };
    let manifest = imported.unwrap();
    let bundle = Bundle::open(&target).unwrap();
    assert_eq!(bundle.manifest(), &manifest);
    let bases: Vec<Avma> = manifest.processes[0]
        .modules
        .iter()
        .map(|module| module.base)
        .collect();
    assert_eq!(bases, [Avma(0x40_0000), Avma(0x7fff_f7bd_9000)]);
    assert!(
        manifest.processes[0]
            .modules
            .iter()
            .all(|module| module.build_id.is_some())
    );
    let code = bundle.code(Pid(1)).unwrap();
    let images: Vec<_> = code.iter().filter(|section| section.module.is_none()).collect();
    let file =
        std::fs::read(PathBuf::from(CAPTURES).join("lldb/intelpt-trace-multi-file/libbar.so")).unwrap();
    assert_eq!(
        (images[0].start, &*images[0].bytes),
        (Avma(0x5000), &file[0x10..0x30])
    );
    assert_eq!((images[1].start, images[1].bytes.len()), (Avma(0x9000), 4096));
}

#[test]
fn core_of_a_raw_import_belongs_to_its_only_thread() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let core = Some("../loopy-20180404T162955.coredump");
    let Some(imported) = raw(&target, "hase/20180404/loopy/x/aux-idx2.bin", &["../loopy"], core) else {
        return;
    };
    let crash = imported.unwrap().meta.crash.unwrap();
    assert_eq!(
        (crash.pid, crash.tid, crash.pc),
        (Pid(1), Tid(1), Avma(0x40_0135))
    );
    let code = Bundle::open(&target).unwrap().code(Pid(1)).unwrap();
    let vdso = code
        .iter()
        .find(|section| section.start == Avma(0x7fff_a44b_1000))
        .unwrap();
    assert!(vdso.bytes.starts_with(b"\x7fELF"));
}

#[test]
fn incomplete_or_impossible_images_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let cases = [
        ("multi-file.trace", "needs an address"),
        ("a.out:0:16", "needs an address"),
        ("a.out:0:0x100000@0x1000", "fewer than 0x100000"),
        ("a.out@0x1234", "is not page-aligned"),
        ("multi-file.trace@0xffffffffffffff00", "exceed the address space"),
        ("no such file@0x1000", "cannot open"),
    ];
    for (image, expected) in cases {
        let capture = "lldb/intelpt-trace-multi-file/multi-file.trace";
        let Some(imported) = raw(&target, capture, &[image], None) else {
            return;
        };
        let error = imported.unwrap_err().to_string();
        assert!(error.contains(expected), "{image}: {error}");
        assert!(!target.exists(), "nothing half-made is left");
    }
}
