//! The page of the grouping, of hostile and of empty views.

use super::super::grouping::{
    Comparison, GroupingPage, OtherVersion, RegroupProgress, RuleRow, Trial, render,
};
use super::{check, frame, hostile};

/// Returns a page in which each text is `text`.
fn page_of(text: &str) -> GroupingPage {
    let text = || text.to_owned();
    let rule = RuleRow {
        id: "1".to_owned(),
        service: Some(text()),
        action: text(),
        pattern: text(),
        created: i64::MIN,
        author: text(),
    };
    let group = || (Some("2".to_owned()), text());
    let trial = Trial {
        rule: rule.clone(),
        is_removal: false,
        keys: 1,
        all_keys: u64::MAX,
        moved: (3, 4),
        moves: vec![(group(), (None, text()), 3)],
        merges: vec![(group(), vec![group(); 20])],
        splits: vec![(group(), vec![group(); 2])],
    };
    GroupingPage {
        frame: frame(&text()),
        rules: vec![rule],
        trial: Some(trial),
        progress: Some(RegroupProgress { percent: 40 }),
        version: 1,
        others: Vec::new(),
        next: Some(Comparison {
            version: OtherVersion {
                number: 2,
                differences: vec!["A difference.".to_owned()],
            },
            merges: vec![(text(), 2, 5)],
            splits: vec![(group(), 2, 5)],
            ..Comparison::default()
        }),
        compare_days: 30,
        now: 0,
    }
}

#[test]
fn hostile_rules_are_escaped() {
    for text in hostile() {
        // A pattern has at most 620 bytes, which the form carries as they are.
        let cut: String = text.chars().filter(|char| !char.is_control()).take(300).collect();
        let mut view = page_of(&text);
        let trial = view.trial.as_mut().unwrap();
        (trial.rule.action, trial.rule.pattern) = (cut.replace(['\u{202e}', '\u{2066}'], ""), "x".to_owned());
        trial.rule.service = None;
        check("grouping", &render(&view).into_string());
    }
}

#[test]
fn forms_of_the_grouping_have_the_token() {
    let mut removal = page_of("x");
    removal.trial.as_mut().unwrap().is_removal = true;
    let mut offer = page_of("x");
    offer.others = vec![OtherVersion::default()];
    offer.next = None;
    for view in [page_of("x"), removal, offer] {
        let html = render(&view).into_string();
        for form in html.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap();
            let is_post = form.split('>').next().unwrap().contains("method=\"post\"");
            assert_eq!(is_post, form.contains("name=\"csrf\" value=\"token\""), "{form}");
        }
    }
}

#[test]
fn page_without_rules_says_so() {
    let html = render(&GroupingPage::default()).into_string();
    assert!(html.contains("Only the built-in rules hold.") && html.contains("no other version"));
    assert!(!html.contains("id=\"progress\""));
}
