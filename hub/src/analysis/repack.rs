//! The child processes that unpack an uploaded bundle, redact it, and pack it again:
//! `backtrail-hub bundle unpack|redact|strip|pack SOURCE TARGET --output FILE`.

use super::confine::{ChildLimits, TaskFiles, confine};
use super::elf_file;
use super::exit::{EXIT_REFUSED, status_of};
use backtrail_bundle::redact::{EnvironmentRules, Secrets};
use backtrail_bundle::{Bundle, CancelToken, Error, module_file, pack, pack_without, unpack_partial};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The arguments of `bundle`.
#[derive(Clone, Debug, Args)]
pub struct RepackArguments {
    /// The task.
    #[arg(value_enum)]
    pub task: RepackTask,
    /// The packed bundle, or the directory of one.
    pub source: PathBuf,
    /// The new directory, or the new packed bundle.
    pub target: PathBuf,
    /// The file for the result, as JSON.
    #[arg(long)]
    pub output: PathBuf,
    /// The most bytes to unpack.
    #[arg(long, default_value_t = 32 << 30)]
    pub limit: u64,
    /// The names of environment variables whose values `redact` removes.
    #[arg(long)]
    pub environment: Vec<String>,
    /// Resources.
    #[command(flatten)]
    pub limits: ChildLimits,
}

/// A task with a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepackTask {
    /// Unpacks a bundle, which may lack modules.
    Unpack,
    /// Removes the values of environment variables from the directory of a bundle. The target is a
    /// new directory for files on the way.
    Redact,
    /// Packs a bundle without the modules that have a build id.
    Strip,
    /// Packs a whole bundle.
    Pack,
}

impl RepackTask {
    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unpack => "unpack",
            Self::Redact => "redact",
            Self::Strip => "strip",
            Self::Pack => "pack",
        }
    }
}

/// A module file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleModule {
    /// The path in the bundle.
    pub file: String,
    /// The build id that the bundle states.
    pub build_id: String,
    /// Whether the file itself has that build id.
    pub is_verified: bool,
    /// The detail of its symbols, as [`ElfContents::detail`] has it.
    ///
    /// [`ElfContents::detail`]: super::ElfContents::detail
    #[serde(default)]
    pub detail: i64,
}

/// The result: the modules that are missing after `unpack`, or that `strip` left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repacked {
    /// The modules.
    pub modules: Vec<BundleModule>,
}

/// Confines this process, does the task, and writes the result. Returns the exit status. The reason
/// of a failure is one sentence on standard error.
#[must_use]
pub fn run(arguments: &RepackArguments) -> ExitCode {
    let files = TaskFiles {
        readable: vec![arguments.source.as_path()],
        targets: vec![arguments.target.as_path(), arguments.output.as_path()],
    };
    let done = confine(&arguments.limits, &files)
        .map_err(|reason| (1, reason))
        .and_then(|()| {
            let repacked = repack(arguments)?;
            let json = serde_json::to_vec(&repacked).map_err(|error| (1, error.to_string()))?;
            std::fs::write(&arguments.output, json)
                .map_err(|error| (status_of(&error, 1), format!("cannot write the result: {error}")))
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, reason)) => {
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(status)
        }
    }
}

fn repack(arguments: &RepackArguments) -> Result<Repacked, (u8, String)> {
    let refused = |error: Error| (status_of(&error, EXIT_REFUSED), error.to_string());
    let cancel = CancelToken::default();
    let (source, target) = (&arguments.source, &arguments.target);
    match arguments.task {
        RepackTask::Unpack => {
            let packed = File::open(source).map_err(|error| {
                let text = format!("cannot open {}: {error}", source.display());
                (status_of(&error, EXIT_REFUSED), text)
            })?;
            let missing = unpack_partial(&packed, target, arguments.limit, &cancel).map_err(refused)?;
            let modules = missing.into_iter().map(|module| BundleModule {
                file: module.file.as_str().to_owned(),
                build_id: module.build_id.to_string(),
                is_verified: false,
                detail: 0,
            });
            Ok(Repacked {
                modules: modules.collect(),
            })
        }
        RepackTask::Redact => {
            let rules = EnvironmentRules::new(&arguments.environment).map_err(refused)?;
            std::fs::create_dir(target).map_err(|error| {
                let text = format!("cannot create {}: {error}", target.display());
                (status_of(&error, 1), text)
            })?;
            let bundle = Bundle::open(source).map_err(refused)?;
            let secrets = Secrets::find(&bundle, &rules).map_err(refused)?;
            let files = secrets.remove(&bundle, target, &cancel).map_err(refused)?;
            for (path, file) in files {
                std::fs::rename(file, source.join(path.as_str()))
                    .map_err(|error| (status_of(&error, 1), format!("cannot replace {path}: {error}")))?;
            }
            Ok(Repacked::default())
        }
        RepackTask::Strip => {
            let bundle = Bundle::open(source).map_err(refused)?;
            let modules = modules(&bundle, source);
            let processes = bundle.manifest().processes.iter();
            let build_ids: BTreeSet<_> = processes
                .flat_map(|process| &process.modules)
                .filter(|module| module.file.is_some())
                .filter_map(|module| module.build_id.clone())
                .collect();
            pack_without(source, target, &build_ids, &cancel).map_err(refused)?;
            Ok(Repacked { modules })
        }
        RepackTask::Pack => {
            pack(source, target, &cancel).map_err(refused)?;
            Ok(Repacked::default())
        }
    }
}

/// Returns the module files that have a build id.
fn modules(bundle: &Bundle, root: &Path) -> Vec<BundleModule> {
    let mut seen = BTreeSet::new();
    let mut modules = Vec::new();
    for module in bundle
        .manifest()
        .processes
        .iter()
        .flat_map(|process| &process.modules)
    {
        let (Some(file), Some(build_id)) = (&module.file, &module.build_id) else {
            continue;
        };
        if !seen.insert(file.as_str()) {
            continue;
        }
        let own = File::open(root.join(file.as_str()))
            .ok()
            .and_then(|opened| module_file::build_id(&opened, file.as_str()).ok().flatten());
        modules.push(BundleModule {
            file: file.as_str().to_owned(),
            build_id: build_id.to_string(),
            is_verified: own.as_ref() == Some(build_id),
            // A module that was cut off names no functions.
            detail: elf_file::inspect(&root.join(file.as_str())).map_or(0, |contents| contents.detail()),
        });
    }
    modules
}
