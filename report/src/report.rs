//! The small report of one crash.

use crate::{AddressFrame, AddressSignature, ReportId, VERSION};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest stack of a report.
const MAX_FRAMES: usize = 128;
/// The most modules of a report.
const MAX_MODULES: usize = 4096;
/// The most labels of a report.
const MAX_LABELS: usize = 64;
/// The longest text in a report, in bytes.
const MAX_TEXT: usize = 4096;
/// The longest name of a host, service or build, in bytes.
const MAX_NAME: usize = 255;

/// One crash, without its memory and its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashReport {
    /// The version of the format, see [`VERSION`].
    pub version: u32,
    /// The identifier, made by the host.
    pub id: ReportId,
    /// The time of the crash in microseconds since 1970.
    pub time: u64,
    /// The host's name.
    pub host: String,
    /// The service: the name of the systemd unit, or of the program.
    pub service: String,
    /// The build: a configured label, or the start of the executable's build id.
    pub build: String,
    /// The program's file.
    pub executable: String,
    /// `si_signo`.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`, for signals that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_address: Option<u64>,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The name of the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The processor as `family/model/stepping`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// The labels of the request that the thread served, and of the process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The stack of the crashed thread, innermost frame first.
    pub frames: Vec<AddressFrame>,
    /// The reason for which the stack ends early, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_end: Option<String>,
    /// The modules of the bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleOffer>,
    /// The size of the bundle in bytes. `None`: the host keeps its bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_size: Option<u64>,
}

/// A module that the host can send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleOffer {
    /// The path on the host.
    pub path: String,
    /// The build id, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The size in bytes.
    pub size: u64,
}

/// The reason for which a report is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// The format is newer than this program.
    #[error("the report has version {0}; this hub reads version {VERSION}")]
    Version(u32),
    /// A text is too long.
    #[error("the report's {field} has more than {limit} bytes")]
    TooLong {
        /// The field.
        field: &'static str,
        /// In bytes.
        limit: usize,
    },
    /// A text is empty or has control characters.
    #[error("the report's {0} is empty or has control characters")]
    Unprintable(&'static str),
    /// A list is too long.
    #[error("the report has more than {limit} {field}")]
    TooMany {
        /// The list.
        field: &'static str,
        /// In entries.
        limit: usize,
    },
    /// A build id is invalid.
    #[error("a build id has 2 to 128 lower-case hexadecimal digits")]
    BuildId,
}

impl CrashReport {
    /// Returns the signature of the stack by addresses. `None`: the stack is empty.
    #[must_use]
    pub fn signature(&self) -> Option<AddressSignature> {
        AddressSignature::of(&self.frames)
    }

    /// Checks the limits of all fields.
    ///
    /// # Errors
    /// Fails if a field has too many entries or bytes, or a name that cannot be printed.
    pub fn check(&self) -> Result<(), InvalidReport> {
        if self.version == 0 || self.version > VERSION {
            return Err(InvalidReport::Version(self.version));
        }
        check_name("host", &self.host)?;
        check_name("service", &self.service)?;
        check_name("build", &self.build)?;
        check_length("executable", &self.executable, MAX_TEXT)?;
        for (field, text) in [
            ("thread", &self.thread),
            ("kernel", &self.kernel),
            ("cpu", &self.cpu),
            ("frames_end", &self.frames_end),
        ] {
            check_length(field, text.as_deref().unwrap_or_default(), MAX_TEXT)?;
        }
        check_count("labels", self.labels.len(), MAX_LABELS)?;
        for (key, value) in &self.labels {
            check_length("label", key, MAX_NAME)?;
            check_length("label", value, MAX_TEXT)?;
        }
        check_count("frames", self.frames.len(), MAX_FRAMES)?;
        for frame in &self.frames {
            check_length("module", &frame.module, MAX_TEXT)?;
            check_build_id(frame.build_id.as_deref())?;
        }
        check_count("modules", self.modules.len(), MAX_MODULES)?;
        for module in &self.modules {
            check_length("module", &module.path, MAX_TEXT)?;
            check_build_id(module.build_id.as_deref())?;
        }
        Ok(())
    }
}

/// Checks a name that is a key of the database and part of pages.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), InvalidReport> {
    check_length(field, name, MAX_NAME)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(InvalidReport::Unprintable(field));
    }
    Ok(())
}

fn check_length(field: &'static str, text: &str, limit: usize) -> Result<(), InvalidReport> {
    if text.len() > limit {
        return Err(InvalidReport::TooLong { field, limit });
    }
    Ok(())
}

pub(crate) fn check_count(field: &'static str, count: usize, limit: usize) -> Result<(), InvalidReport> {
    if count > limit {
        return Err(InvalidReport::TooMany { field, limit });
    }
    Ok(())
}

fn check_build_id(build_id: Option<&str>) -> Result<(), InvalidReport> {
    let Some(text) = build_id else {
        return Ok(());
    };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if (2..=128).contains(&text.len()) && text.len().is_multiple_of(2) && text.bytes().all(is_digit) {
        return Ok(());
    }
    Err(InvalidReport::BuildId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> CrashReport {
        CrashReport {
            version: VERSION,
            id: "0123456789abcdefghjk".parse().unwrap(),
            time: 1_790_000_000_000_000,
            host: "web-17".to_owned(),
            service: "ledger".to_owned(),
            build: "2026.11.3".to_owned(),
            executable: "/srv/bank/ledger".to_owned(),
            signal: 11,
            code: 1,
            fault_address: Some(0x28),
            pid: 42,
            tid: 43,
            thread: None,
            kernel: None,
            cpu: None,
            labels: BTreeMap::new(),
            frames: vec![AddressFrame {
                module: "ledger".to_owned(),
                build_id: Some("a1b2".to_owned()),
                offset: 0x1204,
            }],
            frames_end: None,
            modules: Vec::new(),
            bundle_size: Some(1 << 20),
        }
    }

    #[test]
    fn report_survives_json() {
        let report = report();
        assert_eq!(report.check(), Ok(()));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<CrashReport>(&text).unwrap(), report);
    }

    #[test]
    fn fields_out_of_bounds_are_refused() {
        let refused = |change: fn(&mut CrashReport)| {
            let mut report = report();
            change(&mut report);
            report.check().unwrap_err()
        };
        assert_eq!(refused(|report| report.version = 2), InvalidReport::Version(2));
        assert_eq!(
            refused(|report| report.host.clear()),
            InvalidReport::Unprintable("host")
        );
        assert_eq!(
            refused(|report| report.build = "a\nb".to_owned()),
            InvalidReport::Unprintable("build")
        );
        assert_eq!(
            refused(|report| report.service = "x".repeat(256)),
            InvalidReport::TooLong {
                field: "service",
                limit: 255
            }
        );
        assert_eq!(
            refused(|report| report.frames[0].build_id = Some("AB".to_owned())),
            InvalidReport::BuildId
        );
        assert_eq!(
            refused(|report| report.frames = vec![report.frames[0].clone(); 129]),
            InvalidReport::TooMany {
                field: "frames",
                limit: 128
            }
        );
    }
}
