//! Runs the commands in the documents for users, so that they stay true.
//!
//! Owns the markers. Each block of shell commands in these documents follows a comment:
//!
//! ```text
//! <!-- run in ENVIRONMENT: CHECK; CHECK -->   the test of that environment runs it
//! <!-- run by hand: HOW -->                   it was run, but not by a test
//! <!-- not run: REASON -->
//! ```
//!
//! The blocks of a page run in order, in one folder, which has the programs of `tests/docs`. Checks:
//! `prints TEXT` (on either stream; spaces and line breaks are alike), `files NAME NAME` (exactly
//! these files are new or changed; `PID` in a name are digits), `exit CODE` (otherwise 0). `HOST` is
//! the name of this host.

use crate::interpreters::root;
use crate::limit::WithTimeout as _;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Each environment is run by the test of the same name; see `tracer/tests/*docs.rs`.
pub const ENVIRONMENTS: [&str; 6] = ["user", "root", "torch", "slurm", "mpi", "ray"];

/// `nobody` of Debian; any id without files would do.
const NOBODY_UID: u32 = 65534;

/// A block of shell commands in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The document, relative to the checkout.
    pub page: String,
    /// Line of its first command, from 1.
    pub line: usize,
    /// Its commands.
    pub commands: String,
    /// Where it runs; `None` if no test runs it.
    pub environment: Option<String>,
    /// Its checks, as written.
    pub checks: Vec<String>,
}

/// The documents for users.
pub fn pages() -> Vec<String> {
    let tasks = std::fs::read_dir(root().join("docs/tasks")).unwrap();
    let names = tasks.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = names.map(|name| format!("docs/tasks/{name}")).collect();
    pages.extend(["README.md".to_owned(), "docs/README.md".to_owned()]);
    pages.sort();
    pages
}

/// The blocks of all documents for users.
///
/// # Errors
/// A line for each block without a valid marker.
pub fn blocks() -> Result<Vec<Block>, Vec<String>> {
    let (mut blocks, mut errors) = (Vec::new(), Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for block in blocks_of(&page, &text) {
            match block {
                Ok(block) => blocks.push(block),
                Err(error) => errors.push(error),
            }
        }
    }
    if errors.is_empty() { Ok(blocks) } else { Err(errors) }
}

/// The blocks of one document.
pub fn blocks_of(page: &str, text: &str) -> Vec<Result<Block, String>> {
    let (mut blocks, mut marker, mut open) = (Vec::new(), None, None::<(usize, String, bool)>);
    for (number, line) in (1..).zip(text.lines()) {
        // Within a list, blocks are indented.
        let line = line.trim_start();
        match (&mut open, line.strip_prefix("```")) {
            (Some((start, commands, is_shell)), Some("")) => {
                if *is_shell {
                    blocks.push(block(page, *start, commands, marker.take()));
                }
                open = None;
            }
            (Some((_, commands, _)), _) => {
                commands.push_str(line);
                commands.push('\n');
            }
            (None, Some(language)) => {
                let is_shell = ["sh", "bash", "console", "shell"].contains(&language);
                open = Some((number + 1, String::new(), is_shell));
            }
            (None, None) => match line.strip_prefix("<!-- ") {
                Some(comment) => marker = comment.strip_suffix(" -->"),
                None if line.trim().is_empty() => {}
                None => marker = None,
            },
        }
    }
    blocks
}

fn block(page: &str, line: usize, commands: &str, marker: Option<&str>) -> Result<Block, String> {
    let wrong = |reason: &str| format!("{page}:{line}: {reason}; see tests/kit/src/docs.rs");
    let marker = marker.ok_or_else(|| wrong("a block of commands without a marker"))?;
    let (kind, rest) = marker.split_once(':').unwrap_or((marker, ""));
    let rest = rest.trim();
    let environment = match kind {
        "not run" | "run by hand" if rest.len() < 10 => {
            return Err(wrong("a marker without reason"));
        }
        "not run" | "run by hand" => None,
        _ => Some(kind.strip_prefix("run in ").ok_or_else(|| wrong("an unknown marker"))?),
    };
    if environment.is_some_and(|name| !ENVIRONMENTS.contains(&name)) {
        return Err(wrong("an unknown environment"));
    }
    let checks = match environment {
        Some(_) => rest.split(';').map(|check| check.trim().to_owned()).collect(),
        None => Vec::new(),
    };
    let known =
        |check: &str| ["prints ", "files ", "exit "].iter().any(|one| check.starts_with(one));
    if !checks.iter().all(|check| known(check)) {
        return Err(wrong("an unknown check"));
    }
    Ok(Block {
        page: page.to_owned(),
        line,
        commands: commands.to_owned(),
        environment: environment.map(str::to_owned),
        checks,
    })
}

/// Runs all blocks of an environment, each page in a new folder. `prepare` completes the shell that
/// will run a page's blocks; what it returns is kept until they have run.
///
/// # Panics
/// If a block fails or a check is not met, or if the environment has no block.
pub fn run<G>(environment: &str, mut prepare: impl FnMut(&mut Shell) -> G) {
    let all = blocks().expect("every block has a marker");
    let all = all.iter().filter(|block| block.environment.as_deref() == Some(environment));
    let mut pages: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in all {
        pages.entry(&block.page).or_default().push(block);
    }
    assert!(!pages.is_empty(), "{environment}: no document has such a block");
    for (page, blocks) in pages {
        let mut shell = Shell::new();
        let _kept = prepare(&mut shell);
        for block in blocks {
            shell.run(block);
        }
        eprintln!("{page}: its blocks in {environment} ran");
    }
}

