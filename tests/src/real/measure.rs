//! A program with and without the recorder: differences and cost.

use super::child::{Ended, Limit};
use super::mask::masked;
use super::recording::{Decoded, Recorded, Recorder};
use super::workspace::resolve;
use super::{Pace, RealProgram, Run, Workspace, server};
use std::path::Path;
use std::{fs, io};

/// The results for a row of the table.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The row's name.
    pub name: &'static str,
    /// Seconds without the recorder, the better of two runs.
    pub native: f64,
    /// Seconds with the recorder, including encoding and writing the bundle.
    pub recorded: f64,
    /// The slowdown, by time or by the rate that the program measures.
    pub slowdown: f64,
    /// The number of threads of all processes.
    pub threads: u64,
    /// PT bytes written, including those that the ring dropped.
    pub bytes: u64,
    /// PT bits per instruction, for the bytes that the ring kept.
    pub bits: Option<f64>,
    /// The result of decoding; `None` after a failure, which is also in `problems`.
    pub decoded: Option<Decoded>,
    /// All differences from the run without the recorder, and decode errors.
    pub problems: Vec<String>,
}

/// Returns the packages that the program needs and that are not installed, or `None`.
#[must_use]
pub fn missing(program: &RealProgram) -> Option<String> {
    let lacks: Vec<String> = program
        .requires
        .iter()
        .filter(|needed| resolve(needed.tool).is_none() && !Path::new(needed.tool).exists())
        .map(|needed| format!("{} (package {})", needed.tool, needed.package))
        .collect();
    (!lacks.is_empty()).then(|| lacks.join(", "))
}

/// Runs a program twice without the recorder and once with it, in a new `folder`, and compares.
///
/// # Errors
///
/// A run without the recorder fails, or the recording itself fails. A failure of the program under
/// the recorder is a problem of the measurement.
pub fn measure(
    program: &RealProgram,
    recorder: &Recorder,
    size: u32,
    folder: &Path,
    limit: Limit,
) -> io::Result<Measurement> {
    let place = Place {
        program,
        size,
        folder: folder.join("run"),
        limit,
    };
    let mut workspace = place.fresh()?;
    let first = place.run(&workspace, None)?;
    workspace = place.again(workspace)?;
    let second = place.run(&workspace, None)?;

    let mut problems = Vec::new();
    if let Some(difference) = first.difference(&second) {
        problems.push(format!("two runs without the recorder differ: {difference}"));
    }
    workspace = place.again(workspace)?;
    let bundle = folder.join("bundle");
    let (with, recorded) = place.recorded(&workspace, recorder, &bundle)?;
    if let Some(difference) = first.difference(&with) {
        problems.push(format!("with the recorder: {difference}"));
    }
    let decoded = recorder.decode(&bundle, limit);
    let decoded = match decoded {
        Ok(decoded) => {
            judge(&decoded, &recorded, &mut problems);
            Some(decoded)
        }
        Err(error) => {
            problems.push(error.to_string());
            None
        }
    };
    Ok(Measurement {
        name: program.name,
        native: first.seconds.min(second.seconds),
        recorded: with.seconds,
        slowdown: place.slowdown(&first, &second, &with),
        threads: recorded.report.threads,
        bytes: recorded.report.made(),
        bits: decoded.as_ref().and_then(|decoded| bits(&recorded, decoded)),
        decoded,
        problems,
    })
}

/// Returns the PT bits per instruction for the bytes kept.
#[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
fn bits(recorded: &Recorded, decoded: &Decoded) -> Option<f64> {
    (decoded.instructions > 0).then(|| recorded.report.kept as f64 * 8.0 / decoded.instructions as f64)
}

fn judge(decoded: &Decoded, recorded: &Recorded, problems: &mut Vec<String>) {
    if decoded.instructions == 0 {
        problems.push("no instruction decodes".to_owned());
    }
    if decoded.errors > 0 {
        problems.push(format!("{} decode errors", decoded.errors));
    }
    if let Some(first) = decoded.gaps.first() {
        problems.push(format!(
            "{} gap(s) after the ring's beginning, first {first}",
            decoded.gaps.len()
        ));
    }
    if recorded.report.gaps > 0 {
        problems.push(format!("the recorder tells of {} gap(s)", recorded.report.gaps));
    }
}

/// The folder in which a program runs repeatedly.
struct Place<'a> {
    program: &'a RealProgram,
    size: u32,
    folder: std::path::PathBuf,
    limit: Limit,
}

