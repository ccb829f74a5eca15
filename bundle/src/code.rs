//! Builds the code of a process from its modules, its raw images and the core.

use crate::core::Core;
use crate::elf::{Elf, Load};
use crate::manifest::{Mapping, Module, Process, RawImage};
use crate::{BundlePath, Error, PAGE_SIZE, Result, SharedBytes};
use backtrail_pt::{Avma, BuildId, FileOffset, Nanos, Svma};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The most `PT_LOAD` segments of a module. Genuine ones have 2 to 5.
const MAX_LOADS: usize = 1024;
/// The most code sections of a process.
const MAX_SECTIONS: usize = 1 << 20;

/// Code at an address of a process.
#[derive(Clone, Debug)]
pub struct CodeSection {
    /// The first address.
    pub start: Avma,
    /// The code.
    pub bytes: SharedBytes,
    /// The index of the process's module that contains the code.
    pub module: Option<usize>,
    /// See [`Mapping::from`].
    pub from: Option<Nanos>,
    /// See [`Mapping::until`].
    pub until: Option<Nanos>,
}

/// Returns the code of a process. `core` is the core of that process, if the bundle has one; `open`
/// opens files of the bundle.
pub(crate) fn sections(
    process: &Process,
    core: Option<&Core>,
    files: &mut ModuleFiles,
    open: impl Fn(&BundlePath) -> Result<SharedBytes>,
) -> Result<Vec<CodeSection>> {
    let mut sections = Vec::new();
    if let Some(core) = core {
        let executable = core
            .saved()
            .filter(|(segment, _)| segment.executable && !segment.writable);
        sections.extend(executable.map(|(segment, bytes)| CodeSection {
            start: segment.start,
            bytes: bytes.clone(),
            module: None,
            from: None,
            until: None,
        }));
    }
    for (index, module) in process.modules.iter().enumerate() {
        if let Some(file) = &module.file {
            sections.extend(files.module_sections(module, file, &open, index)?);
            if sections.len() > MAX_SECTIONS {
                let problem = format!("it has more than {MAX_SECTIONS} code sections");
                return Err(Error::malformed(file, problem));
            }
        }
    }
    for image in &process.images {
        sections.push(image_section(image, &open(&image.file)?)?);
    }
    Ok(sections)
}

/// Module files that were parsed for their code. Each is read once, because a description may name
/// one file any number of times.
#[derive(Debug, Default)]
pub(crate) struct ModuleFiles(HashMap<BundlePath, ModuleFile>);

#[derive(Debug)]
struct ModuleFile {
    bytes: SharedBytes,
    build_id: Option<BuildId>,
    lowest_load: Svma,
    loads: Vec<Load>,
}

impl ModuleFile {
    fn read(bytes: SharedBytes, place: &str) -> Result<Self> {
        let elf = Elf::parse(&bytes, place)?;
        if elf.loads().nth(MAX_LOADS).is_some() {
            let problem = format!("it has more than {MAX_LOADS} PT_LOAD segments");
            return Err(Error::malformed(place, problem));
        }
        Ok(Self {
            build_id: elf.build_id(),
            lowest_load: elf.lowest_load()?,
            loads: elf.loads().collect(),
            bytes,
        })
    }
}

impl ModuleFiles {
    /// Returns the sections of a module's file, which `open` opens. They follow the module's
    /// mappings when those are known, and its load segments otherwise.
    pub(crate) fn module_sections(
        &mut self,
        module: &Module,
        path: &BundlePath,
        open: impl Fn(&BundlePath) -> Result<SharedBytes>,
        index: usize,
    ) -> Result<Vec<CodeSection>> {
        let place = format!("module {:?}", module.path);
        let file = match self.0.entry(path.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(ModuleFile::read(open(path)?, &place)?),
        };
        if let (Some(stated), Some(found)) = (&module.build_id, &file.build_id)
            && stated != found
        {
            let problem = format!("its build id is {found}, but the bundle says {stated}");
            return Err(Error::malformed(&place, problem));
        }
        if !module.base.0.is_multiple_of(PAGE_SIZE) {
            let problem = format!("its load address {} is not page-aligned", module.base);
            return Err(Error::malformed(&place, problem));
        }
        let bias = module.bias(file.lowest_load);
        let loaded = file.loads.iter().filter(|_| module.mappings.is_empty());
        let loaded = loaded.map(|load| Mapping {
            start: load.svma.to_avma(bias),
            offset: load.offset,
            size: load.file_size.min(load.mem_size),
            ..Mapping::default()
        });
        let section = |mapping: Mapping| {
            let bytes = clipped(&file.bytes, mapping.offset, mapping.size);
            (!bytes.is_empty()).then_some(CodeSection {
                start: mapping.start,
                bytes,
                module: Some(index),
                from: mapping.from,
                until: mapping.until,
            })
        };
        let mappings = module.mappings.iter().copied().chain(loaded);
        Ok(mappings.filter_map(section).collect())
    }
}

pub(crate) fn image_section(image: &RawImage, bytes: &SharedBytes) -> Result<CodeSection> {
    let end = image.offset.0.saturating_add(image.size);
    let bytes = bytes.slice(image.offset.0..end).ok_or_else(|| {
        Error::malformed(
            &image.file,
            format!(
                "it has {} bytes, too few for {:#x} bytes at offset {}",
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
        from: None,
        until: None,
    })
}

/// Returns the part of the file that a mapping shows. A mapping may reach beyond the end of the
/// file by less than a page.
fn clipped(bytes: &SharedBytes, offset: FileOffset, size: u64) -> SharedBytes {
    let end = offset.0.saturating_add(size).min(bytes.len() as u64);
    bytes
        .slice(offset.0.min(end)..end)
        .unwrap_or_else(|| Vec::new().into())
}
