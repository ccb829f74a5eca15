//! `backtrail pack` and `backtrail unpack`.

use crate::args::{Pack, RedactedData, Unpack};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::sources::{self, Selection};
use crate::terminal;
use backtrail_bundle::redact::{Redaction, Secrets};
use backtrail_bundle::{Bundle, PackChanges};

/// Packs a bundle directory into one file.
pub fn pack(args: &Pack) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let cancel = interrupt.cancel_token();
    if args.redact.is_empty() && args.sources.sources.is_none() {
        return Ok(backtrail_bundle::pack(&args.bundle, &args.output, &cancel)?);
    }
    let bundle = Bundle::open(&args.bundle)?;
    let scratch = tempfile::tempdir()
        .map_err(|error| Failure::failed(format_args!("cannot create a temporary directory: {error}")))?;
    let has = |data| args.redact.contains(&data);
    let redaction = Redaction {
        environment: has(RedactedData::Env),
        arguments: has(RedactedData::Args),
        memory: has(RedactedData::Memory),
    };
    let secrets = Secrets::find_for_sharing(&bundle, redaction)?;
    let mut changes = PackChanges {
        replaced: secrets.remove(&bundle, scratch.path(), &cancel)?,
        ..PackChanges::default()
    };
    if let Some(selection) = Selection::of(&args.sources) {
        let found = sources::collect(bundle.root(), selection, &scratch.path().join("sources"))?;
        for problem in &found.problems {
            terminal::print_error(problem);
        }
        changes.replaced.extend(found.files);
    }
    Ok(backtrail_bundle::pack_changed(
        bundle.root(),
        &args.output,
        &changes,
        &cancel,
    )?)
}

/// Unpacks one file into a bundle directory.
pub fn unpack(args: &Unpack) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    Ok(backtrail_bundle::unpack(
        &args.file,
        &args.output,
        &interrupt.cancel_token(),
    )?)
}
