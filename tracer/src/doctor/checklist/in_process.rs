//! The lines on in-process recording: the library, CUDA, and the choice of `--mode auto`.

use super::{CheckLine, CheckStatus, HostFacts};
use crate::print::clean;
use crate::record::mode::ModeDecision;
use gctrace_event::RecordingMode;

pub(super) fn lines(machine: &HostFacts) -> Vec<CheckLine> {
    vec![library(machine), cuda(machine), auto(machine)]
}

/// The injected library; if kernel probes work, only GPU times need it.
fn library(machine: &HostFacts) -> CheckLine {
    let what = "library";
    match &machine.within.library {
        Ok(path) => CheckLine::ok(what, clean::path(path)),
        Err(error) => {
            let verdict = match machine.within.choice {
                Ok(_) => CheckStatus::Note,
                Err(_) => CheckStatus::Missing,
            };
            CheckLine::new(verdict, what, error.to_string()).with_fix(error.remedy())
        }
    }
}

fn cuda(machine: &HostFacts) -> CheckLine {
    let what = "CUDA";
    let within = &machine.within;
    let Some(driver) = &within.cuda else {
        let absent = "none: no driver with a device was found; GPU times need one";
        return CheckLine::ok(what, absent);
    };
    let driver = driver.display();
    match within.cupti.first() {
        Some(cupti) => CheckLine::ok(what,
            format!("{driver}\n{}", cupti.display()),
        ),
        None => CheckLine::note(what, format!("{driver}\nCUPTI was not found")).with_fix(
            "GPU times need libcupti, part of PyTorch's wheels (nvidia-cuda-cupti) and of the CUDA toolkit.",
        ),
    }
}

fn auto(machine: &HostFacts) -> CheckLine {
    let what = "--mode auto";
    let decision = match &machine.within.choice {
        Ok(decision) => decision,
        Err(refused) => {
            return CheckLine::missing(what, format!("none: {refused}"));
        }
    };
    let verdict = match (&decision.collections, decision.notes.is_empty()) {
        (RecordingMode::Inject, _) | (_, false) => CheckStatus::Note,
        _ => CheckStatus::Ok,
    };
    let details: Vec<String> = decision
        .opening
        .iter()
        .map(|opening| &opening.sentence)
        .chain(&decision.notes)
        .cloned()
        .collect();
    CheckLine::new(verdict, what, chosen(decision)).with_fix(details.join("\n"))
}

fn chosen(decision: &ModeDecision) -> &'static str {
    match (&decision.collections, &decision.injection) {
        (RecordingMode::Inject, _) => "inject: a library in the programs",
        (RecordingMode::Both, _) => "both",
        (_, None) => "ebpf: kernel probes only",
        (_, Some(_)) => {
            "ebpf: kernel probes; GPU times by CUPTI, through a library in the programs"
        }
    }
}
