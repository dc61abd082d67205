//! The lines about recording from within programs: the library, CUDA, and what `--mode auto` would use.

use super::Line;
use super::Machine;
use super::Verdict;
use crate::print::clean;
use crate::record::mode::Collections;
use crate::record::mode::Decision;

pub(super) fn lines(machine: &Machine) -> Vec<Line> {
    vec![library(machine), cuda(machine), auto(machine)]
}

/// Where the kernel's probes work, it only brings GPU times.
fn library(machine: &Machine) -> Line {
    let what = "library";
    match &machine.within.library {
        Ok(path) => Line::new(Verdict::Ok, what, clean::path(path)),
        Err(error) => {
            let verdict = match machine.within.choice {
                Ok(_) => Verdict::Note,
                Err(_) => Verdict::Missing,
            };
            Line::new(verdict, what, error.to_string()).mend(error.remedy())
        }
    }
}

fn cuda(machine: &Machine) -> Line {
    let what = "CUDA";
    let within = &machine.within;
    let Some(driver) = &within.cuda else {
        let absent = "none: no driver with a device was found; GPU times need one";
        return Line::new(Verdict::Ok, what, absent);
    };
    let driver = driver.display();
    match within.cupti.first() {
        Some(cupti) => Line::new(
            Verdict::Ok,
            what,
            format!("{driver}\n{}", cupti.display()),
        ),
        None => Line::new(Verdict::Note, what, format!("{driver}\nCUPTI was not found")).mend(
            "GPU times come from libcupti, which PyTorch's wheels (nvidia-cuda-cupti) and CUDA's toolkit bring.",
        ),
    }
}

fn auto(machine: &Machine) -> Line {
    let what = "--mode auto";
    let decision = match &machine.within.choice {
        Ok(decision) => decision,
        Err(refused) => {
            return Line::new(Verdict::Missing, what, format!("nothing: {refused}"));
        }
    };
    let verdict = match (decision.collections, decision.notes.is_empty()) {
        (Collections::Injected, _) | (_, false) => Verdict::Note,
        _ => Verdict::Ok,
    };
    let said: Vec<String> = decision
        .opening
        .iter()
        .map(|opening| &opening.sentence)
        .chain(&decision.notes)
        .cloned()
        .collect();
    Line::new(verdict, what, chosen(decision)).mend(said.join("\n"))
}

fn chosen(decision: &Decision) -> &'static str {
    match (decision.collections, &decision.injection) {
        (Collections::Injected, _) => "inject: a library in the programs",
        (Collections::Both, _) => "both",
        (Collections::Probes, None) => "ebpf: probes of the kernel alone",
        (Collections::Probes, Some(_)) => {
            "ebpf: probes of the kernel; GPU times by CUPTI, through a library in the programs"
        }
    }
}
