//! What to change where a device was idle.

use crate::report::{IdleCause, IdleRow};

/// What to change so that a cause goes, `in_long_gaps`: if most of its time is in idle intervals too long
/// for launches alone; `None` where nothing is known to help, and for the collector,
/// which has advice of its own.
pub(crate) fn remedy(row: &IdleRow, in_long_gaps: bool) -> Option<&'static str> {
    let place = row.places.first();
    let function = place.and_then(|place| place.code.function.as_deref()).unwrap_or_default();
    // A tenth of the row and more is worth a change of its own.
    let copies = |direction: &str| {
        let places = row.places.iter().filter(|place| place.time_ns >= row.time_ns / 10);
        let mut functions = places.filter_map(|place| place.code.function.as_deref());
        functions.any(|function| function.contains(direction))
    };
    Some(match row.cause {
        IdleCause::Allocation if function.contains("Host") => {
            "reserve pinned memory once, not in the loop"
        }
        IdleCause::Allocation => {
            "no torch.cuda.empty_cache() in the loop, \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        }
        IdleCause::Files => {
            "checkpoints in the background, torch.distributed.checkpoint.async_save()"
        }
        IdleCause::Data => {
            "DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=4)"
        }
        IdleCause::HostFunction => {
            "let the function only signal another thread, which does the work beside the stream"
        }
        IdleCause::Copy if copies("HtoD") && !copies("DtoH") => {
            "DataLoader(pin_memory=True) and .to(device, non_blocking=True)"
        }
        IdleCause::Copy if copies("HtoD") || !copies("DtoH") => {
            "pinned memory and non_blocking=True to the GPU, .cpu() and .item() every N steps only"
        }
        IdleCause::Copy | IdleCause::Synchronization => {
            "keep results on the GPU, .item(), .cpu() and print() every N steps only"
        }
        IdleCause::LaunchCall => {
            "run each kernel once before the loop: its first launch loads or compiles it; keep shapes the same"
        }
        IdleCause::Host if in_long_gaps => {
            "make the code between launches faster, or run it while the GPU works (a worker process, \
             another thread)"
        }
        IdleCause::Host => {
            "fewer launches, torch.compile(mode=\"reduce-overhead\"), CUDA graphs or a larger batch"
        }
        IdleCause::Gc
        | IdleCause::Profiler
        | IdleCause::RankWait
        | IdleCause::LaunchLatency
        | IdleCause::BackToBack
        | IdleCause::OtherStream
        | IdleCause::Blocked
        | IdleCause::Unknown => return None,
    })
}
