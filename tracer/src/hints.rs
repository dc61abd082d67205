//! Maps known errors to the command that fixes them.

use crate::files::FileError;
use crate::launch::LaunchError;
use crate::launch::LibraryError;
use crate::privileges::PrivilegeError;
use crate::record::kernel::permission::AttachRefusal;
use crate::record::mode::ModeError;
use crate::setup::NotPermitted;
use crate::text::chain;
use crate::text::shell_line;
use gctrace_ebpf::Error as BpfError;
use nix::errno::Errno;
use std::io;

/// Exit code for a failure of gctrace.
const FAILED: u8 = 1;

/// The remedy for an error, ready to print after it; `None` if there is none.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    // Some errors have already been converted to text.
    if errno(error) == Some(Errno::EMFILE) || chain(error).contains("(os error 24)") {
        return Some("Raise this shell's limit of open files: ulimit -n 1024".to_owned());
    }
    if let Some(denied) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<PrivilegeError>())
    {
        return Some(denied.remedy());
    }
    if let Some(refused) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ModeError>())
    {
        return Some(refused.remedy().trim_end().to_owned());
    }
    if let Some(error) = error.downcast_ref::<NotPermitted>() {
        return Some(error.remedy());
    }
    if let Some(error) = error.downcast_ref::<LibraryError>() {
        return Some(error.remedy());
    }
    let launch = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<LaunchError>());
    if let Some(LaunchError::NotFound { program, .. }) = launch {
        return script_hint(program);
    }
    if let Some(forbidden) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<AttachRefusal>())
    {
        return Some(format!(
            "Root can record it: sudo gctrace record -p {}",
            forbidden.pid
        ));
    }
    if let Some(bpf) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<BpfError>())
    {
        return bpf_hint(bpf, errno(error));
    }
    if let Some(file) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<FileError>())
    {
        return match file {
            FileError::Create { option, .. } => file_hint(errno(error)?, option),
            FileError::Refused { .. } => None,
        };
    }
    None
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

/// The error number of the chain, if it contains one.
fn errno(error: &anyhow::Error) -> Option<Errno> {
    error.chain().find_map(|cause| {
        let io_error = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        io_error
            .map(Errno::from_raw)
            .or_else(|| cause.downcast_ref::<Errno>().copied())
            .or_else(|| in_words(&cause.to_string()))
    })
}

/// Parses `... (os error 12)`; libbpf-rs does not expose the number, but its message contains it.
fn in_words(text: &str) -> Option<Errno> {
    let (_, rest) = text.rsplit_once("(os error ")?;
    let (number, _) = rest.split_once(')')?;
    Some(Errno::from_raw(number.parse().ok()?))
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

fn file_hint(errno: Errno, option: &str) -> Option<String> {
    let text = match errno {
        Errno::EACCES | Errno::EPERM | Errno::EROFS => {
            format!("Choose a writable directory: {option} /tmp/FILE")
        }
        Errno::ENOENT | Errno::ENOTDIR => {
            format!("Create its directory first, or choose another file: {option} FILE")
        }
        Errno::EISDIR => format!("This is a directory; name a file in it: {option} DIR/FILE"),
        Errno::ENOSPC | Errno::EDQUOT => {
            format!("No space is left; choose a file on another disk: {option} FILE")
        }
        _ => return None,
    };
    Some(text)
}

/// The exit code for an error; for a command that cannot be started, the one that shells use.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let launch = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<LaunchError>());
    launch.map_or(FAILED, LaunchError::exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::NewTrace;
    use crate::launch::Invoker;
    use anyhow::Context;
    use std::path::Path;

    #[test]
    fn through_context() {
        let create = |path: &str| NewTrace::create(Path::new(path), &Invoker::detect(), &[], "-o");
        let refused = create("/nonexistent/t.json");
        let error = refused.context("while recording").expect_err("refused");
        assert!(hint(&error).expect("a hint").contains("-o FILE"));
        let refused = create("/proc");
        assert!(
            hint(&refused.expect_err("refused").into())
                .expect("a hint")
                .contains("directory")
        );
        let kernel = BpfError::Unsupported {
            release: "4.19".into(),
            missing: "x".into(),
        };
        assert!(
            hint(&kernel.into())
                .expect("a hint")
                .contains("gctrace doctor")
        );
        assert_eq!(hint(&anyhow::anyhow!("something else")), None);
    }
}
