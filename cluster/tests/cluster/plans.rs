//! Plans other than the one of gctrace-cluster, sent by peers that have the secret: to a scheduler, and to
//! an executor by a scheduler of Ballista's that accepts all.

use crate::chaos::{Cluster, Process};
use crate::job::Job;
use crate::peer::Peer;
use crate::sender::{Codec, Sender, summarize};
use crate::{job, peer};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf as proto;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::job_status::Status as JobStatus;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::JobIdGenerator;
use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry as _, SessionStateBuilder};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::path::Path;
use std::sync::Arc;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Identity, Server, ServerTlsConfig};
use tonic::{Code, Status};

/// Sends a query; its last status.
async fn execute(channel: &Channel, query: Query) -> Result<Option<JobStatus>, Status> {
    let path = "/ballista.protobuf.SchedulerGrpc/ExecuteQueryPush";
    let parameters = proto::ExecuteQueryParams {
        session_id: "a-session".to_owned(),
        // Refused or not, what a peer sets has no effect.
        settings: vec![proto::KeyValuePair {
            key: "datafusion.execution.target_partitions".to_owned(),
            value: Some("7".to_owned()),
        }],
        query: Some(query),
        ..proto::ExecuteQueryParams::default()
    };
    let mut answers = peer::call::<proto::GetJobStatusResult>(channel, path, parameters).await?;
    let mut last = None;
    while let Some(answer) = answers.message().await? {
        last = answer.status.and_then(|status| status.status);
        if matches!(last, Some(JobStatus::Failed(_) | JobStatus::Successful(_))) {
            break;
        }
    }
    Ok(last)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory with a file that no answer may have.
fn outside() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("private"), "not,for,others\n").unwrap();
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_accepts_the_plan_only() {
    let (job, outside) = (Job::new(2), outside());
    let cluster = Cluster::start("0", Vec::new());
    let channel = Peer::with(&cluster.secret()).connect(cluster.ports()[0]);
    let summaries = cluster.directory().join("summaries");
    let directory = summaries.to_str().unwrap();
    let traces = job.traces.iter().map(|trace| [trace.to_str().unwrap(), directory]);
    let sender = Sender::new(&traces.collect::<Vec<_>>(), outside.path());
    let substrait = ("substrait".to_owned(), Query::SubstraitPlan(vec![1, 2, 3]));
    let nothing = ("nothing".to_owned(), Query::LogicalPlan(Vec::new()));
    let noise = ("noise".to_owned(), Query::LogicalPlan(vec![0x55; 1_000]));
    let others = [substrait, nothing, noise];
    for (name, query) in sender.queries().await.into_iter().chain(others) {
        let status = execute(&channel, query).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{name}: {status:?}");
        println!("{name}: {}", status.message());
    }
    assert_eq!(names(outside.path()), ["private"]);
    assert!(!summaries.exists());

    let status = execute(&channel, sender.logical(&sender.right().await)).await;
    let Ok(Some(JobStatus::Successful(done))) = status else {
        panic!("{status:?}");
    };
    assert_eq!(done.partition_location.len(), 2, "tasks are those of the table");
    assert_eq!(names(&summaries).len(), 2);
}

/// Names of jobs that are none.
struct Outside;

#[tonic::async_trait]
impl JobIdGenerator for Outside {
    async fn next_id(&self) -> String {
        "../outside".to_owned()
    }
}

/// A scheduler of Ballista's that accepts every plan of peers with the secret. Returns its port.
async fn careless(secret: &Path, generator: Option<Arc<dyn JobIdGenerator>>) -> u16 {
    let config = Arc::new(SchedulerConfig {
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        override_logical_codec: Some(Arc::new(Codec::default())),
        override_session_builder: Some(Arc::new(|config| {
            let state = SessionStateBuilder::new().with_default_features();
            let mut state = state.with_config(config).build();
            state.register_udf(Arc::new(summarize()))?;
            Ok(state)
        })),
        job_id_generator: generator,
        ..SchedulerConfig::default()
    });
    let cluster = BallistaCluster::new_from_config(&config).await.unwrap();
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config);
    let scheduler = SchedulerGrpcServer::new(scheduler.await.unwrap());
    let pem = std::fs::read(secret).unwrap();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&pem, &pem));
    let listener = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = Server::builder().tls_config(tls).unwrap();
    tokio::spawn(server.add_service(scheduler).serve_with_incoming(listener));
    port
}

