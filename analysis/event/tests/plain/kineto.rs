//! Traces of the PyTorch profiler: lines of real ones, of several versions of torch.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::read::{
    DecodedItem, EventReader, TraceCompletion, TraceInput, TraceProperty, TraceReader,
};
use gctrace_event::{
    Annotation, Collective, CudaLayer, GcReason, GpuOpKind, GpuSync, GpuSyncKind, HostCodeKind,
    NamedMarker, Pause, Record,
};
use std::io::Cursor;

struct Contents {
    records: Vec<Record>,
    properties: Vec<TraceProperty>,
    ending: TraceCompletion,
}

fn read(text: &str, buffer: usize) -> Contents {
    let input = TraceInput::new("t.json", Cursor::new(text.as_bytes().to_vec())).unwrap();
    let mut reader = TraceReader::new(EventReader::with_buffer(input, buffer));
    let (mut records, mut properties) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            DecodedItem::Record(record) => records.push(record),
            DecodedItem::Property(property) => properties.push(property),
            _ => {}
        }
    }
    Contents { records, properties, ending: reader.finish() }
}

/// The only record of a trace with this one event.
fn record(event: &str) -> Record {
    let contents = read(&format!("{{\"traceEvents\":[{event}]}}"), 64);
    assert_eq!(contents.ending.anomalies.count, 0, "{event}");
    let [record] = <[Record; 1]>::try_from(contents.records).unwrap();
    record
}

#[test]
fn the_frame_of_torch_2_4_has_the_ranks_before_the_events() {
    // nccl_rank0.json of HTA's test data (MIT license), shortened.
    let text = r#"{
  "schemaVersion": 1,
  "deviceProperties": [ { "id": 0, "name": "NVIDIA A100-PG509-200", "rank": 7 } ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1,
    "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}], "nccl_version": "2.17.1"},
  "traceEvents": [
  { "ph": "M", "name": "process_name", "ts": 4458676524670.502, "pid": 9, "tid": 0, "args": { "name": "python" } }
  ],
  "INFO": ["INFO:2024-05-22 17:15:23 9:9 CuptiActivityProfiler.cpp:1217] \"Traces\" Recorded:"],
  "traceName": "/tmp/tmpu3g3sevh.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000
}"#;
    for buffer in [16, 1 << 16] {
        let contents = read(text, buffer);
        assert_eq!(
            contents.properties,
            [
                TraceProperty::Rank(3),
                TraceProperty::WorldSize(8),
                TraceProperty::BaseTime(1_711_964_646_000_000_000),
            ]
        );
        assert_eq!(contents.ending.anomalies.count, 0);
    }
}

#[test]
fn the_frame_of_torch_2_15_has_the_base_time_before_the_events() {
    // Recorded with torch 2.15.0 on a CPU.
    let text = r#" {
    "schemaVersion": 1,
    "deviceProperties": [],

      "trace_id": "F1606E6F596847EE842EC9A3CD47EE93",
      "with_stack": 1,
      "host_name": "vm",
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
  ],"traceName": "t215.json" }"#;
    assert_eq!(
        read(text, 16).properties,
        [
            TraceProperty::TraceId("F1606E6F596847EE842EC9A3CD47EE93".to_owned()),
            TraceProperty::Host("vm".to_owned()),
            TraceProperty::BaseTime(1_790_857_026_000_000_000),
        ]
    );
}

#[test]
fn properties_that_make_no_sense_are_reported_or_passed_over() {
    let text = r#"{"baseTimeNanoseconds": "soon",
"distributedInfo": {"rank": -1, "world_size": [1], "other": {"rank": 2}},
"traceEvents": [], "distributedInfo": 7, "host_name": {"rank": 4}, "trace_id": null}"#;
    let contents = read(text, 16);
    assert_eq!(contents.properties, []);
    let first = &contents.ending.anomalies.first;
    let lines: Vec<u64> = first.iter().map(|anomaly| anomaly.position.line).collect();
    assert_eq!(lines, [1, 2, 3]);
}

