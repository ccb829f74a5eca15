//! The process and the settings of a recording.

use super::cursor::Cursor;
use super::metadata::Type;
use super::values::Values;

/// The longest text of a setting that is kept.
const MAX_TEXT: usize = 256;

/// The process and the settings of a recording. async-profiler writes them in the first chunk
/// only, so that they hold for later chunks too.
#[derive(Debug, Default)]
pub(super) struct RecordingInfo {
    /// The process. 0: unknown.
    pub pid: u32,
    /// The name of the program: its main class or its archive.
    pub program: String,
    /// The event that async-profiler sampled, as `cpu` or `cache-misses`.
    pub event: Option<String>,
    /// The interval of that event. 0: the default.
    pub interval: Option<i64>,
    /// The interval of wall-clock samples in nanoseconds. 0: the default.
    pub wall: Option<i64>,
    /// The bytes of events that the JVM lost.
    pub lost_bytes: u64,
    /// The samples that the JVM lost.
    pub lost_samples: u64,
}

/// An event with information about the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoKind {
    /// `jdk.ActiveSetting`.
    Setting,
    /// `jdk.JVMInformation`.
    Process,
    /// `jdk.DataLoss` and `jdk.CPUTimeSamplesLost`.
    Loss,
}

impl InfoKind {
    /// Returns the kind of the event with a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "jdk.ActiveSetting" => Self::Setting,
            "jdk.JVMInformation" => Self::Process,
            "jdk.DataLoss" | "jdk.CPUTimeSamplesLost" => Self::Loss,
            _ => return None,
        })
    }
}

impl RecordingInfo {
    /// Adds an event. `None`: it is damaged.
    pub(super) fn add<'a>(
        &mut self,
        kind: InfoKind,
        event: &Type,
        values: &Values<'a>,
        cursor: Cursor<'a>,
    ) -> Option<()> {
        let mut cursor = cursor;
        let (mut name, mut value) = (None, None);
        values.each_field(&mut cursor, event, &mut |_, field, at| {
            let text = || values.text(field, at).filter(|text| text.len() <= MAX_TEXT);
            let number = || {
                values
                    .number(field, at)
                    .and_then(|number| u64::try_from(number).ok())
            };
            match (kind, &*field.name) {
                (InfoKind::Setting, "name") => name = text(),
                (InfoKind::Setting, "value") => value = text(),
                (InfoKind::Process, "pid") => {
                    self.pid = number().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                }
                (InfoKind::Process, "javaArguments") => {
                    self.program = values
                        .text(field, at)
                        .map_or(String::new(), |text| program(&text));
                }
                (InfoKind::Loss, "amount") => {
                    self.lost_bytes = self.lost_bytes.saturating_add(number().unwrap_or(0));
                }
                (InfoKind::Loss, "lostSamples") => {
                    self.lost_samples = self.lost_samples.saturating_add(number().unwrap_or(0));
                }
                _ => {}
            }
        })?;
        let interval = |value: &str| value.parse().ok().filter(|interval| *interval >= 0);
        match (name.as_deref(), value) {
            (Some("event"), Some(value)) => self.event = Some(value).filter(|event| !event.is_empty()),
            (Some("interval"), Some(value)) => self.interval = interval(&value),
            (Some("wall"), Some(value)) => self.wall = interval(&value),
            _ => {}
        }
        Some(())
    }
}

/// Returns the main class or archive of a command line, without its folder.
fn program(arguments: &str) -> String {
    let first = arguments.split_whitespace().next().unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or_default();
    name.chars().take(MAX_TEXT).collect()
}
