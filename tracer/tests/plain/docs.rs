//! The documents for users: their commands, as far as an ordinary user can run them, and the index.

use test_kit::docs;
use test_kit::interpreters::root;

#[test]
fn every_command_has_a_marker() {
    let blocks = docs::blocks().unwrap_or_else(|errors| panic!("{}", errors.join("\n")));
    for environment in docs::ENVIRONMENTS {
        let mut named = blocks.iter().map(|block| block.environment.as_deref());
        assert!(named.any(|name| name == Some(environment)), "{environment}");
    }
}

#[test]
fn blocks_without_a_valid_marker_are_errors() {
    let of = |marker: &str| {
        let text = format!("Text.\n\n{marker}\n```sh\ngctrace\n```\n");
        let mut blocks = docs::blocks_of("page.md", &text);
        assert_eq!(blocks.len(), 1, "{text}");
        blocks.remove(0)
    };
    let block = of("<!-- run in user: exit 3; prints a b -->").unwrap();
    assert_eq!(block.checks, ["exit 3", "prints a b"]);
    assert_eq!((block.line, block.commands.as_str()), (5, "gctrace\n"));
    assert_eq!(of("<!-- not run: there is no cluster here -->").unwrap().environment, None);
    let wrong = [
        "",
        "<!-- not run: -->",
        "<!-- run in user -->",
        "<!-- run in user: shows it -->",
        "<!-- run in space: exit 0 -->",
        "<!-- a comment -->",
    ];
    for marker in wrong {
        assert!(of(marker).is_err(), "{marker}");
    }
    let text = "<!-- not run: there is no cluster here -->\nText.\n```sh\ngctrace\n```\n";
    assert!(docs::blocks_of("page.md", text)[0].is_err(), "a marker of other text");
}

#[test]
fn the_index_names_every_document() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).expect("the index");
    let tasks = docs::pages().into_iter();
    let mut documents: Vec<String> = tasks.filter(|page| page.starts_with("docs/tasks")).collect();
    for entry in std::fs::read_dir(root().join("docs")).expect("docs") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        if name.ends_with(".md") && name != "README.md" {
            documents.push(format!("docs/{name}"));
        }
    }
    for document in documents {
        let link = format!("]({})", document.trim_start_matches("docs/"));
        assert!(index.contains(&link), "{document} is not in docs/README.md");
    }
}

#[test]
fn commands_of_an_ordinary_user() {
    docs::run("user", |shell| shell.ordinary_user = Some(Vec::new()));
}
