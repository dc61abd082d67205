//! Calls to schedulers and executors, as anyone could make them who reaches their ports.

use prost::Message;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// All calls that Ballista's scheduler serves.
pub(crate) const SCHEDULER_CALLS: [&str; 13] = [
    "PollWork",
    "RegisterExecutor",
    "HeartBeatFromExecutor",
    "UpdateTaskStatus",
    "CreateUpdateSession",
    "RemoveSession",
    "ExecuteQueryPush",
    "ExecuteQuery",
    "GetJobStatus",
    "GetJobMetrics",
    "ExecutorStopped",
    "CancelJob",
    "CleanJobData",
];
/// All calls that Ballista's executor serves, if it is asked to have a server for tasks, too.
pub(crate) const EXECUTOR_CALLS: [&str; 5] =
    ["LaunchTask", "LaunchMultiTask", "StopExecutor", "CancelTasks", "RemoveJobData"];
/// All calls of Arrow Flight, by which an executor hands out results.
pub(crate) const FLIGHT_CALLS: [&str; 10] = [
    "Handshake",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
    "DoGet",
    "DoPut",
    "DoExchange",
    "DoAction",
    "ListActions",
];

/// Paths of all calls.
pub(crate) fn paths() -> impl Iterator<Item = String> {
    let scheduler = SCHEDULER_CALLS.map(|call| format!("ballista.protobuf.SchedulerGrpc/{call}"));
    let executor = EXECUTOR_CALLS.map(|call| format!("ballista.protobuf.ExecutorGrpc/{call}"));
    let flight = FLIGHT_CALLS.map(|call| format!("arrow.flight.protocol.FlightService/{call}"));
    let paths = scheduler.into_iter().chain(executor).chain(flight);
    paths.map(|path| format!("/{path}"))
}

/// How a peer says who it is.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Without encryption.
    Plain,
    /// Encrypted, but it says nothing. It would talk to a server with the secret of this file.
    Anonymous(PathBuf),
    /// As one that has the secret of the second file, and would talk to one with the first's.
    With(PathBuf, PathBuf),
}

impl Peer {
    /// One that has the secret of a file.
    pub(crate) fn with(secret: &Path) -> Self {
        Self::With(secret.to_owned(), secret.to_owned())
    }

    /// A connection to a port of this machine; errors come with the first call.
    pub(crate) fn connect(&self, port: u16) -> Channel {
        let scheme = if matches!(self, Self::Plain) { "http" } else { "https" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://127.0.0.1:{port}")).unwrap();
        let tls = |server: &Path| {
            let server = Certificate::from_pem(std::fs::read(server).unwrap());
            ClientTlsConfig::new().ca_certificate(server).domain_name("gctrace-cluster")
        };
        let endpoint = match self {
            Self::Plain => endpoint,
            Self::Anonymous(server) => endpoint.tls_config(tls(server)).unwrap(),
            Self::With(server, identity) => {
                let pem = std::fs::read(identity).unwrap();
                let from_pem = Identity::from_pem(&pem, &pem);
                endpoint.tls_config(tls(server).identity(from_pem)).unwrap()
            }
        };
        endpoint.connect_lazy()
    }
}

/// Makes a call. Whatever kind it is of, its answer is a stream on the wire.
pub(crate) async fn call<A: Message + Default + 'static>(
    channel: &Channel,
    path: &str,
    message: impl Message + 'static,
) -> Result<Streaming<A>, Status> {
    let mut request = Request::new(message);
    ballista_core::version::insert_version_header(request.metadata_mut());
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::try_from(path).unwrap();
    let codec = ProstCodec::<_, A>::default();
    let answer = grpc.server_streaming(request, path, codec).await?;
    Ok(answer.into_inner())
}

/// The status of a call with an empty message, also if it comes behind answers.
pub(crate) async fn status(channel: &Channel, path: &str) -> Result<(), Status> {
    let mut answers = call::<()>(channel, path, ()).await?;
    while answers.message().await?.is_some() {}
    Ok(())
}

/// Waits until a server with that secret listens on the port.
pub(crate) async fn started(port: u16, secret: &Path) {
    let patience = Instant::now() + crate::limit::LIMIT;
    let listens = || async {
        let channel = Peer::with(secret).connect(port);
        let status = status(&channel, "/nothing").await;
        status.is_err_and(|status| status.code() == tonic::Code::Unimplemented)
    };
    while !secret.exists() || !listens().await {
        assert!(Instant::now() < patience, "nothing listens on port {port}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A secret of another cluster, which a scheduler makes below `home`.
pub(crate) fn other_secret(home: &Path) -> PathBuf {
    let mut scheduler = crate::job::cluster();
    let secret = home.join("other/gctrace/cluster.pem");
    // A port that it may not listen on: it ends.
    let _ = Command::args(&mut scheduler, ["scheduler", "--listen", "192.0.2.1"])
        .env("XDG_CONFIG_HOME", home.join("other"))
        .output();
    assert!(secret.exists());
    secret
}
