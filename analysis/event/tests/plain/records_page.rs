//! docs/records.md, made from the declarations of the kinds.

use gctrace_event::{Phase, Record};
use std::fmt::Write as _;
use test_kit::schema;

const HEAD: &str = "\
# Records

Everything that a recording can contain, one kind a row, made from the declarations (`analysis/event/src/record.rs`;
[what each line contains](trace-format.md)). *Line*: `name` and `ph` of its event; of slices the category. *Has*: the
process, the thread, the time and the stack, as far as a record of the kind states them. *Spaced*: a recorder beyond
`--per-day` writes one of some, those of a class sharing bytes.

| record | line | what it is | has | spaced |
|---|---|---|---|---|
";

#[test]
fn the_page_of_records_is_made_from_their_declarations() {
    let mut page = HEAD.to_owned();
    for (record, doc, kind) in Record::KINDS {
        let phase = match kind.phase {
            Phase::Meta => "M",
            Phase::Instant(_) => "i",
            Phase::Slice => "X",
        };
        let has = kind.members;
        let has =
            [(has.pid, "process"), (has.tid, "thread"), (has.ts, "time"), (has.stack, "stack")];
        let has: Vec<&str> = has.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
        let spaced = kind.spaced.map_or(String::new(), |class| format!("{class:?}").to_lowercase());
        writeln!(
            page,
            "| `{record}` | `{}` {phase} |{doc} | {} | {spaced} |",
            kind.name,
            has.join(", ")
        )
        .unwrap();
    }
    let file = schema::published("any").with_file_name("records.md");
    schema::assert_made(&file, &page, "-p gctrace-event records_page");
}
