//! The kernels of a program, by index.

use crate::kernel::Kernel;
use std::mem::transmute;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// A table of kernels. Each may be replaced while calls run.
pub struct Table(Box<[AtomicPtr<()>]>);

impl Table {
    pub fn new(kernels: Vec<Kernel>) -> Table {
        Table(kernels.into_iter().map(|kernel| AtomicPtr::new(kernel as *mut ())).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, kernel: usize) -> Kernel {
        // SAFETY: the table holds only kernels.
        unsafe { transmute::<*mut (), Kernel>(self.0[kernel].load(Acquire)) }
    }

    pub fn set(&self, kernel: usize, to: Kernel) {
        self.0[kernel].store(to as *mut (), Release);
    }
}
