//! Jobs on worker threads, while another thread waits for the results.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use mithril_driver::native::worker::begin;

#[test]
fn threads_wait_for_more_work() {
    let barrier = Arc::new(Barrier::new(8));
    let all: Vec<_> = (0..8)
        .map(|number| {
            let barrier = barrier.clone();
            // Each job runs on its own thread, as all jobs wait for each other at the barrier.
            begin(move || (barrier.wait(), number))
        })
        .collect();
    let got: Vec<i32> = all.into_iter().map(|end| end.recv().unwrap().1).collect();
    assert_eq!(got, (0..8).collect::<Vec<_>>());
    let one = || {
        // Gives the thread of the last job time to become idle.
        thread::sleep(Duration::from_millis(100));
        begin(|| thread::current().id()).recv().unwrap()
    };
    assert_eq!(one(), one());
}
