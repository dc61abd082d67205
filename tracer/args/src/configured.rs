//! Options that need not be typed each time: files `gctrace.toml`, and `GCTRACE_ARGS`.
//!
//! - the user's: `gctrace/gctrace.toml` in `XDG_CONFIG_HOME`, or else `~/.config`;
//! - the project's: `gctrace.toml` in the working directory, or the nearest above it, up to the one with `.git`;
//! - the variable: a subcommand, `record` if it begins with an option, and options.
//!
//! A later one overrides an earlier, the command line all of them. A table has the name of a subcommand and contains
//! its options by their long names: `[record]`, then `stack-depth = 48`, `no-follow = true`. All three may contain only
//! options defined as [`CONFIGURABLE`]: they choose measurements and their display. A file that another user could have
//! written is ignored. With file capabilities all three are ignored.

use super::CONFIGURABLE;
use crate::invoker::{Invoker, act_as};
use crate::platform::has_more_rights_than_its_user;
use crate::print::clean;
use crate::trust::TrustError;
use crate::variables::{VariableEffect, variable};
use crate::{print, trust};
use clap::Command;
use std::ffi::OsString;
use std::io;
use std::io::Read as _;
use std::path::{Path, PathBuf};

const FILE: &str = "gctrace.toml";
const VARIABLE: &str = "GCTRACE_ARGS";
/// A longer file is none.
const LONGEST: u64 = 64 << 10;
/// Maximum number of folders above the working directory to search.
const MOST_FOLDERS: usize = 64;
/// An option from one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredOption {
    /// The subcommand that it belongs to.
    pub command: String,
    /// Its long name.
    pub name: String,
    /// `None`: a flag.
    pub values: Option<Vec<String>>,
    /// The file, or the variable.
    pub source: String,
}

/// The configured options, and their faults.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfiguredOptions {
    /// At most one of each name and subcommand: the effective one.
    pub options: Vec<ConfiguredOption>,
    /// Sentences: each ignored option or file, and why.
    pub ignored: Vec<String>,
}

impl ConfiguredOptions {
    /// Reads all of them, for the command line that `command` describes.
    pub fn read(command: &Command) -> Self {
        let mut all = Self::default();
        let files: Vec<PathBuf> = user_file().into_iter().chain(project_file()).collect();
        let words = match variable(VARIABLE, VariableEffect::Options).map(OsString::into_string) {
            Some(Ok(words)) if !words.is_empty() => Some(words),
            _ => None,
        };
        if has_more_rights_than_its_user() {
            let found =
                files.iter().filter(|path| path.exists()).map(|path| path.display().to_string());
            let found: Vec<String> = found.chain(words.map(|_| VARIABLE.to_owned())).collect();
            if !found.is_empty() {
                all.ignored.push(format!(
                    "{} ignored: this gctrace has file capabilities, its user does not",
                    found.join(", ")
                ));
            }
            return all;
        }
        for path in files {
            let source = path.display().to_string();
            match trusted_text(&path) {
                Ok(None) => {}
                Ok(Some(text)) => all.add_file(&text, &source, command),
                Err(why) => all.ignored.push(format!("{source} is ignored: {why}")),
            }
        }
        if let Some(words) = words {
            all.add_words(&words, command);
        }
        all
    }

    fn add_file(&mut self, text: &str, source: &str, command: &Command) {
        let tables: toml::Table = match text.parse() {
            Ok(tables) => tables,
            Err(error) => {
                let message = error.to_string();
                let first = message.lines().next().unwrap_or_default();
                return self.ignored.push(format!("{source} is ignored: {first}"));
            }
        };
        for (table, options) in tables {
            let toml::Value::Table(options) = options else {
                self.ignored
                    .push(format!("{source}: {table} stands outside of a table such as [record]"));
                continue;
            };
            for (name, value) in options {
                let values = match &value {
                    toml::Value::Boolean(false) => continue,
                    toml::Value::Boolean(true) => None,
                    toml::Value::Array(values) => values.iter().map(scalar).collect::<Option<_>>(),
                    one => scalar(one).map(|one| vec![one]),
                };
                if values.is_none() && value != toml::Value::Boolean(true) {
                    self.ignored.push(format!("{source}: {table}.{name} is no value of an option"));
                    continue;
                }
                self.add(
                    ConfiguredOption {
                        command: table.clone(),
                        name,
                        values,
                        source: source.to_owned(),
                    },
                    command,
                );
            }
        }
    }

