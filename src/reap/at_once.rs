//! Several trees at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many trees are ended at the same time. Most of that time is a grace.
const AT_ONCE: usize = 64;

/// Maps on several threads, for as many as can be had; in the order given.
pub fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let count = items.len();
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let results: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let help = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&index| index < count) {
            let item = items[index].lock().ok().and_then(|mut item| item.take());
            if let (Some(item), Ok(mut result)) = (item, results[index].lock()) {
                *result = Some(work(item));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count.min(AT_ONCE) {
            // Out of threads: those there are, this one at least, do all of it.
            if std::thread::Builder::new().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        help();
    });
    results.into_iter().filter_map(|result| result.into_inner().ok().flatten()).collect()
}
