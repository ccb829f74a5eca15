//! The drop-in that runs a service under the recorder. Unsupported services are refused with a
//! reason.

use super::reader::Service;
use super::words;
use crate::config::HeapConfig;
use crate::error::{Error, Result};
use std::path::Path;

/// The file name. The second one is for services where a later drop-in sets the command.
const NAMES: [&str; 2] = ["backtrail.conf", "zz-backtrail.conf"];

/// A drop-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// The service's name, with `.service`.
    pub service: String,
    /// Its file name, in the directory `SERVICE.d`.
    pub file: &'static str,
    /// The content of the file.
    pub text: String,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Returns the drop-in that runs a service under `binary record --daemon`. The service's files are
/// under `root`. The recorder records heap events if `heap` names the service.
///
/// # Errors
/// When the service does not exist, its files cannot be read, or it cannot run under the recorder.
pub fn drop_in(root: &Path, binary: &Path, name: &str, heap: &HeapConfig) -> Result<DropIn> {
    let service = Service::find(root, name, &NAMES)?;
    let refuse = |why: &str| Error::Unable(format!("{} cannot run under the recorder: {why}", service.name));
    let file = match service.last_drop_in("ExecStart") {
        Some(last) if last > NAMES[1] => {
            let why = format!("{last} would override the command; rename it so that it sorts earlier");
            return Err(refuse(&why));
        }
        Some(last) if last > NAMES[0] => NAMES[1],
        _ => NAMES[0],
    };
    let template = service.name.trim_end_matches(".service").split('@').next();
    let options = match template.is_some_and(|name| heap.includes(name)) {
        true => "--daemon --heap",
        false => "--daemon",
    };
    if let Some(why) = obstacle(&service) {
        return Err(refuse(&why));
    }
    let command = match service.list("ExecStart").as_slice() {
        [command] => wrapped(binary, command, options).map_err(|error| refuse(&error.to_string()))?,
        [] => return Err(refuse("it has no ExecStart=")),
        _ => return Err(refuse("it has several ExecStart=")),
    };
    let mut text = format!(
        "\
# Written by `backtrail install --service {}`: the service runs under the recorder, and the collector
# saves its crashes. To undo this, remove this file and run `systemctl daemon-reload`.
# The command comes from {} and its drop-ins.
[Service]
ExecStart=
ExecStart={command}
",
        service.name,
        service.file.display()
    );
    let kind = service.value("Type").unwrap_or_default();
    let notifies = kind.starts_with("notify") || service.value("WatchdogSec").is_some();
    if notifies && service.value("NotifyAccess") != Some("all") {
        text += "# The program notifies systemd, and is no longer the main process.\nNotifyAccess=all\n";
    }
    if !service.list("SystemCallFilter").is_empty() {
        text += "# System calls that the recorder needs in addition to those of the service.\n\
                 SystemCallFilter=@debug @process process_vm_readv process_vm_writev memfd_create\n";
    }
    if !service.list("RestrictAddressFamilies").is_empty() {
        text += "# The recorder connects to the collector.\nRestrictAddressFamilies=AF_UNIX\n";
    }
    Ok(DropIn {
        file,
        text,
        notes: notes(&service, kind),
        service: service.name,
    })
}

/// Returns the reason why the service cannot run under the recorder, if any.
fn obstacle(service: &Service) -> Option<String> {
    let says = |key: &str, value: &str| service.value(key).is_some_and(|said| said == value);
    if says("Type", "forking") {
        return Some(
            "with Type=forking its first process ends at once, which systemd takes for the recorder's end; run it in the foreground, with Type=simple or notify"
                .to_owned(),
        );
    }
    for mode in ["process", "none"] {
        if says("KillMode", mode) {
            return Some(format!(
                "with KillMode={mode} systemd would stop the recorder and leave the program; use control-group or mixed"
            ));
        }
    }
    if service.says_yes("MemoryDenyWriteExecute") {
        return Some(
            "MemoryDenyWriteExecute=yes forbids the recorder's code cache; set it to no in your own drop-in"
                .to_owned(),
        );
    }
    for key in ["RootDirectory", "RootImage"] {
        if service.value(key).is_some() {
            return Some(format!(
                "with {key}= it has its own root, which does not contain the recorder"
            ));
        }
    }
    None
}

fn notes(service: &Service, kind: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if kind == "notify-reload"
        || service
            .list("ExecReload")
            .iter()
            .any(|command| command.contains("MAINPID"))
    {
        notes.push(
            "the recorder is now the main process: a signal of `systemctl reload` goes to it, not to the program"
                .to_owned(),
        );
    }
    if service.value("KillMode") == Some("mixed") {
        notes.push(
            "with KillMode=mixed the first signal of `systemctl stop` goes only to the recorder".to_owned(),
        );
    }
    notes
}

