//! The help of `gctrace` itself: its commands in groups, by what the user wants to do.

use clap::Command;

const GROUPS: [(&str, &[&str]); 3] = [
    ("Record", &["record", "top", "dump", "heap"]),
    ("Explain", &["analyze", "report", "compare", "export"]),
    ("Fix", &["auto", "apply", "tune"]),
];

/// The command line with this help.
pub(super) fn shown_in_groups(gctrace: Command) -> Command {
    let styles = gctrace.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut page = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        page.push_str(&format!("\n{header}{group}:{header:#}\n"));
        for command in names.iter().filter_map(|name| gctrace.find_subcommand(name)) {
            let (name, about) =
                (command.get_name(), command.get_about().cloned().unwrap_or_default());
            page.push_str(&format!("  {literal}{name:<8}{literal:#} {about}\n"));
        }
    }
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> = gctrace
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && !is_grouped(command.get_name()))
        .map(Command::get_name)
        .collect();
    page.push_str(&format!("\n{header}Other commands:{header:#} {}, help\n", others.join(", ")));
    page.push_str(&format!(
        "\n{header}Options:{header:#} gctrace SUBCOMMAND --help; without a subcommand: the options of record{{after-help}}"
    ));
    gctrace.help_template(page)
}
