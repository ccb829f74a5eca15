//! Imports raw PT packets with the code that they executed.

use super::ImageArg;
use super::crash::add_core;
use super::pages::PageLists;
use crate::core::Core;
use crate::elf::{Elf, is_elf};
use crate::manifest::{AddressFilter, Manifest, Meta, Module, Process, RawImage, Source, Thread};
use crate::writer::plain_name;
use crate::{BundlePath, CancelToken, Error, Overwrite, PAGE_SIZE, Result, SharedBytes, Writer};
use backtrail_pt::{Avma, CpuModel, FileOffset, Pid, Tid, TimingParams};
use std::path::{Path, PathBuf};

/// The process id and thread id of a raw import.
const ONLY: u32 = 1;

/// The inputs of a raw import.
#[derive(Clone, Debug)]
pub struct RawImport {
    /// The packets of one thread.
    pub pt: PathBuf,
    /// The code. Later images cover earlier ones.
    pub images: Vec<ImageArg>,
    /// Page lists, whose code covers the images.
    pub pages: Vec<PathBuf>,
    /// The traced address ranges. If empty, everything was traced.
    pub filters: Vec<AddressFilter>,
    /// The traced processor. If `None`, it is unknown, and no errata workarounds are used.
    pub cpu: Option<CpuModel>,
    /// The timing parameters of the processor.
    pub timing: TimingParams,
    /// The core of the crash that ended the trace.
    pub core: Option<PathBuf>,
}

/// Imports raw packets as a bundle of one process and one thread, both with id 1.
///
/// A page list has a line for each piece of code: its address, and its bytes in hexadecimal digits.
///
/// # Errors
/// Fails if a file cannot be read or is malformed, if an image needs an address, or if `cancel` was
/// set.
pub fn raw(
    import: &RawImport,
    target: &Path,
    overwrite: Overwrite,
    cancel: &CancelToken,
) -> Result<Manifest> {
    cancel.or_canceled(import_cancelable(import, target, overwrite, cancel))
}

fn import_cancelable(
    import: &RawImport,
    target: &Path,
    overwrite: Overwrite,
    cancel: &CancelToken,
) -> Result<Manifest> {
    let writer = Writer::create(target, overwrite)?.canceled_by(cancel);
    let trace = BundlePath::new(&format!("traces/{ONLY}.pt"))?;
    writer.add_file(&trace, &import.pt)?;
    let thread = Thread {
        tid: Tid(ONLY),
        name: None,
        trace: Some(trace),
        values: None,
    };
    let mut process = Process {
        pid: Pid(ONLY),
        threads: vec![thread],
        ..Process::default()
    };
    let mut meta = Meta {
        source: Source::Unknown,
        created_by: Some("import raw".to_owned()),
        ..Meta::default()
    };
    for (index, image) in import.images.iter().enumerate() {
        add_image(&writer, &mut process, index, image)?;
    }
    if !import.pages.is_empty() {
        add_pages(&writer, &mut process, &import.pages, &mut meta.notes)?;
    }
    let (core_path, core) = add_core(&writer, import.core.as_deref(), &mut meta)?;
    if let Some((path, core)) = import.core.as_deref().zip(core.as_ref()) {
        refuse_other_builds(core, &process, path)?;
    }
    if let Some(crash) = &mut meta.crash {
        meta.notes.push(format!(
            "the core names the crashed thread {}; raw packets have thread {ONLY}",
            crash.tid
        ));
        (crash.pid, crash.tid) = (Pid(ONLY), Tid(ONLY));
    }
    let manifest = Manifest {
        cpu: import.cpu.unwrap_or(CpuModel::UNKNOWN),
        timing: import.timing,
        tsc: None,
        filters: import.filters.clone(),
        processes: vec![process],
        cpus: Vec::new(),
        core: core_path,
        meta,
    };
    writer.finish_checked(&manifest)?;
    Ok(manifest)
}

/// Refuses images of other builds than those in the core. They would decode to a wrong flow.
fn refuse_other_builds(core: &Core, process: &Process, path: &Path) -> Result<()> {
    for module in &process.modules {
        if let (Some(mapped), Some(given)) = (core.mapped_build_id(module.base), &module.build_id)
            && mapped != *given
        {
            return Err(Error::Usage(format!(
                "image {} has build id {given}, but {} has build id {mapped} at {}; pass the file of that build",
                module.path,
                path.display(),
                module.base
            )));
        }
    }
    Ok(())
}

fn add_image(writer: &Writer, process: &mut Process, index: usize, image: &ImageArg) -> Result<()> {
    let bytes = SharedBytes::map_file(&image.file)?;
    let name = image.file.to_string_lossy();
    if image.slice.is_none() && is_elf(&bytes) {
        let lowest = Elf::parse(&bytes, &name)?.lowest_load()?;
        let (file, build_id) = writer.add_module(&image.file, &name)?;
        let base = image.address.unwrap_or(Avma(lowest.0 & !(PAGE_SIZE - 1)));
        let path = std::path::absolute(&image.file).map_err(Error::io("find", &image.file))?;
        process.modules.push(Module {
            path: path.to_string_lossy().into_owned(),
            file: Some(file),
            build_id,
            base,
            ..Module::default()
        });
        return Ok(());
    }
    let Some(start) = image.address else {
        let what = if image.slice.is_some() {
            "a slice of a file"
        } else {
            "a file that is not ELF"
        };
        return Err(Error::Usage(format!(
            "image {name:?} is {what} and needs an address: {name}@ADDRESS"
        )));
    };
    let (offset, size) = image.slice.unwrap_or((FileOffset(0), bytes.len() as u64));
    let code = bytes
        .slice(offset.0..offset.0.saturating_add(size))
        .ok_or_else(|| {
            Error::Usage(format!(
                "image {name:?} has {} bytes, fewer than {size:#x} at {offset}",
                bytes.len()
            ))
        })?;
    let file = BundlePath::new(&format!("images/{index}-{}", plain_name(&name)))?;
    writer.add_bytes(&file, &code)?;
    process.images.push(RawImage {
        start,
        file,
        offset: FileOffset(0),
        size,
    });
    Ok(())
}

/// Adds the code of page lists as one file, with an image for each contiguous piece.
fn add_pages(
    writer: &Writer,
    process: &mut Process,
    lists: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<()> {
    let PageLists { runs, contradictions } = PageLists::read(lists)?;
    if contradictions != 0 {
        notes.push(format!(
            "the page lists give two different bytes for {contradictions} addresses; the code there is unknown"
        ));
    }
    let file = BundlePath::new("images/pages")?;
    let mut all = Vec::new();
    for run in runs {
        process.images.push(RawImage {
            start: run.start,
            file: file.clone(),
            offset: FileOffset(all.len() as u64),
            size: run.bytes.len() as u64,
        });
        all.extend_from_slice(&run.bytes);
    }
    writer.add_bytes(&file, &all)
}