/// Returns the command under the recorder with these options. Its words are unchanged.
fn wrapped(binary: &Path, command: &str, options: &str) -> Result<String> {
    let unable = |why: &str| Error::Unable(format!("{why} in ExecStart={command}"));
    let bare = command.trim_start_matches(['-', '@', ':', '+', '!', '|']);
    let prefixes = command.strip_suffix(bare).unwrap_or_default();
    if prefixes.contains('@') {
        return Err(unable(
            "the prefix @, which renames the program, is not supported",
        ));
    }
    if prefixes.contains('|') {
        return Err(unable("the prefix |, which starts a shell, is not supported"));
    }
    let bare = bare.trim_start();
    let words = words::split(bare).ok_or_else(|| unable("there is an unclosed quote"))?;
    let Some(first) = words.first() else {
        return Err(unable("there is no program"));
    };
    if words.contains(&";") {
        return Err(unable("there are several commands"));
    }
    let named = |word: &&str| Path::new(word.trim_matches(['"', '\''])).file_name() == binary.file_name();
    if words.get(1) == Some(&"record") && named(first) {
        return Err(unable("the command already has a recorder"));
    }
    // systemd expands variables in all words except the program, which is now an argument.
    let expands = !prefixes.contains(':');
    let program = if expands {
        first.replace('$', "$$")
    } else {
        (*first).to_owned()
    };
    let rest = bare.get(first.len()..).unwrap_or_default();
    Ok(format!(
        "{prefixes}{} record {options} -- {program}{rest}",
        words::program(binary)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn with(files: &[(&str, &str)]) -> Result<DropIn> {
        with_name(files, "web")
    }

    fn with_name(files: &[(&str, &str)], name: &str) -> Result<DropIn> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("etc/systemd/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let heap = HeapConfig {
            services: vec!["ledger".to_owned(), "web-*".to_owned()],
            ..HeapConfig::default()
        };
        drop_in(root.path(), Path::new("/usr/bin/backtrail"), name, &heap)
    }

    fn of(service: &str) -> Result<DropIn> {
        with(&[("web.service", &format!("[Service]\n{service}"))])
    }

    fn command(service: &str) -> String {
        let text = of(service).unwrap().text;
        let line = text.lines().rfind(|line| line.starts_with("ExecStart=")).unwrap();
        line.trim_start_matches("ExecStart=").to_owned()
    }

    #[test]
    fn command_words_are_unchanged() {
        for (given, expected) in [
            (
                r#"/usr/sbin/web -g "daemon off; $A" '%i' \; ${B}"#,
                r#"/usr/bin/backtrail record --daemon -- /usr/sbin/web -g "daemon off; $A" '%i' \; ${B}"#,
            ),
            ("-/bin/x", "-/usr/bin/backtrail record --daemon -- /bin/x"),
            (
                "+:/bin/$x $y",
                "+:/usr/bin/backtrail record --daemon -- /bin/$x $y",
            ),
            (
                "!/bin/$x $y",
                "!/usr/bin/backtrail record --daemon -- /bin/$$x $y",
            ),
        ] {
            assert_eq!(command(&format!("ExecStart={given}\n")), expected);
        }
    }

    #[test]
    fn services_with_heap_history_record_heap_events() {
        let service = [("web-one.service", "[Service]\nExecStart=/bin/x\n")];
        let made = with_name(&service, "web-one").unwrap();
        assert!(
            made.text
                .contains("/usr/bin/backtrail record --daemon --heap -- /bin/x\n"),
            "{}",
            made.text
        );
        assert!(!of("ExecStart=/bin/x\n").unwrap().text.contains("--heap"));
    }

    #[test]
    fn previous_command_is_reset() {
        let made = of("ExecStart=/bin/x\n").unwrap();
        assert!(
            made.text
                .contains("[Service]\nExecStart=\nExecStart=/usr/bin/backtrail ")
        );
        assert_eq!(
            (made.service.as_str(), made.file),
            ("web.service", "backtrail.conf")
        );
        assert!(made.notes.is_empty() && !made.text.contains("NotifyAccess"));
    }

    #[test]
    fn recorder_side_effects_are_compensated_or_noted() {
        let made = of("Type=notify\nSystemCallFilter=@system-service\nKillMode=mixed\nExecStart=/x\nExecReload=/bin/kill $MAINPID\n").unwrap();
        assert!(
            made.text.contains("\nNotifyAccess=all\n") && made.text.contains("\nSystemCallFilter=@debug ")
        );
        assert_eq!(made.notes.len(), 2, "{:?}", made.notes);
    }

    #[test]
    fn unsupported_services_are_refused() {
        for (service, expected) in [
            ("Type=forking\nExecStart=/x\n", "Type=forking"),
            ("KillMode=process\nExecStart=/x\n", "KillMode=process"),
            ("KillMode=none\nExecStart=/x\n", "KillMode=none"),
            ("MemoryDenyWriteExecute=true\nExecStart=/x\n", "code cache"),
            ("RootDirectory=/srv\nExecStart=/x\n", "its own root"),
            ("Type=oneshot\nExecStart=/x\nExecStart=/y\n", "several ExecStart"),
            ("ExecStart=/x ; /y\n", "several commands"),
            ("ExecStart=@/x y\n", "prefix @"),
            ("ExecStart=-|x\n", "prefix |"),
            ("ExecStart=/x 'y\n", "quote"),
            ("ExecStart=-\n", "no program"),
            ("User=x\n", "no ExecStart"),
            ("ExecStart=/opt/backtrail record -- /x\n", "already"),
        ] {
            let error = of(service).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains('\n'),
                "{service}: {error}"
            );
        }
    }

    #[test]
    fn later_drop_in_is_respected() {
        let unit = ("web.service", "[Service]\nExecStart=/x\n");
        let changed = "[Service]\nExecStart=\nExecStart=/changed\n";
        let ours = (
            "web.service.d/backtrail.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/backtrail record --daemon -- /x\n",
        );
        let made = with(&[unit, ours]).unwrap();
        assert_eq!(made.file, "backtrail.conf");
        assert!(made.text.contains("-- /x\n"), "{}", made.text);
        let made = with(&[unit, ours, ("web.service.d/override.conf", changed)]).unwrap();
        assert_eq!(made.file, "zz-backtrail.conf");
        assert!(made.text.contains("-- /changed\n"), "{}", made.text);
        let error = with(&[unit, ("web.service.d/zzz.conf", changed)]).unwrap_err();
        assert!(error.to_string().contains("zzz.conf"), "{error}");
    }
}
