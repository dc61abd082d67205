//! Who gets an answer, and to which calls: real schedulers and executors, on loopback.

use crate::chaos::{Cluster, Process};
use crate::job::Job;
use crate::limit::WithTimeout as _;
use crate::peer::Peer;
use crate::{job, peer};
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::Code;

/// Silent connections are given up after this time, and not before.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Whether a server wrote the status: the status of a connection that it did not accept is the
/// client's.
fn is_answer(status: &Result<(), tonic::Status>) -> bool {
    let Err(status) = status else { return true };
    std::error::Error::source(status).is_none() && status.code() != Code::Unavailable
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_no_answer() {
    let cluster = Cluster::start("0", Vec::new());
    let secret = cluster.secret();
    let other = peer::other_secret(cluster.directory());
    let strangers = [
        Peer::Plain,
        Peer::Anonymous(secret.clone()),
        Peer::With(secret.clone(), other.clone()),
        Peer::with(&other),
    ];
    for port in cluster.ports() {
        peer::started(port, &secret).await;
        // Others are not kept waiting by those who connect and say nothing.
        let silent = [(); 50].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
        let begun = Instant::now();
        peer::started(port, &secret).await;
        assert!(begun.elapsed() < HANDSHAKE, "{:?}", begun.elapsed());
        drop(silent);
        for stranger in &strangers {
            for path in peer::paths() {
                let status = peer::status(&stranger.connect(port), &path).await;
                assert!(!is_answer(&status), "{stranger:?} {path}: {status:?}");
            }
        }
        for path in ["/", "/healthz", "/readyz", "/api/jobs", "/api/executors"] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(!answer.starts_with(b"HTTP/"), "{path}: {answer:?}");
        }
    }
}

/// Of peers with the secret.
#[tokio::test(flavor = "multi_thread")]
async fn only_calls_of_ours_are_answered() {
    let cluster = Cluster::start("0", Vec::new());
    let peer = Peer::with(&cluster.secret());
    let [scheduler, executor, _] = cluster.ports();
    for (port, service, calls, answered) in [
        (
            scheduler,
            "ballista.protobuf.SchedulerGrpc",
            &peer::SCHEDULER_CALLS[..],
            &["ExecuteQueryPush", "PollWork", "HeartBeatFromExecutor", "ExecutorStopped"][..],
        ),
        (scheduler, "arrow.flight.protocol.FlightService", &peer::FLIGHT_CALLS, &[]),
        (executor, "arrow.flight.protocol.FlightService", &peer::FLIGHT_CALLS, &["DoGet"]),
        (executor, "ballista.protobuf.ExecutorGrpc", &peer::EXECUTOR_CALLS, &[]),
        (executor, "ballista.protobuf.SchedulerGrpc", &peer::SCHEDULER_CALLS, &[]),
    ] {
        peer::started(port, &cluster.secret()).await;
        for call in calls {
            let status = peer::status(&peer.connect(port), &format!("/{service}/{call}")).await;
            let code = status.as_ref().err().map(tonic::Status::code);
            let refused = match code {
                Some(Code::Unimplemented) => true,
                Some(Code::PermissionDenied) => status.as_ref().is_err_and(|status| {
                    status.message() == format!("gctrace-cluster does not answer {call}")
                }),
                _ => false,
            };
            assert_eq!(refused, !answered.contains(call), "{service}/{call}: {status:?}");
        }
    }
}

/// A file in the place of the result of a job that has another name.
#[tokio::test(flavor = "multi_thread")]
async fn results_are_of_jobs() {
    use ballista_core::serde::protobuf as proto;
    use prost::Message as _;
    let cluster = Cluster::start("0", Vec::new());
    let [_, executor, _] = cluster.ports();
    peer::started(executor, &cluster.secret()).await;
    let outside = cluster.directory().join("7/8");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("data.arrow"), "not a result").unwrap();
    let channel = Peer::with(&cluster.secret()).connect(executor);
    let absolute = cluster.directory().to_str().unwrap();
    for (job, expected) in [
        (absolute, Code::PermissionDenied),
        ("..", Code::PermissionDenied),
        ("../..", Code::PermissionDenied),
        (".", Code::PermissionDenied),
        ("", Code::PermissionDenied),
        // Ballista's answer: there is no such file.
        ("038GHDBS9P000", Code::Internal),
    ] {
        let fetch = proto::FetchPartition {
            job_id: job.to_owned(),
            stage_id: 7,
            partition_id: 8,
            ..proto::FetchPartition::default()
        };
        let action = proto::Action {
            action_type: Some(proto::action::ActionType::FetchPartition(fetch)),
            ..proto::Action::default()
        };
        let ticket = arrow_flight::Ticket::new(action.encode_to_vec());
        let path = "/arrow.flight.protocol.FlightService/DoGet";
        let answer = peer::call::<arrow_flight::FlightData>(&channel, path, ticket).await;
        let code = answer.map(|_| ()).unwrap_err().code();
        assert_eq!(code, expected, "{job}");
    }
}

