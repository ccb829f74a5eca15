//! Finds everything in a bundle that a reader would refuse, not only the first fault.

use crate::code::ModuleFiles;
use crate::core::Core;
use crate::heap_records::{self, HeapRecords};
use crate::manifest::Manifest;
use crate::reader::load;
use crate::schema::Findings;
use crate::unpacked::Unpacked;
use crate::value_log::ValueLog;
use crate::versions::CodeVersions;
use crate::{BundlePath, CancelToken, Error, Result, SharedBytes, archive, code, heap, sources};
use std::path::Path;

/// The faults found in a bundle.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Each fault that a reader would refuse, in the order in which a reader would meet it.
    pub findings: Vec<Error>,
}

impl Report {
    /// Returns whether no fault was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Reads every part of a bundle that a reader may use. The bundle may be packed. PT packets are not
/// checked: a decoder reports bytes that it cannot decode as a gap.
///
/// # Errors
/// Fails if the bundle cannot be opened. Faults inside it are findings, not errors.
pub fn check(path: &Path) -> Result<Report> {
    if path.is_dir() {
        return Ok(check_dir(path, path));
    }
    let dir = Unpacked::new()?;
    let root = dir.path();
    match archive::unpack_into(path, &root, &CancelToken::default()) {
        Ok(()) => Ok(check_dir(&root, path)),
        Err(error) if error.is_malformed() => Ok(Report {
            findings: vec![error],
        }),
        Err(error) => Err(error),
    }
}

fn check_dir(root: &Path, path: &Path) -> Report {
    let findings = Findings::default();
    if let Some(manifest) = load(root, path, &findings) {
        check_contents(root, &manifest, &findings);
    }
    Report {
        findings: findings.into_vec(),
    }
}

/// Checks the contents of the files that the manifest names.
fn check_contents(root: &Path, manifest: &Manifest, findings: &Findings) {
    let note = |result: Result<()>| {
        if let Err(error) = result {
            findings.add(|| error);
        }
    };
    let bytes = |path: &BundlePath| -> Result<SharedBytes> { SharedBytes::map_file(&path.resolve(root)?) };
    for cpu in &manifest.cpus {
        note(bytes(&cpu.switches).and_then(|bytes| {
            let parsed = backtrail_perf::switch::parse(&bytes);
            parsed
                .map(drop)
                .map_err(Error::perf(Path::new(cpu.switches.as_str())))
        }));
    }
    let mut files = ModuleFiles::default();
    for process in &manifest.processes {
        for (index, module) in process.modules.iter().enumerate() {
            if let Some(file) = &module.file {
                note(files.module_sections(module, file, bytes, index).map(drop));
            }
        }
        for image in &process.images {
            note(bytes(&image.file).and_then(|bytes| code::image_section(image, &bytes).map(drop)));
        }
        note(CodeVersions::load(process, bytes).map(drop));
        for path in process.threads.iter().filter_map(|thread| thread.values.as_ref()) {
            note(bytes(path).and_then(|bytes| ValueLog::parse(bytes, path).map(drop)));
        }
    }
    match sources::load(root) {
        Ok(listed) => {
            for source in listed {
                note(BundlePath::new(&source.file).and_then(|file| bytes(&file).map(drop)));
            }
        }
        Err(error) => note(Err(error)),
    }
    if manifest.meta.heap_events == Some(heap::RECORDS) {
        let records = BundlePath::new(heap_records::FILE).and_then(|file| bytes(&file));
        note(records.and_then(|bytes| HeapRecords::parse(&bytes).map(drop)));
    }
    if let Some(core) = &manifest.core {
        note(bytes(core).and_then(|bytes| Core::parse(bytes, core).map(drop)));
    }
}
