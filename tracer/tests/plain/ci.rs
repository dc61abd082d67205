//! `--fail-if` as CI systems read it: the composite action and the GitLab job of `packaging/` run as their servers
//! would run them. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use test_kit::interpreters::{any_python, root};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

/// A part of its time are collections at one line.
const PROGRAM: &str = "\
import gc, time
kept = [[i] for i in range(50_000)]
def step():
    gc.collect()
for _ in range(60):
    step()
    time.sleep(0.02)
";

/// A folder with the program, `count` traces of it and `gctrace` in `bin`.
fn place(count: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("train,1.py"), PROGRAM).unwrap();
    fs::create_dir(place.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(recording::binary(), place.path().join("bin/gctrace")).unwrap();
    for number in 0..count {
        let trace = format!("trace{number}.json");
        let python = any_python();
        let program = place.path().join("train,1.py");
        let words = ["-q", "--mode", "inject", "-o", &trace, "--"];
        let command = [python.to_str().unwrap(), program.to_str().unwrap()];
        let output = recording::gctrace(&[&words[..], &command[..]].concat(), place.path());
        assert!(output.status.success(), "{output:?}");
    }
    place
}

/// The last block of a shell script in a YAML file, which begins after a line that ends in `|`.
fn script(file: &str) -> String {
    let text = fs::read_to_string(root().join("packaging").join(file)).unwrap();
    let (_, block) = text.rsplit_once("|\n").unwrap();
    let indent = block.len() - block.trim_start().len();
    let inside =
        |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent;
    let lines = block.lines().take_while(inside);
    lines.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
}

fn run(
    (program, options): (&str, &[&str]),
    file: &str,
    place: &Path,
    variables: &[(&str, &str)],
) -> Output {
    let path = format!("{}:/usr/bin:/bin", place.join("bin").display());
    let mut command = Command::new(program);
    command.args(options).arg(script(file)).current_dir(place).env("PATH", path);
    command.envs(variables.iter().copied()).output_in_time().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_composite_action_annotates_and_summarizes() {
    let place = place(1);
    let judge = |limits: &str| {
        let summary = place.path().join("summary.md");
        let _ = fs::remove_file(&summary);
        let variables = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_STEP_SUMMARY", "summary.md"),
            ("TRACES", "trace0.json"),
            ("BEFORE", ""),
            ("FAIL_IF", limits),
        ];
        // As the runner starts `shell: bash`.
        let shell = ("bash", &["--noprofile", "--norc", "-eo", "pipefail", "-c"][..]);
        let output = run(shell, "github/action.yml", place.path(), &variables);
        (output.status.code(), errors(&output), fs::read_to_string(summary).unwrap())
    };
    let (code, told, summary) = judge("gc_share>1%\nlongest>1h\n");
    assert_eq!(code, Some(3), "{told}");
    let annotation = "::error title=gctrace gc_share,file=train%2C1.py,line=4::limit exceeded: the collector paused ";
    assert!(told.lines().any(|line| line.starts_with(annotation)), "{told}");
    assert_eq!(told.matches("::error").count(), 1, "{told}");
    assert!(summary.starts_with("### gctrace: The garbage collector "), "{summary}");
    assert!(summary.contains("\n- \u{274c} limit exceeded: the collector paused "), "{summary}");
    assert!(summary.contains("\n- \u{2705} limit kept: the longest pause "), "{summary}");
    assert!(summary.contains("</summary>\n\n**The garbage collector "), "{summary}");
    assert!(summary.contains("\n\n#### Where it comes from\n\n| "), "{summary}");
    let (code, told, summary) = judge("gc_share>50%");
    assert!(code == Some(0) && !told.contains("::error"), "{told}");
    assert!(
        told.contains("gctrace: limit kept: the collector paused ") && summary.contains("\u{2705}"),
        "{told}"
    );
}

#[test]
fn the_gitlab_job_writes_code_quality() {
    let place = place(2);
    let judge = |limits: &str, before: &str, traces: &str| {
        let variables =
            [("GCTRACE_TRACES", traces), ("GCTRACE_BEFORE", before), ("GCTRACE_FAIL_IF", limits)];
        let output = run(("sh", &["-ec"]), "gitlab/gctrace.yml", place.path(), &variables);
        let quality = fs::read(place.path().join("gctrace-code-quality.json"));
        let quality: Value =
            quality.map_or(Value::Null, |quality| serde_json::from_slice(&quality).unwrap());
        let document = fs::read_to_string(place.path().join("gctrace.md")).unwrap();
        (output.status.code(), errors(&output), quality, document)
    };
    let (code, told, quality, document) = judge("gc_share>1% longest>1h", "", "trace0.json");
    assert!(code == Some(3) && !told.contains("::error"), "{told}");
    let [issue] = &quality.as_array().unwrap()[..] else { panic!("{quality}") };
    assert!(issue["description"].as_str().unwrap().starts_with("limit exceeded: "), "{quality}");
    assert_eq!(issue["location"], serde_json::json!({"path": "train,1.py", "lines": {"begin": 4}}));
    assert_eq!(issue["fingerprint"], "gctrace-gc_share-train,1.py");
    assert!(document.starts_with("### gctrace: "), "{document}");
    // Kept: a list without issues, so that those of before are resolved.
    let (code, told, quality, _) = judge("gc_share>50%", "", "trace0.json");
    assert_eq!((code, quality), (Some(0), Value::Array(Vec::new())), "{told}");
    // One run on a side supports no verdict.
    let (code, told, ..) = judge("step_time>2%", "trace0.json", "trace1.json");
    assert!(code == Some(2) && told.contains("several runs on each side"), "{told}");
}

/// The noise of the same program in four runs fails no limit.
#[test]
fn comparisons_say_what_was_kept() {
    let place = place(4);
    let words = ["compare", "--fail-if", "gc_share>+50%", "--format", "markdown"];
    let runs = ["trace0.json", "trace1.json", "--", "trace2.json", "trace3.json"];
    let output = recording::gctrace(&[&words[..], &runs[..]].concat(), place.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(errors(&output).contains("limit kept: gc_share grew by "), "{output:?}");
    let document = String::from_utf8_lossy(&output.stdout);
    assert!(
        document.contains("- \u{2705} limit kept: gc\\_share grew by ")
            && document.contains("Figures"),
        "{document}"
    );
}
