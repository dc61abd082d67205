//! What a scheduler and an executor answer: of the calls that Ballista serves, those that its client and
//! its executor make for our plan. All others are refused.
//!
//! Each call is named, so that a new one of Ballista does not compile before it is decided on.

use crate::plan;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaResult, Ticket,
};
use ballista_core::extension::SessionConfigHelperExt as _;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::scheduler::Action as Fetch;
use ballista_core::serde::{decode_protobuf, protobuf as proto};
use datafusion::logical_expr::ScalarUDF;
use tonic::{Request, Response, Status, Streaming};

type Answer<T> = Result<Response<T>, Status>;

/// To calls that nothing of ours makes.
fn refused<T>(call: &str) -> Answer<T> {
    let message = format!("gctrace-cluster does not answer {call}");
    Err(Status::permission_denied(message))
}

/// A scheduler that accepts our plan only.
pub(crate) struct Scheduler<S> {
    /// Ballista's.
    pub(crate) inner: S,
    /// That of the plan.
    pub(crate) function: ScalarUDF,
}

#[tonic::async_trait]
impl<S: SchedulerGrpc> SchedulerGrpc for Scheduler<S> {
    type ExecuteQueryPushStream = S::ExecuteQueryPushStream;

    /// Of a client. Its settings are not used: the plan's are known.
    async fn execute_query_push(
        &self,
        mut request: Request<proto::ExecuteQueryParams>,
    ) -> Answer<Self::ExecuteQueryPushStream> {
        let query = request.get_mut();
        let Some(Query::LogicalPlan(plan)) = &query.query else {
            return Err(Status::permission_denied("no logical plan"));
        };
        let partitions = plan::check(plan, &self.function)
            .map_err(|error| Status::permission_denied(format!("{error:#}")))?;
        query.settings = plan::settings(partitions).to_key_value_pairs();
        self.inner.execute_query_push(request).await
    }

    /// Of an executor, which polls for work. Its address is added if it is missing: Ballista relies on
    /// that.
    async fn poll_work(
        &self,
        mut request: Request<proto::PollWorkParams>,
    ) -> Answer<proto::PollWorkResult> {
        let address = request.remote_addr();
        let executor = request.get_mut().metadata.as_mut();
        let complete = executor.is_some_and(|executor| {
            executor.host = executor.host.take().or(address.map(|it| it.ip().to_string()));
            executor.host.is_some()
                && executor.specification.is_some()
                && executor.os_info.is_some()
        });
        if !complete {
            return Err(Status::invalid_argument("not an executor"));
        }
        self.inner.poll_work(request).await
    }

    /// Of an executor that ends, before [`Self::executor_stopped`], which has all that is needed.
    async fn heart_beat_from_executor(
        &self,
        _: Request<proto::HeartBeatParams>,
    ) -> Answer<proto::HeartBeatResult> {
        let reregister = false;
        Ok(Response::new(proto::HeartBeatResult { reregister }))
    }

    /// Of an executor that ends.
    async fn executor_stopped(
        &self,
        request: Request<proto::ExecutorStoppedParams>,
    ) -> Answer<proto::ExecutorStoppedResult> {
        self.inner.executor_stopped(request).await
    }

    async fn execute_query(
        &self,
        _: Request<proto::ExecuteQueryParams>,
    ) -> Answer<proto::ExecuteQueryResult> {
        refused("ExecuteQuery")
    }

    async fn register_executor(
        &self,
        _: Request<proto::RegisterExecutorParams>,
    ) -> Answer<proto::RegisterExecutorResult> {
        refused("RegisterExecutor")
    }

    async fn update_task_status(
        &self,
        _: Request<proto::UpdateTaskStatusParams>,
    ) -> Answer<proto::UpdateTaskStatusResult> {
        refused("UpdateTaskStatus")
    }

    async fn create_update_session(
        &self,
        _: Request<proto::CreateUpdateSessionParams>,
    ) -> Answer<proto::CreateUpdateSessionResult> {
        refused("CreateUpdateSession")
    }

    async fn remove_session(
        &self,
        _: Request<proto::RemoveSessionParams>,
    ) -> Answer<proto::RemoveSessionResult> {
        refused("RemoveSession")
    }

    async fn get_job_status(
        &self,
        _: Request<proto::GetJobStatusParams>,
    ) -> Answer<proto::GetJobStatusResult> {
        refused("GetJobStatus")
    }

    async fn get_job_metrics(
        &self,
        _: Request<proto::GetJobMetricsParams>,
    ) -> Answer<proto::GetJobMetricsResult> {
        refused("GetJobMetrics")
    }

    async fn cancel_job(
        &self,
        _: Request<proto::CancelJobParams>,
    ) -> Answer<proto::CancelJobResult> {
        refused("CancelJob")
    }

    async fn clean_job_data(
        &self,
        _: Request<proto::CleanJobDataParams>,
    ) -> Answer<proto::CleanJobDataResult> {
        refused("CleanJobData")
    }
}

/// Results of an executor, for clients.
pub(crate) struct Results<F>(pub(crate) F);

#[tonic::async_trait]
impl<F: FlightService> FlightService for Results<F> {
    type HandshakeStream = F::HandshakeStream;
    type ListFlightsStream = F::ListFlightsStream;
    type DoGetStream = F::DoGetStream;
    type DoPutStream = F::DoPutStream;
    type DoExchangeStream = F::DoExchangeStream;
    type DoActionStream = F::DoActionStream;
    type ListActionsStream = F::ListActionsStream;

    /// Of a client. The file is one of the executor's directory: all of its path but the job is numbers.
    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let fetch = decode_protobuf(&request.get_ref().ticket);
        let Ok(Fetch::FetchPartition { job_id, .. }) = fetch else {
            return Err(Status::invalid_argument("not a result"));
        };
        if !plan::is_name(job_id.as_str()) {
            return Err(Status::permission_denied("not the name of a job"));
        }
        self.0.do_get(request).await
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        refused("DoAction")
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        refused("ListActions")
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        refused("DoPut")
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        refused("DoExchange")
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        refused("Handshake")
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        refused("ListFlights")
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        refused("GetFlightInfo")
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        refused("PollFlightInfo")
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        refused("GetSchema")
    }
}
