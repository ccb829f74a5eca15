//! `backtrail profile export`.

use super::html;
use super::selected::Selected;
use super::send;
use crate::args::{ProfileExport, ProfileFormat, ProfileSelection};
use crate::exit::Failure;
use crate::output::Output;
use crate::output_file;
use backtrail_profile::format::{firefox, folded, html as html_format, otlp, perfetto, pprof, speedscope};
use std::io::{IsTerminal, Write};

/// Converts a profile to another format.
pub fn run(args: &ProfileExport) -> Result<(), Failure> {
    let format = args.format.unwrap_or(ProfileFormat::Otlp);
    let is_binary = matches!(
        format,
        ProfileFormat::Pprof | ProfileFormat::Otlp | ProfileFormat::Perfetto
    );
    if args.output.is_none() && args.otlp.is_none() && is_binary && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "this format is binary; write it to a file with -o, or redirect the output",
        ));
    }
    if let Some(path) = &args.output {
        output_file::refuse_existing(path, args.overwrite)?;
    }
    let selection = ProfileSelection {
        event: args.event.clone(),
        ..ProfileSelection::default()
    };
    let selected = match format {
        ProfileFormat::Folded => Selected::open(&args.file, &selection)?,
        _ => Selected::open_all_events(&args.file, &selection)?,
    };
    if let Some(url) = &args.otlp {
        return send::run(&selected.profile, url, &args.headers);
    }
    match &args.output {
        Some(path) => {
            output_file::write_atomically(path, args.overwrite, |out| write(args, format, &selected, out))
        }
        None => {
            let mut output = Output::new();
            match is_binary || !std::io::stdout().is_terminal() {
                true => write(args, format, &selected, &mut output.bytes())?,
                false => write(args, format, &selected, &mut output)?,
            }
            output.finish()
        }
    }
}

fn write(
    args: &ProfileExport,
    format: ProfileFormat,
    selected: &Selected,
    mut out: &mut dyn Write,
) -> Result<(), Failure> {
    let Selected {
        profile,
        functions,
        event,
        ..
    } = selected;
    let name = args.file.display().to_string();
    if matches!(format, ProfileFormat::Firefox | ProfileFormat::Speedscope) {
        let negative = functions
            .samples
            .iter()
            .filter(|sample| sample.weight < 0)
            .count();
        if negative > 0 {
            eprintln!("the format has no place for negative weights; samples left out: {negative}");
        }
    }
    match format {
        ProfileFormat::Pprof => pprof::write(profile, &mut out)?,
        ProfileFormat::Folded => folded::write(functions, *event, &mut out)?,
        ProfileFormat::Perfetto => perfetto::write(profile, &mut out)?,
        ProfileFormat::Otlp => otlp::write(profile, &mut out)?,
        ProfileFormat::Firefox => firefox::write(profile, functions, *event, &name, &mut out)?,
        ProfileFormat::Speedscope => speedscope::write(profile, functions, &name, &mut out)?,
        ProfileFormat::HtmlData => {
            html_format::write_data(&html::data(&name, &args.file, selected)?, &mut out)?;
        }
    }
    Ok(())
}
