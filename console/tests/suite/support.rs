//! Real captures, imported as bundles. A test that needs one that is absent skips, saying so.

use backtrail_bundle::import::{self, PerfImport};
use backtrail_bundle::{CancelToken, Overwrite};
use backtrail_console::batch::{self, BatchOptions};
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The path of a capture, or `None`, said on stderr, where it is absent.
pub fn capture(path: &str) -> Option<PathBuf> {
    let full = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt")).join(path);
    if full.exists() {
        return Some(full);
    }
    eprintln!("skipped: {} is absent", full.display());
    None
}

/// A bundle that lives as long as this.
pub struct Imported {
    _dir: TempDir,
    pub path: PathBuf,
}

impl Imported {
    pub fn new(import: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle");
        import(&path);
        Self { _dir: dir, path }
    }

    pub fn session(&self) -> Session {
        Session::open(&self.path, &OpenOptions::default(), &Watch::none()).unwrap()
    }

    /// The transcript of commands.
    pub fn batch(&self, commands: &[&str]) -> String {
        let mut out = Vec::new();
        let options = BatchOptions {
            echo: true,
            ..BatchOptions::default()
        };
        batch::run(
            self.session(),
            commands.iter().copied(),
            options,
            &Watch::none(),
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }
}

/// A crash as it came from production: perf.data with a core beside it.
pub fn hase(name: &str) -> Option<Imported> {
    let dir = capture(&format!("hase/20180404/{name}"))?;
    let beside = |extension: &str| {
        let mut files = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files
            .find(|path| path.extension().is_some_and(|found| found == extension))
            .unwrap()
    };
    let import = PerfImport {
        data: beside("perf"),
        core: Some(beside("coredump")),
        symfs: vec![dir.clone()],
    };
    Some(Imported::new(|to| {
        import::perf(&import, to, Overwrite::Never, &CancelToken::default()).unwrap();
    }))
}

/// A bundle of LLDB's tests.
pub fn lldb(json: &str) -> Option<Imported> {
    let json = capture(&format!("lldb/{json}"))?;
    Some(Imported::new(|to| {
        import::lldb(&json, to, Overwrite::Never, &CancelToken::default()).unwrap();
    }))
}