/// A folder with programs, and how commands are run in it.
pub struct Shell {
    folder: tempfile::TempDir,
    /// Where commands run.
    pub work: PathBuf,
    /// A folder with gctrace, before the system's in PATH.
    bin: PathBuf,
    /// Folders before that.
    pub path: Vec<PathBuf>,
    /// Further environment variables.
    pub variables: Vec<(String, String)>,
    /// Words to replace in commands.
    pub words: Vec<(String, String)>,
    /// Folders that an ordinary user must be able to read; commands run as one unless it is `None`
    /// or the test runs as one anyway.
    pub ordinary_user: Option<Vec<PathBuf>>,
}

impl Shell {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let bin = folder.path().join("bin");
        let temporary = folder.path().join("tmp");
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        for (path, mode) in [(&work, 0o777), (&bin, 0o755), (&temporary, 0o777)] {
            std::fs::create_dir(path).unwrap();
            open(path, mode);
        }
        let built = Path::new(crate::recording::binary()).parent().unwrap();
        for name in ["gctrace", "deps/libgctrace_inject.so", "deps/libgctrace_simgpu.so"] {
            let file = Path::new(name).file_name().unwrap();
            std::fs::copy(built.join(name), bin.join(file)).expect("cargo builds it with gctrace");
            open(&bin.join(file), 0o755);
        }
        let shell = Self {
            bin,
            path: Vec::new(),
            work,
            folder,
            variables: Vec::new(),
            words: Vec::new(),
            ordinary_user: None,
        };
        shell.add("");
        shell
    }

    /// Copies the files of a folder of `tests/docs`: what is executable to PATH, the others to
    /// where the commands run.
    pub fn add(&self, name: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        for entry in std::fs::read_dir(root().join("tests/docs").join(name)).unwrap() {
            let path = entry.unwrap().path();
            let about = path.metadata().unwrap();
            let executable = about.permissions().mode() & 0o111 != 0;
            if about.is_file() {
                let place = if executable { &self.bin } else { &self.work };
                let to = place.join(path.file_name().unwrap());
                std::fs::copy(&path, to).unwrap();
            }
        }
    }

    /// A shell that runs these commands.
    pub fn command(&self, commands: &str) -> Command {
        let folders = self.path.iter().chain([&self.bin]);
        let mut path: Vec<String> = folders.map(|one| one.display().to_string()).collect();
        path.push("/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned());
        let mut command = match &self.ordinary_user {
            Some(folders) if std::fs::metadata("/proc/self").unwrap().uid() == 0 => {
                let mut command = Command::new(root().join("tests/as_user.sh"));
                command.arg(NOBODY_UID.to_string()).args(folders);
                command.args(["--", "bash"]);
                command
            }
            _ => Command::new("bash"),
        };
        command
            .args(["-eu", "-o", "pipefail", "-c", commands])
            .current_dir(&self.work)
            .env_clear()
            .env("PATH", path.join(":"))
            .env("HOME", &self.work)
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(self.variables.iter().cloned());
        command
    }

    fn run(&self, block: &Block) {
        let before = self.files();
        let commands = replaced(&block.commands, &self.words);
        let output = self.command(&commands).output_in_time().expect("bash");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let place = format!("{}:{}\n{commands}\n{printed}", block.page, block.line);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let mut exit = 0;
        for check in &block.checks {
            let check = check.replace("HOST", host.trim());
            let (kind, rest) = check.split_once(' ').expect("known checks have a value");
            match kind {
                "prints" => {
                    assert!(words(&printed).contains(&words(rest)), "not printed: {rest}\n{place}")
                }
                "exit" => exit = rest.parse().expect("an exit code"),
                _ => self.compare_files(&before, rest, &place),
            }
        }
        assert_eq!(output.status.code(), Some(exit), "{place}");
    }

    /// Names of the files, and when they were last changed.
    fn files(&self) -> BTreeMap<String, SystemTime> {
        let entries = std::fs::read_dir(&self.work).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.metadata().unwrap().is_file());
        let changed = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            (name, entry.metadata().unwrap().modified().unwrap())
        };
        files.map(changed).collect()
    }

    fn compare_files(&self, before: &BTreeMap<String, SystemTime>, expected: &str, place: &str) {
        let is_new = |(name, changed): &(String, SystemTime)| before.get(name) != Some(changed);
        let after = self.files().into_iter().filter(is_new);
        let mut found: Vec<String> = after.map(|(name, _)| name).collect();
        let mut missing = Vec::new();
        for pattern in expected.split_whitespace() {
            match found.iter().position(|name| matches(pattern, name)) {
                Some(at) => drop(found.remove(at)),
                None => missing.push(pattern),
            }
        }
        assert!(
            missing.is_empty() && found.is_empty(),
            "missing files: {missing:?}, unexpected ones: {found:?}\n{place}"
        );
    }
}

/// Whether a name is the pattern, in which `PID` is a number.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once("PID") {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            let digits =
                rest.len() - rest.trim_start_matches(|one: char| one.is_ascii_digit()).len();
            digits > 0 && matches(tail, &rest[digits..])
        }),
    }
}

/// Commands in which whole words are replaced.
fn replaced(commands: &str, words: &[(String, String)]) -> String {
    let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let mut text = String::new();
    let mut rest = commands;
    while !rest.is_empty() {
        let end = rest.find(|one| !is_part(one)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let found = words.iter().find(|(name, _)| name == word);
        text.push_str(found.map_or(word, |(_, value)| value));
        let next = behind.find(is_part).unwrap_or(behind.len());
        text.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    text
}

/// A text with single spaces, without the name before each line of a message.
fn words(text: &str) -> String {
    let lines = text.lines().map(|line| line.strip_prefix("gctrace: ").unwrap_or(line));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ")
}
