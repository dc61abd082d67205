//! The one plan that gctrace-cluster has executed, and that scheduler and executors accept: a call of
//! `gctrace_summarize` for each row of a table in memory.
//!
//! A scheduler compares a plan with the one that it makes of the plan's table; an executor looks at each
//! node of what the scheduler made of that. The only leaf is a table in memory, which Ballista divides
//! among tasks; a leaf of our own would be read whole by each of them (docs/adr/0005).

use anyhow::{Context as _, Result};
use ballista::prelude::SessionConfigExt as _;
use ballista_core::JobId;
use ballista_core::execution_plans::ShuffleWriterExec;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{TableReference, exec_datafusion_err, exec_err};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Extension, LogicalPlan, LogicalPlanBuilder, ScalarUDF};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion::prelude::{SessionConfig, col};
use datafusion_proto::logical_plan::{AsLogicalPlan as _, LogicalExtensionCodec};
use datafusion_proto::protobuf::LogicalPlanNode;
use datafusion_proto::protobuf::logical_plan_node::LogicalPlanType;
use prost::Message as _;
use std::sync::Arc;

/// Rows of a partition of the table: a trace and the directory of its summary.
pub(crate) type Part = Vec<[String; 2]>;

/// Tasks of a plan, at most: each costs 50 ms, and a task that is lost is done again whole.
pub(crate) const TASKS: usize = 1_024;
/// Columns of the table.
pub(crate) const COLUMNS: [&str; 2] = ["trace", "directory"];
/// Columns of the result: a trace, and what the function says on it.
const RESULT: [&str; 2] = [COLUMNS[0], "problem"];
/// Name of the function.
pub(crate) const FUNCTION: &str = "gctrace_summarize";

fn schema() -> SchemaRef {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Utf8, false));
    Arc::new(Schema::new(fields.to_vec()))
}

/// The settings of a session for a table of that many partitions: one task each.
pub(crate) fn settings(partitions: usize) -> SessionConfig {
    SessionConfig::new_with_ballista()
        .with_target_partitions(partitions.max(1))
        .with_round_robin_repartition(false)
}

/// The plan for a table of these parts: each trace, and what the function says on it.
///
/// # Errors
/// The function has other arguments.
pub(crate) fn of(parts: &[Part], function: &ScalarUDF) -> Result<LogicalPlan> {
    let table = provider_as_source(Arc::new(table(parts)?));
    let problem = function.call(COLUMNS.map(col).into()).alias(RESULT[1]);
    let rows = LogicalPlanBuilder::scan("traces", table, None)?;
    Ok(rows.project([col(RESULT[0]), problem])?.build()?)
}

/// Number of partitions of the plan's table.
///
/// # Errors
/// The bytes are not exactly the plan that we make of the same table.
pub(crate) fn check(bytes: &[u8], function: &ScalarUDF) -> Result<usize> {
    let sent = LogicalPlanNode::decode(bytes)?;
    let other = || format!("a plan other than the one of {FUNCTION}");
    let Some(LogicalPlanType::Projection(projection)) = &sent.logical_plan_type else {
        anyhow::bail!(other());
    };
    let input = projection.input.as_ref().with_context(other)?;
    let Some(LogicalPlanType::CustomScan(scan)) = &input.logical_plan_type else {
        anyhow::bail!(other());
    };
    let parts = decode(&scan.custom_table_data)?;
    let state = SessionStateBuilder::new()
        .with_config(settings(parts.len()))
        .with_default_features()
        .build();
    let plan = state.optimize(&of(&parts, function)?)?;
    let ours = LogicalPlanNode::try_from_logical_plan(&plan, &TableCodec)?;
    anyhow::ensure!(ours == sent, other());
    Ok(parts.len())
}

/// Parts of a table from JSON. Not by Arrow's reader: bytes that its writer did not write make it
/// panic, or ask for memory without bound.
fn decode(bytes: &[u8]) -> Result<Vec<Part>> {
    let parts: Vec<Part> = serde_json::from_slice(bytes)?;
    anyhow::ensure!(parts.len() <= TASKS, "a table in more than {TASKS} parts");
    Ok(parts)
}

fn table(parts: &[Part]) -> Result<MemTable, DataFusionError> {
    let batch = |part: &Part| {
        let column = |at: usize| {
            let texts = part.iter().map(|row| row.get(at));
            Arc::new(texts.collect::<StringArray>()) as ArrayRef
        };
        let columns = (0..COLUMNS.len()).map(column).collect();
        Ok(vec![RecordBatch::try_new(schema(), columns)?])
    };
    let batches: Result<Vec<_>, DataFusionError> = parts.iter().map(batch).collect();
    MemTable::try_new(schema(), batches?)
}

