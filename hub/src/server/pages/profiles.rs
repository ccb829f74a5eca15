//! The explorer of profiles: filters, and the view of the selected samples in a frame.

use super::layout::{PageFrame, Section, csrf, page};
use super::profile_distribution::{self, DistributionChart};
use super::profile_heat_map::{self, HeatMapChart};
use super::profile_series::{self, SeriesChart};
use super::saved_views::{self, SavedRow};
use super::text::{number, shown, shown_to};
use maud::{Markup, html};

/// Ranges of time that the form suggests.
const RANGES: [(&str, &str); 7] = [
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("6h", "6 hours"),
    ("1d", "1 day"),
    ("7d", "7 days"),
    ("30d", "30 days"),
    ("90d", "90 days"),
];

/// The fields that a person sees elsewhere than in the form.
const HIDDEN: [&str; 7] = ["chart", "per", "part_from", "part_until", "find", "keep", "view"];

/// The chart above the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Chart {
    /// Nothing is selected.
    #[default]
    Nothing,
    /// Weights over time.
    Series(SeriesChart),
    /// Weights by columns and rows of time.
    HeatMap(HeatMapChart),
    /// A distribution of weights.
    Distribution(DistributionChart),
}

/// The explorer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfilesPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The fields that complete from the store: name, label, value.
    pub columns: Vec<(&'static str, &'static str, String)>,
    /// The other fields by name.
    pub fields: Vec<(&'static str, String)>,
    /// Sentences about sites that are missing, and about a parameter that selects nothing.
    pub missing: Vec<String>,
    /// The sites that can be asked.
    pub sites: Vec<String>,
    /// The chart.
    pub chart: Chart,
    /// The charts to choose from: label, address, and whether it is shown.
    pub charts: Vec<(&'static str, String, bool)>,
    /// The address of the view. `None`: nothing is stored yet.
    pub view: Option<String>,
    /// Addresses of exports, with their formats.
    pub exports: Vec<(&'static str, String)>,
    /// The whole address of this page, with times that stay what they are.
    pub share: Option<String>,
    /// The query of this page.
    pub query: String,
    /// The saved views.
    pub saved: Vec<SavedRow>,
    /// The problem of the selection, in one sentence.
    pub problem: Option<String>,
    /// The number of stored samples.
    pub samples: u64,
    /// The number of their bytes.
    pub bytes: u64,
    /// The address of the hub, for the example of an agent.
    pub address: String,
    /// The hosts whose agents take requests.
    pub hosts: Vec<String>,
}

impl ProfilesPage {
    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(one, _)| *one == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// Returns the page.
#[must_use]
pub fn render(view: &ProfilesPage) -> Markup {
    let content = html! {
        div class="headline" {
            h1 { "Profiles" }
            @if view.samples > 0 { (saved_views::menu(&view.saved, view.frame.viewer.as_ref(), view.problem.is_none().then_some(&view.query))) }
            p class="count" {
                a href="/profiles/sql" { "SQL" } " "
                @if view.samples > 0 {
                    (number(view.samples)) " samples in " (number(view.bytes)) " bytes"
                }
            }
        }
        @if view.frame.viewer.as_ref().is_some_and(|viewer| viewer.is_admin) && !view.hosts.is_empty() { (now(view)) }
        @if view.samples == 0 && view.sites.is_empty() { (nothing(&view.address)) }
        @else {
            (filters(view))
            @if let Some(problem) = &view.problem {
                p class="problem" role="alert" { (shown_to(problem, 400)) }
            }
            @for note in view.missing.iter().take(32) { p class="problem" role="alert" { (shown_to(note, 400)) } }
            @if view.problem.is_none() { (charts(view)) }
            @if let Some(address) = &view.view {
                (part(view))
                iframe class="profile" id="profile" title="The selected profile" src=(address) {}
                nav class="exports" aria-label="Exports" {
                    @if let Some(share) = &view.share {
                        a class="button" id="share" href=(share) { "Link to these times" }
                        span id="shared" role="status" {}
                    }
                    @if !view.exports.is_empty() { span { "Export as " } }
                    @for (format, address) in &view.exports { a class="button export" href=(address) download { (format) } }
                }
            }
        }
    };
    let scripts = ["brush.js", "profiles.js", "heat_map.js"];
    page(&view.frame, Section::Profiles, &scripts, &content)
}

fn filters(view: &ProfilesPage) -> Markup {
    let text = |name: &str, label: &str, hint: &str| {
        html! {
            label { span { (label) }
                input type="text" name=(name) value=(shown(view.field(name))) placeholder=(hint) maxlength="4096" autocomplete="off" spellcheck="false";
            }
        }
    };
    let choice = |name: &str, label: &str, choices: &[(&str, &str)]| {
        html! {
            label { span { (label) }
                select name=(name) {
                    @for (value, text) in choices {
                        option value=(value) selected[view.field(name) == *value] { (text) }
                    }
                }
            }
        }
    };
    let is_stacked = ["focus", "ignore", "hide", "show_from"].map(|name| !view.field(name).is_empty());
    html! {
        form class="filters profiles" id="filters" method="get" action="/profiles" {
            @for (name, label, value) in &view.columns {
                label { span { (label) }
                    input type="text" name=(name) value=(shown(value)) list={ "values-" (name) } placeholder="all" maxlength="1024"
                        autocomplete="off" spellcheck="false" data-column=(name);
                    datalist id={ "values-" (name) } {}
                }
            }
            label { span { "From" }
                input type="text" name="from" value=(shown(view.field("from"))) list="ranges" placeholder="1h" maxlength="40" autocomplete="off";
                datalist id="ranges" { @for (value, label) in RANGES { option value=(value) { (label) } } }
            }
            (text("until", "Until (UTC)", "now"))
            (text("labels", "Labels", "key=value, …"))
            @if !view.sites.is_empty() {
                label { span { "Other sites" }
                    input type="text" name="sites" value=(shown(view.field("sites"))) list="sites" placeholder="none" maxlength="4096" autocomplete="off" spellcheck="false";
                    datalist id="sites" {
                        option value="all" {}
                        @for site in &view.sites { option value=(site) {} }
                    }
                }
            }
            (choice("idle", "Idle threads", &[("", "show"), ("hide", "hide")]))
            @for name in HIDDEN { input type="hidden" name=(name) value=(shown(view.field(name))); }
            details class="more" open[is_stacked.contains(&true)] {
                summary { "Stacks" }
                div class="fields" {
                    (text("focus", "With a function", "regular expression"))
                    (text("ignore", "Without a function", "regular expression"))
                    (text("hide", "Hide functions", "regular expression"))
                    (text("show_from", "Hide callers of", "regular expression"))
                }
            }
            details class="more" open[!view.field("compare").is_empty()] {
                summary { "Compare" }
                div class="fields" {
                    (choice("compare", "With", &[("", "nothing"), ("earlier", "the time before"), ("other", "other values")]))
                    (text("base_from", "Base from", "1h"))
                    (text("base_until", "Base until (UTC)", "now"))
                    (text("base_build", "Base build", "same"))
                    (text("base_labels", "Base labels", "same"))
                }
            }
            button type="submit" class="button primary" { "Show" }
            a class="reset" href="/profiles" { "Clear" }
        }
    }
}

/// Returns the choice of a chart, and the chart.
fn charts(view: &ProfilesPage) -> Markup {
    html! {
        section class="panel chart" aria-label="Chart" {
            nav class="kinds" aria-label="Charts" {
                @for (label, address, is_shown) in &view.charts {
                    @if *is_shown { a href=(address) aria-current="page" { (label) } } @else { a href=(address) { (label) } }
                }
            }
            @match &view.chart {
                Chart::Nothing => p class="none" { "No samples in this time." },
                Chart::Series(series) => (profile_series::chart(series)),
                Chart::HeatMap(map) => (profile_heat_map::chart(map)),
                Chart::Distribution(distribution) => (profile_distribution::chart(distribution)),
            }
        }
    }
}

/// Returns the line about the part of the time that the view shows.
fn part(view: &ProfilesPage) -> Markup {
    let [from, until] = ["part_from", "part_until"].map(|name| shown_to(view.field(name), 40));
    html! {
        p class="part" id="part" hidden[from.is_empty() || until.is_empty()] {
            "The profile is that of " strong id="part-from" { (from) } " to " strong id="part-until" { (until) } " UTC. "
            button type="button" class="button small" id="part-all" { "Show all times" }
        }
    }
}

/// Returns the form that asks the agent of a host for a profile.
fn now(view: &ProfilesPage) -> Markup {
    html! {
        details class="menu now" {
            summary class="button" { "Profile now" }
            form class="row" action="/profiles/now" method="post" {
                (csrf(view.frame.viewer.as_ref()))
                label class="grow" { span { "Host" }
                    select name="host" required { @for host in &view.hosts { option value=(host) { (shown_to(host, 80)) } } }
                }
                label { span { "Event" }
                    select name="event" {
                        @for event in ["cpu", "off-cpu", "cycles", "instructions", "cache-misses", "page-faults"] {
                            option value=(event) { (event) }
                        }
                    }
                }
                label { span { "Seconds" } input type="number" name="seconds" value="10" min="1" max="600" required; }
                label { span { "Samples a second" } input type="number" name="frequency" value="199" min="1" max="2000" required; }
                button type="submit" class="button primary" { "Take the profile" }
            }
        }
    }
}

/// Returns the text in place of an empty store.
fn nothing(address: &str) -> Markup {
    html! {
        div class="empty" {
            h2 { "No profiles yet" }
            p { "An agent on each host sends profiles of all programs:" }
            pre { code { "backtrail profile agent --hub " (shown_to(address, 200)) " --token-file /etc/backtrail/hub-token" } }
            p { "Clients of OpenTelemetry send to " code { "/v1development/profiles" } ", those of Pyroscope to "
                code { "/ingest" } ". A file comes by:" }
            pre { code { "curl -H \"Authorization: Bearer $TOKEN\" --data-binary @cpu.pprof " (shown_to(address, 200)) "/api/v1/profiles?service=NAME" } }
        }
    }
}