    fn add_words(&mut self, words: &str, command: &Command) {
        let Some(mut words) = shlex::split(words) else {
            return self.ignored.push(format!("{VARIABLE} is ignored: a quote is not closed"));
        };
        let has_command = matches!(words.first(), Some(first) if !first.starts_with('-'));
        let table = if has_command { words.remove(0) } else { "record".to_owned() };
        if words.is_empty() && command.find_subcommand(&table).is_none() {
            self.ignored.push(format!("{VARIABLE}: gctrace has no command {table:?}"));
        }
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let option = match word.strip_prefix("--") {
                None | Some("") => {
                    self.ignored.push(format!("{VARIABLE}: {word:?} is no long option"));
                    continue;
                }
                Some(option) => option,
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => match argument(command, &table, option) {
                    Some(one) if one.get_action().takes_values() => {
                        (option, words.next_if(|next| !next.starts_with("--")))
                    }
                    _ => (option, None),
                },
            };
            let values = value.map(|value| vec![value]);
            let (name, source) = (name.to_owned(), VARIABLE.to_owned());
            self.add(ConfiguredOption { command: table.clone(), name, values, source }, command);
        }
    }

    /// Adds an option that overrides an earlier one, if there is such an option.
    fn add(&mut self, option: ConfiguredOption, command: &Command) {
        let ConfiguredOption { command: table, name, values, source } = &option;
        if command.find_subcommand(table).is_none_or(Command::is_hide_set) {
            return self.ignored.push(format!("{source}: gctrace has no command {table:?}"));
        }
        let Some(known) = argument(command, table, name) else {
            return self.ignored.push(format!("{source}: gctrace {table} has no option --{name}"));
        };
        if !is_configurable(command, table, known) {
            return self.ignored.push(format!("{source}: --{name} must be typed"));
        }
        let is_flag = !known.get_action().takes_values();
        let may_be_bare = matches!(known.get_num_args(), Some(range) if range.min_values() == 0);
        if is_flag != values.is_none() && !(values.is_none() && may_be_bare) {
            let needs = if is_flag { "takes no value" } else { "needs a value" };
            return self.ignored.push(format!("{source}: --{name} {needs}"));
        }
        self.options.retain(|before| (&before.command, &before.name) != (table, name));
        self.options.push(option);
    }

    /// As `gctrace doctor --config` shows them.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .options
            .iter()
            .map(|ConfiguredOption { command, name, values, source }| {
                let values = match values.as_ref() {
                    Some(values) => format!(" {}", values.join(", ")),
                    None => String::new(),
                };
                format!("gctrace {command} --{name}{values}    from {source}")
            })
            .collect();
        lines.extend(self.ignored.iter().cloned());
        for line in &mut lines {
            *line = clean::line(line).into_owned();
        }
        if lines.is_empty() {
            lines.push(format!("no option is configured: neither by {FILE} nor by {VARIABLE}"));
        }
        lines
    }

    /// The command line with the configured options that it lacks, before its own.
    pub(super) fn complete(&self, arguments: &[OsString], command: &Command) -> Vec<OsString> {
        let flags =
            arguments.iter().skip(1).take_while(|word| is_option(word) && *word != "--").count();
        let (table, at) = match arguments.get(flags + 1).map(|word| word.to_str()) {
            Some(Some(name)) if command.find_subcommand(name).is_some() => (name, flags + 2),
            _ => ("record", 1),
        };
        let typed: Vec<&str> = arguments
            .iter()
            .skip(1)
            .take_while(|word| *word != "--")
            .filter_map(|word| word.to_str())
            .collect();
        let mut whole = arguments.to_vec();
        let mut added = Vec::new();
        for option in &self.options {
            if option.command != table {
                continue;
            }
            let short = argument(command, table, &option.name).and_then(|known| known.get_short());
            let is_typed = |word: &&&str| {
                let long =
                    word.strip_prefix("--").map(|word| word.split('=').next().unwrap_or_default());
                let begins = match (short, word.strip_prefix('-')) {
                    (Some(short), Some(rest)) => rest.starts_with(short),
                    _ => false,
                };
                long == Some(option.name.as_str()) || begins
            };
            if typed.iter().any(|word| is_typed(&word)) {
                continue;
            }
            let name = &option.name;
            match &option.values {
                None => added.push(OsString::from(format!("--{name}"))),
                Some(values) => {
                    added.extend(
                        values.iter().map(|value| OsString::from(format!("--{name}={value}"))),
                    );
                }
            }
        }
        let at = at.min(whole.len());
        whole.splice(at..at, added);
        whole
    }
}

