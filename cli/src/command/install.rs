//! `backtrail install`: writes systemd units for the collector and for a service under the
//! recorder.

use crate::args::Install;
use crate::exit::Failure;
use crate::output::Output;
use crate::shell;
use backtrail_collector::config::{Config, DEFAULT_FILE};
use backtrail_collector::unit::{self, DropIn, Installer, TargetMachine};
use serde::Serialize;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of our own units.
const UNITS: &str = "etc/systemd/system";

/// A file to write.
#[derive(Serialize)]
struct File {
    path: PathBuf,
    state: State,
    text: String,
}

/// The state of an existing file at the same path.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// There is none.
    New,
    /// The file has the same contents.
    Same,
    /// The file differs and is kept.
    Kept,
    /// The file differs and is replaced.
    Replaced,
}

impl State {
    fn is_written(self) -> bool {
        matches!(self, Self::New | Self::Replaced)
    }
}

/// Writes the files, or prints what it would write.
pub fn run(args: &Install) -> Result<(), Failure> {
    let (files, drop_in) = plan(args)?;
    if !args.dry_run {
        for file in files.iter().filter(|file| file.state.is_written()) {
            write(file).map_err(|error| {
                Failure::failed(format_args!("cannot write {}: {error}", file.path.display()))
            })?;
        }
    }
    report(args, &files, drop_in.as_ref())
}

/// Returns all files with the state of existing ones. Fails before anything is written.
fn plan(args: &Install) -> Result<(Vec<File>, Option<DropIn>), Failure> {
    let root = std::path::absolute(args.prefix.as_deref().unwrap_or(Path::new("/")))?;
    let binary = std::env::current_exe()
        .map_err(|error| Failure::failed(format_args!("cannot find the file of this program: {error}")))?;
    let config_path = root.join(DEFAULT_FILE.trim_start_matches('/'));
    let mut example = compare(config_path, unit::example())?;
    let config = match example.state {
        State::New => Config::default(),
        _ => Config::load(Some(&example.path))?,
    };
    if example.state == State::Replaced {
        // The user owns the configuration, so it is never replaced.
        example.state = State::Kept;
    }
    let installer = Installer::Command;
    let text = unit::collector(&binary, Path::new(DEFAULT_FILE), &config, machine(), installer)?;
    let units = root.join(UNITS);
    let mut files = vec![
        example,
        compare(
            units.join(unit::DIRECTORIES),
            unit::directories(&config, installer)?,
        )?,
        compare(units.join(unit::NAME), text)?,
    ];
    let drop_in = match &args.service {
        Some(name) => Some(unit::drop_in(&root, &binary, name, &config.heap)?),
        None => None,
    };
    if let Some(made) = &drop_in {
        let directory = root.join(UNITS).join(format!("{}.d", made.service));
        files.push(compare(directory.join(made.file), made.text.clone())?);
    }
    match files.iter().find(|file| file.state == State::Replaced) {
        Some(file) if !args.overwrite && !args.dry_run => Err(Failure::failed(format_args!(
            "{} exists and differs; compare it with --dry-run, or replace it with --overwrite",
            file.path.display()
        ))),
        _ => Ok((files, drop_in)),
    }
}

/// Returns the properties of this machine.
fn machine() -> TargetMachine {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    TargetMachine {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        intel_pt: Path::new("/sys/bus/event_source/devices/intel_pt").exists(),
        restricted: paranoid.trim().parse().is_ok_and(|level: i32| level > 2),
    }
}

/// Compares a file's contents with the existing file.
fn compare(path: PathBuf, text: String) -> Result<File, Failure> {
    let state = match std::fs::read(&path) {
        Ok(found) if found == text.as_bytes() => State::Same,
        Ok(_) => State::Replaced,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => State::New,
        Err(error) => {
            return Err(Failure::failed(format_args!(
                "cannot read {}: {error}",
                path.display()
            )));
        }
    };
    Ok(File { path, state, text })
}

