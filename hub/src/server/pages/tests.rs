//! Pages of hostile and of empty views, and samples for a person to check.

use super::audit::{AuditEntry, AuditPage};
use super::crash::{BundleState, CrashPage};
use super::group::{
    BuildRow, Comment, CrashRow, CrashWay, ExplainedFrame, Explanation, GroupPage, KeyMove, NextSignatures,
    OverValue, SimilarGroup, StateChange,
};
use super::groups::{Filter, GroupRow, GroupsPage};
use super::layout::{PageFrame, Viewer};
use super::settings::{ChannelRow, DeliveryRow, HostRow, SettingsPage, TokenRow};
use super::sign_in::SignInPage;
use super::trend::Trend;
use super::{audit, crash, error, group, groups, settings, sign_in};
use crate::analysis::{Analysis, Cause, SourceView, VERSION};
use crate::stack::Frame;
use backtrail_report::CrashReport;
use std::collections::BTreeMap;

mod fleet_pages;
mod grouping_pages;
mod profile_pages;
mod samples;

/// Texts that a crash may control.
fn hostile() -> Vec<String> {
    vec![
        "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>".to_owned(),
        "\u{202e}gpj.exe\u{2066}\0\u{1b}]0;x\u{7}\r\n".to_owned(),
        "x".repeat(1 << 20),
        "é\u{301}".repeat(1 << 18),
        String::new(),
    ]
}

/// Checks a page of hostile text.
fn check(name: &str, html: &str) {
    for bad in [
        "<script>alert",
        "<img src=x",
        "\u{202e}",
        "\u{2066}",
        "\0",
        "\u{1b}",
        "onerror=alert(1)>",
    ] {
        assert!(!html.contains(bad), "{name} has {bad:?}");
    }
    assert!(html.len() < 3 << 20, "{name} has {} bytes", html.len());
    for tag in html.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        // Attributes of events and of style would break the policy.
        let names = tag.split('"').step_by(2);
        for part in names {
            assert!(
                !part.contains(" on") && !part.contains(" style="),
                "{name}: <{tag}>"
            );
        }
    }
    let scripts = html.matches("<script").count();
    assert_eq!(scripts, html.matches("<script src=\"/static/").count(), "{name}");
}

fn frame(text: &str) -> PageFrame {
    PageFrame {
        title: text.to_owned(),
        viewer: Some(Viewer {
            name: text.to_owned(),
            is_admin: true,
            csrf: "token".to_owned(),
        }),
        search: text.to_owned(),
    }
}

fn groups_of(text: &str) -> GroupsPage {
    let text = || text.to_owned();
    GroupsPage {
        frame: frame(&text()),
        groups: vec![
            GroupRow {
                id: "1".to_owned(),
                title: text(),
                head: text(),
                place: Some(text()),
                state: text(),
                service: text(),
                first_build: text(),
                assignee: Some(text()),
                ..GroupRow::default()
            };
            2
        ],
        filters: vec![Filter {
            name: "service".to_owned(),
            label: "Service".to_owned(),
            choices: vec![(String::new(), "all".to_owned()), (text(), text())],
            chosen: text(),
        }],
        ..GroupsPage::default()
    }
}

fn group_of(text: &str) -> GroupPage {
    let text = || text.to_owned();
    GroupPage {
        frame: frame(&text()),
        id: "1".to_owned(),
        title: text(),
        head: text(),
        place: Some(text()),
        service: text(),
        state: text(),
        state_detail: Some(text()),
        assignee: Some(text()),
        first_build: text(),
        last_build: text(),
        trend: Trend {
            start: 0,
            step: 3_600_000_000,
            builds: vec![(text(), vec![1, 2, 3])],
        },
        values: vec![OverValue {
            field: text(),
            value: text(),
            inside: 9,
            inside_all: 1,
            ..OverValue::default()
        }],
        builds: vec![BuildRow {
            build: text(),
            ..BuildRow::default()
        }],
        explanation: Explanation {
            version: 1,
            signature: text(),
            frames: vec![ExplainedFrame {
                frame: text(),
                kept_as: Some(text()),
                reason: text(),
                rule: Some(text()),
            }],
            next: Some(NextSignatures {
                version: 2,
                switch_at: i64::MAX,
                groups: vec![(text(), 3), (text(), 1)],
                merged_with: vec![("3".to_owned(), text())],
            }),
        },
        ways: vec![CrashWay {
            edges: vec![(text(), text())],
            bundles: 1,
            crash: "1".to_owned(),
        }],
        similar: vec![SimilarGroup {
            id: "2".to_owned(),
            title: text(),
            similarity: f64::NAN,
        }],
        moves: vec![KeyMove {
            from: ("1".to_owned(), text()),
            to: ("2".to_owned(), text()),
            reason: text(),
            ..KeyMove::default()
        }],
        changes: vec![StateChange {
            event: text(),
            build: Some(text()),
            actor: Some(text()),
            ..StateChange::default()
        }],
        comments: vec![Comment {
            time: i64::MIN,
            author: text(),
            text: text(),
        }],
        crashes: vec![CrashRow {
            id: "1".to_owned(),
            host: text(),
            build: text(),
            bundle: text(),
            labels: vec![text(); 100],
            ..CrashRow::default()
        }],
        missing_symbols: vec![text(); 1000],
        ..GroupPage::default()
    }
}

