//! `gctrace-cluster query`: SQL on tables, traces and summaries, in this process.

use crate::gctrace::Gctrace;
use crate::place::Place;
use crate::tables;
use crate::tables::Inputs;
use anyhow::{Context as _, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::json::ArrayWriter;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::SessionContext;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table
    Text,
    /// An array with an object per row; columns that are null are left out
    Json,
}

/// The answer to a query, ready to print. Only queries are run: nothing is created or written.
///
/// # Errors
/// An input cannot be read, or the query is not valid.
pub(crate) async fn run(
    sql: &str,
    inputs: &[Place],
    gctrace: &Gctrace,
    format: Format,
) -> Result<Vec<u8>> {
    let inputs = Inputs::find(inputs).await?;
    let scratch = tempfile::Builder::new().prefix("gctrace-").tempdir()?;
    let context = SessionContext::new();
    tables::register(&context, &inputs, sql, gctrace, scratch.path()).await?;
    let only_reading =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let rows = context.sql_with_options(sql, only_reading).await?;
    let schema = rows.schema().inner().clone();
    let mut batches = rows.collect().await?;
    batches.push(RecordBatch::new_empty(schema));
    match format {
        Format::Text => {
            let text = pretty_format_batches(&batches)?.to_string();
            // Names in traces come from programs: they must not control the terminal.
            let clean = |one: char| match one {
                '\n' => one,
                _ if one.is_control() => char::REPLACEMENT_CHARACTER,
                _ => one,
            };
            let mut text: String = text.chars().map(clean).collect();
            text.push('\n');
            Ok(text.into_bytes())
        }
        Format::Json => {
            let mut writer = ArrayWriter::new(Vec::new());
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            writer.write_batches(&batches).context("the rows have no form in JSON")?;
            writer.finish()?;
            let mut text = writer.into_inner();
            text.push(b'\n');
            Ok(text)
        }
    }
}