/// The command line of this process with the configured options; reports the ignored ones.
pub(super) fn completed(arguments: Vec<OsString>) -> Vec<OsString> {
    // Subcommands that gctrace itself starts.
    let first = arguments.get(1).map(|word| word.to_str());
    if matches!(first, Some(Some(word)) if word.starts_with("__")) {
        return arguments;
    }
    let command = super::described();
    let all = ConfiguredOptions::read(&command);
    let shows_them =
        arguments.iter().take_while(|word| *word != "--").any(|word| word == "--config");
    if !shows_them {
        all.ignored.iter().for_each(print::message);
    }
    all.complete(&arguments, &command)
}

fn is_option(word: &OsString) -> bool {
    let Some(word) = word.to_str() else { return false };
    word.starts_with('-')
}

fn argument<'a>(command: &'a Command, table: &str, name: &str) -> Option<&'a clap::Arg> {
    let all = command.find_subcommand(table)?.get_arguments();
    all.into_iter().find(|known| known.get_long() == Some(name))
}

fn is_configurable(command: &Command, table: &str, option: &clap::Arg) -> bool {
    let mut groups = command.find_subcommand(table).into_iter().flat_map(Command::get_groups);
    groups.any(|group| {
        group.get_id() == CONFIGURABLE && group.get_args().any(|id| id == option.get_id())
    })
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn user_file() -> Option<PathBuf> {
    // Under sudo the variable is root's, or kept: the user's own folder is below their home.
    let folder = match variable("XDG_CONFIG_HOME", VariableEffect::Place).map(PathBuf::from) {
        Some(folder) if folder.is_absolute() && Invoker::detect().escalated_by().is_none() => {
            folder
        }
        _ => Invoker::detect().home.join(".config"),
    };
    Some(folder.join("gctrace").join(FILE))
}

fn project_file() -> Option<PathBuf> {
    let folder = std::env::current_dir().ok()?;
    for folder in folder.ancestors().take(MOST_FOLDERS) {
        let file = folder.join(FILE);
        if file.symlink_metadata().is_ok() {
            return Some(file);
        }
        if folder.join(".git").exists() {
            return None;
        }
    }
    None
}

/// The text of a file that only root and the user could have written; `None`: there is none. It is read as the user, who
/// may exchange it.
fn trusted_text(path: &Path) -> Result<Option<String>, String> {
    let invoker = Invoker::detect();
    let opened = act_as(&invoker, || trust::open(path, invoker.uid)).map_err(TrustError::from);
    let file = match opened.and_then(|opened| opened) {
        Ok(file) => file,
        Err(TrustError::Io(error)) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    let length =
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if length as u64 > LONGEST {
        return Err(format!("it is no file of up to {} KiB", LONGEST >> 10));
    }
    Ok(Some(text))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, words: &str) -> ConfiguredOptions {
        let mut all = ConfiguredOptions::default();
        all.add_file(file, "a.toml", &crate::described());
        if !words.is_empty() {
            all.add_words(words, &crate::described());
        }
        all
    }

    fn completed(all: &ConfiguredOptions, line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let whole = all.complete(&words, &crate::described());
        let whole: Vec<_> = whole.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        whole.join(" ")
    }

    #[test]
    fn what_is_typed_counts_first() {
        let all = read(
            "[record]\nstack-depth = 48\nno-follow = true\ngpu-yield = false\nlayers = true\n\
             [analyze]\nfail-if = ['gc_share>2%', 'longest>1s']\n",
            "--stack-depth=12 --sample 0",
        );
        assert_eq!(all.ignored, Vec::<String>::new());
        for (line, whole) in [
            ("gctrace -- a", "gctrace --no-follow --layers --stack-depth=12 --sample=0 -- a"),
            (
                "gctrace -q record -- a",
                "gctrace -q record --no-follow --layers --stack-depth=12 --sample=0 -- a",
            ),
            (
                "gctrace --stack-depth 3 --sample=9 -- a",
                "gctrace --no-follow --layers --stack-depth 3 --sample=9 -- a",
            ),
            // What follows the dashes is the command's.
            (
                "gctrace --sample=9 -- a --layers",
                "gctrace --no-follow --layers --stack-depth=12 --sample=9 -- a --layers",
            ),
            (
                "gctrace analyze t.json",
                "gctrace analyze --fail-if=gc_share>2% --fail-if=longest>1s t.json",
            ),
            (
                "gctrace analyze --fail-if longest>2s t.json",
                "gctrace analyze --fail-if longest>2s t.json",
            ),
            ("gctrace doctor", "gctrace doctor"),
            ("gctrace", "gctrace --no-follow --layers --stack-depth=12 --sample=0"),
        ] {
            let words = completed(&all, line);
            let sorted = |text: &str| {
                let mut words: Vec<&str> = text.split(' ').collect();
                words.sort_unstable();
                words.join(" ")
            };
            assert_eq!(sorted(&words), sorted(whole), "{line}: {words}");
        }
    }

    #[test]
    fn what_is_wrong_is_ignored_and_said() {
        for (file, words, said) in [
            ("[record", "", "a.toml is ignored: "),
            ("stack-depth = 3", "", "stands outside of a table"),
            ("[recrod]\na = 1", "", "has no command \"recrod\""),
            ("[__guardian]\na = 1", "", "has no command"),
            ("[record]\nstack-dept = 3", "", "has no option --stack-dept"),
            ("[record]\noutput = '/etc/passwd'", "", "--output must be typed"),
            ("[record]\nas-root = true", "", "--as-root must be typed"),
            ("[record]\nkeep = '1GB'", "", "--keep must be typed"),
            ("[record]\nmemory-history = 'x'", "", "--memory-history must be typed"),
            ("[top]\nlisten = '0.0.0.0:9464'", "", "--listen must be typed"),
            ("[setup]\nuninstall = true", "", "--uninstall must be typed"),
            ("[dump]\nkeep = '/x'", "", "--keep must be typed"),
            ("[heap]\nat-full = 1", "", "--at-full must be typed"),
            ("", "apply --gc disable", "--gc must be typed"),
            ("", "--quiet", "--quiet must be typed"),
            ("[analyze]\nhelp = true", "", "--help must be typed"),
            ("[record]\nno-follow = 3", "", "--no-follow takes no value"),
            ("[record]\nstack-depth = true", "", "--stack-depth needs a value"),
            ("[record]\nstack-depth = {a = 1}", "", "is no value of an option"),
            ("", "-q", "\"-q\" is no long option"),
            ("", "'", "a quote is not closed"),
            ("", "--pid 1", "--pid must be typed"),
            ("", "stack-depth", "has no command \"stack-depth\""),
        ] {
            let all = read(file, words);
            assert_eq!(all.options, Vec::new(), "{file} {words}");
            let [ignored] = &all.ignored[..] else { panic!("{file} {words}: {:?}", all.ignored) };
            assert!(ignored.contains(said), "{ignored}");
        }
    }

    /// A file read as another user, or with an unsuitable length or kind, has no effect.
    #[test]
    fn files_of_others_are_not_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        assert_eq!(trusted_text(&path), Ok(None));
        std::fs::write(&path, "[record]\n").expect("written");
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set")
        };
        mode(0o644);
        assert_eq!(trusted_text(&path), Ok(Some("[record]\n".to_owned())));
        mode(0o646);
        assert!(trusted_text(&path).is_err_and(|why| why.contains("others may write it")));
        assert!(trusted_text(folder.path()).is_err());
        std::fs::write(&path, "#".repeat(100_000)).expect("written");
        mode(0o644);
        assert!(trusted_text(&path).is_err_and(|why| why.contains("no file of up to")));
    }
}
