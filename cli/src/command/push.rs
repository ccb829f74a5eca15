//! `backtrail push`: sends crashes to the hub.

use crate::args::Push;
use crate::exit::Failure;
use crate::hub::report::{ReportNames, crash_report, excluded_modules, hide_in_report, size_of};
use crate::hub::send_each::send_each;
use crate::hub::{settings, transfer};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::sources::{self, AllowedSources, Selection, SourceExtent};
use crate::terminal;
use backtrail_bundle::redact::{EnvironmentRules, Secrets};
use backtrail_bundle::{Bundle, PackChanges};
use backtrail_report::client::{Error, HubClient, Upload, UploadEvent, UploadKind};
use backtrail_report::{CrashReport, Receipt};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

/// A pushed crash as JSON.
#[derive(Serialize)]
struct PushedCrash<'a> {
    bundle: &'a Path,
    id: &'a str,
    link: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// Whether the hub took the bundle.
    sent: bool,
    /// The number of sent bytes of the bundle.
    bytes: u64,
}

/// Sends each bundle, and prints the link of its crash.
pub fn run(args: &Push) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let client = settings::client(&args.hub)?;
    send_each(&args.bundles, "some bundles were not sent", |path| {
        push(path, args, &client, &interrupt)
    })
}

fn push(path: &Path, args: &Push, client: &HubClient, interrupt: &Interrupt) -> Result<(), Failure> {
    let opened = Bundle::open(path)?;
    let names = ReportNames {
        service: args.service.as_deref(),
        build: args.build.as_deref(),
        host: None,
    };
    let size = size_of(opened.root());
    let mut report = crash_report(&opened, Some(size), names)?;
    let directory = tempfile::tempdir()
        .map_err(|error| Failure::failed(format_args!("cannot create a temporary directory: {error}")))?;
    let rules = EnvironmentRules::new(&args.redact_environment).map_err(Failure::usage)?;
    let secrets = Secrets::find(&opened, &rules)?;
    hide_in_report(&mut report, &secrets);
    let receipt = send(client, &report, interrupt)?;
    let mut changes = PackChanges {
        excluded: receipt
            .wants
            .as_ref()
            // The hub named no missing modules, so that it gets all.
            .map_or_else(BTreeSet::new, |wanted| excluded_modules(&report, &wanted.modules)),
        replaced: secrets.remove(&opened, directory.path(), &interrupt.cancel_token())?,
    };
    if !args.sources.is_empty() {
        let selection = Selection {
            allowed: AllowedSources::Below(&args.sources),
            extent: SourceExtent::Files,
        };
        let found = sources::collect(path, selection, &directory.path().join("sources"))?;
        for problem in &found.problems {
            terminal::print_error(&format!("{}: {problem}", path.display()));
        }
        changes.replaced.extend(found.files);
    }
    let packed = directory.path().join("bundle.btz");
    let sent = send_bundle(&opened, &packed, &changes, &receipt, client, interrupt)?;
    let mut output = Output::new();
    if args.json {
        let pushed = PushedCrash {
            bundle: path,
            id: receipt.id.as_str(),
            link: &receipt.link,
            group: receipt.group.as_deref(),
            sent: sent.is_some(),
            bytes: sent.unwrap_or(0),
        };
        output.json("backtrail-push/1", &pushed)?;
    } else {
        writeln!(output, "{}", terminal::plain(&receipt.link))?;
    }
    output.finish()
}

fn send(client: &HubClient, report: &CrashReport, interrupt: &Interrupt) -> Result<Receipt, Failure> {
    let (client, report) = (client.clone(), report.clone());
    let receipts = transfer::run(interrupt, "sending the report", move |_| client.send(&[report]))?;
    let receipt = receipts.into_iter().next();
    receipt.ok_or_else(|| Failure::failed("the hub answered without a receipt"))
}

/// Sends the bundle without the modules that the hub has, and returns its size. Returns `None` if
/// the hub did not ask for the bundle, and does not take it.
fn send_bundle(
    bundle: &Bundle,
    packed: &Path,
    changes: &PackChanges,
    receipt: &Receipt,
    client: &HubClient,
    interrupt: &Interrupt,
) -> Result<Option<u64>, Failure> {
    backtrail_bundle::pack_changed(bundle.root(), packed, changes, &interrupt.cancel_token())?;
    let unreadable = |error| Failure::failed(format_args!("cannot read {}: {error}", packed.display()));
    let file = std::fs::File::open(packed).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let (client, id, is_wanted) = (client.clone(), receipt.id.clone(), receipt.wants.is_some());
    transfer::run(interrupt, "uploading", move |progress| {
        let upload = Upload {
            kind: UploadKind::Bundle,
            subject: id.as_str(),
            file: &file,
            resume: None,
        };
        let uploaded = client.upload(upload, &mut |event| match event {
            UploadEvent::Progress { done, total } => progress.update(done, total),
            UploadEvent::Started { .. } => ControlFlow::Continue(()),
        });
        match uploaded {
            Ok(()) => Ok(Some(size)),
            // Another push sent the bundle.
            Err(Error::Refused { code: 409, .. }) => Ok(None),
            Err(Error::Refused { .. }) if !is_wanted => Ok(None),
            Err(error) => Err(error),
        }
    })
}
