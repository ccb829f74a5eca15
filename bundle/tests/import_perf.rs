//! perf.data files of real crashes, with their cores.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::import::PerfImport;
use backtrail_bundle::manifest::Manifest;
use backtrail_bundle::{Bundle, CancelToken, Overwrite, check, import};
use backtrail_pt::{Avma, CpuModel, Pid, TimingParams};
use std::path::{Path, PathBuf};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt");

fn captures(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(CAPTURES).join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
    }
    path.exists().then_some(path)
}

/// Imports a capture whose name contains its program and time.
fn crash(program: &str, time: &str, target: &Path) -> Option<Manifest> {
    let dir = captures(&format!("hase/20180404/{program}"))?;
    let request = PerfImport {
        data: dir.join(format!("{program}-{time}.perf")),
        core: Some(dir.join(format!("{program}-{time}.coredump"))),
        symfs: Vec::new(),
    };
    Some(import::perf(&request, target, Overwrite::Never, &CancelToken::default()).unwrap())
}

#[test]
fn crash_imports_with_the_binary_beside_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let Some(manifest) = crash("loopy", "20180404T162955", &target) else {
        return;
    };
    let bundle = Bundle::open(&target).unwrap();
    assert_eq!(bundle.manifest(), &manifest);
    assert!(check(&target).unwrap().is_clean());
    assert_eq!(manifest.cpu, "6/94/3".parse::<CpuModel>().unwrap());
    assert_eq!(
        manifest.timing,
        TimingParams {
            mtc_freq: 3,
            nom_freq: 32,
            cpuid_15h_eax: 2,
            cpuid_15h_ebx: 266
        }
    );
    assert_eq!(
        manifest.processes.len(),
        1,
        "those that merely ran meanwhile are left out"
    );
    let process = &manifest.processes[0];
    assert_eq!(process.pid, Pid(19_233));
    assert_eq!(process.threads[0].name.as_deref(), Some("loopy"));
    assert!(process.modules[0].path.starts_with("/home/") && process.modules[0].file.is_some());
    let code = bundle.code(process.pid).unwrap();
    assert!(
        code.iter()
            .any(|section| section.start == Avma(0x40_0000) && section.module == Some(0))
    );
    assert!(
        code.iter().any(|section| section.module.is_none()),
        "the vdso comes from the core"
    );

    let trace = bundle.bytes(&manifest.cpus[0].trace).unwrap();
    assert_eq!(
        &*trace,
        std::fs::read(captures("hase/20180404/loopy/x/aux-idx2.bin").unwrap()).unwrap()
    );
    let switches = bundle.switches(&manifest.cpus[0]).unwrap();
    assert!(switches.iter().any(|switch| switch.pid == process.pid));

    let crash = manifest.meta.crash.unwrap();
    assert_eq!(
        (crash.pid, crash.signal, crash.pc),
        (process.pid, 6, Avma(0x40_0135))
    );
    let core = bundle.core().unwrap().unwrap();
    let thread = core.thread(crash.tid).unwrap();
    assert_eq!((thread.registers.rip, thread.registers.r8), (0x40_0135, 1));
    let mut stack = [0; 8];
    assert_eq!(core.memory(Avma(thread.registers.rsp), &mut stack), 8);
}

#[test]
fn another_crash_ends_in_raise() {
    let dir = tempfile::tempdir().unwrap();
    let Some(manifest) = crash("control_flow", "20180404T163033", &dir.path().join("bundle")) else {
        return;
    };
    assert_eq!(manifest.meta.crash.unwrap().pc, Avma(0x40_0a07));
    assert_eq!(manifest.processes[0].modules.len(), 1);
}

#[test]
fn missing_binaries_are_noted() {
    let Some(data) = captures("quipper/perf.data.intel_pt-4.14") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let request = PerfImport {
        data,
        core: None,
        symfs: vec![dir.path().to_owned()],
    };
    let target = dir.path().join("bundle");
    let manifest = import::perf(&request, &target, Overwrite::Never, &CancelToken::default()).unwrap();
    let bundle = Bundle::open(&target).unwrap();
    let sizes: Vec<usize> = manifest
        .cpus
        .iter()
        .map(|cpu| bundle.bytes(&cpu.trace).unwrap().len())
        .collect();
    assert_eq!(sizes, [12_240, 137_728]);
    assert!(
        manifest.meta.notes.iter().any(|note| note.contains("kernel")),
        "{:?}",
        manifest.meta.notes
    );
    assert!(
        manifest
            .processes
            .iter()
            .flat_map(|process| &process.modules)
            .count()
            > 0
    );
}

#[test]
fn symfs_is_searched_by_path_then_by_name() {
    let Some(capture) = captures("hase/20180404/loopy") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // In another directory than the binary.
    let data = dir.path().join("perf.data");
    std::fs::copy(capture.join("loopy-20180404T162955.perf"), &data).unwrap();
    let symfs = dir.path().join("symfs");
    let import = |name: &str| {
        let request = PerfImport {
            data: data.clone(),
            core: None,
            symfs: vec![symfs.clone()],
        };
        import::perf(
            &request,
            &dir.path().join(name),
            Overwrite::Never,
            &CancelToken::default(),
        )
        .unwrap()
    };
    let module = |manifest: &Manifest| manifest.processes[0].modules[0].clone();

    std::fs::create_dir(&symfs).unwrap();
    let missing = import("missing");
    assert_eq!(module(&missing).file, None);
    assert!(
        missing
            .meta
            .notes
            .iter()
            .any(|note| note.contains("was not found")),
        "{:?}",
        missing.meta.notes
    );
    assert_eq!(module(&missing).base, Avma(0x40_0000));

    std::fs::write(symfs.join("loopy"), "not ELF").unwrap();
    let misfit = import("misfit");
    assert_eq!(module(&misfit).file, None);
    assert!(
        misfit
            .meta
            .notes
            .iter()
            .any(|note| note.contains("not an ELF file")),
        "{:?}",
        misfit.meta.notes
    );

    let full = symfs.join(module(&missing).path.trim_start_matches('/'));
    std::fs::create_dir_all(full.parent().unwrap()).unwrap();
    std::fs::copy(capture.join("loopy"), &full).unwrap();
    assert!(module(&import("by path")).file.is_some());

    std::fs::rename(&full, symfs.join("loopy")).unwrap();
    assert!(module(&import("by name")).file.is_some());
}
