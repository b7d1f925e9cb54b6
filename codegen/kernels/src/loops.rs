//! Emits loops from any type that wraps a [`Builder`]: the loop body gets the same type.

use crate::builder::Builder;
use crate::code::V;

/// An emitter of loop code: a [`Builder`], or a type that wraps one.
pub trait Loops: Sized {
    type Inner: Loops;

    fn inner(&mut self) -> &mut Self::Inner;

    fn builder(&mut self) -> &mut Builder {
        self.inner().builder()
    }

    /// Called when a loop body begins. Implementations discard facts that they cache inside the
    /// body when it ends.
    fn enter(&mut self) {
        self.inner().enter();
    }

    /// Called when the loop body ends.
    fn leave(&mut self) {
        self.inner().leave();
    }

    /// Emits `for i in (from..to).step_by(step)` with carried values. Returns the carried values
    /// after the last iteration.
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

    /// Emits a loop without carried values.
    fn each(&mut self, from: V, to: V, step: i64, body: impl FnOnce(&mut Self, V)) {
        self.repeat(from, to, step, &[], |own, i, _| {
            body(own, i);
            vec![]
        });
    }
}

impl Loops for Builder {
    type Inner = Builder;

    fn inner(&mut self) -> &mut Builder {
        self
    }

    fn builder(&mut self) -> &mut Builder {
        self
    }

    fn enter(&mut self) {}

    fn leave(&mut self) {}
}
