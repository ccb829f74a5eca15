//! What one process is to measure.

use crate::Failure;
use backtrail_decoder::EngineKind;
use std::path::PathBuf;
use std::time::Duration;

/// The things there are to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: the names of our engines.
    Engines,
    /// How much of a stream libipt's `pt_insn` decodes in some seconds.
    Prefix,
    /// libipt's instruction flow decoder.
    Insn,
    /// libipt's block decoder.
    Blk,
    /// `iptr-edge-analyzer`.
    Edges,
    /// One of our engines.
    Ours,
    /// Searches in the history that one of our engines makes.
    Search,
    /// One of our engines with several threads, beside one.
    Threads,
}

/// What is made of what `iptr-edge-analyzer` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// The number of blocks.
    Count,
    /// A bitmap of edges, by the handler that comes with it.
    Bitmap,
    /// The list of blocks, in order.
    List,
}

/// The arguments of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Arguments {
    /// What to measure.
    pub kind: Kind,
    /// On the largest stream of which bundle.
    pub bundle: PathBuf,
    /// On how many of its first bytes; `None`: all.
    pub bytes: Option<u64>,
    /// The first run, and how many more.
    pub runs: u32,
    /// How long [`Kind::Prefix`] decodes, and the turns of [`Kind::Threads`] take: 0 is none.
    pub seconds: f64,
    /// Which of our engines.
    pub engine: EngineKind,
    /// How many threads of ours.
    pub jobs: usize,
    /// Builds the forest too.
    pub forest: bool,
    /// What is made of what the edge analyzer tells.
    pub handler: Handler,
}

impl Arguments {
    /// Reads `KIND BUNDLE [--OPTION VALUE]…`.
    pub fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut words = words.iter().map(String::as_str);
        let kind = match words.next() {
            Some("engines") => Kind::Engines,
            Some("prefix") => Kind::Prefix,
            Some("insn") => Kind::Insn,
            Some("blk") => Kind::Blk,
            Some("edges") => Kind::Edges,
            Some("ours") => Kind::Ours,
            Some("search") => Kind::Search,
            Some("threads") => Kind::Threads,
            other => {
                return Err(format!(
                    "'{}' is nothing to measure; see `cargo xtask bench decode`",
                    other.unwrap_or_default()
                ));
            }
        };
        let mut arguments = Self {
            kind,
            bundle: words.next().unwrap_or_default().into(),
            bytes: None,
            runs: 1,
            seconds: 10.0,
            engine: EngineKind::default(),
            jobs: 1,
            forest: true,
            handler: Handler::Count,
        };
        while let Some(option) = words.next() {
            if option == "--no-forest" {
                arguments.forest = false;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{option} wants a value"))?;
            match option {
                "--bytes" => arguments.bytes = Some(number(value)?),
                "--runs" => arguments.runs = number(value)?,
                "--seconds" => arguments.seconds = number(value)?,
                "--jobs" => arguments.jobs = number(value)?,
                "--engine" => arguments.engine = value.parse().map_err(|error| format!("{error}"))?,
                "--handler" => arguments.handler = handler(value)?,
                other => return Err(format!("{other} is no option")),
            }
        }
        if Duration::try_from_secs_f64(arguments.seconds).is_err() {
            return Err(format!("{} is no time", arguments.seconds));
        }
        Ok(arguments)
    }
}

fn handler(name: &str) -> Result<Handler, Failure> {
    match name {
        "count" => Ok(Handler::Count),
        "bitmap" => Ok(Handler::Bitmap),
        "list" => Ok(Handler::List),
        other => Err(format!("'{other}' is no handler: count, bitmap or list")),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = ["ours", "b", "--bytes", "9", "--no-forest", "--runs", "2"].map(str::to_owned);
        let arguments = Arguments::parse(&words).unwrap();
        assert_eq!((arguments.kind, arguments.bytes), (Kind::Ours, Some(9)));
        assert_eq!((arguments.runs, arguments.forest), (2, false));
        let words = ["edges", "b", "--handler", "list"].map(str::to_owned);
        assert_eq!(Arguments::parse(&words).unwrap().handler, Handler::List);
        assert!(Arguments::parse(&["edges", "b", "--handler", "all"].map(str::to_owned)).is_err());
        assert!(Arguments::parse(&["nothing".to_owned()]).is_err());
        assert!(Arguments::parse(&["threads", "b", "--seconds", "-1"].map(str::to_owned)).is_err());
        assert!(Arguments::parse(&["insn", "b", "--bytes"].map(str::to_owned)).is_err());
    }
}
