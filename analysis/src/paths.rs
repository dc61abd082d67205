//! Python's file names: what a file belongs to, and its short name.
//!
//! Judged by the path alone, as recorded in the code object; nothing here reads files.

use crate::figure::Location;
pub use gctrace_event::paths::is_library;
use gctrace_event::paths::within_library;
use serde::Serialize;

/// Whether a library's file belongs to an installed package rather than to the standard library.
pub fn is_package(file: &str) -> bool {
    file.split('/').any(|directory| matches!(directory, "site-packages" | "dist-packages"))
}

/// Whether a file is of the standard library: no change of a program or of a package is one there.
pub(crate) fn is_of_python(file: &str) -> bool {
    is_library(file) && !is_package(file)
}

/// The installed package that a file belongs to, by its name as imported.
pub(crate) fn package(file: &str) -> Option<String> {
    let module = if is_package(file) { module(file) } else { return None };
    let name = module.split('.').next()?;
    if name.is_empty() { None } else { Some(name.to_owned()) }
}

/// Stands for all frames of the import system in a row; no report lists these.
pub(crate) const IMPORT: &str = "[import]";

/// Whether a file belongs to Python's import system.
pub fn is_import(file: &str) -> bool {
    file.starts_with("<frozen importlib")
        || file.starts_with("<frozen zipimport")
        || matches!(within_library(file), Some(behind) if behind.starts_with("importlib/"))
}

/// The module of a file: `torch.optim.adam` of `torch/optim/adam.py`, `torch` of
/// `torch/__init__.py`; of the program's own files the last part of the path.
pub fn module(file: &str) -> String {
    let path = match within_library(file) {
        Some(behind) => behind,
        None => {
            let package = file.strip_suffix("/__init__.py").unwrap_or(file);
            package.rsplit('/').next().unwrap_or(package)
        }
    };
    let path = path.strip_suffix(".py").unwrap_or(path);
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    path.replace('/', ".")
}

/// The training library that a file belongs to, installed or not.
pub(crate) fn training_library(file: &str) -> Option<TrainingLibrary> {
    let (folders, _) = file.rsplit_once('/')?;
    let folders: Vec<&str> = folders.split('/').collect();
    // Its models are used in loops of one's own.
    if file.ends_with("/transformers/trainer.py") {
        return Some(TrainingLibrary::Transformers);
    }
    let contains = |path: &[&str]| folders.windows(path.len()).any(|part| part == path);
    let all = [
        (&["torchtitan"][..], TrainingLibrary::Torchtitan),
        (&["megatron", "bridge"], TrainingLibrary::MegatronBridge),
        (&["megatron", "training"], TrainingLibrary::MegatronLm),
        (&["nemo", "lightning"], TrainingLibrary::Nemo),
        (&["nemo", "collections"], TrainingLibrary::Nemo),
        (&["olmo_core"], TrainingLibrary::OlmoCore),
        (&["torchtnt"], TrainingLibrary::Torchtnt),
        (&["lightning", "pytorch"], TrainingLibrary::Lightning),
        (&["pytorch_lightning"], TrainingLibrary::Lightning),
    ];
    let found = all.into_iter().find(|(path, _)| contains(path));
    found.map(|(_, library)| library)
}

/// The deepest directory that the program's own files have in common, with the trailing slash; empty if that
/// is the root.
pub fn common_directory<'a>(of: impl IntoIterator<Item = &'a Location>) -> &'a str {
    let own = of.into_iter().filter(|line| !line.library && line.file.starts_with('/'));
    match own.map(|line| directory(&line.file)).reduce(common) {
        None | Some("/") => "",
        Some(directory) => directory,
    }
}

/// The directory of a file, with the trailing slash.
fn directory(file: &str) -> &str {
    file.rfind('/').and_then(|slash| file.get(..=slash)).unwrap_or("")
}

/// The deepest common directory of both.
fn common<'a>(a: &'a str, b: &'a str) -> &'a str {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let slash = gctrace_units::part(a.as_bytes(), ..same);
    let slash = slash.iter().rposition(|byte| *byte == b'/');
    slash.and_then(|slash| a.get(..=slash)).unwrap_or("")
}

/// A library's file from its package on: `torch/optim/adam.py`, `json/decoder.py`. Others as they
/// are.
pub fn short(file: &str) -> &str {
    within_library(file).unwrap_or(file)
}

/// Libraries that run training loops, the most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TrainingLibrary {
    /// PyTorch's torchtitan.
    Torchtitan,
    /// NVIDIA's Megatron Bridge.
    MegatronBridge,
    /// NVIDIA's Megatron-LM: `megatron/training`.
    MegatronLm,
    /// NVIDIA's NeMo.
    Nemo,
    /// Ai2's OLMo-core.
    OlmoCore,
    /// PyTorch's TNT.
    Torchtnt,
    /// Lightning, under either of its names.
    Lightning,
    /// The Trainer of Hugging Face's Transformers.
    Transformers,
}