#[test]
fn a_cut_in_a_property_is_a_cut() {
    for cut in [
        r#"{"traceEvents":[],"baseTimeNanoseconds":17119"#,
        r#"{"traceEvents":[],"distributedInfo":{"rank"#,
        r#"{"traceEvents":[],"distributedInfo":{"rank": 1"#,
    ] {
        let contents = read(cut, 16);
        assert!(contents.ending.cut.is_some(), "{cut}");
        assert_eq!(contents.properties, [], "{cut}");
    }
}

#[test]
fn python_gc_of_torch_2_15() {
    // Recorded with torch 2.15.0, CPython 3.11: neither generation nor reason.
    let record = record(
        r#"{ "ph": "X", "cat": "python_function", "name": "Python GC", "pid": 914, "tid": 941,
        "ts": 4432945990433.96, "dur": 71.436, "args": { "Ev Idx": 0 } }"#,
    );
    let Record::Pause(pause) = record else { unreachable!("{record:?}") };
    assert_eq!((pause.pid, pause.tid), (914, 941));
    assert_eq!(pause.start_ns, 4_432_945_990_433_960);
    assert_eq!(pause.duration_ns(), 71_436);
    assert_eq!(pause.generation, Pause::UNKNOWN_GENERATION);
    assert_eq!(pause.reason, GcReason::Unknown);
}

#[test]
fn kernels_and_calls_of_three_versions() {
    // From HTA's test data (MIT license): Unix times in whole microseconds, in nanoseconds,
    // and times relative to `baseTimeNanoseconds`.
    let kernel = |text| match record(text) {
        Record::GpuOp(op) => op,
        other => unreachable!("{other:?}"),
    };
    let old = kernel(
        r#"{"ph": "X", "cat": "kernel", "name": "void fbgemm_gpu::permute<int>(int)", "pid": 1, "tid": 23,
        "ts": 1682725898082381, "dur": 10.0, "args": {"External id": 6904339, "queued": 0, "device": 1,
        "context": 1, "stream": 23, "correlation": 6904339, "registers per thread": 27,
        "grid": [2400, 1, 1], "est. achieved occupancy %": 100}}"#,
    );
    assert_eq!(old.start_ns, 1_682_725_898_082_381_000);
    assert_eq!((old.pid, old.device, old.stream), (None, 1, 23));
    assert_eq!(old.correlation, Some(6_904_339));
    let new = kernel(
        r#"{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "pid": 0, "tid": 7,
        "ts": 4458677052061.431, "dur": 5.088, "args": {"External id": 13889, "device": 0, "context": 1,
        "stream": 7, "correlation": 64014, "bytes": 4000, "memory bandwidth (GB/s)": 0.7861}}"#,
    );
    assert_eq!(new.start_ns, 4_458_677_052_061_431);
    assert_eq!((new.kind, new.bytes), (GpuOpKind::Memcpy, Some(4000)));
    let call = record(
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1102, "tid": 1102,
        "ts": 1712195495505543.2, "dur": 41.768, "args": {"External id": 112, "cbid": 211,
        "correlation": 135071}}"#,
    );
    let Record::CudaCall(call) = call else { unreachable!("{call:?}") };
    assert_eq!((call.pid, call.layer), (1102, CudaLayer::Runtime));
    assert_eq!(call.start_ns, 1_712_195_495_505_543_200);
    assert_eq!(call.correlation, Some(135_071));
}

#[test]
fn threads_that_the_profiler_does_not_know_have_negative_ids() {
    // NCCL's watchdog in nccl_rank0.json of HTA's test data (MIT license).
    let call = record(
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "pid": 2910249, "tid": -549452224,
        "ts": 4458677000933.188, "dur": 10.837, "args": {"External id": 59170, "cbid": 138,
        "correlation": 59170}}"#,
    );
    let Record::CudaCall(call) = call else { unreachable!("{call:?}") };
    assert_eq!(call.tid, 0xdf40_0640);
}

