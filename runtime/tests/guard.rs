//! Kernels that write outside of their memory, which guard bytes find.

use mithril_runtime::execute::{Error, Executable};
use mithril_runtime::guard;
use mithril_runtime::kernel::Kernel;
use mithril_runtime::memory::Block;
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;
use mithril_runtime::threads::Pool;

const N: usize = 5;

/// Writes ones to its buffer from element `FROM` to `TO`.
unsafe extern "C" fn ones<const FROM: isize, const TO: isize>(
    _scratch: *mut u8,
    buffers: *const *mut u8,
    _dims: *const i64,
    _lo: i64,
    _hi: i64,
) {
    for i in FROM..TO {
        // SAFETY: guard bytes are around the buffer.
        unsafe { (*buffers).cast::<f32>().offset(i).write(1.0) };
    }
}

/// Writes to its scratch what the elements of its result then are, and a byte too many where
/// `OVER` says so.
unsafe extern "C" fn by_scratch<const OVER: bool>(
    scratch: *mut u8,
    buffers: *const *mut u8,
    _dims: *const i64,
    _lo: i64,
    _hi: i64,
) {
    // SAFETY: the program gives as many bytes of scratch as of the buffer.
    unsafe {
        (*buffers).copy_from_nonoverlapping(scratch, 4 * N);
        scratch.write_bytes(0, 4 * N + usize::from(OVER));
    }
}

/// What the last of these kernels leaves in the result, the one before works in the arena.
fn run(kernels: [Kernel; 2], scratch: usize) -> Result<Vec<f32>, Error> {
    guard::turn_on();
    let bytes = Size::Const(4 * N as i64);
    let buffer = |place| Buffer { bytes: bytes.clone(), place };
    let launch = |kernel| Launch {
        kernel,
        buffers: vec![kernel],
        dims: vec![],
        tasks: Size::Const(1),
        grain: Size::Const(1),
        scratch: Size::Const(scratch as i64),
    };
    let program = Program {
        results: 1,
        buffers: vec![buffer(Place::Temporary), buffer(Place::Result(0))],
        launches: vec![launch(0), launch(1)],
        ..Program::default()
    };
    let executable = Executable::new(program, kernels.to_vec(), vec![], vec![])?;
    let result = Block::new(4 * N).expect("memory");
    // SAFETY: the result has the bytes that its buffer has; guard bytes are around it.
    unsafe { executable.run(&[], &[], &[result.as_ptr()], &Pool::new(2)) }?;
    let floats = result.as_slice().chunks_exact(4);
    Ok(floats.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

const GOOD: Kernel = ones::<0, { N as isize }>;

fn overrun(kernels: [Kernel; 2], scratch: usize) -> (usize, String) {
    match run(kernels, scratch) {
        Err(Error::Overrun { kernel, place }) => (kernel, place),
        other => panic!("{other:?}"),
    }
}

#[test]
fn out_of_bounds_writes_are_detected() {
    // One test, as any kernel of the process that writes outside is found by the next launch.
    assert_eq!(run([GOOD, GOOD], 0).unwrap(), [1.0; N]);
    let (behind, before) = (ones::<0, 6>, ones::<-1, 5>);
    assert_eq!(overrun([GOOD, behind], 0), (1, "after a block of 20 bytes".into()));
    assert_eq!(overrun([GOOD, before], 0), (1, "before a block of 20 bytes".into()));
    // The arena has whole lines.
    let (kernel, place) = overrun([ones::<0, 17>, GOOD], 0);
    assert!(kernel == 0 && place.starts_with("after a block of "), "{place}");
    let (behind, place) = (by_scratch::<true>, "after its scratch of 20 bytes".to_string());
    assert_eq!(overrun([GOOD, behind], 4 * N), (1, place));
    // Found once, they are what they were.
    assert_eq!(run([GOOD, GOOD], 0).unwrap(), [1.0; N]);
    // What is not written is seen.
    let part = run([GOOD, ones::<0, 3>], 0).unwrap();
    assert!(part[..3] == [1.0; 3] && part[3..].iter().all(|x| *x < -1e36), "{part:?}");
    let unwritten = run([GOOD, by_scratch::<false>], 4 * N).unwrap();
    assert!(unwritten.iter().all(|x| x.is_nan()), "{unwritten:?}");
}
