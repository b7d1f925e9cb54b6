//! Loops, in the hand of whoever writes code: the body goes on with the same writer.

use crate::builder::Builder;
use crate::code::V;

/// What writes code through a builder.
pub trait Loops: Sized {
    fn builder(&mut self) -> &mut Builder;

    /// Where a body begins: what is learned in it is known in it alone.
    fn enter(&mut self) {}

    /// Where it ends.
    fn leave(&mut self) {}

    /// `for i in (from..to).step_by(step)`, with values carried from each turn to the next; what the
    /// last turn leaves.
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
    fn builder(&mut self) -> &mut Builder {
        self
    }
}