fn report(text: &str) -> CrashReport {
    CrashReport {
        version: 1,
        id: "0123456789abcdefghjk".parse().unwrap(),
        time: u64::MAX,
        host: text.to_owned(),
        service: text.to_owned(),
        build: text.to_owned(),
        executable: text.to_owned(),
        signal: i32::MIN,
        code: 1,
        fault_address: Some(u64::MAX),
        pid: 1,
        tid: 2,
        thread: Some(text.to_owned()),
        kernel: Some(text.to_owned()),
        cpu: Some(text.to_owned()),
        labels: BTreeMap::from([(text.to_owned(), text.to_owned())]),
        frames: Vec::new(),
        frames_end: Some(text.to_owned()),
        modules: Vec::new(),
        bundle_size: None,
    }
}

/// An analysis in which all texts are hostile: a sample whose strings are replaced.
fn analysis_of(text: &str) -> Analysis {
    let mut value = serde_json::to_value(samples::analysis()).unwrap();
    fn replace(value: &mut serde_json::Value, text: &str) {
        match value {
            serde_json::Value::String(old) if !samples::KEYWORDS.contains(&old.as_str()) => {
                text.clone_into(old)
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(|value| replace(value, text)),
            serde_json::Value::Object(all) => all.values_mut().for_each(|value| replace(value, text)),
            _ => {}
        }
    }
    replace(&mut value, text);
    serde_json::from_value(value).unwrap()
}

fn crash_of(text: &str, analysis: Option<Analysis>, bundle: BundleState) -> CrashPage {
    CrashPage {
        frame: frame(text),
        report: report(text),
        group: Some(("1".to_owned(), text.to_owned(), text.to_owned())),
        stack: vec![
            Frame {
                function: Some(text.to_owned()),
                file: Some(text.to_owned()),
                module: Some(text.to_owned()),
                ..Frame::default()
            };
            3
        ],
        bundle,
        analysis,
        analysis_problem: Some(text.to_owned()),
        received: i64::MAX,
        is_pinned: true,
        link: "https://hub/c/1".to_owned(),
        editor_link: "vscode://backtrail.backtrail/open?j=e30".to_owned(),
        download: Some(("/crash/1.btz".to_owned(), u64::MAX)),
        symbolized: Some(1),
        now: i64::MIN,
    }
}

fn settings_of(text: &str) -> SettingsPage {
    let text = || text.to_owned();
    SettingsPage {
        frame: frame(&text()),
        tokens: vec![TokenRow {
            id: "1".to_owned(),
            name: text(),
            scopes: vec![text()],
            ..TokenRow::default()
        }],
        new_secret: Some("bth_secret".to_owned()),
        channels: vec![ChannelRow {
            name: text(),
            kind: text(),
            to: text(),
            events: vec![text()],
        }],
        deliveries: vec![DeliveryRow {
            channel: text(),
            event: text(),
            subject: ("/g/1".to_owned(), text()),
            state: text(),
            problem: Some(text()),
            ..DeliveryRow::default()
        }],
        hosts: vec![HostRow {
            host: text(),
            collector: text(),
            builds: vec![(text(), text())],
            ..HostRow::default()
        }],
        now: 0,
    }
}

#[test]
fn hostile_text_is_escaped_and_bounded() {
    for text in hostile() {
        // The value of a filter is sent back as it is, and is not shown.
        let html = groups::render(&groups_of(&text)).into_string();
        check(
            "groups",
            &html.replace(&format!("<option value=\"{text}\""), "<option value=\"\""),
        );
        check("group", &group::render(&group_of(&text)).into_string());
        check("settings", &settings::render(&settings_of(&text)).into_string());
        let entry = AuditEntry {
            actor: text.clone(),
            action: text.clone(),
            subject: text.clone(),
            address: Some(format!("javascript:{text}")),
            ..AuditEntry::default()
        };
        let page = AuditPage {
            frame: frame(&text),
            entries: vec![entry],
            ..AuditPage::default()
        };
        let html = audit::render(&page).into_string();
        check("audit", &html);
        assert!(!html.contains("javascript:"));
        let page = SignInPage {
            then: text.clone(),
            problem: Some(text.clone()),
            csrf: "token".to_owned(),
        };
        check("sign-in", &sign_in::render(&page).into_string());
        check(
            "error",
            &error::render(&frame(&text), 404, &text, Some(&text)).into_string(),
        );
    }
}

#[test]
fn hostile_crash_is_escaped_and_bounded() {
    for text in hostile() {
        for bundle in [
            BundleState::None,
            BundleState::Kept,
            BundleState::Wanted,
            BundleState::Uploading {
                received: u64::MAX,
                total: 1,
            },
            BundleState::Checking {
                stage: text.clone(),
                done: f64::NAN,
            },
            BundleState::Refused(text.clone()),
            BundleState::Expired,
        ] {
            let name = format!("crash, {}", bundle.name());
            check(
                &name,
                &crash::render(&crash_of(&text, None, bundle)).into_string(),
            );
        }
        let view = crash_of(&text, Some(analysis_of(&text)), BundleState::Stored);
        check("crash", &crash::render(&view).into_string());
    }
}

#[test]
fn empty_views_say_what_to_do() {
    let html = groups::render(&GroupsPage::default()).into_string();
    assert!(html.contains("No crashes yet") && html.contains("backtrail push"));
    let mut view = GroupsPage::default();
    view.frame.search = "x".to_owned();
    assert!(groups::render(&view).into_string().contains("No group matches"));
    assert!(
        group::render(&GroupPage::default())
            .into_string()
            .contains("No bundle with a history")
    );
}

#[test]
fn only_administrators_get_forms_that_change_states() {
    let mut view = group_of("x");
    view.state = "new".to_owned();
    assert!(group::render(&view).into_string().contains("/g/1/state"));
    view.frame.viewer.as_mut().unwrap().is_admin = false;
    assert!(!group::render(&view).into_string().contains("/g/1/state"));
}

#[test]
fn every_form_has_the_token() {
    let pages = [
        group::render(&group_of("x")).into_string(),
        settings::render(&settings_of("x")).into_string(),
        crash::render(&crash_of("x", None, BundleState::Stored)).into_string(),
    ];
    for html in pages {
        for form in html.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap();
            let is_post = form.split('>').next().unwrap().contains("method=\"post\"");
            assert_eq!(is_post, form.contains("name=\"csrf\" value=\"token\""), "{form}");
        }
    }
}

