//! Packing without some modules, and unpacking untrusted bundles that lack them.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::manifest::{Manifest, Meta, Module, Process, RawImage, Thread};
use backtrail_bundle::{
    Bundle, BundlePath, CancelToken, MissingModule, Overwrite, Writer, pack_without, unpack_partial,
};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, BuildId, CpuModel, FileOffset, Pid, Tid, TimingParams};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Two programs of each system.
const PROGRAMS: [&str; 2] = ["/bin/true", "/bin/sh"];
/// A limit that no test reaches.
const LIMIT: u64 = 1 << 30;
/// A limit that is smaller than a program.
const SMALL: u64 = 4096;

/// Returns the manifest of a process with these modules and images.
fn manifest(modules: Vec<Module>, images: Vec<RawImage>) -> Manifest {
    Manifest {
        cpu: CpuModel {
            vendor: Vendor::Intel,
            family: 6,
            model: 85,
            stepping: 4,
        },
        timing: TimingParams::default(),
        tsc: None,
        filters: Vec::new(),
        processes: vec![Process {
            pid: Pid(1),
            threads: vec![Thread {
                tid: Tid(1),
                name: None,
                trace: Some(BundlePath::new("traces/1").unwrap()),
                values: None,
            }],
            modules,
            images,
            versions: None,
            shared_memory: None,
        }],
        cpus: Vec::new(),
        core: None,
        meta: Meta::default(),
    }
}

/// Writes a bundle of two programs. If `image`, the second one is a raw image too.
fn bundle(target: &Path, image: bool) -> Vec<Module> {
    let writer = Writer::create(target, Overwrite::Never).unwrap();
    writer
        .add_bytes(&BundlePath::new("traces/1").unwrap(), &[0x02, 0x82].repeat(8))
        .unwrap();
    let modules: Vec<Module> = (PROGRAMS.iter().zip(1..))
        .map(|(program, number)| {
            let (file, build_id) = writer.add_module(Path::new(program), program).unwrap();
            Module {
                path: (*program).to_owned(),
                file: Some(file),
                build_id,
                base: Avma(number << 32),
                ..Module::default()
            }
        })
        .collect();
    let images = modules.iter().skip(1).filter(|_| image).map(|module| RawImage {
        start: Avma(1 << 40),
        file: module.file.clone().unwrap(),
        offset: FileOffset(0),
        size: 64,
    });
    writer
        .finish(&manifest(modules.clone(), images.collect()))
        .unwrap();
    modules
}

/// Packs the bundle without these modules.
fn packed(dir: &Path, without: &[&Module]) -> PathBuf {
    let path = dir.join("partial.btz");
    let ids: BTreeSet<BuildId> = without
        .iter()
        .map(|module| module.build_id.clone().unwrap())
        .collect();
    pack_without(&dir.join("full"), &path, &ids, &CancelToken::default()).unwrap();
    path
}

fn unpacked(path: &Path, target: &Path, limit: u64) -> Result<Vec<MissingModule>, String> {
    let file = File::open(path).unwrap();
    unpack_partial(&file, target, limit, &CancelToken::default()).map_err(|error| error.to_string())
}

#[test]
fn bundle_without_modules_opens_after_they_are_supplied() {
    let dir = tempfile::tempdir().unwrap();
    let modules = bundle(&dir.path().join("full"), false);
    let path = packed(dir.path(), &[&modules[1]]);
    let error = Bundle::open(&path).unwrap_err();
    assert!(error.is_malformed(), "{error}");
    let target = dir.path().join("partial");
    let missing = unpacked(&path, &target, LIMIT).unwrap();
    assert_eq!(
        missing,
        [MissingModule {
            file: modules[1].file.clone().unwrap(),
            build_id: modules[1].build_id.clone().unwrap(),
        }]
    );
    let file = target.join(missing[0].file.as_str());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(PROGRAMS[1], file).unwrap();
    let bundle = Bundle::open(&target).unwrap();
    assert!(!bundle.code(Pid(1)).unwrap().is_empty());
}