impl TrainingLibrary {
    /// Its name, as its authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torchtitan => "torchtitan",
            Self::MegatronBridge => "Megatron Bridge",
            Self::MegatronLm => "Megatron-LM",
            Self::Nemo => "NeMo",
            Self::OlmoCore => "OLMo-core",
            Self::Torchtnt => "torchtnt",
            Self::Lightning => "Lightning",
            Self::Transformers => "Transformers' Trainer",
        }
    }

    /// Its own switch: `Training.gc_freq` of torchtitan's job configuration (000204a),
    /// `--manual-gc` of Megatron-LM's arguments (core 0.15), `TrainingConfig` of Megatron Bridge,
    /// `GarbageCollectionCallback` of NeMo (2.0, pull request 10261), OLMo-core's
    /// `GarbageCollectorCallback` (2.x), `torchtnt.framework.callbacks.GarbageCollector` (0.2).
    /// Lightning (2.x) and Transformers (4.x, 5.x) have none.
    pub fn switch(self) -> Option<&'static str> {
        Some(match self {
            Self::Torchtitan => "--training.gc_freq N",
            Self::MegatronBridge => "train.manual_gc=true train.manual_gc_interval=N",
            Self::MegatronLm => "--manual-gc --manual-gc-interval N",
            Self::Nemo => "GarbageCollectionCallback(gc_interval_train=N, gc_interval_val=N)",
            Self::OlmoCore => "GarbageCollectorCallback(gc_interval=N)",
            Self::Torchtnt => "GarbageCollector(step_interval=N)",
            Self::Lightning | Self::Transformers => return None,
        })
    }

    /// Whether the switch collects generation 1 only, so that objects surviving two collections are never freed.
    #[must_use]
    pub fn skips_full_collections(self) -> bool {
        matches!(self, Self::Torchtitan | Self::OlmoCore | Self::Torchtnt)
    }
}

/// `train.py:57 in build_batch`, of a library `json/decoder.py:353 in raw_decode`.
pub fn place(location: &Location) -> String {
    let line = if let Some(line) = location.line { format!(":{line}") } else { String::new() };
    match location.file.as_str() {
        "" => location.function.clone(),
        file => format!("{}{line} in {}", short(file), location.function),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries() {
        for (file, name) in [
            ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py"),
            ("/usr/lib64/python3.9/ast.py", "ast.py"),
            ("/opt/lib/python3.13t/ast.py", "ast.py"),
            ("/usr/lib/python3/dist-packages/six.py", "six.py"),
            ("/v/lib/python3.12/site-packages/torch/optim/adam.py", "torch/optim/adam.py"),
            (".venv/lib/python3.12/site-packages/a.py", "a.py"),
            ("/app/lib/python311.zip/ast.py", "ast.py"),
            ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
            ("/v/bin/gunicorn", "/v/bin/gunicorn"),
        ] {
            assert!(is_library(file), "{file}");
            assert_eq!(short(file), name);
        }
    }

    #[test]
    fn training_libraries() {
        for (file, library) in [
            (
                "/v/lib/python3.12/site-packages/torchtitan/train.py",
                Some(TrainingLibrary::Torchtitan),
            ),
            ("/home/me/torchtitan/torchtitan/train.py", Some(TrainingLibrary::Torchtitan)),
            ("/opt/Megatron-LM/megatron/training/training.py", Some(TrainingLibrary::MegatronLm)),
            ("/opt/Megatron-LM/megatron/core/optimizer/a.py", None),
            ("a/nemo/lightning/pytorch/callbacks/peft.py", Some(TrainingLibrary::Nemo)),
            (
                "a/site-packages/lightning/pytorch/loops/fit_loop.py",
                Some(TrainingLibrary::Lightning),
            ),
            (
                "a/site-packages/pytorch_lightning/loops/fit_loop.py",
                Some(TrainingLibrary::Lightning),
            ),
            ("torchtitan.py", None),
            ("a/site-packages/transformers/trainer.py", Some(TrainingLibrary::Transformers)),
            ("a/site-packages/transformers/models/bert/modeling_bert.py", None),
            ("a/site-packages/torch/optim/adam.py", None),
        ] {
            assert_eq!(training_library(file), library, "{file}");
        }
    }

    #[test]
    fn modules() {
        for (file, name) in [
            ("/v/lib/python3.12/site-packages/torch/__init__.py", "torch"),
            ("/v/lib/python3.12/site-packages/torch/optim/adam.py", "torch.optim.adam"),
            ("/usr/lib/python3.11/ast.py", "ast"),
            ("/home/me/model/__init__.py", "model"),
            ("/home/me/model/layers.py", "layers"),
            ("train.py", "train"),
            ("<frozen os>", "<frozen os>"),
        ] {
            assert_eq!(module(file), name);
        }
    }

    #[test]
    fn import_system() {
        for (file, expected) in [
            ("<frozen importlib._bootstrap_external>", true),
            ("<frozen zipimport>", true),
            ("/usr/lib/python3.11/importlib/__init__.py", true),
            ("/usr/lib/python3.11/imp.py", false),
            ("/home/me/importlib/__init__.py", false),
            ("<frozen runpy>", false),
        ] {
            assert_eq!(is_import(file), expected, "{file}");
        }
    }

    #[test]
    fn own() {
        for file in [
            "train.py",
            "bin/train",
            "gunicorn",
            "/home/me/python3.11/train.py",
            "/home/me/lib/train.py",
            "/home/me/lib/python/train.py",
            "/home/me/site-packages",
            "<string>",
            "<stdin>",
            "",
        ] {
            assert!(!is_library(file), "{file}");
            assert_eq!(short(file), file);
        }
    }
}