#[test]
fn cause_is_a_sentence() {
    let mut cause = Cause {
        signal: 11,
        code: 1,
        name: "SIGSEGV".to_owned(),
        fault_address: Some(0x28),
        access: Some(crate::analysis::Access::Write),
        ..Cause::default()
    };
    assert_eq!(
        crash::cause_in_words(&cause),
        "The thread wrote to address 0x28, where no memory is mapped. The address is a small offset from the null pointer."
    );
    cause.fault_address = Some(0);
    cause.access = None;
    assert!(crash::cause_in_words(&cause).ends_with("It is the null pointer."));
    cause.message = Some("ledger: a.c:3: main: Assertion `x' failed.".to_owned());
    assert!(crash::cause_in_words(&cause).contains("Assertion"));
}

#[test]
fn source_without_text_says_so() {
    let mut analysis = samples::analysis();
    assert_eq!(analysis.version, VERSION);
    analysis.source = Some(SourceView {
        file: "/src/a.c".to_owned(),
        first: 1,
        current: u32::MAX,
        lines: None,
        bundled: None,
        executions: Vec::new(),
    });
    let view = crash_of("x", Some(analysis), BundleState::Stored);
    assert!(
        crash::render(&view)
            .into_string()
            .contains("no source server has it")
    );
}
