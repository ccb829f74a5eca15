//! Pages of profiles with texts of others.

use super::{check, frame, hostile};
use crate::profiles::sql_view::AnswerChart;
use crate::profiles::sql_view::distribution::AnswerDistribution;
use crate::profiles::sql_view::grid::TimeGrid;
use crate::profiles::sql_view::heat::{AnswerHeatMap, HeatRows};
use crate::profiles::sql_view::series::{SeriesLine, TimeSeries};
use crate::server::pages::profile_distribution::DistributionChart;
use crate::server::pages::profile_heat_map::HeatMapChart;
use crate::server::pages::profile_request::{self, RequestPage, RequestState};
use crate::server::pages::profile_series::SeriesChart;
use crate::server::pages::profiles::{self, Chart, ProfilesPage};
use crate::server::pages::saved_views::SavedRow;
use crate::server::pages::sql::{self, SqlPage};
use crate::server::pages::sql_view;
use backtrail_store::{Bucket, Distribution};

fn charts(text: &str) -> Vec<Chart> {
    let notes = vec![text.to_owned(); 9];
    vec![
        Chart::Nothing,
        Chart::Series(SeriesChart {
            event: text.to_owned(),
            unit: text.to_owned(),
            step: 1,
            weights: vec![1, 2],
            ..SeriesChart::default()
        }),
        Chart::HeatMap(HeatMapChart {
            event: text.to_owned(),
            unit: text.to_owned(),
            step: 1,
            columns: vec![vec![1, 2]],
            notes: notes.clone(),
            ..HeatMapChart::default()
        }),
        Chart::Distribution(DistributionChart {
            event: text.to_owned(),
            unit: text.to_owned(),
            choices: vec![("Samples", "/profiles?per=".to_owned(), true)],
            step: 7,
            distribution: Distribution {
                count: 1,
                sum: 3,
                min: 3,
                max: 3,
                buckets: vec![Bucket {
                    from: 3,
                    to: 3,
                    count: 1,
                }],
            },
            notes,
        }),
    ]
}

/// Returns charts of an answer to SQL whose names and notes are a text.
fn answer_charts(text: &str) -> Vec<AnswerChart> {
    let grid = TimeGrid {
        start: 0,
        step: 1,
        count: 2,
        is_exact: true,
    };
    let line = SeriesLine {
        name: text.to_owned(),
        values: vec![Some(1.0), None],
    };
    let notes = vec![text.to_owned(); 9];
    vec![
        AnswerChart::Series(TimeSeries {
            grid,
            lines: vec![line; 20],
            notes: notes.clone(),
        }),
        AnswerChart::Heat(AnswerHeatMap {
            grid,
            column: text.to_owned(),
            rows: HeatRows::Names(vec![text.to_owned(); 2]),
            columns: vec![vec![1.0, 2.0]; 2],
            notes,
        }),
        AnswerChart::Distribution(AnswerDistribution {
            column: text.to_owned(),
            counts: vec![1],
            count: 1,
            missing: 1,
            ..AnswerDistribution::default()
        }),
    ]
}

fn page_of(text: &str, chart: Chart) -> ProfilesPage {
    let names = [
        "from",
        "until",
        "labels",
        "focus",
        "find",
        "keep",
        "view",
        "part_from",
        "part_until",
    ];
    ProfilesPage {
        frame: frame(text),
        columns: vec![("service", "Service", text.to_owned())],
        fields: names.map(|name| (name, text.to_owned())).to_vec(),
        chart,
        charts: vec![("Over time", "/profiles".to_owned(), true)],
        view: Some("/profiles/view?service=a".to_owned()),
        exports: vec![("pprof", "/api/v1/profiles/merge?format=pprof".to_owned())],
        share: Some("http://127.0.0.1:7777/profiles?from=1h".to_owned()),
        query: "service=a".to_owned(),
        saved: vec![SavedRow {
            id: "1".to_owned(),
            name: text.to_owned(),
            address: "/profiles?service=a".to_owned(),
            creator: text.to_owned(),
            may_delete: true,
        }],
        samples: 1,
        hosts: vec!["web1".to_owned()],
        ..ProfilesPage::default()
    }
}

#[test]
fn hostile_profile_pages_are_escaped_and_bounded() {
    for text in hostile() {
        for chart in charts(&text) {
            check(
                "profiles",
                &profiles::render(&page_of(&text, chart)).into_string(),
            );
        }
        let wrong = ProfilesPage {
            problem: Some(text.clone()),
            view: None,
            address: text.clone(),
            ..page_of(&text, Chart::Nothing)
        };
        check("profiles, problem", &profiles::render(&wrong).into_string());
        let empty = ProfilesPage { samples: 0, ..wrong };
        check("profiles, empty", &profiles::render(&empty).into_string());
        for state in [
            RequestState::Waiting,
            RequestState::Running,
            RequestState::Failed(text.clone()),
            RequestState::Expired,
        ] {
            let request = RequestPage {
                frame: frame(&text),
                id: "1".to_owned(),
                host: text.clone(),
                event: text.clone(),
                state,
                seconds: 1,
                frequency: 1,
            };
            check("request", &profile_request::render(&request).into_string());
        }
        let page = SqlPage {
            frame: frame(&text),
            sql: text.clone(),
            from: text.clone(),
            until: text.clone(),
            sites: text.clone(),
            combine: text.clone(),
            known: vec![text.clone()],
            view: text.clone(),
            saved: vec![SavedRow {
                name: text.clone(),
                creator: text.clone(),
                may_delete: true,
                ..SavedRow::default()
            }],
            query: String::new(),
        };
        check("sql", &sql::render(&page).into_string());
        check("sql, problem", &sql_view::problem(&text).into_string());
        for chart in answer_charts(&text) {
            let about = [text.clone()];
            check("sql, chart", &sql_view::chart(&chart, &about).into_string());
        }
    }
}

#[test]
fn only_shown_charts_have_a_mark() {
    let html = profiles::render(&page_of("x", Chart::Nothing)).into_string();
    assert_eq!(html.matches("aria-current=\"page\"").count(), 2, "{html}");
    assert!(html.contains("No samples in this time."));
}

#[test]
fn views_of_others_have_no_button_that_deletes() {
    let mut view = page_of("x", Chart::Nothing);
    assert!(
        profiles::render(&view)
            .into_string()
            .contains("/profiles/views/1/delete")
    );
    view.saved[0].may_delete = false;
    assert!(
        !profiles::render(&view)
            .into_string()
            .contains("/profiles/views/1/delete")
    );
}

#[test]
fn forms_of_profiles_have_the_token() {
    let html = profiles::render(&page_of("x", Chart::Nothing)).into_string();
    let posts = html.split("<form").skip(1).filter(|form| {
        let form = form.split('>').next().unwrap();
        form.contains("method=\"post\"")
    });
    let posts: Vec<&str> = posts.map(|form| form.split("</form>").next().unwrap()).collect();
    // Signing out, the profile now, a new view, and the deletion of one.
    assert_eq!(posts.len(), 4);
    assert!(
        posts
            .iter()
            .all(|form| form.contains("name=\"csrf\" value=\"token\""))
    );
}
