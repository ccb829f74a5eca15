//! The streams: recorded once, kept in the bench folder.

use crate::Failure;
use backtrail_tests::real::{History, RealProgram, Recorder, Run, Workspace};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// For each run of anything here.
const LIMIT: Duration = Duration::from_secs(900);

/// A program and how much it is given to do.
pub struct Stream {
    /// The row of the table of real programs.
    pub name: &'static str,
    /// The size of the work that makes 200 MB of packets and a bit.
    pub size: u32,
    /// One that makes a few MB.
    pub quick: u32,
}

/// The rows.
pub const STREAMS: &[Stream] = &[
    stream("compute", 115, 2),
    stream("gzip", 800, 20),
    stream("sqlite3", 20_000, 200),
    stream("lua", 70, 2),
    stream("python", 30, 1),
];

const fn stream(name: &'static str, size: u32, quick: u32) -> Stream {
    Stream { name, size, quick }
}

/// The purpose of a recorded bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be decoded: all of the trace.
    Whole,
    /// For decoders without compressed returns: the whole trace of a quarter of the work.
    PlainReturns,
    /// To be opened: the last 64 MiB.
    Ring,
}

/// The bundles of one program.
pub struct Streams<'a> {
    /// Where they are kept.
    pub folder: PathBuf,
    pub program: &'static RealProgram,
    pub size: u32,
    pub recorder: &'a Recorder,
    /// Whether existing streams are recorded again.
    pub fresh: bool,
}

impl Streams<'_> {
    /// The bundle, recorded unless it is there.
    pub fn bundle(&self, purpose: Purpose) -> Result<PathBuf, Failure> {
        let (name, size) = match purpose {
            Purpose::Whole => ("whole", self.size),
            Purpose::PlainReturns => ("plain-returns", (self.size / 4).max(1)),
            Purpose::Ring => ("ring", self.size),
        };
        let bundle = self.folder.join(name);
        let stamp = self.folder.join(format!("{name}.size"));
        let made = fs::read_to_string(&stamp).is_ok_and(|made| made == size.to_string());
        if made && bundle.is_dir() && !self.fresh {
            return Ok(bundle);
        }
        eprintln!("{}: recording {name}", self.program.name);
        let _ = fs::remove_file(&stamp);
        self.record(purpose, size, &bundle)?;
        fs::write(&stamp, size.to_string()).map_err(|error| error.to_string())?;
        Ok(bundle)
    }

    fn record(&self, purpose: Purpose, size: u32, bundle: &std::path::Path) -> Result<(), Failure> {
        let Run::Command(command) = self.program.run else {
            return Err("servers are not supported in this table".to_owned());
        };
        let error = |error: std::io::Error| error.to_string();
        let recorder = Recorder {
            history: match purpose {
                Purpose::Ring => History::Ring(64),
                Purpose::Whole | Purpose::PlainReturns => History::Full,
            },
            ..self.recorder.clone()
        };
        let work = self.folder.join("work");
        let workspace = Workspace::make(self.program, &work, size, LIMIT).map_err(error)?;
        let mut words = recorder.words(bundle, workspace.words(command).map_err(error)?);
        if purpose == Purpose::PlainReturns
            && let Some(at) = words.iter().position(|word| word == "record")
        {
            words.insert(at + 1, "--no-compress-returns".into());
        }
        let recorded = workspace
            .run(workspace.command_of(words), "record", LIMIT)
            .and_then(|ended| recorder.read(ended, bundle))
            .map_err(error)?;
        if recorded.report.gaps > 0 {
            return Err(format!("the recording has {} gaps", recorded.report.gaps));
        }
        fs::remove_dir_all(&work).map_err(error)
    }
}
