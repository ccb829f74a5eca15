//! Contents of alerts.

use super::*;

pub fn alert() -> Alert {
    Alert {
        version: VERSION,
        change: "c1".to_owned(),
        event: EventKind::Regressed,
        time: 1_790_000_000_000_000,
        group: AlertGroup {
            id: "0123456789abcdefghjk".to_owned(),
            title: "SIGSEGV null read in ledger::Map<T>::post".to_owned(),
            link: "https://hub.example/g/0123456789abcdefghjk".to_owned(),
        },
        service: "ledger".to_owned(),
        build: Some("2026.11.3".to_owned()),
        report: Some(AlertReport {
            id: "zzzz".to_owned(),
            link: "https://hub.example/c/zzzz".to_owned(),
            host: "web-17".to_owned(),
            time: 1_789_999_999_000_000,
            cause: "SIGSEGV null read".to_owned(),
            thread: None,
            message: None,
            labels: BTreeMap::from([("route".to_owned(), "/pay?a=1&b=<2>".to_owned())]),
        }),
        hosts: HostShare {
            crashed: 7,
            reporting: 9812,
        },
    }
}

#[test]
fn share_of_hosts_is_readable() {
    for (crashed, reporting, text) in [
        (7, 9812, "7 of 9 812 hosts (0.07 %)"),
        (1, 1, "1 of 1 host (100 %)"),
        (1, 1_000_000, "1 of 1 000 000 hosts (less than 0.01 %)"),
        (0, 10, "0 of 10 hosts (0 %)"),
        (150, 10_000, "150 of 10 000 hosts (1.5 %)"),
        (3, 0, "3 hosts"),
        (3, 2, "3 hosts"),
        (1234, 0, "1 234 hosts"),
    ] {
        assert_eq!(share_text(HostShare { crashed, reporting }), text);
    }
}

#[test]
fn json_has_the_documented_keys() {
    let value = alert().to_json();
    assert_eq!(value["event"], "regressed");
    assert_eq!(value["headline"], "Regression in ledger, build 2026.11.3");
    assert_eq!(value["hosts"]["text"], "7 of 9 812 hosts (0.07 %)");
    assert_eq!(value["report"]["labels"]["route"], "/pay?a=1&b=<2>");
    // The page for administrators has this example.
    let page = include_str!("../../../../docs/hub-alerts.md");
    for key in [
        "version", "change", "event", "headline", "time", "group", "service", "build", "report", "hosts",
    ] {
        assert!(value.get(key).is_some(), "{key}");
        assert!(page.contains(&format!("\"{key}\"")), "{key} is not documented");
    }
}

#[test]
fn slack_message_escapes_texts_and_links() {
    let mut alert = alert();
    alert.group.title = "a <!channel> & b".to_owned();
    alert.group.link = "https://hub.example/g/x|y>z".to_owned();
    let text = alert.to_slack().to_string();
    assert!(text.contains("a &lt;!channel&gt; &amp; b"), "{text}");
    assert!(text.contains("<https://hub.example/g/x%7Cy%3Ez|"), "{text}");
    assert!(text.contains("/pay?a=1&amp;b=&lt;2&gt;"), "{text}");
    assert!(!text.contains("<!channel>"));
}

#[test]
fn mail_escapes_html_and_has_one_line_of_subject() {
    let mut alert = alert();
    alert.group.title = "<script>alert(1)</script>\r\nBcc: x@example.org".to_owned();
    let mail = alert.to_mail();
    assert!(!mail.subject.contains(['\r', '\n']), "{}", mail.subject);
    assert!(!mail.html.contains("<script>"), "{}", mail.html);
    assert!(mail.html.contains("&lt;script&gt;"));
    assert!(
        mail.text.contains("Hosts: 7 of 9 812 hosts (0.07 %)"),
        "{}",
        mail.text
    );
    assert!(mail.text.contains("Open the crash: https://hub.example/c/zzzz"));
}

#[test]
fn hostile_texts_stay_texts_in_every_form() {
    let hostile = "<script>alert(1)</script>\u{202e}\u{1b}[2J\u{0}\u{85}\r\n*Host:* <https://evil.example|x>";
    let mut alert = alert();
    alert.group.title = hostile.to_owned();
    alert.service = hostile.to_owned();
    alert.build = Some(hostile.to_owned());
    if let Some(report) = &mut alert.report {
        for text in [&mut report.host, &mut report.cause] {
            *text = hostile.to_owned();
        }
        report.thread = Some(hostile.to_owned());
        report.message = Some(hostile.to_owned());
        report.labels = BTreeMap::from([(hostile.to_owned(), hostile.to_owned())]);
    }
    let mail = alert.to_mail();
    for text in [&mail.subject, &mail.text, &mail.html] {
        let odd = text
            .chars()
            .find(|&letter| letter != '\n' && !is_printable(letter));
        assert_eq!(odd, None, "{text}");
    }
    assert!(
        !mail.subject.contains('\n') && !mail.html.contains("<script>"),
        "{mail:?}"
    );
    let slack = alert.to_slack();
    let blocks = slack["blocks"].as_array().unwrap().iter();
    let blocks = blocks.map(|block| &block["text"]["text"]);
    for text in blocks.chain([&slack["text"]]) {
        let text = text.as_str().unwrap();
        assert!(
            !text.contains("<script>") && !text.contains("<https://evil"),
            "{text}"
        );
        assert!(!text.contains("\n*Host:* &lt;https"), "{text}");
        let odd = text
            .chars()
            .find(|&letter| letter != '\n' && !is_printable(letter));
        assert_eq!(odd, None, "{text}");
    }
    // JSON has the texts as they are, and their receiver escapes them.
    let json = alert.to_json().to_string();
    let read: Alert = serde_json::from_str(&json).unwrap();
    assert_eq!(read.group.title, hostile);
}

#[test]
fn long_texts_are_shortened() {
    let mut alert = alert();
    alert.group.title = "漢".repeat(100_000);
    assert!(alert.to_mail().subject.len() <= MAX_SUBJECT);
    let slack = alert.to_slack();
    for block in slack["blocks"].as_array().unwrap() {
        assert!(block["text"]["text"].as_str().unwrap().len() <= MAX_SECTION);
    }
}

#[test]
fn summary_names_the_number_of_alerts() {
    let summary = |count| HeldBack {
        count,
        channel: "team".to_owned(),
        link: "https://hub.example/".to_owned(),
    };
    assert_eq!(summary(1).headline(), "1 more alert was held back");
    assert_eq!(
        summary(1200).to_json()["headline"],
        "1 200 more alerts were held back"
    );
    assert!(summary(12).to_mail().text.contains("https://hub.example/"));
    assert_eq!(summary(12).to_slack()["text"], "12 more alerts were held back");
}
