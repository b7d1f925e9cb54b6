//! Calls a layer that was made ahead of time, from several threads: prints what each of them gets.

use std::thread;

#[repr(C)]
struct Params {
    w: *const f32,
    b: *const f32,
}

#[link(name = "layer")]
unsafe extern "C" {
    fn mithril_layer_workspace_bytes() -> usize;
    fn mithril_layer(
        x: *const f32,
        params: *const Params,
        y: *mut f32,
        workspace: *mut u8,
    ) -> i32;
}

fn call(row: f32) -> [f32; 3] {
    let (w, b) = ([1f32, -2.0, 3.0, -4.0, 5.0, -6.0], [0.5f32, 0.25, 0.125]);
    let (x, mut y) = ([row, 1.0], [0f32; 3]);
    // SAFETY: arrays have the sizes that the header says; the workspace is of this call alone.
    unsafe {
        let lines = mithril_layer_workspace_bytes().div_ceil(64) + 1;
        let mut workspace = vec![0u8; 64 * lines];
        let start = workspace.as_mut_ptr();
        let start = start.add(start.align_offset(64));
        let params = Params { w: w.as_ptr(), b: b.as_ptr() };
        assert_eq!(mithril_layer(x.as_ptr(), &params, y.as_mut_ptr(), start), 0);
    }
    y
}

fn main() {
    let threads: Vec<_> = (0..4).map(|row| thread::spawn(move || call(row as f32))).collect();
    for thread in threads {
        println!("{:?}", thread.join().expect("a call does not panic"));
    }
}
