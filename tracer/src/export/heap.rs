//! `gctrace export` of a heap: for graphviz a picture of one path or cycle.
//!
//! Owns the choice of the objects to draw; `heap/picture.rs` has the objects of a picture, `heap/dot.rs` how they look.

use crate::args::{ExportArgs, ExportFormat, HeapTarget};
use crate::heap::{Picture, dot, find, name, read};
use anyhow::Context as _;
use gctrace_heap::{Heap, NodeIndex};

/// Writes a heap in the format that was asked for.
///
/// # Errors
/// More than one file, a format that is for traces, nothing to draw or no such object, or the output
/// cannot be written.
pub(super) fn run(config: &ExportArgs) -> anyhow::Result<()> {
    let [file] = config.traces.as_slice() else {
        anyhow::bail!("export one heap at a time; to compare heaps: gctrace heap diff A B");
    };
    let heap = read(file)?;
    match config.format() {
        ExportFormat::Dot => {
            let picture = picture(&heap, config)?;
            super::output(config, &|mut out| dot::write(&picture, &mut out))
        }
        ExportFormat::Svg => {
            let (option, target) = picture_of(config)?;
            anyhow::bail!(
                "graphviz draws heaps: gctrace export {} {option} {} | dot -Tsvg -o {}",
                file.display(),
                name(target),
                config.output.as_deref().unwrap_or("heap.svg".as_ref()).display()
            )
        }
        ExportFormat::Collapsed
        | ExportFormat::Speedscope
        | ExportFormat::Pstats
        | ExportFormat::Csv
        | ExportFormat::Perfetto
        | ExportFormat::Parquet => {
            anyhow::bail!("{} is a heap: export it with --format dot", file.display())
        }
    }
}

/// The option that names the objects to draw, and its value.
fn picture_of(config: &ExportArgs) -> anyhow::Result<(&'static str, &HeapTarget)> {
    match (&config.path, &config.cycle) {
        (Some(target), _) => Ok(("--path", target)),
        (None, Some(target)) => Ok(("--cycle", target)),
        (None, None) => anyhow::bail!(
            "a picture shows one object: name it with --path TYPE|ADDRESS or --cycle TYPE|ADDRESS"
        ),
    }
}

fn picture(heap: &Heap, config: &ExportArgs) -> anyhow::Result<Picture> {
    let (option, target) = picture_of(config)?;
    if option == "--path" {
        return Ok(Picture::of_path(heap, alive(heap, target)?));
    }
    let mut nodes = find(heap, target)?;
    // Cycles of living objects mostly lead through modules.
    nodes.sort_by_key(|node| !heap.is_garbage(*node));
    let found = nodes.iter().find_map(|node| Picture::of_cycle(heap, *node));
    found.with_context(|| format!("no such object is in a cycle: {}", name(target)))
}

fn alive(heap: &Heap, target: &HeapTarget) -> anyhow::Result<NodeIndex> {
    let nodes = find(heap, target)?;
    let found = nodes.into_iter().find(|node| !heap.is_garbage(*node));
    found.with_context(|| {
        let name = name(target);
        format!(
            "{name} is garbage: no root reaches it. What keeps it from being freed: --cycle {name}"
        )
    })
}
