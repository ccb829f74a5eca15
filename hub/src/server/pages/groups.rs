//! The list of groups: filters, search, sort order and pages.

use super::layout::{PageFrame, Section, chip, page};
use super::text::{Ago, compact, number, percent, shown, shown_to};
use super::trend::sparkline;
use maud::{Markup, html};

/// The longest name of a service, a build or a host, in bytes.
const LONGEST_NAME: usize = 255;

/// The list of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsPage {
    /// The frame of the page. Its search text is the text that was searched.
    pub frame: PageFrame,
    /// The groups of this page.
    pub groups: Vec<GroupRow>,
    /// The filters, in the order of the form.
    pub filters: Vec<Filter>,
    /// The number of all groups that match. `None`: many, not counted.
    pub total: Option<u64>,
    /// The address of the page with the following groups.
    pub next: Option<String>,
    /// The address of the first page.
    pub first: Option<String>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A filter: a list with one chosen value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The name in the address, such as `service`.
    pub name: String,
    /// The label.
    pub label: String,
    /// The values, each with its label. The first one is no choice.
    pub choices: Vec<(String, String)>,
    /// The chosen value.
    pub chosen: String,
}

/// A group in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRow {
    /// The group's id.
    pub id: String,
    /// The title: the signature in words.
    pub title: String,
    /// The head of the signature, such as `SIGSEGV null-deref`.
    pub head: String,
    /// The place, such as `ledger.cc:41`.
    pub place: Option<String>,
    /// The state: `new`, `ongoing`, `escalating`, `regressed`, `resolved` or `archived`.
    pub state: String,
    /// The service.
    pub service: String,
    /// Whether the signature comes from addresses only.
    pub is_provisional: bool,
    /// Reports by hour, of the last 24 hours.
    pub day: Vec<u64>,
    /// Reports by day, of the last 28 days.
    pub month: Vec<u64>,
    /// The number of reports.
    pub reports: u64,
    /// The number of hosts with such crashes.
    pub hosts: u64,
    /// The number of hosts that run the service. `None`: unknown.
    pub hosts_reporting: Option<u64>,
    /// The time of the first crash.
    pub first_seen: i64,
    /// The build of the first crash.
    pub first_build: String,
    /// The time of the last crash.
    pub last_seen: i64,
    /// The responsible person.
    pub assignee: Option<String>,
}

/// Returns the page.
#[must_use]
pub fn render(view: &GroupsPage) -> Markup {
    let is_filtered = !view.frame.search.is_empty()
        || view.filters.iter().any(|filter| {
            let none = filter.choices.first().map_or("", |(value, _)| value);
            // An order leaves nothing out.
            filter.name != "sort" && !filter.chosen.is_empty() && filter.chosen != none
        });
    let content = html! {
        div class="headline" {
            h1 { "Crashes" }
            p class="count" {
                @match view.total {
                    Some(1) => "1 group",
                    Some(total) => { (number(total)) " groups" },
                    None if view.groups.is_empty() => {},
                    None => "many groups",
                }
                @if !view.frame.search.is_empty() { " with “" (shown_to(&view.frame.search, 80)) "”" }
            }
        }
        @if !view.filters.is_empty() { (filters(view, is_filtered)) }
        @if view.groups.is_empty() { (nothing(is_filtered)) }
        @else {
            (table(view))
            nav class="pages" aria-label="Pages" {
                @if let Some(first) = &view.first { a class="button" href=(first) { "First page" } }
                @if let Some(next) = &view.next { a class="button" href=(next) rel="next" { "Next page" } }
            }
        }
    };
    page(&view.frame, Section::Groups, &["groups.js"], &content)
}

fn filters(view: &GroupsPage, is_filtered: bool) -> Markup {
    html! {
        form class="filters" id="filters" method="get" action="/" {
            @if !view.frame.search.is_empty() { input type="hidden" name="q" value=(shown(&view.frame.search)); }
            @for filter in &view.filters {
                label {
                    span { (filter.label) }
                    select name=(filter.name) {
                        @for (value, label) in filter.choices.iter().filter(|(value, _)| value.len() <= LONGEST_NAME).take(500) {
                            option value=(value) selected[*value == filter.chosen] { (shown_to(label, 60)) }
                        }
                    }
                }
            }
            // The script applies a changed filter at once.
            noscript { button type="submit" class="button" { "Apply" } }
            @if is_filtered { a class="reset" href="/" { "Clear filters" } }
        }
    }
}

/// Returns the text in place of an empty list.
fn nothing(is_filtered: bool) -> Markup {
    html! {
        div class="empty" {
            @if is_filtered {
                h2 { "No group matches" }
                p { "Remove a filter, or search for another word. " a href="/" { "Show all groups" } }
            } @else {
                h2 { "No crashes yet" }
                p { "Hosts send their crashes after the collector knows the address of this hub:" }
                pre { code { "# /etc/backtrail/collect.toml\n[hub]\nurl = \"https://HUB\"\ntoken_file = \"/etc/backtrail/hub-token\"" } }
                p { "A single bundle comes by " code { "backtrail push BUNDLE" } "." }
            }
        }
    }
}

fn table(view: &GroupsPage) -> Markup {
    html! {
        table class="groups" {
            thead { tr {
                th scope="col" { "Group" }
                th scope="col" { "24 hours" }
                th scope="col" { "28 days" }
                th scope="col" class="num" { "Reports" }
                th scope="col" class="num" { "Hosts" }
                th scope="col" { "First seen" }
                th scope="col" { "Last seen" }
                th scope="col" { "Assignee" }
            } }
            tbody { @for group in &view.groups { (row(group, view.now)) } }
        }
    }
}

fn row(group: &GroupRow, now: i64) -> Markup {
    html! {
        tr {
            td class="what" {
                a class="title" href={ "/g/" (group.id) } { (shown_to(&group.title, 240)) }
                div class="sub" {
                    (chip(&group.state))
                    span class="head" { (shown_to(&group.head, 80)) }
                    @if let Some(place) = &group.place { code { (shown_to(place, 80)) } }
                    span { (shown_to(&group.service, 60)) }
                    @if group.is_provisional {
                        span class="note" title="The stack has addresses only, until a bundle gives symbols" { "without symbols" }
                    }
                }
            }
            td class="line" data-label="24 hours" { (sparkline(&group.day, "24 hours")) }
            td class="line" data-label="28 days" { (sparkline(&group.month, "28 days")) }
            td class="num" data-label="Reports" title=(number(group.reports)) { (compact(group.reports)) }
            td class="num" data-label="Hosts" { (hosts(group.hosts, group.hosts_reporting)) }
            td data-label="First seen" {
                (Ago { time: group.first_seen, now })
                div class="dim" { (shown_to(&group.first_build, 32)) }
            }
            td data-label="Last seen" { (Ago { time: group.last_seen, now }) }
            td data-label="Assignee" class=[group.assignee.is_none().then_some("nobody")] {
                @match &group.assignee {
                    Some(assignee) => (shown_to(assignee, 40)),
                    None => { span class="dim" { "nobody" } },
                }
            }
        }
    }
}

/// Returns the affected hosts, with their share of those that run the service.
pub(super) fn hosts(hosts: u64, reporting: Option<u64>) -> Markup {
    html! {
        span class="whole" {
            (compact(hosts))
            @if let Some(reporting) = reporting { span class="dim" { " of " (compact(reporting)) } }
        }
        @if let Some(share) = reporting.and_then(|reporting| percent(hosts, reporting)) {
            div class="share" { (share) }
        }
    }
}
