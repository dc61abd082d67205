//! Access to the page, and redaction of command lines.

use crate::top::view::text::file_name;
use gctrace_analysis::words::python_script;
use std::net::IpAddr;

/// Whether a `Host` is acceptable for a server on a loopback address: only addresses and
/// `localhost`, as any other name could be rebound by a web page (DNS rebinding).
pub(super) fn is_local(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').map(|rest| rest.split_once(']'));
    let name = match (bracketed, host.rsplit_once(':')) {
        (Some(Some((name, _port))), _) | (_, Some((name, _port))) => name,
        _ => host,
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// A command line without arguments (they may contain secrets): the program, and for Python the script or module.
pub(super) fn without_arguments(line: &str) -> String {
    let (program, rest) = line.split_once(' ').map_or((line, None), |(a, b)| (a, Some(b)));
    let mut words = rest.into_iter().flat_map(|rest| rest.split(' '));
    let name = file_name(program);
    let mut kept = vec![program];
    if name.starts_with("python") || name.starts_with("pypy") {
        kept.extend(python_script(&mut words));
    }
    if words.next().is_some() {
        kept.push("...");
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_rebound() {
        for local in [
            "localhost",
            "LOCALHOST:9464",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:9464",
            "10.1.2.3:80",
        ] {
            assert!(is_local(local), "{local}");
        }
        for foreign in [
            "evil.example.com",
            "evil.example.com:9464",
            "localhost.evil.com",
            "",
            "127.0.0.1.evil.com",
            "[::1",
            "a:b:c",
        ] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }

    #[test]
    fn arguments_are_left_out() {
        for (line, shown) in [
            ("python train.py --password x", "python train.py ..."),
            ("/usr/bin/python3 -u -X dev train.py", "/usr/bin/python3 train.py"),
            ("python -m torch.distributed.run --token x", "python -m torch.distributed.run ..."),
            ("python -c import x", "python -c ..."),
            ("python3", "python3"),
            ("gunicorn --secret x", "gunicorn ..."),
            ("", ""),
        ] {
            assert_eq!(without_arguments(line), shown, "{line}");
        }
    }
}
