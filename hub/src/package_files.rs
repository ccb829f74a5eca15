//! `backtrail-hub package-files`: writes the files that a package has in addition to the binary.

use crate::error::{Error, Result};
use crate::unit;
use clap::Command;
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// The name of the program.
const NAME: &str = "backtrail-hub";
/// The directory of a package's units.
const UNITS: &str = "usr/lib/systemd/system";
/// The directory of manual pages of commands.
const MANUAL: &str = "usr/share/man/man1";
/// The completion scripts that shells load by themselves.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "usr/share/bash-completion/completions/backtrail-hub"),
    (Shell::Zsh, "usr/share/zsh/vendor-completions/_backtrail-hub"),
    (
        Shell::Fish,
        "usr/share/fish/vendor_completions.d/backtrail-hub.fish",
    ),
];
/// The configuration, which changes nothing. Each key is a comment with its default or an example.
const DEFAULT_CONFIG: &str = include_str!("package_files/hub.toml");

/// Writes the files below the root directory of the package. `command` is the whole command line.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write(root: &Path, command: &Command) -> Result<()> {
    let command = visible(command);
    for (path, text) in texts(&command) {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
        }
        std::fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    let manual = root.join(MANUAL);
    std::fs::create_dir_all(&manual).map_err(Error::file("create", &manual))?;
    clap_mangen::generate_to(command, &manual).map_err(Error::file("write", &manual))
}

/// Returns the command line without hidden subcommands, which completion scripts would offer.
fn visible(command: &Command) -> Command {
    let subcommands = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set());
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(subcommands.cloned())
}

/// Returns the configuration, the unit and the completion scripts, by path.
fn texts(command: &Command) -> Vec<(PathBuf, Vec<u8>)> {
    let mut texts = vec![
        (unit::CONFIG.trim_start_matches('/').into(), DEFAULT_CONFIG.into()),
        (Path::new(UNITS).join(unit::NAME), unit::packaged().into_bytes()),
    ];
    for (shell, path) in COMPLETIONS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), NAME, &mut script);
        texts.push((path.into(), script));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use clap::Arg;
    use std::collections::BTreeSet;

    /// Returns the configuration with its defaults as keys. Examples become keys too on request.
    fn uncommented(with_examples: bool) -> String {
        let (mut text, mut is_example) = (String::new(), false);
        for line in DEFAULT_CONFIG.lines() {
            if line.is_empty() || line.starts_with("# ") {
                is_example = line.ends_with("An example:");
            }
            let is_key = line.starts_with('#') && line.len() > 1 && !line.starts_with("# ");
            let shown = match is_key && (with_examples || !is_example) {
                true => &line[1..],
                false => line,
            };
            text += &format!("{shown}\n");
        }
        text
    }

    fn parse(text: &str) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&path)
    }

    /// Returns the keys that the parser expects in a table, from its error for an unknown key.
    fn expected(table: &str) -> BTreeSet<String> {
        let error = parse(&format!("{table}\nno_such_key = 1\n"))
            .unwrap_err()
            .to_string();
        let (_, names) = error.split_once(", expected ").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Returns the keys and tables below a header of a text. The first keys have none.
    fn keys(text: &str, header: &str) -> BTreeSet<String> {
        let (mut found, mut current) = (BTreeSet::new(), "");
        for line in text.lines() {
            if line.starts_with('[') {
                current = line;
                if header.is_empty() {
                    found.insert(line.trim_matches(['[', ']']).to_owned());
                }
            } else if let Some((key, _)) = line.split_once(" = ")
                && current == header
                && !line.starts_with('#')
            {
                found.insert(key.to_owned());
            }
        }
        found
    }

    #[test]
    fn configuration_changes_nothing() {
        let default = format!("{:?}", Config::default());
        assert_eq!(format!("{:?}", parse(DEFAULT_CONFIG).unwrap()), default);
    }

    #[test]
    fn commented_keys_have_their_defaults() {
        let mut config = parse(&uncommented(false)).unwrap();
        // A worker has this address without the key.
        assert_eq!(config.query.listen.take(), Some(([127, 0, 0, 1], 8476).into()));
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn configuration_names_all_keys_and_no_other() {
        let text = uncommented(true);
        let config = parse(&text).unwrap();
        assert_eq!(config.alert.len(), 3);
        assert_eq!(keys(&text, ""), expected(""));
        let headers: BTreeSet<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
        assert_eq!(headers.len(), 13, "{headers:?}");
        for header in headers {
            assert_eq!(keys(&text, header), expected(header), "{header}");
        }
    }

    #[test]
    fn documented_keys_are_in_the_configuration() {
        let text = uncommented(true);
        let page = include_str!("../../docs/hub.md");
        let (_, table) = page.split_once("| key | default | meaning |").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        for row in rows {
            let column = row.split('|').nth(1).unwrap();
            for name in column.split('`').skip(1).step_by(2) {
                let is_named = match name.split_once('.') {
                    Some((table, key)) => keys(&text, &format!("[{table}]")).contains(key),
                    None => keys(&text, "").contains(name.trim_matches(['[', ']'])),
                };
                assert!(is_named, "{name}");
            }
        }
    }

    #[test]
    fn files_have_no_hidden_commands() {
        let command = Command::new("other")
            .about("Serves.")
            .arg(Arg::new("data").long("data").global(true))
            .subcommand(Command::new("token").about("Creates a token."))
            .subcommand(Command::new("secretly").hide(true));
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &command).unwrap();
        let read = |path: &str| std::fs::read_to_string(root.path().join(path)).unwrap();
        let mut texts: Vec<String> = COMPLETIONS.iter().map(|(_, path)| read(path)).collect();
        texts.push(read("usr/share/man/man1/backtrail-hub.1"));
        for text in texts {
            assert!(text.contains("token") && text.contains("data"), "{text}");
            assert!(!text.contains("secretly"), "{text}");
        }
        assert!(read("usr/share/man/man1/backtrail-hub-token.1").contains("Creates a token."));
        assert!(!root.path().join(MANUAL).join("backtrail-hub-secretly.1").exists());
    }
}