#[test]
fn supplied_module_of_another_build_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let modules = bundle(&dir.path().join("full"), false);
    let path = packed(dir.path(), &[&modules[0], &modules[1]]);
    let target = dir.path().join("partial");
    for missing in unpacked(&path, &target, LIMIT).unwrap() {
        let file = target.join(missing.file.as_str());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(PROGRAMS[0], file).unwrap();
    }
    let error = Bundle::open(&target).unwrap().code(Pid(1)).unwrap_err();
    assert!(error.is_malformed(), "{error}");
}

#[test]
fn bundle_with_all_modules_lacks_none() {
    let dir = tempfile::tempdir().unwrap();
    bundle(&dir.path().join("full"), false);
    let path = packed(dir.path(), &[]);
    assert_eq!(
        unpacked(&path, &dir.path().join("partial"), LIMIT),
        Ok(Vec::new())
    );
    assert!(Bundle::open(&path).is_ok());
}

#[test]
fn module_that_is_an_image_too_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    let modules = bundle(&dir.path().join("full"), true);
    let path = packed(dir.path(), &[&modules[0], &modules[1]]);
    let missing = unpacked(&path, &dir.path().join("partial"), LIMIT).unwrap();
    assert_eq!(missing.len(), 1);
    assert_eq!(Some(&missing[0].file), modules[0].file.as_ref());
}

#[test]
fn bundle_beyond_the_limit_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    bundle(&dir.path().join("full"), false);
    let path = packed(dir.path(), &[]);
    let error = unpacked(&path, &dir.path().join("partial"), SMALL).unwrap_err();
    assert!(error.contains("unpacks to more than 4096 bytes"), "{error}");
    assert!(!dir.path().join("partial").exists());
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names: BTreeSet<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["full", "partial.btz"].map(Into::into).into());
}

/// Packs a description with these changes, and returns the error of unpacking it.
fn refused(change: impl Fn(String, &[Module]) -> String) -> String {
    let dir = tempfile::tempdir().unwrap();
    let modules = bundle(&dir.path().join("full"), false);
    let path = packed(dir.path(), &[&modules[0], &modules[1]]);
    let target = dir.path().join("partial");
    unpacked(&path, &target, LIMIT).unwrap();
    let text = change(
        std::fs::read_to_string(target.join("trace.json")).unwrap(),
        &modules,
    );
    let changed = dir.path().join("changed.btz");
    let encoder = zstd::Encoder::new(File::create(&changed).unwrap(), 1).unwrap();
    let mut archive = tar::Builder::new(encoder);
    for (name, bytes) in [("trace.json", text.into_bytes()), ("traces/1", vec![0; 16])] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, &*bytes).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    unpacked(&changed, &dir.path().join("refused"), LIMIT).unwrap_err()
}

#[test]
fn left_out_files_that_cannot_be_supplied_are_refused() {
    let error = refused(|text, _| text.replace("\"traces/1\"", "\"traces/2\""));
    assert!(error.contains("does not exist"), "{error}");
    let error = refused(|text, _| text.replace("\"modules/", "\"../modules/"));
    assert!(error.contains("leads out of the bundle"), "{error}");
    let error = refused(|text, _| text.replace("\"uuid\"", "\"x\"").replace("\"buildId\"", "\"x\""));
    assert!(error.contains("has no build id"), "{error}");
    let file = |module: &Module| module.file.as_ref().unwrap().to_string();
    let error = refused(|text, modules| text.replace(&file(&modules[1]), &file(&modules[0])));
    assert!(error.contains("two build ids"), "{error}");
    let error =
        refused(|text, modules| text.replace(&file(&modules[1]), &format!("{}/x", file(&modules[0]))));
    assert!(error.contains("its directory is another file"), "{error}");
}