#[test]
fn collectives_of_torch_2_4() {
    // Members as `torch/csrc/distributed/c10d/ParamCommsUtils.hpp` names them, torch 2.4 and later.
    let record = record(
        r#"{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
        "pid":0,"tid":20,"ts":10.5,"dur":3.25,"args":{"device":0,"stream":20,"correlation":0,
        "Collective name":"allreduce","In msg nelems":25557032,"Group size":2,"dtype":"Float",
        "Process Group Name":"0","Process Group Description":"default_pg","Seq":17,
        "Process Group Ranks":"[0, 1]"}}"#,
    );
    let Record::GpuOp(op) = record else { unreachable!("{record:?}") };
    let collective = Collective {
        name: "allreduce".to_owned(),
        group: Some("0".to_owned()),
        sequence: Some(17),
        size: Some(2),
        ranks: Some("[0, 1]".to_owned()),
        ..Collective::default()
    };
    assert_eq!(op.collective.as_deref(), Some(&collective));
    assert_eq!(op.correlation, None, "0 names no call");
}

#[test]
fn waits_with_enable_cuda_sync_events() {
    // The members are from `libkineto/src/CuptiActivity.cpp`; -1 means unknown.
    let event = r#"{"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":20,"ts":5.5,"dur":0.25,
        "args":{"wait_on_stream":7,"wait_on_cuda_event_record_corr_id":118,"wait_on_cuda_event_id":3,
        "cuda_sync_kind":"Stream Wait Event","stream":20,"correlation":119,"device":0,"context":1}}"#;
    let wait = GpuSync {
        pid: None,
        kind: GpuSyncKind::StreamWaitEvent,
        device: Some(0),
        stream: Some(20),
        start_ns: 5_500,
        end_ns: 5_750,
        correlation: Some(119),
        event_stream: Some(7),
        event_correlation: Some(118),
    };
    assert_eq!(record(event), Record::GpuSync(wait));
    let event = r#"{"ph":"X","cat":"cuda_sync","name":"Context Sync","pid":0,"tid":-1,"ts":5.5,"dur":0.25,
        "args":{"cuda_sync_kind":"Context Sync","stream":-1,"correlation":119,"device":0,"context":1}}"#;
    let Record::GpuSync(sync) = record(event) else { unreachable!("{event}") };
    assert_eq!((sync.kind, sync.stream), (GpuSyncKind::Context, None));
}

#[test]
fn annotations_but_not_their_copies_on_the_gpu() {
    let text = r#"{"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":914,"tid":914,"ts":4432945676106.739,
     "dur":165630.726,"args":{"External id":1,"Record function id":0,"Ev Idx":16}},
    {"ph":"X","cat":"gpu_user_annotation","name":"Optimizer.step#SGD.step","pid":0,"tid":7,"ts":5.0,"dur":1.0,
     "args":{"External id":21222}},
    {"ph":"X","cat":"user_annotation","name":"Optimizer.zero_grad#SGD.zero_grad","pid":914,"tid":914,"ts":5,"dur":1}]}"#;
    let contents = read(text, 64);
    let annotation = Annotation {
        pid: 914,
        tid: 914,
        name: "ProfilerStep#1".to_owned(),
        start_ns: 4_432_945_676_106_739,
        end_ns: 4_432_945_841_737_465,
    };
    let [first, second] = contents.records.as_slice() else {
        unreachable!("{:?}", contents.records)
    };
    assert_eq!(*first, Record::Annotation(annotation));
    assert!(matches!(second, Record::Annotation(_)), "{second:?}");
    assert_eq!(contents.ending.anomalies.count, 0);
}

#[test]
fn annotations_that_mark_steps() {
    let event = |name: &str| {
        format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"{name}","pid":914,"tid":915,"ts":5.0,"dur":1.5,
            "args":{{"External id":21222}}}}"#
        )
    };
    for (name, marker, at_ns) in [
        ("backward", NamedMarker::Backward, 5000),
        ("Optimizer.step#SGD.step", NamedMarker::Optimizer("SGD".to_owned()), 6500),
        (
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            NamedMarker::DataLoader("_MultiProcessingDataLoaderIter".to_owned()),
            5000,
        ),
        ("step function Trainer.step", NamedMarker::Function("Trainer.step".to_owned()), 5000),
    ] {
        let Record::Step(mark) = record(&event(name)) else { unreachable!("{name}") };
        assert_eq!((mark.marker.clone(), mark.at_ns()), (marker, at_ns));
        assert_eq!((mark.pid, mark.tid), (914, 915));
        assert_eq!((mark.start_ns, mark.end_ns, mark.cpu_ns), (5000, 6500, None));
    }
    for name in ["Optimizer.step#SGD.steps", "forward", "step function", ".step"] {
        let other = record(&event(name));
        assert!(matches!(other, Record::Annotation(_)), "{other:?}");
    }
}

