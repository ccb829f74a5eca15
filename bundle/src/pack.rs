//! Packs a bundle into one file, and unpacks it.

use crate::archive::{self, PackedFile};
use crate::manifest::{Manifest, Meta};
use crate::reader::load_partial;
use crate::schema::Findings;
use crate::{Bundle, BundlePath, CancelToken, Error, Overwrite, Result, Writer, durable};
use backtrail_pt::BuildId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Packs the bundle in the directory `bundle` into the file `target`, which must not exist.
///
/// # Errors
/// Fails if `bundle` is not a bundle, if the file cannot be written, or if `cancel` was set.
pub fn pack(bundle: &Path, target: &Path, cancel: &CancelToken) -> Result<()> {
    pack_without(bundle, target, &BTreeSet::new(), cancel)
}

/// Packs a bundle as [`pack`] does, without the module files of the `excluded` build ids. The
/// description still names these files. [`unpack_partial`] returns which are missing.
///
/// # Errors
/// Fails as [`pack`] does.
pub fn pack_without(
    bundle: &Path,
    target: &Path,
    excluded: &BTreeSet<BuildId>,
    cancel: &CancelToken,
) -> Result<()> {
    let changes = PackChanges {
        excluded: excluded.clone(),
        ..PackChanges::default()
    };
    pack_changed(bundle, target, &changes, cancel)
}

/// Changes to a bundle while it is packed.
#[derive(Clone, Debug, Default)]
pub struct PackChanges {
    /// The build ids whose module files are left out, as by [`pack_without`].
    pub excluded: BTreeSet<BuildId>,
    /// Files that are added, or that replace files of the bundle, by their paths in it.
    pub replaced: BTreeMap<BundlePath, PathBuf>,
}

/// Packs a bundle as [`pack`] does, with changes. The directory stays as it is.
///
/// # Errors
/// Fails as [`pack`] does.
pub fn pack_changed(bundle: &Path, target: &Path, changes: &PackChanges, cancel: &CancelToken) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    let without = files_of_builds(opened.manifest(), &changes.excluded);
    if target.symlink_metadata().is_ok() {
        return Err(Error::TargetExists {
            path: target.to_owned(),
            what: if target.is_dir() { "a directory" } else { "a file" },
            hint: "",
        });
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(parent).map_err(Error::io("create a file in", parent))?;
    archive::write(
        opened.root(),
        &without,
        &changes.replaced,
        file.as_file(),
        target,
        cancel,
    )?;
    file.persist_noclobber(target)
        .map_err(|error| Error::io("create", target)(error.error))?;
    Ok(())
}

/// Returns the module files of these builds that serve no other purpose.
fn files_of_builds(manifest: &Manifest, builds: &BTreeSet<BuildId>) -> BTreeSet<BundlePath> {
    let modules = || manifest.processes.iter().flat_map(|process| &process.modules);
    let is_of_builds = |id: &Option<BuildId>| id.as_ref().is_some_and(|id| builds.contains(id));
    let mut files: BTreeSet<BundlePath> = modules()
        .filter(|module| is_of_builds(&module.build_id))
        .filter_map(|module| module.file.clone())
        .collect();
    let others = modules().filter(|module| !is_of_builds(&module.build_id));
    for file in others.filter_map(|module| module.file.as_ref()) {
        files.remove(file);
    }
    for process in &manifest.processes {
        let threads = process.threads.iter();
        let traces = threads.flat_map(|thread| thread.trace.iter().chain(&thread.values));
        let images = process.images.iter().map(|image| &image.file);
        for file in traces.chain(images).chain(&process.versions) {
            files.remove(file);
        }
    }
    let cpus = (manifest.cpus.iter()).flat_map(|cpu| [&cpu.trace, &cpu.switches]);
    for file in cpus.chain(&manifest.core) {
        files.remove(file);
    }
    files
}

/// A module file that a packed bundle left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissingModule {
    /// The path in the bundle at which the file belongs.
    pub file: BundlePath,
    /// The build id that the bundle states. The file must have it.
    pub build_id: BuildId,
}

