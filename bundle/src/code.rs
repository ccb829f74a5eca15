//! The code of a process, put together from modules, raw images and the core.

use crate::elf::{Elf, Load};
use crate::manifest::{Mapping, Module, Process, RawImage};
use crate::{Bundle, CodeSection, Error, PAGE_SIZE, Result, SharedBytes};
use backtrail_pt::{FileOffset, Pid};

/// No module has more `PT_LOAD` segments; real ones have 2 to 5.
const MAX_LOADS: usize = 1024;
/// No process has more pieces of code.
const MAX_SECTIONS: usize = 1 << 20;

/// See [`Bundle::code`].
pub(crate) fn sections(bundle: &Bundle, pid: Pid) -> Result<Vec<CodeSection>> {
    let manifest = bundle.manifest();
    let Some(process) = manifest.processes.iter().find(|process| process.pid == pid) else {
        return Err(Error::Usage(format!("the bundle has no process {pid}")));
    };
    let mut sections = Vec::new();
    if core_is_of(bundle, process)
        && let Some(core) = bundle.core()?
    {
        let executable = core
            .saved()
            .filter(|(segment, _)| segment.executable && !segment.writable);
        sections.extend(executable.map(|(segment, bytes)| CodeSection {
            start: segment.start,
            bytes: bytes.clone(),
            module: None,
        }));
    }
    for (index, module) in process.modules.iter().enumerate() {
        if let Some(file) = &module.file {
            sections.extend(module_sections(module, &bundle.bytes(file)?, index)?);
            if sections.len() > MAX_SECTIONS {
                return Err(Error::malformed(
                    file,
                    format!("more than {MAX_SECTIONS} pieces of code"),
                ));
            }
        }
    }
    for image in &process.images {
        sections.push(image_section(image, &bundle.bytes(&image.file)?)?);
    }
    Ok(sections)
}

/// A core is of the process that crashed; without a crash, of the one that it names, or of the only one.
fn core_is_of(bundle: &Bundle, process: &Process) -> bool {
    let manifest = bundle.manifest();
    match manifest.meta.crash {
        Some(crash) => crash.pid == process.pid,
        None => manifest.processes.len() == 1 || bundle.core_pid() == Some(process.pid),
    }
}

/// What of a module's file lay in memory: its mappings when known, else its load segments.
pub(crate) fn module_sections(
    module: &Module,
    bytes: &SharedBytes,
    index: usize,
) -> Result<Vec<CodeSection>> {
    let place = format!("module {:?}", module.path);
    let elf = Elf::parse(bytes, &place)?;
    if let (Some(stated), Some(found)) = (&module.build_id, elf.build_id())
        && *stated != found
    {
        let problem = format!("its build id is {found}, but the bundle says {stated}");
        return Err(Error::malformed(&place, problem));
    }
    if !module.base.0.is_multiple_of(PAGE_SIZE) {
        let problem = format!(
            "it cannot be loaded at {}, which is not the start of a page",
            module.base
        );
        return Err(Error::malformed(&place, problem));
    }
    if elf.loads().nth(MAX_LOADS).is_some() {
        return Err(Error::malformed(
            &place,
            format!("it has more than {MAX_LOADS} segments to load"),
        ));
    }
    let bias = module.bias(elf.lowest_load()?);
    let mapped = |load: Load| Mapping {
        start: load.svma.to_avma(bias),
        offset: load.offset,
        size: load.file_size.min(load.mem_size),
    };
    let mappings: Vec<Mapping> = if module.mappings.is_empty() {
        elf.loads().map(mapped).collect()
    } else {
        module.mappings.clone()
    };
    let section = |mapping: &Mapping| {
        let bytes = clipped(bytes, mapping.offset, mapping.size);
        (!bytes.is_empty()).then_some(CodeSection {
            start: mapping.start,
            bytes,
            module: Some(index),
        })
    };
    Ok(mappings.iter().filter_map(section).collect())
}

pub(crate) fn image_section(image: &RawImage, bytes: &SharedBytes) -> Result<CodeSection> {
    let end = image.offset.0.saturating_add(image.size);
    let bytes = bytes.slice(image.offset.0..end).ok_or_else(|| {
        Error::malformed(
            &image.file,
            format!(
                "it has {} bytes, but {:#x} at {} are wanted",
                bytes.len(),
                image.size,
                image.offset
            ),
        )
    })?;
    Ok(CodeSection {
        start: image.start,
        bytes,
        module: None,
    })
}

/// The part of the file that a mapping shows: it may reach beyond the end by less than a page.
fn clipped(bytes: &SharedBytes, offset: FileOffset, size: u64) -> SharedBytes {
    let end = offset.0.saturating_add(size).min(bytes.len() as u64);
    bytes
        .slice(offset.0.min(end)..end)
        .unwrap_or_else(|| Vec::new().into())
}
