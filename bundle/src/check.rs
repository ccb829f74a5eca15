//! Everything a reader would refuse in a bundle, not only the first.

use crate::code::ModuleFiles;
use crate::core::Core;
use crate::manifest::Manifest;
use crate::reader::load;
use crate::schema::Findings;
use crate::unpacked::Unpacked;
use crate::{CodeVersions, Error, Result, SharedBytes, archive, code};
use std::path::Path;

/// What was found in a bundle.
#[derive(Debug, Default)]
pub struct Report {
    /// Each thing a reader would refuse, in the order a reader would meet it.
    pub findings: Vec<Error>,
}

impl Report {
    /// Whether the bundle is sound.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Reads all of a bundle, packed or not, that a reader may come to read; PT packets are taken as
/// they are, for no packet is refused: what cannot be decoded is a gap.
///
/// # Errors
/// When the bundle cannot be got at. What is wrong inside is no error but a finding.
pub fn check(path: &Path) -> Result<Report> {
    if path.is_dir() {
        return Ok(check_dir(path, path));
    }
    let dir = Unpacked::new()?;
    let root = dir.path();
    match archive::unpack_into(path, &root) {
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

/// The contents of the files that the manifest names.
fn check_contents(root: &Path, manifest: &Manifest, findings: &Findings) {
    let note = |result: Result<()>| {
        if let Err(error) = result {
            findings.add(|| error);
        }
    };
    let bytes =
        |path: &crate::BundlePath| -> Result<SharedBytes> { SharedBytes::map_file(&path.resolve(root)?) };
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
    }
    if let Some(core) = &manifest.core {
        note(bytes(core).and_then(|bytes| Core::parse(bytes, core).map(drop)));
    }
}