/// Unpacks the untrusted packed bundle of an open file into the new directory `target`. Returns the
/// module files that the bundle left out, in order of their paths.
///
/// The caller puts these files at their paths below `target`, and then calls [`Bundle::open`]. The
/// directories of these paths may be missing, but none of them is a file. All other files that the
/// description names exist.
///
/// # Errors
/// Fails if the bundle is malformed, or if more than `limit` bytes would be unpacked. Fails if the
/// target exists, if `cancel` was set, or if a module without a build id is missing. On failure,
/// nothing is left at the target.
pub fn unpack_partial(
    packed: &File,
    target: &Path,
    limit: u64,
    cancel: &CancelToken,
) -> Result<Vec<MissingModule>> {
    let writer = Writer::create(target, Overwrite::Never)?;
    let packed = PackedFile {
        file: packed,
        place: "the bundle".to_owned(),
    };
    cancel.or_canceled(archive::unpack_entries(&packed, writer.root(), limit, cancel))?;
    let findings = Findings::default();
    let loaded = load_partial(writer.root(), "the bundle".as_ref(), &findings);
    if let Some(error) = findings.into_vec().into_iter().next() {
        return Err(error);
    }
    let Some((manifest, missing)) = loaded else {
        return Err(Error::malformed("the bundle", "it describes no trace"));
    };
    let missing = missing_modules(&manifest, &missing)?;
    writer.publish()?;
    Ok(missing)
}

/// Returns the missing files with their build ids.
fn missing_modules(manifest: &Manifest, missing: &BTreeSet<BundlePath>) -> Result<Vec<MissingModule>> {
    let mut ids: BTreeMap<&BundlePath, &BuildId> = BTreeMap::new();
    for module in manifest.processes.iter().flat_map(|process| &process.modules) {
        let Some(file) = module.file.as_ref().filter(|file| missing.contains(*file)) else {
            continue;
        };
        let Some(id) = &module.build_id else {
            let problem = "the bundle names this file, but it does not exist and has no build id";
            return Err(Error::malformed(file, problem));
        };
        if *ids.entry(file).or_insert(id) != id {
            let problem = "the bundle left out this file, and names two build ids for it";
            return Err(Error::malformed(file, problem));
        }
    }
    for file in missing {
        let mut parents = file.as_str().match_indices('/').map(|(end, _)| end);
        let is_below_another = parents.any(|end| {
            let parent = file.as_str().get(..end).map(BundlePath::new);
            matches!(parent, Some(Ok(parent)) if missing.contains(&parent))
        });
        if is_below_another {
            return Err(Error::malformed(
                file,
                "its directory is another file that was left out",
            ));
        }
    }
    let missing = ids.into_iter().map(|(file, id)| MissingModule {
        file: file.clone(),
        build_id: id.clone(),
    });
    Ok(missing.collect())
}

/// Unpacks the packed bundle `packed` to the new directory `target`.
///
/// # Errors
/// Fails if `packed` is malformed, if the target exists, or if `cancel` was set.
pub fn unpack(packed: &Path, target: &Path, cancel: &CancelToken) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    archive::unpack_into(packed, writer.root(), cancel)?;
    Bundle::open(writer.root())?;
    writer.publish()
}

/// Unpacks an untrusted packed bundle from an open file to the new directory `target`, and syncs it
/// to disk. `revise` computes the description to store from the unpacked bundle.
///
/// # Errors
/// Fails as [`unpack`] does, if more than `limit` bytes would be unpacked, or if `revise` fails. On
/// failure, nothing is left at the target.
pub fn unpack_revised(
    packed: &File,
    target: &Path,
    limit: u64,
    revise: impl FnOnce(&Bundle) -> Result<Meta>,
) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    let packed = PackedFile {
        file: packed,
        place: "the bundle".to_owned(),
    };
    archive::unpack_entries(&packed, writer.root(), limit, &CancelToken::default())?;
    let meta = revise(&Bundle::open(writer.root())?)?;
    writer.replace_meta(&meta)?;
    Bundle::open(writer.root())?;
    durable::sync_tree(writer.root())?;
    writer.publish()?;
    durable::sync_directory(target.parent().unwrap_or(Path::new(".")))
}