/// Sends tables in memory with a plan, and refuses all else that is not of DataFusion itself.
#[derive(Debug)]
pub(crate) struct TableCodec;

impl LogicalExtensionCodec for TableCodec {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[LogicalPlan],
        _: &TaskContext,
    ) -> Result<Extension, DataFusionError> {
        exec_err!("a plan has a node that gctrace-cluster does not know")
    }

    fn try_encode(&self, node: &Extension, _: &mut Vec<u8>) -> Result<(), DataFusionError> {
        exec_err!("{}: not a node of gctrace-cluster", node.node.name())
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let parts = decode(bytes).map_err(|error| exec_datafusion_err!("{error:#}"))?;
        Ok(Arc::new(table(&parts)?))
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), DataFusionError> {
        let Some(table) = (table.as_ref() as &dyn std::any::Any).downcast_ref::<MemTable>() else {
            return exec_err!("{name}: not a table in memory");
        };
        let mut parts: Vec<Part> = Vec::with_capacity(table.batches.len());
        for part in &table.batches {
            let Ok(batches) = part.try_read() else {
                return exec_err!("{name}: is being written");
            };
            parts.push(batches.iter().flat_map(rows).collect());
        }
        serde_json::to_writer(bytes, &parts).map_err(|error| exec_datafusion_err!("{error}"))
    }
}

fn rows(batch: &RecordBatch) -> impl Iterator<Item = [String; 2]> {
    let texts = |at: usize| {
        let column = batch.column(at).as_string::<i32>().iter();
        column.map(|text| text.unwrap_or_default().to_owned())
    };
    texts(0).zip(texts(1)).map(<[String; 2]>::from)
}

/// Ballista's engine, for tasks of the plan only.
#[derive(Default)]
pub(crate) struct Engine(DefaultExecutionEngine);

impl ExecutionEngine for Engine {
    fn create_query_stage_exec(
        &self,
        job: JobId,
        stage: usize,
        task: usize,
        partitions: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        directory: &str,
        settings: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>, DataFusionError> {
        if !is_name(job.as_str()) || !is_task(&plan) {
            return exec_err!("a task other than one of {FUNCTION}");
        }
        self.0.create_query_stage_exec(job, stage, task, partitions, plan, directory, settings)
    }
}

/// Whether a job is named as a scheduler names it. Its results are below a directory of that name.
pub(crate) fn is_name(job: &str) -> bool {
    !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether it writes, to a file of its job, what [`of`] has of a table in memory.
fn is_task(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let rows = || {
        let [projection] = plan.downcast_ref::<ShuffleWriterExec>()?.children()[..] else {
            return None;
        };
        let projection = projection.downcast_ref::<ProjectionExec>()?;
        let [trace, problem] = projection.expr() else {
            return None;
        };
        let call = problem.expr.downcast_ref::<ScalarFunctionExpr>()?;
        let columns = [&[Arc::clone(&trace.expr)], call.args()].concat();
        let columns: Option<Vec<_>> = columns.iter().map(column).collect();
        let names = [&trace.alias, &problem.alias];
        let known = call.name() == FUNCTION && columns? == [0, 0, 1] && names == RESULT;
        Some(projection.input()).filter(|_| known)
    };
    let leaf = rows().and_then(|rows| rows.downcast_ref::<DataSourceExec>());
    leaf.is_some_and(|leaf| {
        leaf.data_source().is::<MemorySourceConfig>() && leaf.schema() == schema()
    })
}

/// The number of the column that an expression is.
fn column(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    Some(expression.downcast_ref::<Column>()?.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_sent_with_its_parts() {
        let row = |trace: &str| [trace.to_owned(), "s3://b/c".to_owned()];
        let parts = vec![vec![row("/a"), row("/\"\u{1f40d}\n")], vec![row("/d")]];
        let sent = Arc::new(table(&parts).unwrap());
        let mut bytes = Vec::new();
        TableCodec
            .try_encode_table_provider(&TableReference::bare("traces"), sent, &mut bytes)
            .unwrap();
        assert_eq!(decode(&bytes).unwrap(), parts);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err());
        }
        let many = serde_json::to_vec(&vec![Part::new(); TASKS + 1]).unwrap();
        assert!(decode(&many).is_err());
    }

    #[test]
    fn a_job_is_no_path() {
        for (name, is) in [
            ("038GHDBS9P000", true),
            ("", false),
            (".", false),
            ("..", false),
            ("/etc", false),
            ("a/b", false),
            ("a\0", false),
        ] {
            assert_eq!(is_name(name), is, "{name:?}");
        }
    }
}
