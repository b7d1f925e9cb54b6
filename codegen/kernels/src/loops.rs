//! Loops for every type that writes code: the body continues with the same writer.

use crate::builder::Builder;
use crate::code::V;

/// A writer of code: a [`Builder`], or a type that writes through one.
pub trait Loops: Sized {
    type Through: Loops;

    fn through(&mut self) -> &mut Self::Through;

    fn builder(&mut self) -> &mut Builder {
        self.through().builder()
    }

    /// Called where a body begins. Facts that are cached inside the body do not hold outside it.
    fn enter(&mut self) {
        self.through().enter();
    }

    /// Called where the body ends.
    fn leave(&mut self) {
        self.through().leave();
    }

    /// `for i in (from..to).step_by(step)`, with values carried from each iteration to the next.
    /// Returns the carried values after the last iteration.
    fn repeat(
        &mut self,
        from: V,
        to: V,
        step: i64,
        carried: &[V],
        body: impl FnOnce(&mut Self, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let (counter, inner) = self.builder().open_repeat(carried);
        self.enter();
        let next = body(self, counter, &inner);
        self.leave();
        self.builder().close_repeat(from, to, step, carried, counter, inner, next)
    }

    /// A loop that carries nothing.
    fn each(&mut self, from: V, to: V, step: i64, body: impl FnOnce(&mut Self, V)) {
        self.repeat(from, to, step, &[], |own, i, _| {
            body(own, i);
            vec![]
        });
    }
}

impl Loops for Builder {
    type Through = Builder;

    fn through(&mut self) -> &mut Builder {
        self
    }

    fn builder(&mut self) -> &mut Builder {
        self
    }

    fn enter(&mut self) {}

    fn leave(&mut self) {}
}
