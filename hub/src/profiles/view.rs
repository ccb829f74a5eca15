//! Views of selections: the page of a profile or a comparison, and files of other tools.

use super::default_event::{default_event, note_of_other_units};
use super::selection::{Selection, SelectionParameters, time_text};
use super::sites::answer::SiteAnswer;
use super::sites::queries;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::blocking;
use backtrail_profile::format::html::{self, ComparedProfile, EventPair, ViewData};
use backtrail_profile::format::{firefox, folded, otlp, perfetto, pprof, speedscope};
use backtrail_profile::{EventId, FunctionProfile, Profile, Rules};
use std::sync::Arc;

/// The address of the crashes with a function, without its name.
pub(super) const CRASHES: &str = "/?function=";
/// The address of the exact calls of a function, without its name.
pub(super) const EXACT_CALLS: &str = "/calls?function=";

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// pprof with gzip.
    Pprof,
    /// Folded stacks of one event.
    Folded,
    /// Speedscope.
    Speedscope,
    /// The profiler of Firefox.
    Firefox,
    /// Perfetto.
    Perfetto,
    /// OpenTelemetry.
    Otlp,
    /// A page in one file.
    Html,
}

impl ExportFormat {
    /// All formats with their names in addresses, their labels and their media types.
    pub const ALL: [(Self, &'static str, &'static str, &'static str); 7] = [
        (Self::Pprof, "pprof", "pprof", "application/octet-stream"),
        (
            Self::Folded,
            "folded",
            "folded stacks",
            "text/plain; charset=utf-8",
        ),
        (Self::Speedscope, "speedscope", "speedscope", "application/json"),
        (Self::Firefox, "firefox", "Firefox", "application/json"),
        (Self::Perfetto, "perfetto", "Perfetto", "application/octet-stream"),
        (Self::Otlp, "otlp", "OTLP", "application/x-protobuf"),
        (Self::Html, "html", "page", "text/html; charset=utf-8"),
    ];

    /// Returns the extension of a file.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pprof => "pb.gz",
            Self::Folded => "folded",
            Self::Speedscope => "speedscope.json",
            Self::Firefox => "firefox.json",
            Self::Perfetto => "perfetto-trace",
            Self::Otlp => "otlp",
            Self::Html => "html",
        }
    }
}

/// A profile with names, by functions, under the rules of its selection.
struct Shown {
    name: String,
    profile: Profile,
    functions: FunctionProfile,
}

impl Shown {
    fn new(profile: Profile, selection: &Selection) -> Result<Self> {
        let all = FunctionProfile::new(&profile)?;
        let functions = match selection.rules.is_empty() {
            true => all,
            false => selection.rules.apply(&all)?,
        };
        Ok(Self {
            name: title(selection),
            profile,
            functions,
        })
    }

    /// Returns the event that is shown first.
    fn event(&self) -> Result<EventId> {
        default_event(&self.profile)
            .ok_or_else(|| Error::Absent("sample of this selection; choose a longer time".to_owned()))
    }

    /// Notes the units that the sum of an event leaves out.
    fn note_other_units(&mut self, event: EventId) {
        let note = note_of_other_units(&self.profile, event);
        self.profile.notes.extend(note);
    }

    /// Applies the rules to the profile too, for the formats that are written from it.
    fn apply_rules(&mut self, rules: &Rules, format: ExportFormat) -> Result<()> {
        if !matches!(
            format,
            ExportFormat::Pprof | ExportFormat::Perfetto | ExportFormat::Otlp
        ) {
            return Ok(());
        }
        match rules.change_frames() {
            true => self.profile = self.functions.to_profile(&self.profile)?,
            false => rules.retain_samples(&mut self.profile)?,
        }
        Ok(())
    }

    fn compared(&self) -> ComparedProfile<'_> {
        ComparedProfile {
            name: &self.name,
            profile: &self.profile,
            functions: &self.functions,
        }
    }
}

