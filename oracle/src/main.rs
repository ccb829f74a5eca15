//! `backtrail-oracle info BUNDLE --digest`: what libipt decodes from a bundle, to compare with
//! `backtrail info BUNDLE --digest`.

use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use backtrail_oracle::Libipt;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: backtrail-oracle info BUNDLE --digest";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let bundle = match &*words {
        [info, bundle, digest] if info == "info" && digest == "--digest" => Path::new(bundle),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match digests(bundle) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("backtrail-oracle: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the digest of each thread.
fn digests(bundle: &Path) -> Result<(), String> {
    let options = OpenOptions {
        engine: Some(&Libipt),
        ..OpenOptions::default()
    };
    let session = Session::open(bundle, &options, &Watch::none()).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    for thread in session.threads() {
        writeln!(out, "{}", thread.digest_line()).map_err(|error| error.to_string())?;
    }
    Ok(())
}
