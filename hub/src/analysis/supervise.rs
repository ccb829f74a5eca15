//! Starts the child process, watches its limits, and reads its result.

use super::child::ProgressLine;
use super::elf_file::{ElfContents, ElfResult, ElfTask};
use super::redaction::Redaction;
use super::repack::{RepackTask, Repacked};
use super::result::{Analysis, VERSION};
use super::{ChildLimits, EXIT_MACHINE, EXIT_REFUSED};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// The longest line of progress, in bytes.
const MAX_LINE: usize = 1024;
/// The most bytes that are kept of the child's standard error.
const MAX_REASON: usize = 4096;
/// The most bytes that are read of either output. More is an error of the child.
const MAX_OUTPUT: usize = 4 << 20;
/// The longest reason in a sentence, in characters.
const SHOWN_REASON: usize = 300;

/// Texts by which Rust, the kernel and zstd say that there is no more memory.
const ALLOCATION_ERRORS: [&str; 4] = [
    "memory allocation of",
    "Cannot allocate memory",
    "could not allocate",
    "not enough memory",
];

/// The limits of one analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The resources of the child.
    pub child: ChildLimits,
    /// The time after which the child is killed.
    pub wall: Duration,
    /// The largest result in bytes.
    pub result: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            child: ChildLimits {
                memory_mib: 4096,
                cpu_seconds: 120,
                file_mib: 8192,
            },
            wall: Duration::from_secs(180),
            result: 64 << 20,
        }
    }
}

/// A bundle to analyze.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnalysisRequest {
    /// The bundle, as a directory or a packed file.
    pub bundle: PathBuf,
    /// Directories with debug files by build id.
    pub debug_dirs: Vec<PathBuf>,
    /// Directories with source files.
    pub source_dirs: Vec<PathBuf>,
    /// Data to leave out of the result.
    pub redactions: Vec<Redaction>,
}

/// The progress of an analysis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The stage in words.
    pub stage: String,
    /// The finished part of the stage, from 0 to 1.
    pub done: f64,
}

/// The reason for which there is no analysis, as one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The bundle is malformed, or of an unsupported kind.
    #[error("the bundle is refused: {0}")]
    Refused(String),
    /// The child had no more memory.
    #[error("the analysis was killed at its memory limit of {0} MiB")]
    Memory(u64),
    /// The child took too long.
    #[error("the analysis was killed at its time limit of {0} seconds")]
    Time(u64),
    /// The child used too much processor time.
    #[error("the analysis was killed at its limit of {0} seconds of processor time")]
    Processor(u64),
    /// The child wrote a file that is too large.
    #[error("the analysis was killed at its limit of {0} MiB for a file")]
    FileSize(u64),
    /// A signal ended the child.
    #[error("the analysis crashed by signal {0}")]
    Signal(i32),
    /// The child ended without a result.
    #[error("the analysis failed with status {status}: {reason}")]
    Failed {
        /// The exit status.
        status: i32,
        /// The reason that the child gave.
        reason: String,
    },
    /// The result cannot be used.
    #[error("the result of the analysis is unusable: {0}")]
    Result(String),
    /// The child could not be started or watched.
    #[error("the analysis cannot be run: {0}")]
    System(#[from] std::io::Error),
}

/// Starts child processes of one program.
#[derive(Clone, Debug)]
pub struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    limits: Limits,
}

