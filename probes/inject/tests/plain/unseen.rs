//! Collections that call no callback, counted: those before the hook, and the last of interpreters.

use gctrace_ring::{HookState, InjectOptions, RingReason};
use test_kit::interpreters::interpreters;
use test_kit::preload::run;

/// Each interpreter prints its id and its collections so far, by its own statistics.
const SUBINTERPRETERS: &str = r"
import sys
counted = 'import gc; gc.disable(); [gc.collect() for _ in range(5)]; '
counted += 'print(%d, sum(next(iter(own.values())) for own in gc.get_stats()), flush=True)'
exec(counted % 0)
def module():
    for name in ('_interpreters', '_xxsubinterpreters'):
        try:
            return __import__(name)
        except ImportError:
            pass
# 3.8 has one state for all; subinterpreters of 3.9 call no callbacks of theirs.
interpreters = module() if sys.version_info >= (3, 10) else None
for config in ('isolated', 'legacy', 'isolated') if interpreters else ():
    try:
        one = interpreters.create(config)
    except TypeError:
        one = interpreters.create()
    run = getattr(interpreters, 'run_string', None) or interpreters.exec
    run(one, counted % int(one))
    interpreters.destroy(one)
";

#[test]
fn all_collections_are_recorded_or_counted() {
    for python in interpreters("all_collections_are_recorded_or_counted") {
        let run = run(InjectOptions::default(), &mut python.command(SUBINTERPRETERS));
        assert_eq!(run.errors, "", "{}", python.name);
        let (ring, numbers) = (run.only(), run.numbers());
        let of = |id: i64, state| {
            let mut hooks = ring.hooks().into_iter().filter(move |hook| hook.1 == id);
            hooks.find(|hook| hook.0 == state).map(|hook| hook.2)
        };
        for counted in numbers.chunks(2) {
            let (id, all) = (counted[0] as i64, counted[1]);
            let pauses = ring.pauses().into_iter().filter(|pause| pause.interpreter == id);
            let recorded = pauses.filter(|pause| pause.reason != RingReason::Exit).count() as u64;
            let before = of(id, HookState::Installed).unwrap();
            if python.is("incremental") {
                // Its statistics leave out increments that only mark.
                assert_eq!(before, HookState::UNCOUNTED, "{}", python.name);
                assert_eq!(of(id, HookState::Ended), None, "{}", python.name);
                continue;
            }
            assert_eq!(before + recorded, all, "{} {id}: {before} before", python.name);
            assert!(before > 0, "{}", python.name);
            assert_eq!(of(id, HookState::Ending), Some(0), "{} {id}", python.name);
            // The probes' tests have their exact number; 3 of most versions.
            assert!(of(id, HookState::Ended) > Some(0), "{} {id}", python.name);
        }
    }
}