/// The command, which reads its secret below `home`, and must end with a message.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let mut command = job::cluster();
    command.args(arguments).env("XDG_CONFIG_HOME", home);
    job::refused(&command.output_in_time().unwrap())
}

#[test]
fn the_secret_is_of_its_user_alone() {
    let job = Job::new(2);
    let trace = job.traces[0].to_str().unwrap();
    let cluster = Cluster::start("0", Vec::new());
    let [port, ..] = cluster.ports();
    let (url, port) = (format!("ballista://127.0.0.1:{port}"), port.to_string());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let secret = cluster.secret();
    assert_eq!(mode(&secret), 0o600);
    assert_eq!(mode(secret.parent().unwrap()), 0o700);

    // None is there.
    let empty = cluster.directory().join("empty");
    let analyze = ["analyze", "--on", &url, trace, "-o", "/nowhere"];
    let message = refused(&empty, &analyze);
    assert!(message.contains("empty/gctrace/cluster.pem: is not there"), "{message}");
    assert!(!empty.exists(), "only a scheduler makes one");

    // That of another cluster.
    peer::other_secret(cluster.directory());
    let other = cluster.directory().join("other");
    let work = ["executor", "--scheduler-port", &port, "--port", "0"];
    let message =
        refused(cluster.directory(), &["executor", "--port", &port, "--scheduler-port", &port]);
    assert!(message.contains(&format!("127.0.0.1:{port}: cannot be listened on")), "{message}");
    for arguments in [&analyze[..], &work] {
        let message = refused(&other, arguments);
        assert!(message.contains(&format!("127.0.0.1:{port}: is no scheduler with")), "{message}");
        assert!(message.contains("other/gctrace/cluster.pem: copy the file"), "{message}");
    }

    // None at all.
    let broken = other.join("gctrace/cluster.pem");
    let whole = std::fs::read_to_string(&broken).unwrap();
    let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE").unwrap());
    for text in ["", "secret", certificate, key, &whole[..whole.len() / 2]] {
        std::fs::write(&broken, text).unwrap();
        for arguments in [&analyze[..], &work, &["scheduler", "--port", "0"]] {
            let message = refused(&other, arguments);
            assert!(message.contains("cluster.pem: is not a secret of"), "{message}");
        }
    }
    std::fs::write(&broken, whole).unwrap();

    // One that others can read, or that another user has made.
    let other = other.join("gctrace/cluster.pem");
    let serve = ["scheduler", "--port", "0"];
    let each_refuses = |expected: &str| {
        for arguments in [&analyze[..], &work, &serve] {
            let message = refused(&cluster.directory().join("other"), arguments);
            assert!(message.contains(expected), "{message}");
        }
    };
    for mode in [0o640, 0o604, 0o660, 0o610] {
        std::fs::set_permissions(&other, Permissions::from_mode(mode)).unwrap();
        each_refuses(&format!("with mode {mode:04o}, so that others could have read"));
    }
    std::fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    if std::os::unix::fs::chown(&other, Some(65534), None).is_ok() {
        each_refuses("is of user 65534 with mode 0600");
    } else {
        println!("skipped the_secret_is_of_its_user_alone: the file of another user: needs root");
    }
}

/// On a machine that others use, too, one of them may have taken the scheduler's port.
#[test]
fn who_takes_the_port_of_a_scheduler_gets_nothing() {
    let home = tempfile::tempdir().unwrap();
    let secret = peer::other_secret(home.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut executor = job::cluster();
    executor.args(["executor", "--port", "0", "--scheduler-port", &port]);
    executor.env("XDG_CONFIG_HOME", home.path().join("other"));
    let _executor = Process::start(&mut executor);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut sent = Vec::new();
    let _ = stream.read_to_end(&mut sent);
    // A handshake of TLS (RFC 8446, 5.1), in which the name of the cluster is all there is to read.
    assert_eq!(sent.first_chunk(), Some(&[22, 3]), "{sent:?}");
    let pem = std::fs::read_to_string(secret).unwrap();
    let lines = pem.lines().filter(|line| line.len() > 20);
    for line in lines {
        assert!(!sent.windows(line.len()).any(|part| part == line.as_bytes()));
    }
}
