//! `backtrail import`.

use crate::args::{Import, ImportOutput, ImportRaw};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_bundle::Overwrite;
use backtrail_bundle::import::{self, ImageArg, PerfImport, RawImport, parse_address_filter};
use backtrail_bundle::manifest::Manifest;
use backtrail_pt::TimingParams;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Converts another tool's files to a bundle, and prints its contents.
pub fn run(import: &Import) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let cancel = &interrupt.cancel_token();
    match import {
        Import::Lldb { trace, to } => {
            let manifest = import::lldb(trace, &to.output, Overwrite::from_flag(to.overwrite), cancel)?;
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
                &import::perf(&request, &to.output, Overwrite::from_flag(to.overwrite), cancel)?,
                to,
            )
        }
        Import::Raw(raw) => report(
            &import::raw(
                &request(raw)?,
                &raw.to.output,
                Overwrite::from_flag(raw.to.overwrite),
                cancel,
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
        pages: args.pages.clone(),
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
struct ImportReport<'a> {
    bundle: &'a Path,
    processes: usize,
    threads: usize,
    cpus: usize,
    modules: usize,
    modules_missing: Vec<&'a str>,
    core: bool,
    notes: &'a [String],
}

fn report(manifest: &Manifest, to: &ImportOutput) -> Result<(), Failure> {
    let modules = || manifest.processes.iter().flat_map(|process| &process.modules);
    let imported = ImportReport {
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
    let ImportReport {
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
