//! `backtrail import`.

use crate::args::{Import, ImportRaw, ImportTo};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Output, plain};
use backtrail_bundle::import::{self, ImageArg, PerfImport, RawImport, parse_address_filter};
use backtrail_bundle::{Manifest, Overwrite};
use backtrail_pt::TimingParams;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Makes a bundle of another tool's files and says what is in it.
pub fn run(import: &Import) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let stop = &interrupt.stop();
    match import {
        Import::Lldb { trace, to } => {
            let manifest = import::lldb(trace, &to.output, Overwrite::asked(to.overwrite), stop)?;
            report(&manifest, to)
        }
        Import::Perf {
            data,
            core,
            symfs,
            to,
        } => {
            let request = PerfImport {
                data: data.clone(),
                core: core.clone(),
                symfs: symfs.clone(),
            };
            report(
                &import::perf(&request, &to.output, Overwrite::asked(to.overwrite), stop)?,
                to,
            )
        }
        Import::Raw(raw) => report(
            &import::raw(
                &request(raw)?,
                &raw.to.output,
                Overwrite::asked(raw.to.overwrite),
                stop,
            )?,
            &raw.to,
        ),
    }
}

fn request(args: &ImportRaw) -> Result<RawImport, Failure> {
    let image = |text: &String| {
        text.parse::<ImageArg>()
            .map_err(|error| Failure::usage(format_args!("--image {text}: {error}")))
    };
    let filter = |text: &String| {
        parse_address_filter(text)
            .map_err(|error| Failure::usage(format_args!("--addr-filter {text}: {error}")))
    };
    let (cpuid_15h_eax, cpuid_15h_ebx) = args.cpuid_15h.unwrap_or_default();
    Ok(RawImport {
        pt: args.pt.clone(),
        images: args.images.iter().map(image).collect::<Result<_, _>>()?,
        filters: args.filters.iter().map(filter).collect::<Result<_, _>>()?,
        cpu: args.cpu,
        timing: TimingParams {
            mtc_freq: args.mtc_freq,
            nom_freq: args.nom_freq,
            cpuid_15h_eax,
            cpuid_15h_ebx,
        },
        core: args.core.clone(),
    })
}

#[derive(Serialize)]
struct Imported<'a> {
    bundle: &'a Path,
    processes: usize,
    threads: usize,
    cpus: usize,
    modules: usize,
    modules_missing: Vec<&'a str>,
    core: bool,
    notes: &'a [String],
}

fn report(manifest: &Manifest, to: &ImportTo) -> Result<(), Failure> {
    let modules = || manifest.processes.iter().flat_map(|process| &process.modules);
    let imported = Imported {
        bundle: &to.output,
        processes: manifest.processes.len(),
        threads: manifest
            .processes
            .iter()
            .map(|process| process.threads.len())
            .sum(),
        cpus: manifest.cpus.len(),
        modules: modules().count(),
        modules_missing: modules()
            .filter(|m| m.file.is_none())
            .map(|m| m.path.as_str())
            .collect(),
        core: manifest.core.is_some(),
        notes: &manifest.meta.notes,
    };
    let mut output = Output::new();
    if to.json {
        output.json("backtrail-import/1", &imported)?;
        return output.finish();
    }
    let Imported {
        processes,
        threads,
        cpus,
        modules,
        core,
        ..
    } = imported;
    write!(
        output,
        "{}: {processes} process(es), {threads} thread(s), {modules} module(s)",
        plain(&to.output.display().to_string())
    )?;
    if cpus > 0 {
        write!(output, ", traced by processor ({cpus})")?;
    }
    writeln!(output, "{}", if core { ", with a core" } else { "" })?;
    for note in imported.notes {
        writeln!(output, "note: {}", plain(note))?;
    }
    output.finish()
}