/// Returns the page of a selection, or of its comparison with a base.
///
/// # Errors
/// Fails if nothing is selected, or the query fails.
pub async fn page(
    hub: &Arc<Hub>,
    parameters: &SelectionParameters,
    base: Option<&Selection>,
) -> Result<Vec<u8>> {
    let selection = parameters.selection()?;
    let (after, _) = queries::merged(hub, &selection).await?;
    let before = match base {
        None => None,
        Some(base) => Some((queries::merged(hub, base).await?.0, base.clone())),
    };
    blocking(move || {
        let mut after = Shown::new(after, &selection)?;
        let data = match before {
            None => {
                let event = after.event()?;
                after.note_other_units(event);
                ViewData::of_profile(&after.name, &after.profile, &after.functions, event)
            }
            Some((merged, base)) => comparison(&Shown::new(merged, &base)?, &after)?,
        };
        let mut page = Vec::new();
        let data = data.with_crashes(CRASHES).with_exact_calls(EXACT_CALLS);
        html::write(&data, &mut page)?;
        Ok(page)
    })
    .await
}

/// Returns a selection in the format of another tool, and the parts of the sites that were asked.
///
/// # Errors
/// Fails if nothing is selected, or the query fails.
pub async fn export(
    hub: &Arc<Hub>,
    parameters: &SelectionParameters,
    format: ExportFormat,
) -> Result<(Vec<u8>, Vec<SiteAnswer>)> {
    let selection = parameters.selection()?;
    let (merged, sites) = queries::merged(hub, &selection).await?;
    let bytes = blocking(move || {
        let mut shown = Shown::new(merged, &selection)?;
        let event = shown.event()?;
        if format == ExportFormat::Html {
            shown.note_other_units(event);
        }
        shown.apply_rules(&selection.rules, format)?;
        let Shown {
            name,
            profile,
            functions,
        } = &shown;
        let mut out = Vec::new();
        match format {
            ExportFormat::Pprof => pprof::write(profile, &mut out)?,
            ExportFormat::Folded => folded::write(functions, event, &mut out)?,
            ExportFormat::Speedscope => speedscope::write(profile, functions, name, &mut out)?,
            ExportFormat::Firefox => firefox::write(profile, functions, event, name, &mut out)?,
            ExportFormat::Perfetto => perfetto::write(profile, &mut out)?,
            ExportFormat::Otlp => otlp::write(profile, &mut out)?,
            ExportFormat::Html => {
                let data = ViewData::of_profile(name, profile, functions, event);
                html::write(&data, &mut out)?;
            }
        }
        Ok(out)
    })
    .await?;
    Ok((bytes, sites))
}

/// Returns the data of a comparison, with the events that both profiles have.
fn comparison(before: &Shown, after: &Shown) -> Result<ViewData> {
    let texts = |profile: &Profile, id: EventId| {
        let event = profile.events.get(id)?;
        Some([event.name, event.unit].map(|text| profile.text(text).to_owned()))
    };
    let same = |event: EventId| {
        let wanted = texts(&before.profile, event);
        let mut others = after.profile.events.iter().map(|(id, _)| id);
        others.find(|other| texts(&after.profile, *other) == wanted)
    };
    let events = before.profile.events.iter().map(|(id, _)| id);
    let mut pairs: Vec<EventPair> = events.filter_map(|event| Some((event, same(event)?))).collect();
    if pairs.is_empty() {
        return Err(Error::Absent(
            "event that both selections have; choose other times".to_owned(),
        ));
    }
    // The last pair is shown first.
    let first = before.event()?;
    pairs.sort_by_key(|(event, _)| *event == first);
    Ok(ViewData::of_comparison(
        before.compared(),
        after.compared(),
        &pairs,
        true,
    )?)
}

fn title(selection: &Selection) -> String {
    let mut parts: Vec<&str> = selection
        .columns
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    let labels: Vec<String> = selection
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    parts.extend(labels.iter().map(String::as_str));
    let times = format!(
        "{} – {}",
        time_text(selection.times.start),
        time_text(selection.times.end)
    );
    parts.push(&times);
    parts.join(" · ")
}
