//! Remedies and exit codes for errors of commands that record.

use super::os_error;
use crate::launch::{LaunchError, LibraryError};
use crate::privileges::PrivilegeError;
use crate::record::kernel::permission::AttachRefusal;
use crate::record::mode::ModeError;
use crate::setup::NotPermitted;
use crate::text::{chain, shell_line};
use gctrace_ebpf::Error as BpfError;
use nix::errno::Errno;
use std::error::Error;

/// The remedy for an error, ready to print after it; `None` if there is none.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    let errno = errno(error);
    // Some errors have already been converted to text.
    if errno == Some(Errno::EMFILE) || chain(error).contains("(os error 24)") {
        return Some("Raise this shell's limit of open files: ulimit -n 1024".to_owned());
    }
    if let Some(denied) = cause::<PrivilegeError>(error) {
        return Some(denied.remedy());
    }
    if let Some(refused) = cause::<ModeError>(error) {
        return Some(refused.remedy().trim_end().to_owned());
    }
    if let Some(error) = error.downcast_ref::<NotPermitted>() {
        return Some(error.remedy());
    }
    if let Some(error) = error.downcast_ref::<LibraryError>() {
        return Some(error.remedy());
    }
    if let Some(LaunchError::NotFound { program, .. }) = cause(error) {
        return script_hint(program);
    }
    if let Some(forbidden) = cause::<AttachRefusal>(error) {
        return Some(format!("Root can record it: sudo gctrace record -p {}", forbidden.pid));
    }
    bpf_hint(cause(error)?, errno)
}

/// The exit code of shells for a command that cannot be started.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    cause(error).map(LaunchError::exit_code)
}

/// The first cause of this type.
fn cause<E: Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&E> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

fn errno(error: &anyhow::Error) -> Option<Errno> {
    let number = os_error(error).map(Errno::from_raw);
    number.or_else(|| cause::<Errno>(error).copied())
}

/// The hint for a script in the current directory that was typed like a program.
fn script_hint(program: &str) -> Option<String> {
    let is_here = !program.contains('/') && std::path::Path::new(program).is_file();
    let script = shell_line(&[program]);
    match (is_here, program.ends_with(".py")) {
        (true, true) => Some(format!("To run the script: gctrace -- python {script}")),
        (true, false) => Some(format!("To run the file: gctrace -- ./{script}")),
        _ => None,
    }
}

fn bpf_hint(error: &BpfError, errno: Option<Errno>) -> Option<String> {
    match (error, errno) {
        (BpfError::Unsupported { .. }, _) => {
            Some("To check this machine: gctrace doctor".to_owned())
        }
        (
            BpfError::Load(_) | BpfError::Map { .. } | BpfError::NoRoom { .. },
            Some(Errno::ENOMEM),
        ) => Some(
            "Raise the limit (ulimit -v), or use a smaller buffer: --ring-size 4MiB".to_owned(),
        ),
        (_, Some(Errno::EMFILE | Errno::ENFILE)) => {
            Some("Raise the limit of open files: ulimit -n 1024".to_owned())
        }
        (_, Some(Errno::EPERM | Errno::EACCES)) => {
            Some("To find the missing privilege or kernel setting: gctrace doctor".to_owned())
        }
        (BpfError::Load(_), _) => Some("To check this kernel: gctrace doctor".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_kernel() {
        let kernel = BpfError::Unsupported { release: "4.19".into(), missing: "x".into() };
        let hint = hint(&kernel.into()).expect("a hint");
        assert!(hint.contains("gctrace doctor"), "{hint}");
    }
}