#[test]
fn damaged_work_is_counted_with_its_place() {
    let text = r#"{"traceEvents":[
{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":-3,"args":{"device":0,"stream":7}},
{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"args":{"device":0,"stream":7}},
{"ph":"X","cat":"kernel","name":"k","pid":"Spans","tid":"x","ts":10,"dur":1,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":"soon","dur":1},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":99999999999999999999,"ts":1,"dur":1},
{"ph":"X","cat":"user_annotation","name":"x","pid":1,"tid":1,"ts":1,"dur":1e300},
{"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":0,"tid":7,"ts":1},
{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.5e0,"dur":"2E-3","args":{"stream":18446744073709551615}}]}"#;
    let contents = read(text, 64);
    let first = &contents.ending.anomalies.first;
    let lines: Vec<u64> = first.iter().map(|anomaly| anomaly.position.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8]);
    let whose = first.iter().filter(|anomaly| anomaly.problem.contains("gctrace"));
    assert_eq!(whose.count(), 0, "they are not ours");
    let [Record::GpuOp(op)] = contents.records.as_slice() else {
        unreachable!("{:?}", contents.records)
    };
    assert_eq!((op.start_ns, op.end_ns), (1500, 1502));
    assert_eq!((op.device, op.stream), (0, u64::MAX));
}

/// Of two operators the outer one, of the functions those of the program that are not too short.
#[test]
fn functions_and_operators_of_the_program() {
    let text = r#"[
        {"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","pid":9,"tid":9,"ts":1,"dur":90},
        {"ph":"X","cat":"cpu_op","name":"aten::item","pid":9,"tid":9,"ts":10,"dur":20},
        {"ph":"X","cat":"cpu_op","name":"aten::_local_scalar_dense","pid":9,"tid":9,"ts":11,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":8,"ts":11,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"aten::add","pid":9,"tid":9,"ts":30.5,"dur":2},
        {"ph":"X","cat":"cpu_op","name":"detach","pid":9,"tid":9,"ts":40,"dur":2},
        {"ph":"X","cat":"python_function","name":"train.py(88): step","pid":9,"tid":9,"ts":1,"dur":50},
        {"ph":"X","cat":"python_function","name":"train.py(2): short","pid":9,"tid":9,"ts":1,"dur":0.5},
        {"ph":"X","cat":"python_function","name":"torch/nn/modules/module.py(1553): _call_impl","pid":9,"tid":9,"ts":1,"dur":50},
        {"ph":"X","cat":"python_function","name":"/v/lib/python3.12/site-packages/a/b.py(5): f","pid":9,"tid":9,"ts":1,"dur":50},
        {"ph":"X","cat":"python_function","name":"/tmp/torchinductor_me/ab/cabc.py(7): call","pid":9,"tid":9,"ts":1,"dur":50},
        {"ph":"X","cat":"python_function","name":"<built-in method item of Tensor object at 0x7f>","pid":9,"tid":9,"ts":1,"dur":50}
    ]"#;
    let records = read(text, 64).records;
    let names = records.iter().map(|record| match record {
        Record::HostCode(code) => (code.kind, code.name.as_str()),
        other => unreachable!("{other:?}"),
    });
    let (operator, function) = (HostCodeKind::Operator, HostCodeKind::Function);
    let expected = [
        (operator, "aten::item"),
        (operator, "aten::mm"),
        (operator, "aten::add"),
        (function, "train.py(88): step"),
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

/// The profiler writes its own work with process -1.
#[test]
fn overhead_has_no_thread() {
    let record = record(
        r#"{"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0,
        "ts": 4458676526254.061, "dur": 1713.252}"#,
    );
    let Record::HostCode(code) = record else { unreachable!("{record:?}") };
    assert_eq!((code.pid, code.tid, code.kind), (None, None, HostCodeKind::Overhead));
    assert_eq!(
        (code.name.as_str(), code.end_ns - code.start_ns),
        ("Activity Buffer Request", 1_713_252)
    );
}
