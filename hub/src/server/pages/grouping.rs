//! The page of the grouping: rules, their trial, and versions of the signatures.

use super::layout::{PageFrame, Section, Viewer, csrf, page};
use super::text::{Ago, number, shown, shown_to, utc};
use maud::{Markup, html};

/// The most rows of a list of groups.
const ROWS: usize = 50;
/// The longest pattern that the form takes, in characters.
const PATTERN: &str = "620";

/// The page of the grouping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupingPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The rules in their order.
    pub rules: Vec<RuleRow>,
    /// The effect of a change on past crashes, before it is saved.
    pub trial: Option<Trial>,
    /// The finished part of the job that groups all crashes again. `None`: no job runs.
    pub progress: Option<RegroupProgress>,
    /// The version of the signatures.
    pub version: i64,
    /// The versions that can be computed beside it.
    pub others: Vec<OtherVersion>,
    /// The version that is computed beside it.
    pub next: Option<Comparison>,
    /// The days for which a version is computed beside, unless a person chooses others.
    pub compare_days: u32,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A rule of grouping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleRow {
    /// The rule's id.
    pub id: String,
    /// The service. `None`: all services.
    pub service: Option<String>,
    /// The action: `group-by`, `ignore` or `ignore-up-to`.
    pub action: String,
    /// The pattern of functions.
    pub pattern: String,
    /// The time of its creation.
    pub created: i64,
    /// The author.
    pub author: String,
}

/// A group in a list: its identifier, if it exists, and its title.
pub type NamedGroup = (Option<String>, String);

/// The effect of a change on past crashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The tried rule.
    pub rule: RuleRow,
    /// Whether the rule was left out in the trial, not added.
    pub is_removal: bool,
    /// The number of stack keys that were tried.
    pub keys: u64,
    /// The number of all stack keys that the rule is for.
    pub all_keys: u64,
    /// The number of keys that would move, and that of their reports.
    pub moved: (u64, u64),
    /// The largest moves: title before, title after, reports.
    pub moves: Vec<(NamedGroup, NamedGroup, u64)>,
    /// Groups that would become one.
    pub merges: Vec<(NamedGroup, Vec<NamedGroup>)>,
    /// Groups that would become several.
    pub splits: Vec<(NamedGroup, Vec<NamedGroup>)>,
}

/// The progress of the job that groups all crashes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegroupProgress {
    /// The finished part in percent.
    pub percent: u8,
}

impl RegroupProgress {
    /// Returns the state in one sentence.
    #[must_use]
    pub fn sentence(self) -> String {
        format!(
            "All past crashes are being grouped again: {} % are done. Alerts are not sent for this.",
            self.percent
        )
    }
}

/// A version of the signatures that can be computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherVersion {
    /// Its number.
    pub number: i64,
    /// The differences from the version before it, as sentences.
    pub differences: Vec<String>,
}

/// A version beside the one of the groups, and what it would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The version.
    pub version: OtherVersion,
    /// The time since which it is computed.
    pub since: i64,
    /// The time at which it replaces the other one.
    pub switch_at: i64,
    /// The number of keys that are compared, and of all keys.
    pub keys: (u64, u64),
    /// The number of groups that would become one with others, and of those that would be split.
    pub changed: (u64, u64),
    /// The largest merges: the title, the groups, the reports.
    pub merges: Vec<(String, u64, u64)>,
    /// The largest splits: the group, the groups after, the reports.
    pub splits: Vec<(NamedGroup, u64, u64)>,
}

/// Returns the page.
#[must_use]
pub fn render(view: &GroupingPage) -> Markup {
    let viewer = view.frame.viewer.as_ref();
    let content = html! {
        nav class="crumbs" aria-label="Path" { a href="/settings" { "Settings" } span { "Grouping" } }
        div class="headline" { h1 { "Grouping" } }
        @if let Some(now) = view.progress { (progress(now)) }
        (rules(view, viewer))
        (versions(view, viewer))
    };
    page(&view.frame, Section::Settings, &["progress.js"], &content)
}

fn progress(now: RegroupProgress) -> Markup {
    html! {
        section class="panel awaited" id="progress" data-state="running" data-source="/settings/rules/state" {
            h2 { "Grouping again" }
            progress id="progress-bar" max="1" value=(format!("{:.2}", f64::from(now.percent) / 100.0)) aria-label="Progress" {}
            p id="progress-text" role="status" aria-live="polite" { (now.sentence()) }
            noscript { p { "Reload the page to see the newest state." } }
        }
    }
}