impl Supervisor {
    /// Returns a supervisor that starts this program again.
    ///
    /// # Errors
    /// Fails if the path of this program is unknown.
    pub fn of_this_program(limits: Limits) -> std::io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            arguments: vec!["analyze".into()],
            limits,
        })
    }

    /// Analyzes a bundle in a child process.
    ///
    /// # Errors
    /// Fails with one sentence if the bundle is refused, or if the child ends in any other way than
    /// with a result.
    pub async fn analyze(
        &self,
        request: &AnalysisRequest,
        progress: &watch::Sender<Progress>,
    ) -> Result<Analysis, AnalysisError> {
        // The files of a killed child are removed with this directory.
        let folder = tempfile::Builder::new().prefix("backtrail-analysis-").tempdir()?;
        let output = folder.path().join("analysis.json");
        let mut child = self.start(request, folder.path(), &output)?;
        let (status, reason) = match self.wait(&mut child, progress).await {
            Ok(ended) => ended,
            Err(error) => {
                // The child may have ended between.
                let _ = child.kill().await;
                return Err(error);
            }
        };
        if status.success() {
            let limit = self.limits.result;
            let read = tokio::task::spawn_blocking(move || read_result(&output, limit)).await;
            return read.map_err(std::io::Error::other)?;
        }
        Err(self.error(status, &reason))
    }

    /// Unpacks or packs a bundle in a child process.
    ///
    /// # Errors
    /// Fails as [`Self::analyze`] does.
    pub async fn repack(
        &self,
        task: RepackTask,
        source: &Path,
        target: &Path,
        limit: u64,
    ) -> Result<Repacked, AnalysisError> {
        let arguments = [
            "bundle".into(),
            task.name().into(),
            std::path::absolute(source)?.into_os_string(),
            std::path::absolute(target)?.into_os_string(),
            format!("--limit={limit}").into(),
        ];
        self.run_tool(&arguments).await
    }

    /// Removes the values of environment variables from the directory of a bundle, in a child
    /// process. `scratch` is a new directory.
    ///
    /// # Errors
    /// Fails as [`Self::analyze`] does.
    pub async fn redact(
        &self,
        bundle: &Path,
        scratch: &Path,
        patterns: &[String],
    ) -> Result<(), AnalysisError> {
        let mut arguments = vec![
            "bundle".into(),
            RepackTask::Redact.name().into(),
            std::path::absolute(bundle)?.into_os_string(),
            std::path::absolute(scratch)?.into_os_string(),
        ];
        arguments.extend(
            patterns
                .iter()
                .map(|pattern| format!("--environment={pattern}").into()),
        );
        let _: Repacked = self.run_tool(&arguments).await?;
        Ok(())
    }

    /// Reads in a child process what an ELF file has.
    ///
    /// # Errors
    /// Fails as [`Self::analyze`] does.
    pub async fn inspect(&self, file: &Path) -> Result<ElfContents, AnalysisError> {
        let arguments = [
            "elf".into(),
            ElfTask::Inspect.name().into(),
            std::path::absolute(file)?.into_os_string(),
        ];
        let result: ElfResult = self.run_tool(&arguments).await?;
        Ok(result.contents)
    }

    /// Copies a section of an ELF file to a new file, in a child process. Returns `false` if there
    /// is no such section.
    ///
    /// # Errors
    /// Fails as [`Self::analyze`] does.
    pub async fn copy_section(&self, file: &Path, name: &str, target: &Path) -> Result<bool, AnalysisError> {
        let arguments = [
            "elf".into(),
            ElfTask::Section.name().into(),
            std::path::absolute(file)?.into_os_string(),
            format!("--section={name}").into(),
            "--target".into(),
            std::path::absolute(target)?.into_os_string(),
        ];
        let result: ElfResult = self.run_tool(&arguments).await?;
        Ok(result.has_section)
    }

    /// Makes the index of a build in a child process, as two new files. A separate debug file is
    /// searched in `debug_dir` by its build id.
    ///
    /// # Errors
    /// Fails as [`Self::analyze`] does.
    pub async fn index(
        &self,
        file: &Path,
        debug_dir: &Path,
        gsym: &Path,
        types: &Path,
    ) -> Result<(), AnalysisError> {
        let arguments = [
            "elf".into(),
            ElfTask::Index.name().into(),
            std::path::absolute(file)?.into_os_string(),
            "--debug-dir".into(),
            std::path::absolute(debug_dir)?.into_os_string(),
            "--target".into(),
            std::path::absolute(gsym)?.into_os_string(),
            "--types".into(),
            std::path::absolute(types)?.into_os_string(),
        ];
        let _: ElfResult = self.run_tool(&arguments).await?;
        Ok(())
    }

    /// Runs a child process whose arguments end with resources and a file for its result, and reads
    /// that file.
    async fn run_tool<T: DeserializeOwned>(&self, arguments: &[OsString]) -> Result<T, AnalysisError> {
        let folder = tempfile::Builder::new().prefix("backtrail-tool-").tempdir()?;
        let output = folder.path().join("result.json");
        let limits = &self.limits.child;
        let mut child = Command::new(&self.program)
            .args(arguments)
            .arg(format!("--memory-mib={}", limits.memory_mib))
            .arg(format!("--cpu-seconds={}", limits.cpu_seconds))
            .arg(format!("--file-mib={}", limits.file_mib))
            .arg("--output")
            .arg(&output)
            .env_clear()
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (progress, _) = watch::channel(Progress::default());
        let (status, reason) = match self.wait(&mut child, &progress).await {
            Ok(ended) => ended,
            Err(error) => {
                // The child may have ended between.
                let _ = child.kill().await;
                return Err(error);
            }
        };
        if !status.success() {
            return Err(self.error(status, &reason));
        }
        let limit = self.limits.result;
        let read = tokio::task::spawn_blocking(move || read_bounded(&output, limit)).await;
        let text = read.map_err(std::io::Error::other)??;
        serde_json::from_slice(&text).map_err(|error| AnalysisError::Result(shown(&error.to_string())))
    }

    fn start(&self, request: &AnalysisRequest, folder: &Path, output: &Path) -> std::io::Result<Child> {
        let limits = &self.limits.child;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(format!("--memory-mib={}", limits.memory_mib))
            .arg(format!("--cpu-seconds={}", limits.cpu_seconds))
            .arg(format!("--file-mib={}", limits.file_mib))
            .arg("--output")
            .arg(output);
        for directory in &request.debug_dirs {
            command.arg("--debug-dir").arg(directory);
        }
        for directory in &request.source_dirs {
            command.arg("--source-dir").arg(directory);
        }
        for redaction in &request.redactions {
            command.args(["--redact", redaction.name()]);
        }
        command
            .arg("--")
            .arg(std::path::absolute(&request.bundle)?)
            // Secrets of the hub are not for the child.
            .env_clear()
            .env("TMPDIR", folder)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    /// Waits for the end of the child. Returns its status and what it wrote to standard error.
    async fn wait(
        &self,
        child: &mut Child,
        progress: &watch::Sender<Progress>,
    ) -> Result<(ExitStatus, String), AnalysisError> {
        let gone = || std::io::Error::other("the child has no output");
        let stdout = child.stdout.take().ok_or_else(gone)?;
        let stderr = child.stderr.take().ok_or_else(gone)?;
        let work = async {
            let (lines, reason) = tokio::join!(follow(stdout, progress), keep(stderr));
            lines?;
            Ok::<_, AnalysisError>((child.wait().await?, reason?))
        };
        match tokio::time::timeout(self.limits.wall, work).await {
            Ok(ended) => ended,
            Err(_) => Err(AnalysisError::Time(self.limits.wall.as_secs())),
        }
    }

    /// Returns the error for a status.
    fn error(&self, status: ExitStatus, reason: &str) -> AnalysisError {
        let limits = &self.limits.child;
        let is_allocation = ALLOCATION_ERRORS.iter().any(|text| reason.contains(text));
        let shown = shown(reason);
        match (status.code(), status.signal()) {
            (Some(code), _) if code == i32::from(EXIT_MACHINE) => {
                AnalysisError::System(std::io::Error::other(shown))
            }
            (Some(code), _) if code == i32::from(EXIT_REFUSED) && !is_allocation => {
                AnalysisError::Refused(shown)
            }
            (Some(_), _) if is_allocation => AnalysisError::Memory(limits.memory_mib),
            (Some(status), _) => AnalysisError::Failed {
                status,
                reason: shown,
            },
            (None, Some(libc::SIGABRT)) if is_allocation => AnalysisError::Memory(limits.memory_mib),
            // The kernel kills the child when the machine has no more memory. No other process
            // does. The processor limit sends this signal too, if SIGXCPU did not end the child.
            (None, Some(libc::SIGKILL)) => AnalysisError::Memory(limits.memory_mib),
            (None, Some(libc::SIGXCPU)) => AnalysisError::Processor(limits.cpu_seconds),
            (None, Some(libc::SIGXFSZ)) => AnalysisError::FileSize(limits.file_mib),
            (None, signal) => AnalysisError::Signal(signal.unwrap_or_default()),
        }
    }
}