/// Writes the file atomically.
fn write(file: &File) -> io::Result<()> {
    let directory = file.path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let mut new = tempfile::NamedTempFile::new_in(directory)?;
    new.write_all(file.text.as_bytes())?;
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    new.as_file().sync_all()?;
    new.persist(&file.path)?;
    Ok(())
}

fn report(args: &Install, files: &[File], drop_in: Option<&DropIn>) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct InstallReport<'a> {
        written: bool,
        files: &'a [File],
        notes: &'a [String],
    }
    let mut output = Output::new();
    let notes = drop_in.map_or(&[][..], |made| made.notes.as_slice());
    if args.json {
        let written = !args.dry_run;
        let report = InstallReport {
            written,
            files,
            notes,
        };
        output.json("backtrail-install/1", &report)?;
        return output.finish();
    }
    for file in files {
        let said = match (file.state, args.dry_run) {
            (State::New | State::Replaced, false) => "written",
            (State::New, true) => "would be written",
            (State::Replaced, true) => "exists and differs; --overwrite would replace it",
            (State::Same, _) => "is unchanged",
            (State::Kept, _) => "exists, and is kept",
        };
        writeln!(output, "{}: {said}", file.path.display())?;
        if args.dry_run && file.state.is_written() {
            writeln!(output, "\n{}", file.text)?;
        }
    }
    for note in notes {
        writeln!(output, "note: {note}")?;
    }
    if !args.dry_run {
        let restart = drop_in.map_or_else(String::new, |made| {
            format!(" && systemctl restart {}", shell::word(&made.service))
        });
        writeln!(
            output,
            "next: systemctl daemon-reload && systemctl enable --now {}{restart}",
            unit::NAME
        )?;
    }
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn install(root: &Path, service: Option<&str>, overwrite: bool) -> Install {
        Install {
            prefix: Some(root.to_owned()),
            service: service.map(str::to_owned),
            dry_run: false,
            overwrite,
            json: false,
        }
    }

    fn refusal(args: &Install) -> String {
        format!("{:?}", plan(args).err().unwrap())
    }

    #[test]
    fn differing_files_are_kept_unless_overwrite_is_given() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        run(&install(at, None, false)).unwrap();
        let unit = at.join(UNITS).join(unit::NAME);
        let config = at.join("etc/backtrail/collect.toml");
        assert_eq!(fs::metadata(&unit).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(Config::load(Some(&config)).unwrap(), Config::default());
        // Installing the same files again succeeds.
        run(&install(at, None, false)).unwrap();
        // The user owns the configuration, and the unit follows it.
        fs::write(&config, "spool = \"/srv/crashes\"\n").unwrap();
        assert!(refusal(&install(at, None, false)).contains("--overwrite"));
        run(&install(at, None, true)).unwrap();
        assert!(
            fs::read_to_string(&unit)
                .unwrap()
                .contains("ReadWritePaths=/srv/crashes\n")
        );
        assert_eq!(fs::read_to_string(&config).unwrap(), "spool = \"/srv/crashes\"\n");
    }

    #[test]
    fn dry_run_and_failures_write_nothing() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let mut args = install(at, None, false);
        args.dry_run = true;
        run(&args).unwrap();
        assert!(refusal(&install(at, Some("web"), false)).contains("there is no web.service"));
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
    }

    #[test]
    fn service_gets_its_drop_in() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let units = at.join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(
            units.join("web.service"),
            "[Service]\nExecStart=/bin/web \"a b\"\n",
        )
        .unwrap();
        let args = install(at, Some("web"), false);
        run(&args).unwrap();
        let file = at.join(UNITS).join("web.service.d/backtrail.conf");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with(" record --daemon -- /bin/web \"a b\"\n"), "{text}");
        // The drop-in written before is not mistaken for part of the service.
        run(&args).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}
