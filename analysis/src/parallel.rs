//! Work on independent items on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The results for all items, in the order of the items. `threads`: the most items that are worked
/// on at the same time; fewer where threads cannot be created. Items are started in order.
///
/// # Panics
///
/// If `work` does.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            match items.get(at) {
                Some(item) => done.push((at, work(item))),
                None => return done,
            }
        }
    };
    let mut done = thread::scope(|scope| {
        let helpers = threads.get().min(items.len()).saturating_sub(1);
        let start = |_| thread::Builder::new().spawn_scoped(scope, take).ok();
        let helpers: Vec<_> = (0..helpers).map_while(start).collect();
        let mut done = take();
        for helper in helpers {
            match helper.join() {
                Ok(results) => done.extend(results),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [1, 2, 3, 100, 1000] {
            let threads = NonZeroUsize::new(threads).unwrap();
            assert_eq!(map(&items, threads, |item| *item), items, "{threads}");
        }
        assert!(map(&items[..0], NonZeroUsize::MIN, |item| *item).is_empty());
    }

    #[test]
    fn no_more_than_the_threads_are_worked_on() {
        // Two wait for each other in each round: a third would leave one waiting forever.
        let together = Barrier::new(2);
        let working = AtomicUsize::new(0);
        let threads = NonZeroUsize::new(2).unwrap();
        let most = map(&[(); 8], threads, |()| {
            let now = working.fetch_add(1, Ordering::SeqCst) + 1;
            together.wait();
            working.fetch_sub(1, Ordering::SeqCst);
            together.wait();
            now
        });
        assert_eq!(most.iter().max(), Some(&2));
    }
}