/// An executor of that scheduler, with `work` as its directory.
fn executor(home: &Path, port: u16, work: &Path) -> Process {
    let mut executor = job::cluster();
    executor.args(["executor", "--advertise", "127.0.0.1", "--port", "0"]);
    executor.args(["--scheduler-port", &port.to_string(), "--work-dir"]).arg(work);
    Process::start(executor.env("XDG_CONFIG_HOME", home))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_accepts_the_plan_only() {
    let (job, outside, home) = (Job::new(2), outside(), tempfile::tempdir().unwrap());
    let secret = peer::other_secret(home.path());
    let port = careless(&secret, None).await;
    let work = tempfile::tempdir().unwrap();
    let _executor = executor(&home.path().join("other"), port, work.path());
    let channel = Peer::with(&secret).connect(port);
    let summaries = home.path().join("summaries");
    let row = [job.traces[0].to_str().unwrap(), summaries.to_str().unwrap()];
    let sender = Sender::new(&[row], outside.path());
    for (name, query) in sender.queries().await {
        // Their tasks are the plan's: of one row, one row is all.
        if ["the plan,", "a part,"].iter().any(|same| name.starts_with(same)) {
            continue;
        }
        let status = execute(&channel, query).await;
        match &status {
            Ok(Some(JobStatus::Failed(failed))) => {
                let refused = [
                    "a task other than one of gctrace_summarize",
                    // It knows no others.
                    "PhysicalExtensionCodec is not provided for scalar function",
                ];
                let refused = refused.iter().any(|text| failed.error.contains(text));
                assert!(refused, "{name}: {}", failed.error);
            }
            // What the scheduler cannot plan is not sent.
            Err(status) => assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status:?}"),
            Ok(_) => panic!("{name}: {status:?}"),
        }
        println!("{name}: {status:?}");
    }
    assert_eq!(names(outside.path()), ["private"]);
    assert!(!summaries.exists());

    let status = execute(&channel, sender.logical(&sender.right().await)).await;
    assert!(matches!(status, Ok(Some(JobStatus::Successful(_)))), "{status:?}");
    assert_eq!(names(&summaries).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_written_below_the_work_directory() {
    let (job, home) = (Job::new(2), tempfile::tempdir().unwrap());
    let secret = peer::other_secret(home.path());
    let port = careless(&secret, Some(Arc::new(Outside))).await;
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let _executor = executor(&home.path().join("other"), port, &work);
    let summaries = home.path().join("summaries");
    let row = [job.traces[0].to_str().unwrap(), summaries.to_str().unwrap()];
    let sender = Sender::new(&[row], home.path());
    let channel = Peer::with(&secret).connect(port);
    let status = execute(&channel, sender.logical(&sender.right().await)).await;
    let Ok(Some(JobStatus::Failed(failed))) = status else {
        panic!("{status:?}");
    };
    assert!(failed.error.contains("a task other than"), "{}", failed.error);
    assert_eq!(names(home.path()), ["other", "work"]);
}

/// By the plan itself.
#[tokio::test(flavor = "multi_thread")]
async fn places_are_as_clients_write_them() {
    let job = Job::new(2);
    let cluster = Cluster::start("0", Vec::new());
    let channel = Peer::with(&cluster.secret()).connect(cluster.ports()[0]);
    let trace = job.traces[0].to_str().unwrap();
    let below = |end: &str| cluster.directory().join(end).to_str().unwrap().to_owned();
    let dots = |path: &str| path.replacen("/tmp", "/tmp/../tmp", 1);
    let (summaries, url) = (below("summaries"), format!("file://{trace}"));
    let (up, double) = (below("work/../up"), format!("/{trace}"));
    let forged = [
        [&*dots(trace), &*summaries],
        [&url, &summaries],
        [&double, &summaries],
        ["rank0.json", &summaries],
        ["", &summaries],
        ["http://127.0.0.1/trace.json", &summaries],
        [trace, &up],
        [trace, "summaries"],
        [trace, ""],
        [trace, "file://elsewhere/summaries"],
        ["--help", &summaries],
    ];
    let before = names(cluster.directory());
    let begun = || cluster.begun(0) + cluster.begun(1);
    for row in forged {
        let sender = Sender::new(&[row], cluster.directory());
        let status = execute(&channel, sender.logical(&sender.right().await)).await;
        // The problem is a row of its result.
        assert!(matches!(status, Ok(Some(JobStatus::Successful(_)))), "{row:?}: {status:?}");
        assert_eq!(begun(), 0, "{row:?}");
    }
    assert_eq!(names(cluster.directory()), before);
    let sender = Sender::new(&[[trace, &summaries]], cluster.directory());
    let status = execute(&channel, sender.logical(&sender.right().await)).await;
    assert!(matches!(status, Ok(Some(JobStatus::Successful(_)))), "{status:?}");
    assert_eq!(begun(), 1);
    assert_eq!(names(Path::new(&summaries)).len(), 1);
}
