//! Completion scripts and manual pages, generated from the description of the command line.

use crate::files::write_manual_pages;
use crate::invoker::Invoker;
use clap_complete::Shell;
use std::io;
use std::io::Write;
use std::path::Path;

/// Writes the completion script for a shell.
pub(crate) fn completions(shell: Shell, output: &mut dyn Write) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut described(), "gctrace", &mut script);
    if shell == Shell::Bash {
        script = offering_files(&String::from_utf8_lossy(&script)).into_bytes();
    }
    output.write_all(&script)
}

/// clap_complete offers options for every word: bash then offers no files. This restricts options to words that start
/// with a dash; fixed values, such as names of shells, stay.
fn offering_files(script: &str) -> String {
    const ANYTHING: &str =
        "esac\n            COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    const WORDS: &str = "esac\n            COMPREPLY=( $(compgen -W \"$(tr ' ' '\\n' <<<\"${opts}\" | \
                         grep -v '^-')\" -- \"${cur}\") )";
    script.replace(" || ${COMP_CWORD} -eq 2 ]]", " ]]").replace(ANYTHING, WORDS)
}

/// Writes the page gctrace(1) as roff, generated from the command line's definition.
pub(crate) fn page(output: &mut dyn Write) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(described()).render(&mut page)?;
    output.write_all(&page)
}

/// Writes one page for gctrace and one for each subcommand: `gctrace.1`, `gctrace-record.1`, ...
/// Creates the directory if needed.
///
/// # Errors
/// A page cannot be written, or a file of that name is not a page of gctrace.
pub(crate) fn write(directory: &Path) -> anyhow::Result<()> {
    let pages = pages()?;
    write_manual_pages(directory, &Invoker::detect(), &pages)?;
    crate::print::message(format!(
        "{} manual pages written to {}",
        pages.len(),
        directory.display()
    ));
    Ok(())
}

/// File name and content of each page.
pub(crate) fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = described();
    command.build();
    let subcommands = command.get_subcommands().cloned();
    std::iter::once(command.clone())
        .chain(subcommands)
        .map(|command| {
            let page = clap_mangen::Man::new(command);
            let mut text = Vec::new();
            page.render(&mut text)?;
            Ok((page.get_filename(), text))
        })
        .collect()
}

/// The command line without hidden subcommands.
fn described() -> clap::Command {
    let command = crate::args::command();
    let shown: Vec<_> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned().collect();
    clap::Command::new("gctrace")
        .args(command.get_arguments().cloned())
        .subcommands(shown)
        .about(command.get_about().cloned().unwrap_or_default())
        .long_about(command.get_long_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use test_kit::limit::WithTimeout as _;

    /// All visible subcommands, with the long names of their visible options.
    fn everything() -> Vec<(String, Vec<String>)> {
        let options = |command: &clap::Command| {
            let visible = command.get_arguments().filter(|option| !option.is_hide_set());
            let longs = visible.filter_map(clap::Arg::get_long);
            longs.map(str::to_owned).collect()
        };
        let command = crate::args::command();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        visible.map(|sub| (sub.get_name().to_owned(), options(sub))).collect()
    }

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        completions(shell, &mut script).expect("written");
        String::from_utf8(script).expect("text")
    }

    #[test]
    fn completions_know_every_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = script(shell);
            for (subcommand, options) in everything() {
                assert!(script.contains(&subcommand), "{subcommand} for {shell}");
                for option in options {
                    assert!(script.contains(&option), "--{option} of {subcommand} for {shell}");
                }
            }
            assert!(!script.contains(crate::args::GUARDIAN), "{shell}");
        }
    }

    #[test]
    fn bash_completes() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("gctrace.bash");
        fs::write(&file, script(Shell::Bash)).expect("write");
        // Without a reply, bash offers files (complete -o default).
        let typed = "source \"$1\"; COMP_WORDS=(gctrace analyze ''); COMP_CWORD=2; \
                     _gctrace gctrace '' analyze; echo -n \"${COMPREPLY[@]}\"; \
                     COMP_WORDS=(gctrace record --min); COMP_CWORD=2; \
                     _gctrace gctrace --min record; echo \"${COMPREPLY[@]}\"";
        let output = std::process::Command::new("bash")
            .args(["-c", typed, "bash"])
            .arg(&file)
            .output_in_time();
        let Ok(output) = output else {
            eprintln!("skipped bash_completes: there is no bash here");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--min-pause", "{output:?}");
    }

    #[test]
    fn pages_know_every_option() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("man1");
        write(&directory).expect("written");
        // Once more, over its own pages.
        write(&directory).expect("written");
        let read =
            |name: &str| fs::read_to_string(directory.join(name)).expect(name).replace('\\', "");
        let main = read("gctrace.1");
        for (subcommand, options) in everything() {
            let text = read(&format!("gctrace-{subcommand}.1"));
            assert!(main.contains(&format!("gctrace-{subcommand}(1)")), "{subcommand}");
            for option in options {
                assert!(text.contains(&format!("--{option}")), "--{option} of {subcommand}");
            }
        }
        assert!(main.contains("Examples:"));
        let names = fs::read_dir(&directory).expect("pages").count();
        assert_eq!(names, everything().len() + 1);
    }

    /// Set to write docs/commands.md instead of comparing it.
    const UPDATE: &str = "GCTRACE_UPDATE_COMMANDS";

    /// Columns of docs/commands.md, as of the other documents.
    const DOCUMENT_WIDTH: usize = 100;

    /// Appends the output of `--help` for a command and its subcommands, each as a section.
    fn push_help(command: &mut clap::Command, name: &str, document: &mut String) {
        let help = command.clone().term_width(DOCUMENT_WIDTH).render_long_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        document.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")));
        let shown = |sub: &&mut clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
        let mut subcommands: Vec<_> = command.get_subcommands_mut().filter(shown).collect();
        subcommands.sort_by_key(|subcommand| subcommand.get_name().to_owned());
        for subcommand in subcommands {
            let name = format!("{name} {}", subcommand.get_name());
            push_help(subcommand, &name, document);
        }
    }

    #[test]
    fn the_document_of_commands_is_up_to_date() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
        let remedy = format!("{UPDATE}=1 cargo test -p gctrace --bin gctrace manual::");
        let mut document = format!(
            "# Commands\n\nWhat each command prints with `--help`. `gctrace man DIR` writes it as \
             manual pages.\n\n<!-- Generated; a test compares it. To write it anew: {remedy} -->\n"
        );
        let mut command = crate::args::command();
        command.build();
        push_help(&mut command, "gctrace", &mut document);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &document).expect("the document can be written");
        }
        let published = fs::read_to_string(&file).expect("docs/commands.md");
        assert!(published == document, "docs/commands.md is old: {remedy}");
    }

    #[test]
    fn the_main_page_lists_subcommands() {
        let mut alone = Vec::new();
        page(&mut alone).expect("written");
        assert!(String::from_utf8_lossy(&alone).contains(".SH SUBCOMMANDS"));
    }
}
