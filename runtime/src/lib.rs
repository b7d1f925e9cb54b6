//! Runs compiled Mithril programs. It does not depend on the compiler: a program is data
//! ([`program`]), and its kernels are functions of one signature ([`kernel`]), most of them in
//! objects that [`code`] loads.
//!
//! ```
//! use mithril_runtime::execute::Executable;
//! use mithril_runtime::program::{Buffer, Launch, Place, Program};
//! use mithril_runtime::size::Size;
//! use mithril_runtime::threads::Pool;
//!
//! // One task is one element.
//! unsafe extern "C" fn double(
//!     _scratch: *mut u8,
//!     buffers: *const *mut u8,
//!     _dims: *const i64,
//!     lo: i64,
//!     hi: i64,
//! ) {
//!     for i in lo as usize..hi as usize {
//!         // SAFETY: the program below gives two buffers with an element for each task.
//!         unsafe { *(*buffers.add(1)).cast::<f32>().add(i) = 2.0 * *(*buffers).cast::<f32>().add(i) }
//!     }
//! }
//!
//! let n = Size::Symbol(0);
//! let buffer = |place| Buffer { bytes: n.clone() * 4, place };
//! let program = Program {
//!     symbols: 1,
//!     args: 1,
//!     results: 1,
//!     buffers: vec![buffer(Place::Argument(0)), buffer(Place::Result(0))],
//!     launches: vec![Launch {
//!         kernel: 0,
//!         buffers: vec![0, 1],
//!         dims: vec![n.clone()],
//!         tasks: n,
//!         grain: Size::Const(4096),
//!         scratch: Size::Const(0),
//!     }],
//!     ..Program::default()
//! };
//! let executable = Executable::new(program, vec![double], vec![], vec![])?;
//! let (from, mut to) = ([1f32, 2.0, 3.0], [0f32; 3]);
//! assert_eq!(executable.result_bytes(&[3])?, [12]);
//! let pool = Pool::new(2);
//! // SAFETY: both arrays have the twelve bytes of their buffers.
//! unsafe { executable.run(&[from.as_ptr().cast()], &[3], &[to.as_mut_ptr().cast()], &pool)? };
//! assert_eq!(to, [2.0, 4.0, 6.0]);
//! # Ok::<(), mithril_runtime::execute::Error>(())
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

pub mod align;
pub mod code;
pub mod execute;
pub mod guard;
pub mod kernel;
pub mod memory;
pub mod plan;
pub mod program;
mod scratch;
pub mod size;
pub mod threads;
