//! Plans as their senders encode them: the one of gctrace-cluster, and others.

use ballista::prelude::SessionConfigExt as _;
use ballista_core::serde::protobuf::execute_query_params::Query;
use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::TableReference;
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::functions::expr_fn::{concat, upper};
use datafusion::logical_expr::{
    ColumnarValue, Extension, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Volatility, create_udf,
};
use datafusion::prelude::{CsvReadOptions, DataFrame, SessionConfig, SessionContext, col, lit};
use datafusion_proto::logical_plan::{AsLogicalPlan as _, LogicalExtensionCodec};
use datafusion_proto::physical_plan::AsExecutionPlan as _;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use prost::Message as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tables and file formats, as bytes.
#[derive(Debug, Default)]
pub(crate) struct Codec(ballista_core::serde::BallistaLogicalExtensionCodec);

impl LogicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension> {
        self.0.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, bytes: &mut Vec<u8>) -> Result<()> {
        self.0.try_encode(node, bytes)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        schema: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let parts: Vec<Vec<[String; 2]>> = serde_json::from_slice(bytes).unwrap();
        let part = |rows: &Vec<[String; 2]>| {
            let column = |at: usize| {
                let texts = rows.iter().map(|row| Some(&row[at]));
                Arc::new(texts.collect::<StringArray>()) as ArrayRef
            };
            let columns = vec![column(0), column(1)];
            vec![RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()]
        };
        let parts = parts.iter().map(part).collect();
        Ok(Arc::new(MemTable::try_new(schema.clone(), parts)?))
    }

    fn try_encode_table_provider(
        &self,
        _: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let table = (table.as_ref() as &dyn std::any::Any).downcast_ref::<MemTable>();
        let table = table.unwrap();
        let rows = |batch: &RecordBatch| {
            let text =
                |at: usize, row: usize| batch.column(at).as_string::<i32>().value(row).to_owned();
            let rows = (0..batch.num_rows()).map(|row| [text(0, row), text(1, row)]);
            rows.collect::<Vec<[String; 2]>>()
        };
        let parts = table.batches.iter().map(|part| rows(&part.try_read().unwrap()[0]));
        serde_json::to_writer(bytes, &parts.collect::<Vec<_>>()).unwrap();
        Ok(())
    }

    fn try_decode_file_format(
        &self,
        bytes: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn FileFormatFactory>> {
        self.0.try_decode_file_format(bytes, context)
    }

    fn try_encode_file_format(
        &self,
        bytes: &mut Vec<u8>,
        format: Arc<dyn FileFormatFactory>,
    ) -> Result<()> {
        self.0.try_encode_file_format(bytes, format)
    }
}

/// Plans are encoded only: it is never called here.
pub(crate) fn summarize() -> ScalarUDF {
    let texts = vec![DataType::Utf8, DataType::Utf8];
    let run = |_: &[ColumnarValue]| panic!("called by the sender");
    create_udf("gctrace_summarize", texts, DataType::Utf8, Volatility::Volatile, Arc::new(run))
}

