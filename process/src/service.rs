//! The systemd service of a process, by its control group.

use crate::RawTid;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest list of control groups of a process in bytes.
const MAX_GROUPS: u64 = 4096;
/// The longest name of a service in bytes.
const MAX_NAME: usize = 200;
/// The ending of a service's control group.
const ENDING: &str = ".service";

/// Returns the name of the service that a process belongs to, without `.service`.
///
/// Instances of a template, such as `ledger@blue.service`, have the name of the template. The
/// manager of a user's session (`user@1000.service`) is no service of its programs.
#[must_use]
pub fn of_process(pid: RawTid) -> Option<String> {
    of_directory(Path::new(&format!("/proc/{pid}")))
}

/// Returns the service of the process whose directory of `/proc` this is.
#[must_use]
pub fn of_directory(process: &Path) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(process.join("cgroup")).ok()?;
    file.take(MAX_GROUPS).read_to_end(&mut text).ok()?;
    of_groups(&String::from_utf8_lossy(&text))
}

/// Returns the service that a list of control groups names (cgroups(7)).
fn of_groups(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let group = line.splitn(3, ':').nth(2)?;
        // The kernel appends this to the path of a removed group.
        let group = group.strip_suffix(" (deleted)").unwrap_or(group);
        // A service of a user's session is below the manager of the session.
        group.rsplit('/').find_map(of_unit)
    })
}

fn of_unit(unit: &str) -> Option<String> {
    let name = unit.strip_suffix(ENDING)?;
    let (template, instance) = name.split_once('@').unwrap_or((name, ""));
    let is_session = template == "user" && !instance.is_empty();
    let is_printable = !template.is_empty() && !template.contains(|letter: char| letter.is_control());
    (is_printable && !is_session && template.len() <= MAX_NAME).then(|| template.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_service_names_the_process() {
        let service = |text: &str| of_groups(text);
        let named = |text: &str| Some(text.to_owned());
        assert_eq!(service("0::/system.slice/ledger.service\n"), named("ledger"));
        assert_eq!(
            service("0::/system.slice/ledger.service (deleted)\n"),
            named("ledger")
        );
        assert_eq!(
            service("12:cpu:/x\n0::/system.slice/ledger.service/worker\n"),
            named("ledger")
        );
        assert_eq!(
            service("0::/system.slice/system-ledger.slice/ledger@blue.service\n"),
            named("ledger")
        );
        let session = "0::/user.slice/user-1000.slice/user@1000.service/app.slice";
        assert_eq!(service(&format!("{session}/notes.service\n")), named("notes"));
    }

    #[test]
    fn programs_of_sessions_and_containers_have_none() {
        for text in [
            "",
            "0::/\n",
            "0::/init.scope\n",
            "0::/user.slice/user-1000.slice/session-2.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.scope\n",
            "0::/system.slice/docker-0123.scope\n",
            "0::/system.slice/.service\n",
            "0::/system.slice/a\u{1b}b.service\n",
            "0::",
        ] {
            assert_eq!(of_groups(text), None, "{text:?}");
        }
        assert_eq!(of_groups(&format!("0::/{}.service", "x".repeat(201))), None);
    }
}
