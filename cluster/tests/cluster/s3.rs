//! Traces, tables and summaries in S3, as served by moto on loopback (scripts/venv.sh s3).

use crate::chaos::{Cluster, Process};
use crate::job::Job;
use crate::limit::{LIMIT, WithTimeout as _};
use crate::{chaos, job};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server with one bucket, `bucket`.
struct Server {
    port: u16,
    _process: Process,
}

impl Server {
    /// `None` is a named skip.
    fn start(test: &str) -> Option<Self> {
        let named = std::env::var_os("GCTRACE_S3_PYTHON").filter(|path| !path.is_empty());
        let python = named.map_or_else(|| job::root().join(".venv-s3/bin/python"), PathBuf::from);
        if !python.exists() {
            println!(
                "skipped {test}: no moto at {}; scripts/venv.sh s3 makes it, GCTRACE_S3_PYTHON names it",
                python.display()
            );
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new(python);
        server.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { port, _process: Process::start(&mut server) };
        let patience = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < patience, "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        server.put("bucket", b"");
        Some(server)
    }

    fn put(&self, key: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "PUT /{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{key}: {answer}");
    }

    /// Puts the files there, and returns their URL.
    fn put_files(&self, prefix: &str, files: &[PathBuf]) -> String {
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap();
            self.put(&format!("bucket/{prefix}/{name}"), &std::fs::read(file).unwrap());
        }
        format!("s3://bucket/{prefix}/")
    }

    /// How programs find it.
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "key".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ]
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn queries_read_buckets() {
    let Some(server) = Server::start("queries_read_buckets") else {
        return;
    };
    let job = Job::new(3);
    let traces = server.put_files("job%2042", &job.traces);
    let tables = job.export(&job.traces, "tables");
    let tables = server.put_files("tables", &files(&tables));
    let summaries = job.summarize(&job.traces, "summaries");
    let summaries = server.put_files("summaries", &files(&summaries));
    let query = |sql: &str, input: &str| {
        let mut query = job::cluster();
        query.args(["query", "--format", "json", sql, input]).envs(server.variables());
        query.output_in_time().unwrap()
    };
    let answer = |sql: &str, input: &str| -> serde_json::Value {
        serde_json::from_str(&job::succeeded(&query(sql, input))).unwrap()
    };
    let expected = job::rows(job::PAUSES, &job.traces);
    for input in [&traces, &tables, &summaries] {
        assert_eq!(
            answer(job::PAUSES, input),
            serde_json::Value::from(expected.clone()),
            "{input}"
        );
    }
    let named = answer("select file from ranks where rank = 1", &traces);
    assert_eq!(named[0]["file"], "s3://bucket/job%2042/rank1.json");

    let missing = job::refused(&query(job::PAUSES, "s3://bucket/nothing/"));
    assert!(missing.contains("s3://bucket/nothing: there are no files"), "{missing}");
    let other = job::refused(&query(job::PAUSES, "s3://other/job/"));
    assert!(other.contains("s3://other/job"), "{other}");
}

#[test]
fn traces_of_a_bucket_are_analyzed() {
    let Some(server) = Server::start("traces_of_a_bucket_are_analyzed") else {
        return;
    };
    let job = Job::new(4);
    let traces = server.put_files("job42", &job.traces);
    let cluster = Cluster::start("0", server.variables());
    let summaries = "s3://bucket/job42/_gctrace";
    let analyze = || {
        let mut command = cluster.analyze(std::slice::from_ref(&traces), summaries);
        job::succeeded(&command.output_in_time().unwrap())
    };
    let local = format!("{}/", job.directory.path().display());
    let report = || chaos::report(&job).replace(&local, &traces);
    assert_eq!(analyze(), report());
    // With all summaries there.
    assert_eq!(analyze(), report());
    // A trace that has changed since is read again.
    let before = report();
    std::fs::copy(&Job::new(5).traces[3], &job.traces[3]).unwrap();
    assert_ne!(report(), before);
    server.put_files("job42", &job.traces[3..]);
    assert_eq!(analyze(), report());
}
