//! Torch tier: memory by layer against what each script counts itself, in a run without gctrace; and that
//! a traced program does what it does without.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

const STEPS: &str = "12";
/// What the model `mlp` saves for its backward pass, in bytes (docs/evidence.md).
const SAVED_BY_MLP: u64 = 140_800;

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let objects = text.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The script's own words, of each rank, without gctrace and with the truth.
fn untraced(
    python: &Path,
    arguments: &[&str],
    script: &Path,
    name: &str,
    place: &Path,
) -> Vec<Value> {
    let mut command = Command::new(python);
    command.args(arguments).arg(script).args([name, STEPS, "truth"]).current_dir(place);
    lines(&command.output_in_time().unwrap())
}

fn bytes(row: &Value, of: &str, kind: &str) -> u64 {
    row[of][kind].as_u64().unwrap_or(0)
}

/// The last measured table of a process: its rows, and what was saved at once.
fn table(trace: &Trace, pid: Option<u64>) -> (Vec<Value>, u64) {
    let all = trace.named("gctrace_layers");
    let steps = all
        .iter()
        .filter(|(of, args)| pid.is_none_or(|pid| *of == pid) && args["saved_bytes"].is_u64());
    let steps: Vec<&Value> = steps.map(|(_, args)| *args).collect();
    assert!(steps.len() >= 3, "measured steps: {steps:?}");
    let with_rows = steps.iter().rev().find(|step| step["rows"].is_array()).unwrap();
    let last = steps.last().unwrap();
    assert_eq!(last["saved_bytes"], with_rows["saved_bytes"]);
    (with_rows["rows"].as_array().unwrap().clone(), last["saved_bytes"].as_u64().unwrap())
}

fn is_as_counted(name: &str, truth: &Value, (rows, saved): &(Vec<Value>, u64)) {
    let sum = |kind| rows.iter().map(|row| bytes(row, "held", kind)).sum::<u64>();
    let expected = |kind: &str| truth[kind].as_u64().unwrap();
    assert_eq!(sum("weights"), expected("weights"), "{name}");
    assert_eq!(sum("gradients"), expected("gradients"), "{name}");
    assert_eq!(sum("optimizer"), expected("optimizer"), "{name}");
    assert_eq!(*saved, expected("saved"), "{name}");
    let of_rows: u64 = rows.iter().map(|row| bytes(row, "made", "saved")).sum();
    assert_eq!(of_rows, *saved, "{name}: one pass a step");
    if let Some(by_layer) = truth["saved_by_layer"].as_object() {
        let counted: BTreeMap<&str, u64> =
            by_layer.iter().map(|(layer, size)| (layer.as_str(), size.as_u64().unwrap())).collect();
        let measured = rows.iter().filter(|row| bytes(row, "made", "saved") > 0).map(|row| {
            let is_no_layer = row["marks"].to_string().contains("no_layer");
            let path = if is_no_layer { "None" } else { row["path"].as_str().unwrap() };
            (path, bytes(row, "made", "saved"))
        });
        assert_eq!(measured.collect::<BTreeMap<&str, u64>>(), counted, "{name}");
    }
    let weights = truth["weights_by_layer"].as_object().unwrap();
    for row in rows.iter().filter(|row| bytes(row, "held", "weights") > 0) {
        let path = row["path"].as_str().unwrap();
        assert_eq!(weights[path].as_u64(), Some(bytes(row, "held", "weights")), "{name} {path}");
    }
}

/// Whether a program with `--layers` did what it does without gctrace.
fn is_unchanged(name: &str, untraced: &Value, traced: &Value) {
    for what in ["losses", "random", "modules", "types", "hooks", "compiled"] {
        assert_eq!(untraced[what], traced[what], "{name}: {what}");
    }
    assert_eq!(traced["hooks"], serde_json::json!([0, 0, true]), "{name}: nothing is left behind");
}

#[test]
fn memory_by_layer_is_as_counted() {
    let models = ["mlp", "checkpointed", "compiled", "offloaded", "several"];
    are_as_counted("memory_by_layer_is_as_counted", &models);
}

#[test]
fn memory_by_layer_of_more_models() {
    let models = [
        "cnn",
        "transformer",
        "neumf",
        "lstm",
        "lora",
        "compiled_in_place",
        "transformed",
        "autocast",
        "half",
    ];
    are_as_counted("memory_by_layer_of_more_models", &models);
}