/// Reads lines of progress, and reports each. Other lines are ignored.
async fn follow(
    mut from: impl AsyncRead + Unpin,
    progress: &watch::Sender<Progress>,
) -> Result<(), AnalysisError> {
    let mut line: Vec<u8> = Vec::new();
    let mut total = 0_usize;
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        total = total.saturating_add(read);
        if total > MAX_OUTPUT {
            return Err(AnalysisError::Result("the process wrote too much".to_owned()));
        }
        for &byte in buffer.get(..read).unwrap_or_default() {
            if byte != b'\n' {
                if line.len() < MAX_LINE {
                    line.push(byte);
                }
                continue;
            }
            if let Ok(found) = serde_json::from_slice::<ProgressLine>(&line)
                && found.done.is_finite()
            {
                progress.send_replace(Progress {
                    stage: shown(&found.stage),
                    done: found.done.clamp(0.0, 1.0),
                });
            }
            line.clear();
        }
    }
}

/// Reads a stream to its end, and keeps its beginning.
async fn keep(mut from: impl AsyncRead + Unpin) -> std::io::Result<String> {
    let mut kept = Vec::new();
    let mut total = 0_usize;
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await?;
        total = total.saturating_add(read);
        if read == 0 || total > MAX_OUTPUT {
            // A child that writes on gets SIGPIPE or an error.
            return Ok(String::from_utf8_lossy(&kept).into_owned());
        }
        let room = MAX_REASON.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

/// Returns the last line of a text without control characters, for a sentence.
fn shown(reason: &str) -> String {
    let line = reason.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("no reason given").trim();
    let clean = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    clean.take(SHOWN_REASON).collect()
}

/// Reads a result of at most `limit` bytes.
fn read_result(path: &Path, limit: u64) -> Result<Analysis, AnalysisError> {
    let unusable = |problem: String| AnalysisError::Result(shown(&problem));
    let text = read_bounded(path, limit)?;
    let analysis: Analysis = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    if analysis.version != VERSION {
        return Err(unusable(format!("it has version {}", analysis.version)));
    }
    Ok(analysis)
}

/// Reads a file of at most `limit` bytes.
fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, AnalysisError> {
    let unusable = |problem: String| AnalysisError::Result(shown(&problem));
    let mut text = Vec::new();
    let file =
        std::fs::File::open(path).map_err(|error| unusable(format!("no file was written: {error}")))?;
    file.take(limit.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > limit {
        return Err(unusable(format!("it has more than {limit} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
