//! The pool of threads: every task once, alone or together, nested, forked, panicking.

use mithril_runtime::threads::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

/// Runs, and checks that each task was done once.
fn once(pool: &Pool, tasks: usize, grain: i64) {
    let done: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(tasks as i64, grain, &|lo, hi, worker| {
        assert!(lo < hi && worker < pool.threads());
        assert!(hi - lo >= grain.min(tasks as i64));
        for task in &done[lo as usize..hi as usize] {
            task.fetch_add(1, Relaxed);
        }
    });
    assert!(done.iter().all(|n| n.load(Relaxed) == 1));
}

#[test]
fn every_task_is_done_once() {
    for threads in [0, 1, 2, 3, 8] {
        let pool = Pool::new(threads);
        for tasks in [0, 1, 2, 7, 64, 1000] {
            for grain in [0, 1, 3, 500, 5000] {
                once(&pool, tasks, grain);
            }
        }
        for _ in 0..2000 {
            once(&pool, 9, 1);
        }
    }
}

#[test]
fn two_threads_work_in_parallel() {
    let pool = Pool::new(2);
    for pause in [0, 20] {
        // Long enough for the worker to fall asleep, the second time.
        thread::sleep(Duration::from_millis(pause));
        let (inside, both) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let start = Instant::now();
        pool.run(2, 1, &|_, _, _| {
            inside.fetch_add(1, Relaxed);
            while inside.load(Relaxed) < 2 && start.elapsed() < Duration::from_secs(20) {
                thread::yield_now();
            }
            both.fetch_max(inside.load(Relaxed), Relaxed);
        });
        assert_eq!(both.load(Relaxed), 2);
    }
}

#[test]
fn nested_and_concurrent_runs_finish() {
    let pool = Pool::new(3);
    let sum = AtomicI64::new(0);
    pool.run(10, 1, &|lo, hi, _| {
        for _ in lo..hi {
            pool.run(10, 1, &|lo, hi, _| {
                sum.fetch_add(hi - lo, Relaxed);
            });
        }
    });
    assert_eq!(sum.load(Relaxed), 100);

    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                (0..2000).for_each(|_| once(&pool, 12, 1));
            });
        }
    });
}

#[test]
fn panics_reach_the_caller_and_the_pool_survives() {
    let pool = Pool::new(3);
    for _ in 0..20 {
        let run = AssertUnwindSafe(|| {
            pool.run(12, 1, &|lo, _, _| {
                if lo % 2 == 0 {
                    panic!("{lo} is even");
                }
            });
        });
        assert!(catch_unwind(run).is_err());
        once(&pool, 100, 1);
    }
}

#[test]
fn forked_children_run_without_workers() {
    let (pool, unused) = (Pool::new(3), Pool::new(3));
    once(&pool, 100, 1);
    let sum = AtomicU64::new(0);
    let work = |lo: i64, hi: i64, _: usize| {
        sum.fetch_add((lo..hi).sum::<i64>() as u64, Relaxed);
    };
    // SAFETY: the child only computes and ends.
    match unsafe { libc::fork() } {
        0 => {
            pool.run(100, 1, &work);
            unused.run(100, 1, &work);
            drop(pool);
            // SAFETY: it ends without running what the parent is to run.
            unsafe { libc::_exit((sum.load(Relaxed) != 2 * 4950).into()) }
        }
        child => {
            let mut status = -1;
            // SAFETY: its own child, and a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            once(&pool, 100, 1);
        }
    }
}
