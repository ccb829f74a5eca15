//! The code of a process, put together from modules, raw images and the core.

use crate::elf::{Elf, Load};
use crate::manifest::{Mapping, Module, Process, RawImage};
use crate::{Bundle, BundlePath, CodeSection, Error, PAGE_SIZE, Result, SharedBytes};
use backtrail_pt::{BuildId, FileOffset, Pid, Svma};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// No module has more `PT_LOAD` segments; real ones have 2 to 5.
const MAX_LOADS: usize = 1024;
/// No process has more pieces of code.
const MAX_SECTIONS: usize = 1 << 20;

/// See [`Bundle::code`].
pub(crate) fn sections(bundle: &Bundle, files: &mut ModuleFiles, pid: Pid) -> Result<Vec<CodeSection>> {
    let process = bundle.process(pid)?;
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
            let open = |file: &BundlePath| bundle.bytes(file);
            sections.extend(files.module_sections(module, file, open, index)?);
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

/// The files of modules as far as code is made of them, each read once: a description may name one file any
/// number of times.
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
            let problem = format!("it has more than {MAX_LOADS} segments to load");
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
    /// Returns what of a module's file, which `open` opens, lay in memory: its mappings when known, else its load
    /// segments.
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
            let problem = format!(
                "it cannot be loaded at {}, which is not the start of a page",
                module.base
            );
            return Err(Error::malformed(&place, problem));
        }
        let bias = module.bias(file.lowest_load);
        let loaded = file.loads.iter().filter(|_| module.mappings.is_empty());
        let loaded = loaded.map(|load| Mapping {
            start: load.svma.to_avma(bias),
            offset: load.offset,
            size: load.file_size.min(load.mem_size),
        });
        let section = |mapping: Mapping| {
            let bytes = clipped(&file.bytes, mapping.offset, mapping.size);
            (!bytes.is_empty()).then_some(CodeSection {
                start: mapping.start,
                bytes,
                module: Some(index),
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
