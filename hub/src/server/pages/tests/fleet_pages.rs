//! Pages of jobs, sites and exact calls with texts of others.

use super::{check, frame, hostile};
use crate::server::pages::calls::{self, CallRow, CallsPage};
use crate::server::pages::job_chart::ValuePoint;
use crate::server::pages::jobs::{
    self, JobForm, JobPage, JobRow, JobStateView, JobsPage, NewJobPage, RunRow,
};
use crate::server::pages::sites::{self, SiteLine, SitesPage};

fn job_of(text: &str) -> JobRow {
    let value = |time, value| ValuePoint { time, value };
    JobRow {
        id: "1".to_owned(),
        name: text.to_owned(),
        kind: text.to_owned(),
        schedule: text.to_owned(),
        watched: text.to_owned(),
        state: JobStateView {
            is_running: true,
            is_enabled: true,
            alerting: Some(i64::MIN),
            failing: Some(i64::MAX),
            problem: Some(text.to_owned()),
            last_run: Some(0),
        },
        values: vec![
            value(i64::MIN, Some(f64::NAN)),
            value(0, Some(f64::MAX)),
            value(i64::MAX, Some(f64::MIN)),
            value(1, None),
        ],
        next_run: Some(i64::MAX),
    }
}

fn page_of(text: &str) -> JobPage {
    JobPage {
        frame: frame(text),
        job: job_of(text),
        author: (text.to_owned(), i64::MIN),
        threshold: Some((text.to_owned(), f64::INFINITY)),
        form: Some(form_of(text)),
        result_time: Some(0),
        columns: vec![text.to_owned(); 200],
        rows: vec![vec![text.to_owned(); 2]; 3],
        notes: vec![text.to_owned(); 3],
        runs: vec![RunRow {
            state: text.to_owned(),
            origin: text.to_owned(),
            value: Some(f64::NEG_INFINITY),
            length: Some(i64::MAX),
            problem: Some(text.to_owned()),
            ..RunRow::default()
        }],
        now: 0,
    }
}

/// Returns a form. A hub refuses longer values than these.
fn form_of(text: &str) -> JobForm {
    let value = text.chars().take(1000).collect();
    JobForm {
        values: vec![("name", value)],
        ..JobForm::default()
    }
}

fn calls_of(text: &str) -> CallsPage {
    CallsPage {
        frame: frame(text),
        function: text.to_owned(),
        rows: vec![CallRow {
            address: "/c/1#t1%2312".to_owned(),
            editor: "vscode://backtrail.backtrail/open?j=e30".to_owned(),
            title: text.to_owned(),
            service: text.to_owned(),
            build: text.to_owned(),
            host: text.to_owned(),
            position: text.to_owned(),
            duration: Some(text.to_owned()),
            time: i64::MIN,
            calls: u64::MAX,
            instructions: u64::MAX,
        }],
        now: i64::MAX,
    }
}

#[test]
fn hostile_pages_of_a_fleet_are_escaped_and_bounded() {
    for text in hostile() {
        let list = JobsPage {
            frame: frame(&text),
            jobs: vec![job_of(&text)],
            now: 0,
        };
        check("jobs", &jobs::list(&list).into_string());
        check("job", &jobs::one(&page_of(&text)).into_string());
        let new = NewJobPage {
            frame: frame(&text),
            form: form_of(&text),
        };
        check("new job", &jobs::new(&new).into_string());
        let page = SitesPage {
            frame: frame(&text),
            sites: vec![SiteLine {
                name: text.clone(),
                url: text.clone(),
                author: text.clone(),
                ..SiteLine::default()
            }],
            now: 0,
        };
        check("sites", &sites::render(&page).into_string());
        check("calls", &calls::render(&calls_of(&text)).into_string());
    }
}

#[test]
fn function_without_exact_calls_has_a_sentence() {
    let view = CallsPage {
        rows: Vec::new(),
        ..calls_of("close")
    };
    let html = calls::render(&view).into_string();
    assert!(html.contains("No stored bundle has a complete call"), "{html}");
    assert!(!html.contains("vscode:"));
}