fn rules(view: &GroupingPage, viewer: Option<&Viewer>) -> Markup {
    let tried = view
        .trial
        .as_ref()
        .filter(|trial| !trial.is_removal)
        .map(|trial| &trial.rule);
    html! {
        section class="panel" id="rules" {
            h2 { "Rules" }
            p class="dim" { "Rules are read from top to bottom. " b { "ignore" } " drops a frame, " b { "ignore up to" } " drops a frame and all within it, and " b { "group by" } " makes one group of all crashes with such a frame." }
            @if view.rules.is_empty() { p class="none" { "Only the built-in rules hold." } }
            @else { (rule_table(view, viewer)) }
            @if let Some(trial) = &view.trial { (trial_result(trial, viewer)) }
            form method="post" action="/settings/rules/try" class="row" {
                (csrf(viewer))
                label { span { "Action" } select name="action" {
                    @for (action, label) in [("ignore", "ignore"), ("ignore-up-to", "ignore up to"), ("group-by", "group by")] {
                        option value=(action) selected[tried.is_some_and(|rule| rule.action == action)] { (label) }
                    }
                } }
                label class="grow" { span { "Functions, as a pattern" }
                    input name="pattern" required maxlength=(PATTERN) spellcheck="false" placeholder="bank::log::*" value=(shown(tried.map_or("", |rule| &rule.pattern)));
                }
                label { span { "Service" }
                    input name="service" maxlength="255" placeholder="all" value=(shown(tried.and_then(|rule| rule.service.as_deref()).unwrap_or_default()));
                }
                button type="submit" class="button" { "Try on past crashes" }
            }
            p class="dim" { "In a pattern, " code { "*" } " is any text. " code { "/…/" } " is a regular expression, " code { "module:NAME" } " compares modules, and " code { "PATTERN as NAME" } " names the group." }
        }
    }
}

