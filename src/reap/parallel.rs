//! Work on several trees in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runtime;

/// Maximum number of threads. They spend most of their time waiting for grace periods.
const MAX_THREADS: usize = 64;

/// Maps the items on several threads. The results are in the order of the items.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let count = items.len();
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let results: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let run_worker = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&index| index < count) {
            let item = items[index].lock().ok().and_then(|mut item| item.take());
            if let (Some(item), Ok(mut result)) = (item, results[index].lock()) {
                *result = Some(work(item));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count.min(MAX_THREADS) {
            // No more threads available: the existing ones, at least this one, do all the work.
            if runtime::thread("spawn-owned-bg").spawn_scoped(scope, run_worker).is_err() {
                break;
            }
        }
        run_worker();
    });
    results.into_iter().filter_map(|result| result.into_inner().ok().flatten()).collect()
}