/// The results of a run that must be the same each time, and its time.
struct Left {
    ended: Ended,
    /// Written files, by name; `None` for a missing file.
    files: Vec<(&'static str, Option<Vec<u8>>)>,
    masked: Vec<u8>,
    seconds: f64,
}

impl Place<'_> {
    fn fresh(&self) -> io::Result<Workspace> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        Workspace::make(self.program, &self.folder, self.size, self.limit)
    }

    /// Returns the same folder for a command, and a new one for a server, which keeps data in it.
    fn again(&self, workspace: Workspace) -> io::Result<Workspace> {
        if matches!(self.program.run, Run::Server(_)) {
            return self.fresh();
        }
        for output in self.program.outputs {
            fs::remove_file(self.folder.join(output))?;
        }
        Ok(workspace)
    }

    /// Runs the program once, under `recorder` if given.
    fn run(&self, workspace: &Workspace, recorder: Option<(&Recorder, &Path)>) -> io::Result<Left> {
        let command = match &self.program.run {
            Run::Command(command) => command,
            Run::Server(server) => server.command,
        };
        let mut words = workspace.words(command)?;
        if let Some((recorder, bundle)) = recorder {
            words = recorder.words(bundle, words);
        }
        let command = workspace.command_of(words);
        let ended = match &self.program.run {
            Run::Command(_) => workspace.run(command, "program", self.limit)?,
            Run::Server(server) => server::run(server, command, workspace, self.limit)?,
        };
        Ok(self.left(ended))
    }

    fn recorded(
        &self,
        workspace: &Workspace,
        recorder: &Recorder,
        bundle: &Path,
    ) -> io::Result<(Left, Recorded)> {
        let recorder = Recorder {
            binary: workspace.runnable(&recorder.binary)?,
            ..recorder.clone()
        };
        // A server's user may write only below its own folder.
        let inside = self.folder.join("bundle");
        let left = self.run(workspace, Some((&recorder, &inside)))?;
        let recorded = recorder.read(left.ended, &inside)?;
        if bundle.exists() {
            fs::remove_dir_all(bundle)?;
        }
        fs::rename(&inside, bundle)?;
        Ok((self.left(recorded.ended.clone()), recorded))
    }

    fn left(&self, ended: Ended) -> Left {
        let outputs = self.program.outputs.iter();
        Left {
            files: outputs
                .map(|&name| (name, fs::read(self.folder.join(name)).ok()))
                .collect(),
            masked: masked(self.program.masks, &ended.stdout),
            seconds: ended.seconds,
            ended,
        }
    }

    fn slowdown(&self, first: &Left, second: &Left, with: &Left) -> f64 {
        match self.program.pace {
            Pace::Time => with.seconds / first.seconds.min(second.seconds),
            Pace::Rate(prefix) => {
                let rates = |left: &Left| rates(&left.ended.stdout, prefix);
                let native = rates(first)
                    .iter()
                    .zip(rates(second))
                    .map(|(a, b)| a.max(b))
                    .collect::<Vec<_>>();
                let with = rates(with);
                let product: f64 = native
                    .iter()
                    .zip(&with)
                    .map(|(native, with)| native / with)
                    .product();
                // The geometric mean, as usual for ratios.
                product.powf(1.0 / f64::from(u32::try_from(with.len().max(1)).unwrap_or(1)))
            }
        }
    }
}

impl Left {
    /// Returns the first difference from `other`.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.ended.ending != other.ended.ending {
            let (was, is) = (self.ended.ending, other.ended.ending);
            return Some(format!("it ended by {is:?}, not {was:?}: {}", other.ended.told()));
        }
        if self.masked != other.masked {
            return Some(first_difference(&self.masked, &other.masked));
        }
        let files = self.files.iter().zip(&other.files);
        files
            .filter(|(a, b)| a != b)
            .map(|((name, _), _)| format!("the file {name} is another"))
            .next()
    }
}

/// Returns the first line that differs, as text.
fn first_difference(was: &[u8], is: &[u8]) -> String {
    let line = |bytes: &[u8], at: usize| {
        let line = bytes.split(|&byte| byte == b'\n').nth(at);
        line.map_or("nothing".to_owned(), |line| {
            let text: String = String::from_utf8_lossy(line).chars().take(120).collect();
            format!("`{text}`")
        })
    };
    let lines = was
        .split(|&byte| byte == b'\n')
        .zip(is.split(|&byte| byte == b'\n'));
    let at = lines.take_while(|(a, b)| a == b).count();
    format!(
        "line {} of the output is {}, not {}",
        at + 1,
        line(is, at),
        line(was, at)
    )
}

/// Returns the last number of each line that begins with `prefix`.
fn rates(output: &[u8], prefix: &str) -> Vec<f64> {
    String::from_utf8_lossy(output)
        .lines()
        .filter(|line| line.starts_with(prefix))
        .filter_map(|line| {
            line.rsplit(|c: char| !c.is_ascii_digit() && c != '.')
                .find(|word| !word.is_empty())
        })
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_last_numbers_of_their_lines() {
        let output = b"+H:16384\n+F:5:sha256:1234.50\n+F:6:aes:99k\n";
        assert_eq!(rates(output, "+F"), [1234.5, 99.0]);
    }

    #[test]
    fn difference_is_reported_with_its_line() {
        assert_eq!(
            first_difference(b"a\nb\n", b"a\nc\n"),
            "line 2 of the output is `c`, not `b`"
        );
        assert_eq!(
            first_difference(b"a", b"a\nb"),
            "line 2 of the output is `b`, not nothing"
        );
    }
}