fn rule_table(view: &GroupingPage, viewer: Option<&Viewer>) -> Markup {
    html! {
        div class="scroll" {
            table class="list" {
                thead { tr { th scope="col" { "Action" } th scope="col" { "Functions" } th scope="col" { "Service" } th scope="col" { "Author" } th scope="col" { "Change" } } }
                tbody {
                    @for rule in &view.rules {
                        tr {
                            td { (shown_to(&rule.action, 40)) }
                            td { code { (shown_to(&rule.pattern, 240)) } }
                            td { (shown_to(rule.service.as_deref().unwrap_or("all services"), 80)) }
                            td { (shown_to(&rule.author, 60)) div class="dim" { (Ago { time: rule.created, now: view.now }) } }
                            td class="num" {
                                form method="post" action="/settings/rules/try" {
                                    (csrf(viewer)) input type="hidden" name="remove" value=(rule.id);
                                    button type="submit" class="button small" { "Try without" }
                                }
                                (delete(&rule.id, "button small", viewer))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn delete(id: &str, class: &str, viewer: Option<&Viewer>) -> Markup {
    html! {
        form method="post" action={ "/settings/rules/" (id) "/delete" } {
            (csrf(viewer)) button type="submit" class=(class) { "Delete" }
        }
    }
}

/// Returns a group as a link, if it exists.
fn named(group: &NamedGroup) -> Markup {
    html! {
        @match &group.0 {
            Some(id) => { a href={ "/g/" (id) } { (shown_to(&group.1, 120)) } },
            None => { code { (shown_to(&group.1, 120)) } },
        }
    }
}

fn trial_result(trial: &Trial, viewer: Option<&Viewer>) -> Markup {
    let rule = &trial.rule;
    html! {
        div class="notice" role="status" id="trial" {
            p {
                b { "Trial" } @if trial.is_removal { " without " } @else { " of " }
                code { (shown_to(&rule.action, 40)) " " (shown_to(&rule.pattern, 240)) }
                " on " (number(trial.keys)) @if trial.keys < trial.all_keys { " of " (number(trial.all_keys)) } " stacks: "
                @match trial.moved {
                    (0, _) => "no crash would move.",
                    (keys, reports) => { (number(keys)) " stacks with " (number(reports)) " reports would move." },
                }
            }
            @if !trial.merges.is_empty() {
                h3 { "These groups would become one" }
                ul class="plain" { @for (to, from) in trial.merges.iter().take(ROWS) {
                    li { (named(to)) " of " (number(from.len() as u64)) ": " (list_of(from)) }
                } }
            }
            @if !trial.splits.is_empty() {
                h3 { "These groups would be split" }
                ul class="plain" { @for (from, to) in trial.splits.iter().take(ROWS) {
                    li { (named(from)) " into " (number(to.len() as u64)) ": " (list_of(to)) }
                } }
            }
            @if !trial.moves.is_empty() {
                details { summary { "The largest moves" }
                    ul class="plain" { @for (from, to, reports) in trial.moves.iter().take(ROWS) {
                        li { (number(*reports)) " reports: " (named(from)) " → " (named(to)) }
                    } }
                }
            }
            @if trial.is_removal { (delete(&rule.id, "button primary", viewer)) }
            @else {
                form method="post" action="/settings/rules" {
                    (csrf(viewer))
                    input type="hidden" name="action" value=(rule.action);
                    input type="hidden" name="pattern" value=(rule.pattern);
                    input type="hidden" name="service" value=(rule.service.as_deref().unwrap_or_default());
                    button type="submit" class="button primary" { "Save the rule" }
                }
            }
        }
    }
}

fn list_of(groups: &[NamedGroup]) -> Markup {
    html! {
        @for (at, group) in groups.iter().take(8).enumerate() { @if at > 0 { ", " } (named(group)) }
        @if groups.len() > 8 { " and " (groups.len() - 8) " more" }
    }
}

fn versions(view: &GroupingPage, viewer: Option<&Viewer>) -> Markup {
    html! {
        section class="panel" id="versions" {
            h2 { "Versions of the signatures" }
            p { "The groups have signatures of version " b { (view.version) } "." }
            @match &view.next {
                Some(next) => (comparison(next, viewer, view.now)),
                None => {
                    @if view.others.is_empty() { p class="none" { "This hub knows no other version." } }
                    @for other in &view.others { (offer(other, view.compare_days, viewer)) }
                },
            }
        }
    }
}

fn differences(version: &OtherVersion) -> Markup {
    html! {
        @if !version.differences.is_empty() {
            ul { @for sentence in &version.differences { li { (sentence) } } }
        }
    }
}

fn offer(other: &OtherVersion, days: u32, viewer: Option<&Viewer>) -> Markup {
    html! {
        h3 { "Version " (other.number) }
        (differences(other))
        form method="post" action="/settings/grouping" class="row" {
            (csrf(viewer))
            input type="hidden" name="action" value="compare";
            input type="hidden" name="version" value=(other.number);
            label { span { "Days until it replaces version " (other.number - 1) }
                input name="days" type="number" min="1" max="365" required value=(days);
            }
            button type="submit" class="button" { "Compute it beside" }
        }
    }
}

fn comparison(next: &Comparison, viewer: Option<&Viewer>, now: i64) -> Markup {
    let (keys, all) = next.keys;
    html! {
        h3 { "Version " (next.version.number) " is computed beside it" }
        (differences(&next.version))
        p { "It was begun " (Ago { time: next.since, now }) " and replaces the other version on " (utc(next.switch_at)) ". Until then, the groups stay as they are." }
        p {
            @if keys < all { (number(keys)) " of " (number(all)) " stacks are compared so far. " }
            (number(next.changed.0)) " groups would become one with others, and " (number(next.changed.1)) " would be split."
        }
        @if !next.merges.is_empty() {
            h3 { "These groups would become one" }
            ul class="plain" { @for (title, groups, reports) in next.merges.iter().take(ROWS) {
                li { code { (shown_to(title, 160)) } " of " (number(*groups)) " groups, " (number(*reports)) " reports" }
            } }
        }
        @if !next.splits.is_empty() {
            h3 { "These groups would be split" }
            ul class="plain" { @for (group, groups, reports) in next.splits.iter().take(ROWS) {
                li { (named(group)) " into " (number(*groups)) " groups, " (number(*reports)) " reports" }
            } }
        }
        div class="actions" {
            @for (action, label) in [("switch", "Replace now"), ("cancel", "End the comparison")] {
                form method="post" action="/settings/grouping" {
                    (csrf(viewer))
                    input type="hidden" name="action" value=(action);
                    button type="submit" class=(if action == "switch" { "button primary" } else { "button" }) { (label) }
                }
            }
        }
    }
}