fn are_as_counted(test: &str, models: &[&str]) {
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let script = recording::scripts().join("torch_layers.py");
    for name in models {
        let place = tempfile::tempdir().unwrap();
        let alone = untraced(&python, &[], &script, name, place.path());
        let (program, path) = (python.to_str().unwrap(), script.to_str().unwrap());
        let line = ["--mode", "inject", "--layers", "3", "--", program, path, name, STEPS];
        let output = recording::gctrace(&line, place.path());
        let traced = lines(&output);
        is_unchanged(name, &alone[0], &traced[0]);
        let trace = Trace::read(&place.path().join("trace.json"));
        trace.assert_nothing_lost();
        let table = table(&trace, None);
        is_as_counted(name, &alone[0]["truth"], &table);
        marks_are(name, &table.0);
        let remarks = remarks(&trace);
        assert_eq!(remarks, expected_remarks(name), "{name}");
        println!("{test}: {name}: {} layers, {} bytes saved", table.0.len(), table.1);
    }
}

/// What all tables of a trace state.
fn remarks(trace: &Trace) -> BTreeSet<String> {
    let all = trace.named("gctrace_layers");
    let all = all.iter().filter_map(|(_, args)| args["remarks"].as_array()).flatten();
    let all = all.filter_map(|remark| remark.as_str()).filter(|remark| *remark != "at_end");
    all.map(str::to_owned).collect()
}

fn expected_remarks(name: &str) -> BTreeSet<String> {
    let expected: &[&str] = match name {
        "compiled" | "compiled_in_place" => &["compiled"],
        "transformed" => &["saved_forbidden", "several_passes"],
        "offloaded" => &["own_hooks"],
        "several" => &[
            "inference",
            "quantized",
            "several_models",
            "several_optimizers",
            "several_passes",
            "sparse",
        ],
        "ddp" => &["replicated"],
        "zero" => &["replicated", "zero"],
        "fsdp1" | "fsdp2" => &["sharded"],
        _ => &[],
    };
    expected.iter().map(|remark| (*remark).to_owned()).collect()
}

/// What is special about layers of some models.
fn marks_are(name: &str, rows: &[Value]) {
    let row = |path: &str| rows.iter().find(|row| row["path"] == path).unwrap();
    match name {
        "transformer" => assert_eq!(row("head")["tied"], "weight = embedding.weight"),
        "checkpointed" => {
            assert!(row("blocks.0.up")["marks"].to_string().contains("recomputed"));
            assert_eq!(bytes(row("blocks.0.up"), "made", "saved"), 0);
        }
        "lora" => {
            assert!(row("0")["marks"].to_string().contains("frozen"));
            assert_eq!(bytes(row("0"), "held", "gradients"), 0);
        }
        // One row for its graph: the model's.
        "compiled_in_place" => {
            assert_eq!(row("")["type_name"], "Sequential");
            assert!(bytes(row(""), "made", "saved") > 0);
        }
        "autocast" | "half" => {
            // By hand: copies of two bytes each, of the input, and of the weights behind which a gradient goes on.
            assert_eq!(bytes(row("0"), "made", "saved"), 32 * 64 * 2);
            assert_eq!(bytes(row("2"), "made", "saved"), 256 * 256 * 2);
            assert_eq!(bytes(row("0"), "held", "weights"), (64 * 256 + 256) * 4);
        }
        "neumf" => {
            // By hand: 256 pairs, vectors of 32 floats; docs/tasks/layers.md.
            assert_eq!(bytes(row("gmf_user"), "held", "weights"), 2000 * 32 * 4);
            assert_eq!(bytes(row("gmf_item"), "held", "weights"), 1500 * 32 * 4);
            assert_eq!(bytes(row("mlp.0"), "held", "weights"), (64 * 64 + 64) * 4);
            assert_eq!(bytes(row("gmf_user"), "made", "outputs"), 256 * 32 * 4);
        }
        _ => {}
    }
}

#[test]
fn two_ranks_of_ddp() {
    two_ranks("two_ranks_of_ddp", "ddp");
}

/// What each rank has of a model, its gradients and its optimizer, and that the parts make the whole.
#[test]
fn two_ranks_of_zero_and_fsdp() {
    for name in ["zero", "fsdp1", "fsdp2"] {
        two_ranks("two_ranks_of_zero_and_fsdp", name);
    }
}

