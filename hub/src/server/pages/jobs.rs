//! Jobs: the list, one job with its results, and the form.

use super::job_chart::{ValuePoint, chart, short, spark};
use super::layout::{PageFrame, Section, csrf, page};
use super::text::{Ago, counted, nanoseconds, number, shown, shown_to, utc};
use maud::{Markup, html};

/// The most rows of a result on the page.
const ROWS: usize = 200;
/// The most columns of a result on the page.
const COLUMNS: usize = 30;
/// The most runs of a list.
const RUNS: usize = 50;

/// The kinds of queries: the value, and the label.
const KINDS: [(&str, &str); 4] = [
    ("sql", "SQL"),
    ("top", "Functions with the largest own weight"),
    ("series", "Weight over time"),
    ("regression", "Slower functions of the newest build"),
];

/// The list of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobsPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The jobs by name.
    pub jobs: Vec<JobRow>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A job in the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRow {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The kind of its query.
    pub kind: String,
    /// The schedule.
    pub schedule: String,
    /// The name of the watched number.
    pub watched: String,
    /// The state.
    pub state: JobStateView,
    /// The numbers of the latest runs, the oldest first.
    pub values: Vec<ValuePoint>,
    /// The time of the next run.
    pub next_run: Option<i64>,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobStateView {
    /// Whether a hub runs it.
    pub is_running: bool,
    /// Whether the schedule is in force.
    pub is_enabled: bool,
    /// The time since which the threshold is crossed.
    pub alerting: Option<i64>,
    /// The time since which runs fail.
    pub failing: Option<i64>,
    /// The reason of the last failure.
    pub problem: Option<String>,
    /// The time of the last run.
    pub last_run: Option<i64>,
}

/// A job with its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The job as in the list, with more numbers.
    pub job: JobRow,
    /// The person who made it, and the time.
    pub author: (String, i64),
    /// The threshold as text, and its bound.
    pub threshold: Option<(String, f64)>,
    /// The form. `None`: a newer hub wrote the definition.
    pub form: Option<JobForm>,
    /// The time of the shown result.
    pub result_time: Option<i64>,
    /// The columns of the last result.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
    /// The latest runs, the newest first.
    pub runs: Vec<RunRow>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRow {
    /// The start.
    pub started: i64,
    /// The length in microseconds.
    pub length: Option<i64>,
    /// `running`, `done` or `failed`.
    pub state: String,
    /// `schedule` or `person`.
    pub origin: String,
    /// The watched number.
    pub value: Option<f64>,
    /// The number of rows.
    pub row_count: u64,
    /// The reason of a failure.
    pub problem: Option<String>,
}

/// The values of the form, by the names of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobForm {
    /// The values.
    pub values: Vec<(&'static str, String)>,
    /// Whether the schedule is in force.
    pub is_enabled: bool,
    /// Whether the numbers are metrics.
    pub is_metrics: bool,
}

impl JobForm {
    fn value(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(one, _)| *one == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// The form of a new job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJobPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The form.
    pub form: JobForm,
}

fn is_admin(frame: &PageFrame) -> bool {
    frame.viewer.as_ref().is_some_and(|viewer| viewer.is_admin)
}

/// Returns the list.
#[must_use]
pub fn list(view: &JobsPage) -> Markup {
    let content = html! {
        div class="headline" {
            h1 { "Jobs" }
            p class="count" {
                (number(view.jobs.len() as u64)) " scheduled queries of profiles "
                @if is_admin(&view.frame) { a class="button" href="/jobs/new" { "New job" } }
            }
        }
        @if view.jobs.is_empty() {
            div class="empty" {
                h2 { "No jobs yet" }
                p { "A job runs a query by a schedule, keeps the results, and announces a number that crosses its threshold. "
                    "A regression job compares the newest build of a service with the one before, and names slower functions." }
                @if is_admin(&view.frame) { p { a class="button primary" href="/jobs/new" { "Make the first job" } } }
                @else { p { "An administrator can make one." } }
            }
        } @else {
            div class="panel" { div class="scroll" tabindex="0" role="region" aria-label="Jobs" { table class="list" {
                thead { tr {
                    th scope="col" { "Job" } th scope="col" { "State" } th scope="col" class="num" { "Last value" }
                    th scope="col" { "Past values" } th scope="col" { "Last run" } th scope="col" { "Next run" }
                } }
                tbody { @for job in &view.jobs { (list_row(job, view.now)) } }
            } } }
        }
    };
    page(&view.frame, Section::Jobs, &[], &content)
}

fn list_row(job: &JobRow, now: i64) -> Markup {
    let last = job.values.iter().rev().find_map(|point| point.value);
    html! {
        tr {
            td {
                a href={ "/jobs/" (job.id) } { b { (shown_to(&job.name, 100)) } }
                div class="dim" { (shown_to(&job.kind, 20)) ", " (shown_to(&job.schedule, 40)) }
            }
            td { (state(&job.state)) }
            td class="num" {
                @match last { Some(value) => { (short(value)) }, None => { span class="dim" { "none" } } }
                @if !job.watched.is_empty() { div class="dim" { (shown_to(&job.watched, 40)) } }
            }
            td { (spark(&job.values, &job.name)) }
            td { @match job.state.last_run { Some(time) => (Ago { time, now }), None => { span class="dim" { "never" } } } }
            td { (next(job, now)) }
        }
    }
}

fn next(job: &JobRow, now: i64) -> Markup {
    html! {
        @match job.next_run {
            Some(time) => (Ago { time, now }),
            None => { span class="dim" { "not scheduled" } },
        }
    }
}

fn state(state: &JobStateView) -> Markup {
    html! {
        @if state.is_running { span class="state wait" { "running" } " " }
        @if state.failing.is_some() { span class="state bad" { "failing" } " " }
        @if state.alerting.is_some() { span class="state bad" { "threshold crossed" } }
        @else if state.failing.is_none() && !state.is_running {
            @if !state.is_enabled { span class="state dim" { "off" } }
            @else if state.last_run.is_some() { span class="state ok" { "ok" } }
            @else { span class="state dim" { "new" } }
        }
    }
}

/// Returns the page of a job.
#[must_use]
pub fn one(view: &JobPage) -> Markup {
    let viewer = view.frame.viewer.as_ref();
    let job = &view.job;
    let content = html! {
        div class="headline" {
            h1 { (shown_to(&job.name, 100)) }
            p class="count" { a href="/jobs" { "Jobs" } }
            @if is_admin(&view.frame) {
                form method="post" action={ "/jobs/" (job.id) "/run" } { (csrf(viewer)) button type="submit" class="button primary" { "Run now" } }
            }
        }
        dl class="facts" {
            div { dt { "State" } dd { (state(&job.state)) } }
            div { dt { "Query" } dd { (shown_to(&job.kind, 20)) } }
            div { dt { "Schedule" } dd { (shown_to(&job.schedule, 40)) } }
            div { dt { "Next run" } dd { (next(job, view.now)) } }
            @if let Some((text, _)) = &view.threshold { div { dt { "Alert if" } dd { code { (shown_to(text, 150)) } } } }
            @if let Some(time) = job.state.alerting { div { dt { "Crossed" } dd { (Ago { time, now: view.now }) } } }
            div { dt { "Made by" } dd { (shown_to(&view.author.0, 60)) ", " (Ago { time: view.author.1, now: view.now }) } }
        }
        @if let (Some(time), Some(problem)) = (job.state.failing, &job.state.problem) {
            p class="problem" role="alert" { "Runs fail since " (utc(time)) ": " (shown_to(problem, 1000)) }
        }
        section class="panel" { h2 { "Past values" } (chart(&job.values, &job.watched, view.threshold.as_ref().map(|(_, bound)| *bound))) }
        (result(view))
        (runs(view))
        @if is_admin(&view.frame) {
            section class="panel" id="change" {
                h2 { "Change" }
                @match &view.form {
                    Some(values) => (form(values, &view.frame, &format!("/jobs/{}", job.id), "Save")),
                    None => { p class="none" { "A newer hub wrote this job. This hub can delete it only." } },
                }
                form method="post" action={ "/jobs/" (job.id) "/delete" } class="row" {
                    (csrf(viewer)) button type="submit" class="button" { "Delete the job and its results" }
                }
            }
        }
    };
    page(&view.frame, Section::Jobs, &["jobs.js"], &content)
}

fn result(view: &JobPage) -> Markup {
    let columns = view
        .columns
        .get(..view.columns.len().min(COLUMNS))
        .unwrap_or_default();
    html! {
        section class="panel" {
            h2 { "Last result" }
            @match view.result_time {
                None => { p class="none" { "There is no result yet." } },
                Some(time) => {
                    p class="dim" { (Ago { time, now: view.now }) ", " (counted(view.rows.len() as u64, "row")) }
                    @for note in view.notes.iter().take(20) { p class="note" { (shown_to(note, 500)) } }
                    @if !view.rows.is_empty() {
                        div class="scroll" tabindex="0" role="region" aria-label="Last result" { table class="list" {
                            thead { tr { @for column in columns { th scope="col" { (shown_to(column, 60)) } } } }
                            tbody { @for row in view.rows.iter().take(ROWS) { tr {
                                @for cell in row.iter().take(COLUMNS) { td { (shown_to(cell, 300)) } }
                            } } }
                        } }
                    }
                    @if view.rows.len() > ROWS { p class="dim" { "The first " (ROWS) " rows are shown." } }
                },
            }
        }
    }
}

fn runs(view: &JobPage) -> Markup {
    html! {
        section class="panel" {
            h2 { "Runs" }
            @if view.runs.is_empty() { p class="none" { "The job has not run yet." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Runs" { table class="list" {
                    thead { tr {
                        th scope="col" { "Start" } th scope="col" { "State" } th scope="col" class="num" { "Value" }
                        th scope="col" class="num" { "Rows" } th scope="col" class="num" { "Time" } th scope="col" { "By" }
                    } }
                    tbody { @for run in view.runs.iter().take(RUNS) { (run_row(run, view.now)) } }
                } }
            }
        }
    }
}

fn run_row(run: &RunRow, now: i64) -> Markup {
    let class = match run.state.as_str() {
        "done" => "state ok",
        "failed" => "state bad",
        _ => "state wait",
    };
    html! {
        tr {
            td { (Ago { time: run.started, now }) }
            td {
                span class=(class) { (shown_to(&run.state, 20)) }
                @if let Some(problem) = &run.problem { div class="dim" { (shown_to(problem, 300)) } }
            }
            td class="num" { @if let Some(value) = run.value { (short(value)) } }
            td class="num" { (number(run.row_count)) }
            td class="num" { @if let Some(length) = run.length { (nanoseconds(length.unsigned_abs().saturating_mul(1000))) } }
            td { (shown_to(&run.origin, 20)) }
        }
    }
}

/// Returns the page of a new job.
#[must_use]
pub fn new(view: &NewJobPage) -> Markup {
    let content = html! {
        div class="headline" { h1 { "New job" } p class="count" { a href="/jobs" { "Jobs" } } }
        section class="panel" { (form(&view.form, &view.frame, "/jobs", "Make the job")) }
    };
    page(&view.frame, Section::Jobs, &["jobs.js"], &content)
}

fn form(form: &JobForm, frame: &PageFrame, action: &str, label: &str) -> Markup {
    let text = |name: &str, label: &str, hint: &str| {
        html! {
            label { span { (label) }
                input type="text" name=(name) value=(shown(form.value(name))) placeholder=(hint) maxlength="4096" autocomplete="off" spellcheck="false";
            }
        }
    };
    html! {
        form method="post" action=(action) class="job" id="job" {
            (csrf(frame.viewer.as_ref()))
            div class="fields" {
                label { span { "Name" } input type="text" name="name" required maxlength="100" value=(shown(form.value("name"))) autocomplete="off"; }
                label { span { "Query" }
                    select name="kind" id="kind" {
                        @for (value, label) in KINDS { option value=(value) selected[form.value("kind") == value] { (label) } }
                    }
                }
                label { span { "Schedule (UTC)" }
                    input type="text" name="schedule" required maxlength="40" value=(shown(form.value("schedule"))) list="schedules" autocomplete="off";
                    datalist id="schedules" { @for one in ["every 5m", "every 15m", "hourly", "every 6h", "daily at 06:00"] { option value=(one) {} } }
                }
                (text("from", "Time", "1d"))
                (text("sites", "Other sites", "none"))
            }
            fieldset data-kinds="sql" {
                legend { "SQL" }
                label { span class="spoken" { "SQL" }
                    textarea name="sql" rows="7" spellcheck="false" maxlength="100000" { (shown_to(form.value("sql"), 100_000)) }
                }
                p class="dim" { "Tables are samples, stacks, frames and contexts. The threshold reads the first row." }
                label { span { "Then, over the rows of all sites in the table answers" }
                    textarea name="combine" rows="3" spellcheck="false" maxlength="100000" { (shown_to(form.value("combine"), 100_000)) }
                }
            }
            fieldset class="fields" data-kinds="top series regression" {
                legend { "Samples" }
                (text("service", "Service", "all"))
                (text("event", "Event", "cpu"))
            }
            fieldset class="fields" data-kinds="top series" {
                legend { "More of the selection" }
                (text("host", "Host", "all"))
                (text("build", "Build", "all"))
                (text("labels", "Labels", "key=value, …"))
                (text("focus", "With a function", "regular expression"))
                (text("count", "Rows or intervals", "20 or 60"))
            }
            fieldset class="fields" data-kinds="regression" {
                legend { "Builds" }
                (text("before", "Earlier build", "the one before"))
                (text("after", "Later build", "the newest"))
            }
            fieldset class="fields" {
                legend { "Alert if the first row has" }
                (text("column", "Column", "none"))
                label { span { "Comparison" }
                    select name="comparison" { @for sign in [">", ">=", "<", "<="] { option value=(sign) selected[form.value("comparison") == sign] { (sign) } } }
                }
                (text("value", "Value", ""))
            }
            div class="row" {
                label class="check" { input type="checkbox" name="enabled" value="1" checked[form.is_enabled]; "Runs by its schedule" }
                label class="check" { input type="checkbox" name="metrics" value="1" checked[form.is_metrics]; "Numbers are metrics, which need no token" }
                button type="submit" class="button primary" { (label) }
            }
        }
    }
}
