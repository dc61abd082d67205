//! `gctrace-cluster scheduler` and `executor`: Ballista's, with the function of [`map`].
//!
//! Neither asks who is there, and an executor reads any file that a plan names: they listen on
//! loopback unless `--listen` names another address.

use crate::gctrace::Gctrace;
use crate::map;
use crate::map::TableCodec;
use anyhow::Result;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::utils::default_session_builder;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::Args;
use datafusion::execution::FunctionRegistry as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Executors ask for work at least this often (Ballista's `HEARTBEAT_POLL_INTERVAL`), and are lost if
/// they do not for longer than the timeout, in seconds.
const ASKING_SECONDS: u64 = 5;

#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// Address to listen on. It must be reached by trusted machines only
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 50050)]
    port: u16,
    /// Seconds after which the work of a silent executor is given to others
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(ASKING_SECONDS + 1..))]
    executor_timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutorArgs {
    /// Host of the scheduler
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    scheduler: String,
    /// Port of the scheduler
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    scheduler_port: u16,
    /// Address to listen on. It must be reached by trusted machines only
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
}

/// Why an address is dangerous; `None` for loopback.
fn exposed(listen: IpAddr) -> Option<String> {
    (!listen.is_loopback()).then(|| {
        format!(
            "listens on {listen}: whoever reaches this port can have files of this user read; use a \
             private network, or a firewall"
        )
    })
}

/// Runs a scheduler until it is ended.
///
/// # Errors
/// It cannot listen.
pub(crate) async fn scheduler(arguments: &SchedulerArgs) -> Result<()> {
    exposed(arguments.listen).iter().for_each(crate::message);
    let timeout = arguments.executor_timeout;
    let function = Arc::new(map::function(Gctrace::find(None)));
    let config = Arc::new(SchedulerConfig {
        bind_host: arguments.listen.to_string(),
        bind_port: arguments.port,
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: timeout,
        expire_dead_executor_interval_seconds: (timeout / 4).max(1),
        no_executors_grace_period_seconds: timeout,
        override_logical_codec: Some(Arc::new(TableCodec::default())),
        override_session_builder: Some(Arc::new(move |config| {
            let mut state = default_session_builder(config)?;
            state.register_udf(Arc::clone(&function))?;
            Ok(state)
        })),
        ..SchedulerConfig::default()
    });
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let address = SocketAddr::new(arguments.listen, arguments.port);
    crate::message(format!("scheduler at ballista://{address}"));
    start_server(cluster, address, config).await?;
    Ok(())
}

/// Runs an executor until it is ended, or the scheduler ends it.
///
/// # Errors
/// It cannot listen, or the scheduler is not reached.
pub(crate) async fn executor(arguments: &ExecutorArgs, gctrace: Gctrace) -> Result<()> {
    exposed(arguments.listen).iter().for_each(crate::message);
    let temporary = tempfile::Builder::new().prefix("gctrace-executor-").tempdir()?;
    let directory = arguments.work_dir.as_deref().unwrap_or(temporary.path());
    let mut functions = BallistaFunctionRegistry::default();
    let function = Arc::new(map::function(gctrace));
    functions.scalar_functions.insert(function.name().to_owned(), function);
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let config = ExecutorProcessConfig {
        bind_host: arguments.listen.to_string(),
        external_host: arguments.advertise.clone(),
        port: arguments.port,
        scheduler_host: arguments.scheduler.clone(),
        scheduler_port: arguments.scheduler_port,
        // Not 0: waits for a scheduler that is started later; as Ballista measures it, without end.
        scheduler_connect_timeout_seconds: 1,
        vcores: arguments.jobs.map_or_else(processors, usize::from),
        work_dir: Some(directory.display().to_string()),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        override_function_registry: Some(Arc::new(functions)),
        ..ExecutorProcessConfig::default()
    };
    crate::message(format!(
        "executor of ballista://{}:{}, for which it waits if needed",
        arguments.scheduler, arguments.scheduler_port
    ));
    start_executor_process(Arc::new(config)).await?;
    Ok(())
}
