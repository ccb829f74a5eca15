//! `backtrail profile export`.

use super::selected::{event, read};
use super::send;
use crate::args::{ProfileExport, ProfileFormat};
use crate::exit::Failure;
use crate::output::Output;
use crate::output_file;
use backtrail_profile::format::html::{self, ViewData};
use backtrail_profile::format::{firefox, folded, otlp, pprof, speedscope};
use backtrail_profile::{FunctionProfile, Profile};
use std::io::{IsTerminal, Write};

/// Converts a profile to another format.
pub fn run(args: &ProfileExport) -> Result<(), Failure> {
    let format = args.format.unwrap_or(ProfileFormat::Otlp);
    let is_binary = matches!(format, ProfileFormat::Pprof | ProfileFormat::Otlp);
    if args.output.is_none() && args.otlp.is_none() && is_binary && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "this format is binary; write it to a file with -o, or redirect the output",
        ));
    }
    if let Some(path) = &args.output {
        output_file::refuse_existing(path, args.overwrite)?;
    }
    let mut profile = read(&args.file)?;
    if args.event.is_some() || format == ProfileFormat::Folded {
        let event = event(&profile, args.event.as_deref(), &args.file)?;
        profile.samples.retain(|sample| sample.event == event);
    }
    if let Some(url) = &args.otlp {
        return send::run(&profile, url);
    }
    match &args.output {
        Some(path) => {
            output_file::write_atomically(path, args.overwrite, |out| write(args, format, &profile, out))
        }
        None => {
            let mut output = Output::new();
            match is_binary || !std::io::stdout().is_terminal() {
                true => write(args, format, &profile, &mut output.bytes())?,
                false => write(args, format, &profile, &mut output)?,
            }
            output.finish()
        }
    }
}

fn write(
    args: &ProfileExport,
    format: ProfileFormat,
    profile: &Profile,
    mut out: &mut dyn Write,
) -> Result<(), Failure> {
    let functions = || FunctionProfile::new(profile);
    match format {
        ProfileFormat::Pprof => pprof::write(profile, &mut out)?,
        ProfileFormat::Folded => {
            let event = event(profile, args.event.as_deref(), &args.file)?;
            folded::write(&functions()?, event, &mut out)?;
        }
        ProfileFormat::Otlp => otlp::write(profile, &mut out)?,
        ProfileFormat::Firefox => {
            let event = event(profile, args.event.as_deref(), &args.file)?;
            let name = args.file.display().to_string();
            firefox::write(profile, &functions()?, event, &name, &mut out)?;
        }
        ProfileFormat::Speedscope => {
            let name = args.file.display().to_string();
            speedscope::write(profile, &functions()?, &name, &mut out)?;
        }
        ProfileFormat::HtmlData => {
            let event = event(profile, args.event.as_deref(), &args.file)?;
            let name = args.file.display().to_string();
            html::write_data(
                &ViewData::of_profile(&name, profile, &functions()?, event),
                &mut out,
            )?;
        }
    }
    Ok(())
}
