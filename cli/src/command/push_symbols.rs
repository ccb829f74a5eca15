//! `backtrail push-symbols`: sends executables and debug files to the hub, which names functions
//! by them.

use crate::args::PushSymbols;
use crate::exit::Failure;
use crate::hub::send_each::send_each;
use crate::hub::{settings, transfer};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::terminal;
use backtrail_profile::file_hash_id;
use backtrail_pt::BuildId;
use backtrail_report::client::{Error, HubClient, Upload, UploadEvent, UploadKind};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The deepest folder in which files are searched.
const MAX_DEPTH: usize = 64;
/// The first bytes of an ELF file, up to its type.
const HEADER: usize = 18;
/// The types of linked ELF files: programs and libraries.
const LINKED: [u8; 2] = [2, 3];

/// A sent file as JSON.
#[derive(Serialize)]
struct PushedFile<'a> {
    file: &'a Path,
    build_id: &'a str,
    bytes: u64,
}

/// Sends each file, and prints its build id.
pub fn run(args: &PushSymbols) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let client = settings::client(&args.hub)?;
    let mut files = Vec::new();
    for path in &args.paths {
        find(path, &mut files, 0, &interrupt)?;
    }
    if files.is_empty() {
        return Err(Failure::of("the folders have no linked ELF file", true));
    }
    send_each(&files, "some files were not sent", |path| {
        push_build(path, args.json, &client, &interrupt)
    })
}

/// Adds a file, or the linked ELF files of a folder in the order of their paths. Links are not
/// followed.
fn find(path: &Path, files: &mut Vec<PathBuf>, depth: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    if interrupt.flag().load(Ordering::Relaxed) {
        return Err(Failure::canceled("canceled"));
    }
    let kind = match depth {
        0 => fs::metadata(path),
        _ => fs::symlink_metadata(path),
    };
    let Ok(kind) = kind.map(|kind| kind.file_type()) else {
        // Sending it says why it cannot be read, and does not stop the others.
        files.push(path.to_owned());
        return Ok(());
    };
    if !kind.is_dir() {
        if depth == 0 || kind.is_file() && is_linked(path) {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Ok(());
    }
    let Ok(entries) = fs::read_dir(path) else {
        files.push(path.to_owned());
        return Ok(());
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .try_for_each(|path| find(path, files, depth + 1, interrupt))
}

/// Returns whether a file is a linked ELF file by its header.
fn is_linked(path: &Path) -> bool {
    let mut header = [0; HEADER];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header.starts_with(b"\x7fELF") && LINKED.contains(&header[HEADER - 2])
}

/// Sends a file, and the package of its split DWARF beside it (`FILE.dwp`).
fn push_build(path: &Path, json: bool, client: &HubClient, interrupt: &Interrupt) -> Result<(), Failure> {
    let build_id = build_id(path)?.to_string();
    push(path, &build_id, json, client, interrupt)?;
    let mut package = path.as_os_str().to_owned();
    package.push(".dwp");
    let package = PathBuf::from(package);
    match package.is_file() {
        true => push(&package, &build_id, json, client, interrupt),
        false => Ok(()),
    }
}

fn push(
    path: &Path,
    build_id: &str,
    json: bool,
    client: &HubClient,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let unreadable = |error| Failure::failed(format_args!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let (client, subject) = (client.clone(), build_id.to_owned());
    transfer::run(interrupt, "uploading", move |progress| {
        let upload = Upload {
            kind: UploadKind::Debug,
            subject: &subject,
            file: &file,
            resume: None,
        };
        let uploaded = client.upload(upload, &mut |event| match event {
            UploadEvent::Progress { done, total } => progress.update(done, total),
            UploadEvent::Started { .. } => ControlFlow::Continue(()),
        });
        match uploaded {
            Ok(()) => Ok(None),
            // The file is at fault.
            Err(Error::Refused {
                code: 400, status, ..
            }) => Ok(Some(status)),
            Err(error) => Err(error),
        }
    })?
    .map_or(Ok(()), |status| {
        let path = path.display();
        Err(Failure::of(
            format_args!("the hub refused {path}: {status}"),
            true,
        ))
    })?;
    let mut output = Output::new();
    let pushed = PushedFile {
        file: path,
        build_id,
        bytes,
    };
    if json {
        output.json("backtrail-push-symbols/1", &pushed)?;
    } else {
        let path = path.display().to_string();
        writeln!(output, "{}  {}", pushed.build_id, terminal::plain(&path))?;
    }
    output.finish()
}

/// Returns the build id of a file, or the id made of the contents of an executable without one.
fn build_id(path: &Path) -> Result<BuildId, Failure> {
    let refused =
        |reason: &dyn std::fmt::Display| Failure::of(format_args!("{}: {reason}", path.display()), true);
    let symbols = SymbolFile::open(path, &DebugSearch::none()).map_err(|error| refused(&error))?;
    if let Some(build_id) = symbols.build_id() {
        return Ok(build_id);
    }
    // The hub refuses a debug file without a build id.
    File::open(path)
        .and_then(|mut file| file_hash_id(&mut file))
        .map_err(|error| refused(&error))
}