/// A table of a trace and a directory.
fn table(columns: [&str; 2], rows: &[[&str; 2]]) -> Arc<MemTable> {
    let fields = columns.map(|name| Field::new(name, DataType::Utf8, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let part = |row: &[&str; 2]| {
        let columns = row.map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
        vec![RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).unwrap()]
    };
    let parts = rows.iter().map(part).collect();
    Arc::new(MemTable::try_new(schema, parts).unwrap())
}

/// Plans for one table, by a session that has it.
pub(crate) struct Sender {
    context: SessionContext,
    /// What must not be read, and where nothing must be written.
    outside: PathBuf,
}

impl Sender {
    pub(crate) fn new(rows: &[[&str; 2]], outside: &Path) -> Self {
        let config = SessionConfig::new_with_ballista()
            .with_target_partitions(rows.len())
            .with_round_robin_repartition(false);
        let context = SessionContext::new_with_config(config);
        context.register_table("traces", table(["trace", "directory"], rows)).unwrap();
        context.register_table("swapped", table(["directory", "trace"], rows)).unwrap();
        context.register_udf(summarize());
        let outside = outside.to_owned();
        Self { context, outside }
    }

    pub(crate) fn logical(&self, plan: &LogicalPlan) -> Query {
        let plan = self.context.state().optimize(plan).unwrap();
        let node = LogicalPlanNode::try_from_logical_plan(&plan, &Codec::default()).unwrap();
        Query::LogicalPlan(node.encode_to_vec())
    }

    async fn physical(&self, plan: &LogicalPlan) -> Query {
        let plan = self.context.state().create_physical_plan(plan).await.unwrap();
        let codec = ballista_core::serde::BallistaPhysicalExtensionCodec::default();
        let node = PhysicalPlanNode::try_from_physical_plan(plan, &codec).unwrap();
        Query::PhysicalPlan(node.encode_to_vec())
    }

    async fn table(&self, name: &str) -> DataFrame {
        self.context.table(name).await.unwrap()
    }

    /// What `gctrace-cluster analyze` sends.
    pub(crate) async fn right(&self) -> LogicalPlan {
        self.call("traces", ["trace", "directory"]).await
    }

    async fn call(&self, table: &str, [trace, directory]: [&str; 2]) -> LogicalPlan {
        let call = summarize().call(vec![col(trace), col(directory)]).alias("problem");
        let rows = self.table(table).await;
        rows.select(vec![col("trace"), call]).unwrap().logical_plan().clone()
    }

    /// Plans that write files.
    async fn writers(&self) -> Vec<(&'static str, LogicalPlan)> {
        let to = |name: &str| self.outside.join(name).to_str().unwrap().to_owned();
        let mut plans = Vec::new();
        for format in ["csv", "json", "parquet"] {
            let copy = format!("copy traces to '{}' stored as {format}", to(format));
            let plan = self.context.state().create_logical_plan(&copy).await.unwrap();
            plans.push((format, plan));
        }
        plans
    }

    /// Other plans.
    async fn others(&self) -> Vec<(&'static str, LogicalPlan)> {
        let traces = self.table("traces").await;
        let plan = |rows: Result<DataFrame>| rows.unwrap().logical_plan().clone();
        let text = CsvReadOptions::new().has_header(false).file_extension("");
        let file = self.outside.join("private");
        let file = self.context.read_csv(file.to_str().unwrap(), text).await;
        let call = |trace| summarize().call(vec![trace, col("directory")]).alias("problem");
        let select = |call| traces.clone().select(vec![col("trace"), call]);
        let values = LogicalPlanBuilder::values(vec![vec![lit("/t"), lit("/d")]]).unwrap();
        let values =
            values.project([summarize().call(vec![col("column1"), col("column2")])]).unwrap();
        let right = || async { DataFrame::new(self.context.state(), self.right().await) };
        vec![
            ("the table alone", traces.logical_plan().clone()),
            ("a file", plan(file)),
            ("another function", plan(select(upper(col("trace")).alias("problem")))),
            ("an argument", plan(select(call(concat(vec![col("trace"), lit("x")]))))),
            ("a constant", plan(select(call(lit("/etc/passwd"))))),
            ("another name", plan(select(call(col("trace")).alias("result")))),
            ("without the trace", plan(traces.clone().select(vec![call(col("trace"))]))),
            ("exchanged", self.call("traces", ["directory", "trace"]).await),
            ("another table", self.call("swapped", ["trace", "directory"]).await),
            ("a filter", plan(right().await.filter(col("trace").not_eq(lit("x"))))),
            ("sorted", plan(right().await.sort_by(vec![col("trace")]))),
            ("a part", plan(right().await.limit(0, Some(1)))),
            ("twice", plan(right().await.union(right().await))),
            ("counted", plan(right().await.distinct())),
            ("no table", values.build().unwrap()),
        ]
    }

    /// All that must be refused.
    pub(crate) async fn queries(&self) -> Vec<(String, Query)> {
        let mut queries = Vec::new();
        let right = ("the plan", self.right().await);
        let plans = [self.writers().await, self.others().await].concat();
        for (name, plan) in &plans {
            queries.push((format!("{name}, logical"), self.logical(plan)));
        }
        for (name, plan) in plans.iter().chain([&right]) {
            queries.push((format!("{name}, physical"), self.physical(plan).await));
        }
        queries
    }
}
