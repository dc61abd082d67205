//! `gctrace-cluster scheduler` and `executor`: Ballista's, with the function of [`map`].
//!
//! Both answer those with the same secret only, and only the calls of [`rpc`].

use crate::gctrace::Gctrace;
use crate::plan::TableCodec;
use crate::secret::{RETRY, Secret, SecretArgs};
use crate::{map, plan, rpc};
use anyhow::{Context as _, Result};
use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_core::utils::{
    GrpcServerConfig, create_grpc_server, create_grpc_server_incoming, default_session_builder,
};
use ballista_executor::ArrowFlightServerProvider;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::flight_service::BallistaFlightService;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use clap::Args;
use datafusion::execution::FunctionRegistry as _;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Executors ask for work at least this often (Ballista's `HEARTBEAT_POLL_INTERVAL`), and are lost if
/// they do not for longer than the timeout, in seconds.
const ASKING_SECONDS: u64 = 5;

#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 50050)]
    port: u16,
    /// Seconds after which the work of a silent executor is given to others
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(ASKING_SECONDS + 1..))]
    executor_timeout: u64,
    #[command(flatten)]
    secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutorArgs {
    /// Host of the scheduler
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    scheduler: String,
    /// Port of the scheduler
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    scheduler_port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Port to listen on, by which results are fetched
    #[arg(long, default_value_t = 50051)]
    port: u16,
    /// Name of this host for the others [default: the address that the scheduler sees]
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Traces read at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Directory for results until they are fetched [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    secret: SecretArgs,
}

fn listen(address: SocketAddr) -> Result<TcpIncoming> {
    let failed = || format!("{address}: cannot be listened on");
    create_grpc_server_incoming(address, &GrpcServerConfig::default()).with_context(failed)
}

/// Runs a scheduler until it is ended.
///
/// # Errors
/// It cannot listen, or others could have read the secret.
pub(crate) async fn scheduler(arguments: &SchedulerArgs) -> Result<()> {
    let secret = arguments.secret.read_or_make()?;
    let timeout = arguments.executor_timeout;
    let function = map::function(Gctrace::find(None));
    let known = Arc::new(function.clone());
    let config = SchedulerConfig {
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: timeout,
        expire_dead_executor_interval_seconds: (timeout / 4).max(1),
        no_executors_grace_period_seconds: timeout,
        override_create_grpc_client_endpoint: Some(secret.endpoints()),
        override_logical_codec: Some(Arc::new(TableCodec)),
        override_session_builder: Some(Arc::new(move |config| {
            let mut state = default_session_builder(config)?;
            state.register_udf(Arc::clone(&known))?;
            Ok(state)
        })),
        ..SchedulerConfig::default()
    };
    let bytes = config.grpc_server_max_decoding_message_size as usize;
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let inner =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await?;
    let service = SchedulerGrpcServer::new(rpc::Scheduler { inner, function })
        .max_decoding_message_size(bytes)
        .max_encoding_message_size(bytes);
    let address = SocketAddr::new(arguments.listen, arguments.port);
    let listener = listen(address)?;
    crate::message(format!("scheduler at ballista://{address}"));
    let mut server = Server::builder().tls_config(secret.server())?;
    let server = server.add_service(service);
    server.serve_with_incoming(listener).await?;
    Ok(())
}

/// Runs an executor until it is ended, or the scheduler ends it.
///
/// # Errors
/// It cannot listen, or the scheduler has another secret.
pub(crate) async fn executor(arguments: &ExecutorArgs, gctrace: Gctrace) -> Result<()> {
    let temporary = tempfile::Builder::new().prefix("gctrace-executor-").tempdir()?;
    let directory = arguments.work_dir.as_deref().unwrap_or(temporary.path());
    let function = Arc::new(map::function(gctrace));
    let functions = BallistaFunctionRegistry {
        scalar_functions: [(function.name().to_owned(), function)].into(),
        aggregate_functions: HashMap::new(),
        window_functions: HashMap::new(),
        higher_order_functions: HashMap::new(),
    };
    let (host, port) = (arguments.scheduler.clone(), arguments.scheduler_port);
    crate::message(format!("executor of ballista://{host}:{port}, for which it waits if needed"));
    let secret = arguments.secret.wait().await?;
    while !secret.reaches(&format!("{host}:{port}")).await? {
        tokio::time::sleep(RETRY).await;
    }
    let listener = listen(SocketAddr::new(arguments.listen, arguments.port))?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let config = ExecutorProcessConfig {
        bind_host: arguments.listen.to_string(),
        external_host: arguments.advertise.clone(),
        port: arguments.port,
        scheduler_host: host,
        scheduler_port: port,
        // Not 0: waits for a scheduler that is started later; as Ballista measures it, without end.
        scheduler_connect_timeout_seconds: 1,
        vcores: arguments.jobs.map_or_else(processors, usize::from),
        work_dir: Some(directory.display().to_string()),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        override_function_registry: Some(Arc::new(functions)),
        override_execution_engine: Some(Arc::new(plan::Engine::default())),
        override_create_grpc_client_endpoint: Some(secret.endpoints()),
        override_arrow_flight_service: Some(results(secret, listener)),
        ..ExecutorProcessConfig::default()
    };
    start_executor_process(Arc::new(config)).await?;
    Ok(())
}

/// The server by which clients fetch results. It is started once.
fn results(secret: Secret, listener: TcpIncoming) -> Arc<ArrowFlightServerProvider> {
    let listener = Mutex::new(Some(listener));
    Arc::new(move |directory, _, mut end, config| {
        let service = FlightServiceServer::new(rpc::Results(BallistaFlightService::new(directory)));
        let server = create_grpc_server(&config).tls_config(secret.server());
        let listener = listener.lock().map_or(None, |mut it| it.take());
        tokio::spawn(async move {
            let again = || BallistaError::Internal("results are served already".to_owned());
            let (mut server, listener) = (server?, listener.ok_or_else(again)?);
            let server = server.add_service(service);
            Ok(server.serve_with_incoming_shutdown(listener, end.recv()).await?)
        })
    })
}
