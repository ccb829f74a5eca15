//! The content of alerts of jobs: as JSON, as a message of Slack's form, and as mail.

use super::message::{Mail, VERSION, printable_lines, slack_sections, slack_text, subject};
use maud::{DOCTYPE, html};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The kind of an event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobEvent {
    /// A number crossed its threshold.
    #[serde(rename = "job-alert")]
    Alert,
    /// A number that had crossed its threshold is within the threshold again.
    #[serde(rename = "job-recovered")]
    Recovered,
    /// Functions are slower in a build than in the one before.
    #[serde(rename = "job-regression")]
    Regression,
    /// The first run failed after those that did not.
    #[serde(rename = "job-failed")]
    Failed,
}

impl JobEvent {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Alert, Self::Recovered, Self::Regression, Self::Failed];

    /// Returns the name in messages and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alert => "job-alert",
            Self::Recovered => "job-recovered",
            Self::Regression => "job-regression",
            Self::Failed => "job-failed",
        }
    }
}

/// The job of an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertJob {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The page of the job.
    pub link: String,
}

/// A slower function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertFunction {
    /// The function.
    pub function: String,
    /// Its source file. Empty: unknown.
    pub file: String,
    /// Its module. Empty: unknown.
    pub module: String,
    /// The change in words.
    pub change: String,
}

/// An alert of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobAlert {
    /// The version of the format.
    pub version: u32,
    /// The identifier of the change. A receiver that has it already can ignore the message.
    pub change: String,
    /// The event.
    pub event: JobEvent,
    /// The time of the event, in microseconds since 1970.
    pub time: u64,
    /// The job.
    pub job: AlertJob,
    /// The service that the job is about. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The watched number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The threshold as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The compared builds, the earlier one first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<[String; 2]>,
    /// The slower functions that no earlier alert named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<AlertFunction>,
    /// The number of further functions.
    #[serde(default)]
    pub more: u64,
}

impl JobAlert {
    /// Returns an alert with nothing but its event.
    #[must_use]
    pub fn new(change: String, event: JobEvent, time: u64, job: AlertJob) -> Self {
        Self {
            version: VERSION,
            change,
            event,
            time,
            job,
            service: None,
            value: None,
            threshold: None,
            problem: None,
            builds: None,
            functions: Vec::new(),
            more: 0,
        }
    }

    /// Returns the event in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let name = &self.job.name;
        let of_service = self
            .service
            .as_ref()
            .map_or(String::new(), |service| format!(" of {service}"));
        match self.event {
            JobEvent::Alert => format!("Threshold crossed: {name}"),
            JobEvent::Recovered => format!("Recovered: {name}"),
            JobEvent::Failed => format!("Job failed: {name}"),
            JobEvent::Regression => {
                let count = (self.functions.len() as u64).saturating_add(self.more);
                let functions = if count == 1 {
                    "function is"
                } else {
                    "functions are"
                };
                let build = self.builds.as_ref().map_or("", |[_, after]| after.as_str());
                format!("{count} {functions} slower in build {build}{of_service}")
            }
        }
    }

    /// Returns the facts of the alert, as names and values for people.
    fn facts(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut facts = vec![fact("Job", &self.job.name)];
        facts.extend(self.service.iter().map(|service| fact("Service", service)));
        facts.extend(self.value.iter().map(|value| fact("Value", &value.to_string())));
        facts.extend(self.threshold.iter().map(|text| fact("Threshold", text)));
        facts.extend(self.problem.iter().map(|text| fact("Reason", text)));
        if let Some([before, after]) = &self.builds {
            facts.push(fact("Builds", &format!("{before}, then {after}")));
        }
        let functions = self.functions.iter();
        facts.extend(functions.map(|one| (one.function.clone(), one.change.clone())));
        if self.more > 0 {
            facts.push(fact("Further functions", &self.more.to_string()));
        }
        facts
    }

    /// Returns the documented JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["headline"] = Value::String(self.headline());
        value
    }

    /// Returns a message of Slack's form.
    #[must_use]
    pub fn to_slack(&self) -> Value {
        let headline = self.headline();
        let link = (self.job.link.as_str(), self.job.name.as_str());
        json!({
            "text": slack_text(&headline),
            "blocks": slack_sections(&headline, link, &self.facts()),
        })
    }

    /// Returns a mail.
    #[must_use]
    pub fn to_mail(&self) -> Mail {
        let headline = self.headline();
        let facts = self.facts();
        let mut text = format!("{headline}\n\n{}\n\n", self.job.link);
        for (name, value) in &facts {
            text.push_str(&format!("{name}: {}\n", value.replace('\n', "\n    ")));
        }
        let html = html! {
            (DOCTYPE)
            html {
                body {
                    p { b { (headline) } }
                    p { a href=(self.job.link) { (self.job.name) } }
                    table {
                        @for (name, value) in &facts {
                            tr { td { (name) } td { (value) } }
                        }
                    }
                }
            }
        };
        Mail {
            subject: subject(&headline),
            text: printable_lines(&text),
            html: printable_lines(&html.into_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(event: JobEvent) -> JobAlert {
        let job = AlertJob {
            id: "0123456789abcdefghjk".to_owned(),
            name: "p99 of <checkout>".to_owned(),
            link: "https://hub.example/jobs/0123456789abcdefghjk".to_owned(),
        };
        JobAlert {
            service: Some("shop".to_owned()),
            value: Some(12.5),
            threshold: Some("p99 > 10".to_owned()),
            builds: Some(["1".to_owned(), "2".to_owned()]),
            functions: vec![AlertFunction {
                function: "parse<T>".to_owned(),
                file: String::new(),
                module: String::new(),
                change: "3 % to 6 %".to_owned(),
            }],
            problem: Some("the time is over\r\nBcc: x".to_owned()),
            ..JobAlert::new("c".to_owned(), event, 1_790_000_000_000_000, job)
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        let value = alert(JobEvent::Regression).to_json();
        assert_eq!(value["event"], "job-regression");
        assert_eq!(value["headline"], "1 function is slower in build 2 of shop");
        let page = include_str!("../../../docs/hub-jobs.md");
        for key in value.as_object().unwrap().keys() {
            assert!(page.contains(&format!("\"{key}\"")), "{key} is not documented");
        }
        for event in JobEvent::ALL {
            assert_eq!(serde_json::to_value(event).unwrap(), event.name());
            assert!(page.contains(&format!("`{}`", event.name())));
        }
    }

    #[test]
    fn texts_of_others_stay_texts() {
        for event in JobEvent::ALL {
            let mail = alert(event).to_mail();
            assert!(!mail.html.contains("<T>") && !mail.html.contains("<checkout>"));
            assert!(!mail.subject.contains(['\r', '\n']));
            let slack = alert(event).to_slack().to_string();
            assert!(
                !slack.contains("<checkout>") && slack.contains("&lt;checkout&gt;"),
                "{slack}"
            );
        }
    }
}
