//! `gctrace report --perfetto`: a timeline, opened at ui.perfetto.dev.
//!
//! Owns the server on this machine: its page hands the timeline to Perfetto's page, within the browser:
//! <https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui>. It answers processes of this user and of root
//! only: other users see its address among the arguments of the program that opens the browser. The secret in it keeps
//! other pages of that browser out. It ends when the timeline was fetched, or after a minute.

use crate::args::{ExportArgs, ExportFormat, ReportArgs};
use crate::{export, platform, print};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The page; `TITLE` is replaced.
const PAGE: &str = include_str!("perfetto.html");
/// How long a browser has to ask.
const OPEN_FOR: Duration = Duration::from_secs(60);
/// How long a request may take to arrive, and a part of the answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request, more than browsers send.
const MOST_HEAD: usize = 16 << 10;
/// Time between looks for a request.
const TURN: Duration = Duration::from_millis(20);

/// Writes the timeline, and shows it where there is a browser. Returns the exit code of the export.
///
/// # Errors
/// As of the export; the server cannot be started.
pub(super) fn run(config: &ReportArgs) -> anyhow::Result<u8> {
    let path = super::output(config, "pftrace");
    let code = export::run(&ExportArgs {
        traces: config.traces.clone(),
        format: Some(ExportFormat::Perfetto),
        output: Some(path.clone()),
        force: config.force,
        ..ExportArgs::default()
    })?;
    let can_open =
        config.output.is_none() && super::opener().is_some() && platform::SEES_USERS_OF_CONNECTIONS;
    if !(can_open && show(&path)?) {
        print::message(format!("wrote {}: open it at https://ui.perfetto.dev", path.display()));
    }
    Ok(code)
}

/// Whether a browser has taken the timeline.
fn show(path: &Path) -> anyhow::Result<bool> {
    let mut trace = File::open(path).with_context(|| path.display().to_string())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.context("cannot serve the timeline to the browser")?;
    let served = ServedTimeline::new(listener.local_addr()?, path);
    if !super::open(OsStr::new(&served.url())) {
        return Ok(false);
    }
    print::message(format!("wrote {}, and opens it at ui.perfetto.dev", path.display()));
    let taken = served.serve(&listener, &mut trace, Instant::now() + OPEN_FOR)?;
    Ok(taken)
}

/// The contents to serve, and the address.
struct ServedTimeline {
    address: SocketAddr,
    /// Other pages in the browser do not know it.
    secret: String,
    page: String,
}

impl ServedTimeline {
    fn new(address: SocketAddr, path: &Path) -> Self {
        let random = RandomState::new();
        let title = path.file_name().unwrap_or_default().to_string_lossy();
        // In a script, `</script>` would end it.
        let title = serde_json::Value::from(title).to_string().replace('<', "\\u003c");
        Self {
            address,
            secret: format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1)),
            page: PAGE.replace("TITLE", &title),
        }
    }

    fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.secret)
    }

    /// Answers requests until the timeline was sent or it is that time; whether it was sent.
    ///
    /// # Errors
    /// Connections cannot be accepted.
    fn serve(&self, listener: &TcpListener, trace: &mut File, until: Instant) -> io::Result<bool> {
        listener.set_nonblocking(true)?;
        while Instant::now() < until {
            match listener.accept() {
                Ok((stream, _)) => {
                    // A connection that breaks is the browser's affair: it may ask again.
                    if self.answer(stream, trace).is_ok_and(|sent| sent) {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(TURN),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Answers one request; whether the timeline was sent.
    fn answer(&self, mut stream: TcpStream, trace: &mut File) -> io::Result<bool> {
        if !platform::is_of_this_user_or_root(&stream) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = head(&mut stream)?;
        let of_page = format!("GET /{}/ HTTP/1.1", self.secret);
        let of_trace = format!("GET /{}/trace HTTP/1.1", self.secret);
        let line = head.lines().next().unwrap_or_default();
        if !self.is_for_us(&head) || (line != of_page && line != of_trace) {
            stream.write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            )?;
            return Ok(false);
        }
        let is_trace = line == of_trace;
        let (kind, length) = if is_trace {
            ("application/octet-stream", trace.metadata()?.len())
        } else {
            ("text/html; charset=utf-8", self.page.len() as u64)
        };
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n\
             Connection: close\r\n\r\n"
        )?;
        if is_trace {
            io::Seek::rewind(trace)?;
            io::copy(trace, &mut stream)?;
        } else {
            stream.write_all(self.page.as_bytes())?;
        }
        stream.flush()?;
        Ok(is_trace)
    }

    /// Whether a request names this server: a name of another site that leads here does not.
    fn is_for_us(&self, head: &str) -> bool {
        let host = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("host") { Some(value.trim()) } else { None }
        });
        host == Some(self.address.to_string().as_str())
    }
}

