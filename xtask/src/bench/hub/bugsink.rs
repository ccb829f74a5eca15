//! The same events at Bugsink: SQLite and gunicorn, as its single-server setup has them.

use super::events::Events;
use super::http::{Client, parallel};
use super::sentence;
use super::times::Times;
use crate::{Failure, shell};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The package.
const PACKAGE: &str = "bugsink==2.6.2";
/// Connections at once, as many as the hub gets for single reports.
const CONNECTIONS: usize = 32;
/// Requests of its list.
const REQUESTS: usize = 100;
/// Quotas beyond the benchmark, plain HTTP on this machine, and no message to its makers.
const SETTINGS: &str = "\
SESSION_COOKIE_SECURE = False
CSRF_COOKIE_SECURE = False
_SPANS = [\"PER_PROJECT_PER_5_MINUTES\", \"PER_PROJECT_PER_HOUR\", \"PER_PROJECT_PER_MONTH\",
          \"PER_5_MINUTES\", \"PER_HOUR\", \"PER_MONTH\"]
BUGSINK.update({f\"MAX_EVENTS_{span}\": 10**9 for span in _SPANS})
BUGSINK[\"PHONEHOME\"] = False
";
/// Makes a project and a session of its user, and prints the keys of both.
const PREPARE: &str = "\
from projects.models import Project
from django.contrib.auth import get_user_model, SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
project = Project.objects.create(name='bench', retention_max_event_count=10**6)
user = get_user_model().objects.get()
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = 'django.contrib.auth.backends.ModelBackend'
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.save()
print('made', project.pk, project.sentry_key, session.session_key)
";
/// Prints the number of events and issues.
const COUNT: &str = "\
from events.models import Event
from issues.models import Issue
print('has', Event.objects.count(), Issue.objects.count())
";

/// An installed Bugsink with a directory of its own.
struct Bugsink {
    programs: PathBuf,
    folder: PathBuf,
}

impl Bugsink {
    /// Returns one of its programs.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .current_dir(&self.folder)
            .env("PYTHONPATH", &self.folder)
            .env("DJANGO_SETTINGS_MODULE", "bugsink_conf")
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs `bugsink-manage`, and returns its output.
    fn manage(&self, arguments: &[&str]) -> Result<String, Failure> {
        let output = self
            .program("bugsink-manage")
            .env("CREATE_SUPERUSER", "bench@example.org:bench")
            .args(arguments)
            .output()
            .map_err(|error| sentence("bugsink-manage", &error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("bugsink-manage {}: {text}", arguments.join(" ")))
    }

    /// Returns the words after one in the output of Python code.
    fn ask(&self, code: &str, word: &str) -> Result<Vec<String>, Failure> {
        let text = self.manage(&["shell", "-c", code])?;
        let line = text.lines().find_map(|line| line.strip_prefix(word));
        let line = line.ok_or_else(|| format!("Bugsink says: {text}"))?;
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Starts one of its servers.
    fn serve(&self, name: &str, arguments: &[&str]) -> Result<Server, Failure> {
        let failed = |error| sentence(name, &error);
        let log = File::create(self.folder.join(format!("{name}.log"))).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let child = self
            .program(name)
            .args(arguments)
            .stdout(log)
            .stderr(errors)
            .spawn();
        child.map(Server).map_err(failed)
    }
}

/// A server, which the end of this value stops.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(i32::MAX));
        // gunicorn stops its workers then.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Installs Bugsink, sends it events, and prints a table.
pub fn measure(folder: &Path, events: &Events, count: usize) -> Result<(), Failure> {
    let bugsink = installed(folder)?;
    let keys = bugsink.ask(PREPARE, "made")?;
    let [project, key, session] = keys.as_slice() else {
        return Err("Bugsink makes no project".to_owned());
    };
    let port = free_port()?;
    let bind = format!("--bind=127.0.0.1:{port}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let workers = format!("--workers={cores}");
    let _snappea = bugsink.serve("bugsink-runsnappea", &[])?;
    let _gunicorn = bugsink.serve(
        "gunicorn",
        &[&bind, &workers, "--access-logfile", "/dev/null", "bugsink.wsgi"],
    )?;
    let cookie = format!("sessionid={session}");
    let authorization = format!("Sentry sentry_key={key}, sentry_version=7");
    let client = Client::new(
        &format!("127.0.0.1:{port}"),
        &[("Cookie", &cookie), ("X-Sentry-Auth", &authorization)],
    );
    let list = format!("/issues/{project}/");
    let patience = Instant::now() + Duration::from_secs(60);
    while let Err(problem) = client.request("GET", &list, &[], b"") {
        if Instant::now() > patience {
            return Err(format!("Bugsink does not start: {problem}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let began = Instant::now();
    let address = format!("/api/{project}/envelope/");
    let accepted = parallel(CONNECTIONS, count, |at| {
        let body = envelope(events, at);
        client
            .request(
                "POST",
                &address,
                &[("Content-Type", "application/x-sentry-envelope")],
                &body,
            )
            .map(drop)
    })?;
    let issues = loop {
        let counts = bugsink.ask(COUNT, "has")?;
        let number = |at: usize| counts.get(at).and_then(|word| word.parse::<usize>().ok());
        if number(0) >= Some(count) {
            break number(1).unwrap_or_default();
        }
        if began.elapsed() > Duration::from_secs(900) {
            return Err(format!("Bugsink digested {:?} of {count} events", number(0)));
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    let digested = began.elapsed();
    let mut times = Times::default();
    for _ in 0..REQUESTS {
        times.push(client.request("GET", &list, &[], b"")?.time);
    }
    let rate = |time: Duration| count as f64 / time.as_secs_f64();
    println!(
        "| Bugsink, {} | value |\n|---|---:|\n\
         | events | {count} |\n| issues | {issues} |\n\
         | accepted per second, {CONNECTIONS} connections | {:.0} |\n\
         | accepted and digested per second | {:.0} |\n\
         | list: p50, p99, max ms of {} | {} |\n",
        PACKAGE,
        rate(accepted),
        rate(digested),
        times.count(),
        times.columns().replace(" |", ","),
    );
    Ok(())
}

/// Returns an event as the body of a request.
fn envelope(events: &Events, at: usize) -> Vec<u8> {
    let event = events.event(at);
    let text = event.to_string();
    let mut body = String::new();
    let id = event["event_id"].as_str().unwrap_or_default();
    let _ = writeln!(body, "{{\"event_id\":\"{id}\"}}");
    let _ = writeln!(body, "{{\"type\":\"event\",\"length\":{}}}", text.len());
    body += &text;
    body.push('\n');
    body.into_bytes()
}

/// Installs the package, and makes empty databases.
fn installed(folder: &Path) -> Result<Bugsink, Failure> {
    let environment = folder.join("bugsink");
    let bugsink = Bugsink {
        programs: environment.join("bin"),
        folder: folder.join("bugsink-data"),
    };
    if !bugsink.programs.join("bugsink-manage").exists() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut pip = Command::new(bugsink.programs.join("pip"));
        shell::run(pip.args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]))?;
    }
    let failed = |error| sentence("Bugsink's directory", &error);
    let _ = fs::remove_dir_all(&bugsink.folder);
    fs::create_dir_all(&bugsink.folder).map_err(failed)?;
    let base = format!("--base-dir={}", bugsink.folder.display());
    let mut create = Command::new(bugsink.programs.join("bugsink-create-conf"));
    create
        .args(["--template=singleserver", "--host=127.0.0.1", &base])
        .current_dir(&bugsink.folder)
        .stdout(Stdio::null());
    shell::run(&mut create)?;
    let settings = bugsink.folder.join("bugsink_conf.py");
    let mut text = fs::read_to_string(&settings).map_err(failed)?;
    text += SETTINGS;
    fs::write(&settings, text).map_err(failed)?;
    for arguments in [
        &["migrate"][..],
        &["migrate", "snappea", "--database=snappea"],
        &["prestart"],
    ] {
        let _ = bugsink.manage(arguments)?;
    }
    Ok(bugsink)
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|error| sentence("a port for Bugsink", &error))
}