fn two_ranks(test: &str, name: &str) {
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let script = recording::scripts().join("torch_layers.py");
    let launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"];
    let place = tempfile::tempdir().unwrap();
    let alone = untraced(&python, &launcher, &script, name, place.path());
    let mut line = vec!["--mode", "inject", "--layers", "3", "--", python.to_str().unwrap()];
    line.extend(launcher);
    line.extend([script.to_str().unwrap(), name, STEPS]);
    let traced = lines(&recording::gctrace(&line, place.path()));
    let trace = Trace::read(&place.path().join("trace.json"));
    assert_eq!(remarks(&trace), expected_remarks(name), "{name}");
    let processes = trace.named("gctrace_process");
    let mut whole = BTreeMap::<&str, u64>::new();
    for rank in 0..2_u64 {
        let of_rank = |all: &[Value]| all.iter().find(|one| one["rank"] == rank).cloned().unwrap();
        let (alone, traced) = (of_rank(&alone), of_rank(&traced));
        is_unchanged(name, &alone, &traced);
        let has_layers = |pid: u64| trace.named("gctrace_layers").iter().any(|(of, _)| *of == pid);
        let process = processes.iter().find(|(pid, args)| args["rank"] == rank && has_layers(*pid));
        let (pid, _) = process.unwrap();
        let table = table(&trace, Some(*pid));
        is_as_counted(name, &alone["truth"], &table);
        // Its batch is that of the whole model, whose gathered weights are not among it.
        assert_eq!(table.1, SAVED_BY_MLP, "{name}");
        for kind in ["weights", "optimizer"] {
            let bytes: u64 = table.0.iter().map(|row| bytes(row, "held", kind)).sum();
            *whole.entry(kind).or_default() += bytes;
        }
    }
    // By hand: (64 * 256 + 256) + (256 * 256 + 256) + 2 * 256 + (256 * 10 + 10) floats, of which AdamW keeps two each,
    // and four bytes per tensor.
    let (weights, tensors) = (342_056, 8);
    let copies = |is_sharded: bool| if is_sharded { 1 } else { 2 };
    assert_eq!(whole["weights"], copies(name.starts_with("fsdp")) * weights, "{name}");
    let steps = match name {
        "ddp" | "fsdp2" => 2 * tensors,
        // Each rank has a flat tensor of each of four parts, with a float of padding in none.
        "fsdp1" => 2 * 4,
        _ => tensors,
    };
    assert_eq!(whole["optimizer"], copies(name != "ddp") * 2 * weights + 4 * steps, "{name}");
}

/// Errors of a tensor that was modified in place, with and without anomaly detection: as torch words them, but
/// which output it is, which hooks are not told.
#[test]
fn the_error_of_a_modified_tensor_is_as_without_gctrace() {
    let test = "the_error_of_a_modified_tensor_is_as_without_gctrace";
    let Some(python) = interpreters::torch(test) else { return };
    let script = r#"
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    for detects in False, True:
        with torch.autograd.set_detect_anomaly(detects, check_nan=False):
            leaf, middle = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True).exp()
            products = (leaf * middle).sum(), middle.exp().sum()
            with torch.no_grad():
                leaf.add_(1), middle.add_(1)
            for product in products:
                try:
                    product.backward()
                except RuntimeError as error:
                    print(step, error)
"#;
    let said = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.lines().count() >= 12, "{output:?}");
        let without_output = |line: &str| match line.split_once(", which is output ") {
            Some((before, after)) => {
                format!("{before}{}", after.split_once(',').map_or("", |(_, rest)| rest))
            }
            None => line.to_owned(),
        };
        text.lines().map(without_output).collect::<Vec<_>>()
    };
    let place = tempfile::tempdir().unwrap();
    let alone = Command::new(&python).args(["-c", script]).output_in_time().unwrap();
    let python = python.to_str().unwrap();
    let traced = ["record", "-q", "--mode", "inject", "--layers", "1", "--", python, "-c", script];
    let traced = recording::gctrace(&traced, place.path());
    assert_eq!(said(&traced), said(&alone));
    assert!(said(&alone).iter().all(|line| line.contains("Hint: ")), "{alone:?}");
}