/// The lines of a request up to the empty one.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut part)?;
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        if count == 0 || head.len() > MOST_HEAD || Instant::now() > until {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a request with this line and host.
    fn ask(address: SocketAddr, line: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{line}\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_timeline_is_served_once_and_to_nobody_else() {
        let mut trace = tempfile::tempfile().unwrap();
        trace.write_all(b"packets").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip().is_loopback());
        let served = ServedTimeline::new(address, Path::new("a/<\"'>.pftrace"));
        let place = served.url().strip_prefix(&format!("http://{address}")).unwrap().to_owned();
        let host = address.to_string();
        let until = Instant::now() + OPEN_FOR;
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let taken = served.serve(&listener, &mut trace, until);
                drop(listener);
                taken
            });
            for (line, host) in [
                ("GET / HTTP/1.1", host.as_str()),
                ("GET /trace HTTP/1.1", &host),
                ("GET /0/trace HTTP/1.1", &host),
                (&format!("POST {place}trace HTTP/1.1"), &host),
                (&format!("GET {place}trace HTTP/1.1"), "evil.example"),
                (&format!("GET {place}../etc/passwd HTTP/1.1"), &host),
                ("", ""),
            ] {
                let answer = ask(address, line, host);
                assert!(answer.starts_with("HTTP/1.1 404 "), "{line}: {answer}");
            }
            let page = ask(address, &format!("GET {place} HTTP/1.1"), &host);
            assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
            assert!(page.contains("'PING'") && page.contains("'PONG'"), "{page}");
            assert!(page.contains(r#"title = "\u003c\"'>.pftrace";"#), "{page}");
            assert!(page.contains("default-src 'none'"), "{page}");
            assert!(
                !page.contains("Cross-Origin-Opener-Policy"),
                "Perfetto's page could not answer"
            );
            let trace = ask(address, &format!("GET {place}trace HTTP/1.1"), &host);
            assert!(trace.ends_with("\r\n\r\npackets"), "{trace}");
            assert!(serving.join().unwrap().unwrap(), "it ends by itself");
        });
        assert!(TcpStream::connect(address).is_err());
    }

    /// The address is known to all users of the machine.
    #[test]
    fn another_user_gets_nothing() {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("skipped another_user_gets_nothing: it needs root");
            return;
        }
        let mut trace = tempfile::tempfile().unwrap();
        trace.write_all(b"packets").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let served = ServedTimeline::new(listener.local_addr().unwrap(), Path::new("a"));
        let fetch = |user: &str, address: &str| {
            let script = "import sys, urllib.request as u
print(u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read())";
            let mut command = std::process::Command::new("setpriv");
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
            command.args(["/usr/bin/python3", "-I", "-c", script, address]).output().unwrap()
        };
        let until = Instant::now() + OPEN_FOR;
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| served.serve(&listener, &mut trace, until));
            let address = format!("{}trace", served.url());
            let refused = fetch("61303", &address);
            assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
            let taken = fetch("0", &address);
            assert_eq!(String::from_utf8_lossy(&taken.stdout), "b'packets'\n", "{taken:?}");
            assert!(serving.join().unwrap().unwrap());
        });
    }

    #[test]
    fn nobody_asks() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let served = ServedTimeline::new(listener.local_addr().unwrap(), Path::new("a"));
        let mut trace = tempfile::tempfile().unwrap();
        assert!(!served.serve(&listener, &mut trace, Instant::now()).unwrap());
    }
}
