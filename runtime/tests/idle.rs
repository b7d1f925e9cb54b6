//! Threads of the pool without work. One test: it measures all of the process.

use mithril_runtime::threads::Pool;
use std::thread;
use std::time::Duration;

#[test]
fn idle_threads_sleep() {
    let pool = Pool::new(3);
    pool.run(100, 1, &|_, _, _| {});
    thread::sleep(Duration::from_millis(50));
    let before = worker_time();
    thread::sleep(Duration::from_millis(200));
    assert!(worker_time() - before <= 1, "in hundredths of a second");
}

/// The processor time of threads named as the pool's, in ticks.
fn worker_time() -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("tasks").flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        if let Some((name, rest)) = stat.rsplit_once(')') {
            let fields: Vec<_> = rest.split_whitespace().collect();
            if name.contains("(mithril-") {
                let field = |at: usize| fields[at].parse::<u64>().expect("a number");
                ticks += field(11) + field(12);
            }
        }
    }
    ticks
}
