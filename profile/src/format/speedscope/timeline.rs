//! Timelines in speedscope's format: the begin and the end of each call.

use super::{SCHEMA, SpeedscopeFrame};
use crate::Result;
use std::io::Write;

/// Writes one evented profile for each thread, call by call.
pub struct TimelineWriter<'o> {
    out: &'o mut dyn Write,
    has_threads: bool,
    /// The frames of the open calls.
    open: Vec<u32>,
    /// The time of the thread's first event.
    first: Option<u64>,
    last: u64,
}

impl<'o> TimelineWriter<'o> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Those of `out`, as all functions of this writer.
    pub fn new(name: &str, out: &'o mut dyn Write) -> Result<Self> {
        let name = serde_json::to_string(name)?;
        write!(
            out,
            "{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"backtrail\",\"name\":{name},\"profiles\":["
        )?;
        Ok(Self {
            out,
            has_threads: false,
            open: Vec::new(),
            first: None,
            last: 0,
        })
    }

    /// Begins a thread. `unit` is one of the format's: `nanoseconds` or `none`.
    ///
    /// # Errors
    ///
    /// As [`TimelineWriter::new`].
    pub fn begin_thread(&mut self, name: &str, unit: &str) -> Result<()> {
        self.out
            .write_all(if self.has_threads { b",\n" } else { b"\n" })?;
        self.has_threads = true;
        self.open.clear();
        self.first = None;
        self.last = 0;
        let name = serde_json::to_string(name)?;
        write!(
            self.out,
            "{{\"type\":\"evented\",\"name\":{name},\"unit\":\"{unit}\",\"events\":["
        )?;
        Ok(())
    }

    /// Writes the begin of a call. Times do not decrease.
    ///
    /// # Errors
    ///
    /// As [`TimelineWriter::new`].
    pub fn enter(&mut self, frame: u32, at: u64) -> Result<()> {
        self.open.push(frame);
        self.event("O", frame, at)
    }

    /// Writes the end of the innermost call.
    ///
    /// # Errors
    ///
    /// As [`TimelineWriter::new`].
    pub fn leave(&mut self, at: u64) -> Result<()> {
        match self.open.pop() {
            Some(frame) => self.event("C", frame, at),
            None => Ok(()),
        }
    }

    fn event(&mut self, kind: &str, frame: u32, at: u64) -> Result<()> {
        let comma = if self.first.is_some() { "," } else { "" };
        self.first.get_or_insert(at);
        self.last = at;
        write!(
            self.out,
            "{comma}\n{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}"
        )?;
        Ok(())
    }

    /// Ends a thread.
    ///
    /// # Errors
    ///
    /// As [`TimelineWriter::new`].
    pub fn end_thread(&mut self) -> Result<()> {
        let first = self.first.unwrap_or(0);
        write!(self.out, "],\"startValue\":{first},\"endValue\":{}}}", self.last)?;
        Ok(())
    }

    /// Ends the file with the frames in the order of their numbers. JSON allows any order of keys,
    /// so that the frames may come after the calls.
    ///
    /// # Errors
    ///
    /// As [`TimelineWriter::new`].
    pub fn finish<'f>(self, frames: impl Iterator<Item = SpeedscopeFrame<'f>>) -> Result<()> {
        write!(self.out, "\n],\"shared\":{{\"frames\":")?;
        serde_json::to_writer(&mut *self.out, &frames.collect::<Vec<_>>())?;
        writeln!(self.out, "}}}}")?;
        Ok(())
    }
}
