"""The tinygrad backend: gradients by `Tensor.gradient`, further compilation by `TinyJit`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError
from .base import Backend
from .joint import JointRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from .arrays import Arrays
    from .base import Namespace

__all__ = ["TinygradBackend", "as_numpy", "find_compiler"]


class TinygradBackend(Backend):
    """Runs models as tinygrad source. Arrays are `tinygrad.Tensor`.

    `device` is a device of tinygrad such as `"CPU"` or `"CUDA"`; without it, tinygrad's default
    device is used. Results of calls are realized, unless a `TinyJit` traces the call. On the CPU
    tinygrad compiles kernels with clang; without `CC`, this class also finds a clang that is not
    on `PATH`. It turns off kernels for threads, for all code of the process: tinygrad 0.14 mixes up
    the arguments of some, and runs their parts one after the other in any case.

    `jit=True` compiles a model with one `TinyJit` for each set of shapes. The first two calls take
    longer. Results are copied, so later calls do not change them. A model with conditions that
    depend on elements runs without it. tinygrad decides itself which values checkpoints recompute.

    A call realizes its results, which cuts the graph that `Tensor.backward` follows. In tinygrad's
    training mode (`Context(TRAINING=1)`) and with params of a tinygrad optimizer, the outputs stay
    lazy, so that `.backward()` and the optimizer work on them.
    """

    kind: ClassVar[str] = "tinygrad"
    module: ClassVar[str] = "tinygrad"
    package: ClassVar[str] = "tinygrad"

    def _device(self, device: str | None) -> str | None:
        from tinygrad.device import ALL_DEVICES, Device  # noqa: PLC0415

        compiler = find_compiler()
        name = device
        try:
            name = Device.canonicalize(device) if device else Device.DEFAULT
            Device[name]
        except (OSError, RuntimeError, AssertionError, ImportError, AttributeError) as error:
            on_cpu = name is None or name.split(":")[0] in ("CPU", device)
            if on_cpu and compiler is None and (name in (None, "CPU")):
                raise BackendError(
                    "tinygrad compiles kernels for the CPU with clang, which is missing"
                    f"\n  got: {_first_line(error)}"
                    "\n  expected: `clang` on PATH, or the path of one in CC"
                    "\n  hint: apt-get install clang"
                ) from error
            raise BackendError(
                f"tinygrad has no device `{device or name}` here\n  got: {_first_line(error)}"
                f"\n  expected: one of {', '.join(ALL_DEVICES)} whose hardware and driver are there"
            ) from error
        if name is not None and name.split(":")[0] == "CPU":
            _without_threads(Device[name].renderer)
        return None if device is None else name

    def own_dtype(self, dtype: object) -> Any:
        return getattr(self.framework.dtypes, DType(dtype).name)

    def _function(self, name: str) -> Callable[..., Any]:
        from . import tinygrad_functions  # noqa: PLC0415

        function: Callable[..., Any] = tinygrad_functions.function(name)
        return function

    def cast(self, array: Any, dtype: object) -> Any:
        return array.cast(self.own_dtype(dtype)).realize()

    def from_numpy(self, array: NDArray[Any]) -> Any:
        tensor, dtypes = self.framework.Tensor, self.framework.dtypes
        shape = array.shape
        if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
            own = tensor(array.view("uint16").reshape(-1), device=self.device)
            own = own.bitcast(dtypes.bfloat16)
        else:
            # An array without axes would become a constant without memory.
            own = tensor(array.reshape(-1), device=self.device)
        return own.reshape(shape).contiguous().realize()

    def to_numpy(self, array: Any) -> NDArray[Any]:
        return as_numpy(array) if self.is_array(array) else self._as_numpy(array)

    def host_source(self, x: str, dtype: str) -> str:
        return f"{x}.float().numpy()" if dtype == "bfloat16" else f"{x}.numpy()"

    def from_host_source(self, x: str, dtype: str) -> str:
        where = "" if self.device is None else f', device="{self.device}"'
        given = ', dtype="bfloat16"' if dtype == "bfloat16" else ""
        return f"Tensor({x}{where}{given})"

    def receive_source(self, x: str, dtype: str, source: Arrays) -> str | None:
        if source.kind == self.kind:
            return f"{x}.to({self.device!r})"
        return super().receive_source(x, dtype, source)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.Tensor)

    def is_readable(self, value: object) -> bool:
        from tinygrad.engine.realize import capturing  # noqa: PLC0415

        # `TinyJit` records the kernels of a call, and runs these alone from then on.
        return super().is_readable(value) and not capturing

    def lacks_memory(self, error: Exception) -> bool:
        short = isinstance(error, OSError) and error.errno == errno.ENOMEM
        return short or isinstance(error, MemoryError)

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool
    ) -> TinygradRunner | JointRunner:
        own = namespace()
        # `TinyJit` cannot trace conditions that depend on elements.
        jits = jit and not program.branches
        compiled = partial(_Jitted, self.framework) if jits else None
        if program.own_gradients:
            runner: TinygradRunner | JointRunner = JointRunner(self, own, compiled=compiled)
        else:
            runner = TinygradRunner(self, own, compiled)
        forward = runner.forward
        runner.forward = self._around(forward, differentiable=compiled is None)
        runner.gradients = self._around(runner.gradients)  # type: ignore[method-assign]
        return runner

    def _around(
        self, call: Callable[..., Any], *, differentiable: bool = False
    ) -> Callable[..., Any]:
        """Realizes the results of a call, so that errors are those of the call.

        Tensors that are realized have no gradients by `Tensor.backward`. So a `differentiable` call
        gives outputs that are not, if tinygrad's training mode is on and an optimizer of tinygrad
        has the params.
        """
        tensor = self.framework.Tensor
        from tinygrad.engine.realize import capturing  # noqa: PLC0415
        from tinygrad.helpers import TRAINING, Context  # noqa: PLC0415

        def run(*args: Any) -> Any:
            result = call(*args)
            recorded = differentiable and TRAINING and any(x.is_param for x in args[0].values())
            # The state is computed now, not with the params after a step of the optimizer.
            computed = result[1:] if recorded and len(args) > 2 else () if recorded else result
            if not capturing:
                realized(tensor, computed)
            return result

        def run_in_double_precision(*args: Any) -> Any:
            # tinygrad rounds values that it finds to be constant, such as those of `x - x`, to its
            # default dtype.
            with Context(DEFAULT_FLOAT="FLOAT64"):  # type: ignore[no-untyped-call]
                return run(*args)

        return run_in_double_precision if self.dtype == DType("float64") else run


class TinygradRunner:
    """Calls generated tinygrad source, and computes gradients by `Tensor.gradient`."""

    def __init__(
        self,
        backend: TinygradBackend,
        namespace: dict[str, Any],
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    ) -> None:
        self._tensor = backend.framework.Tensor
        self._raw = namespace["forward"]
        self.forward = compiled(self._raw) if compiled else self._raw
        self._run = compiled(self._joint) if compiled else self._joint

    def _joint(self, params: Any, inputs: Any, state: Any, given: Any) -> tuple[Any, Any, Any]:
        """Outputs, gradients by param, and the next state. `given` are the gradients of outputs."""
        leaves = _leaves(params)
        own = () if state is None else (state,)
        result = self._raw(leaves, inputs, *own)
        outputs, following = (result, None) if state is None else result
        detached = {name: value.detach() for name, value in outputs.items()}
        if following is not None:
            following = {name: value.detach() for name, value in following.items()}
        total = None
        for name, seed in given.items():
            if outputs[name].is_floating_point():
                product = outputs[name] * seed.detach()
                product = product.sum() if product.ndim else product
                wide = product.cast(self.wide(product, total))
                total = wide if total is None else total.cast(wide.dtype) + wide
        floats = {n: p for n, p in leaves.items() if p.is_floating_point()}
        if total is None or not floats:
            return detached, {n: p.zeros_like() for n, p in leaves.items()}, following
        found = dict(zip(floats, total.gradient(*floats.values())))
        zeros = {n: p.zeros_like() for n, p in leaves.items() if n not in found}
        gradients = {**found, **zeros}
        return detached, {name: gradients[name] for name in leaves}, following

    @staticmethod
    def wide(product: Any, total: Any) -> Any:
        """The wider of the dtypes of two sums, at least single precision."""
        from tinygrad.dtype import dtypes  # noqa: PLC0415

        both = [product.dtype, dtypes.float32] + ([] if total is None else [total.dtype])
        return max(both, key=lambda dtype: dtype.itemsize)

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        given = seeds.arrays
        if given is None:
            # Reading an output also computes inner values, which cuts the graph there. So these
            # outputs are not those of the gradients.
            own = () if state is None else (state,)
            result = self.forward(params, inputs, *own)
            given = seeds.of(result if state is None else result[0])
        found: tuple[Any, Any, Any] = self._run(params, inputs, state, given)
        return found


class _Jitted:
    """A function compiled by `TinyJit`: one jit for each set of shapes.

    A jit captures at its second call, and its results share their memory with those of later
    calls, so they are copied.
    """

    def __init__(self, framework: Any, function: Callable[..., Any]) -> None:
        self._framework = framework
        self._function = function
        self._jits: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> Any:
        from tinygrad.engine.realize import capturing  # noqa: PLC0415

        if capturing:
            return self._function(*args)
        tensor = self._framework.Tensor
        leaves: list[Any] = []
        skeleton = _flattened(tensor, args, leaves)
        seen: set[int] = set()
        # A jit takes each buffer once and whole, and no constants.
        for i, leaf in enumerate(leaves):
            own = leaf.uop.is_realized and leaf.uop.has_buffer_identity()
            if leaf.numel() and (not own or id(leaf.uop.base) in seen):
                leaves[i] = leaf.clone().realize()
            seen.add(id(leaves[i].uop.base))
        key = (skeleton, tuple((x.shape, x.dtype, str(x.device)) for x in leaves))
        if key not in self._jits:
            self._jits[key] = _Jit(self._framework, self._function)
        return self._jits[key](skeleton, leaves)


class _Jit:
    """A jit for one set of shapes."""

    def __init__(self, framework: Any, function: Callable[..., Any]) -> None:
        self._tensor = framework.Tensor
        self._function = function
        self._jit = framework.TinyJit(self._run)
        self._skeleton: Any = None
        self._result: Any = None
        self._fixed: Any = None

    def _run(self, *leaves: Any) -> list[Any]:
        own = iter(leaves)
        result = self._function(*_filled(self._skeleton, own))
        found: list[Any] = []
        self._result = _flattened(self._tensor, result, found)
        # Results that are arguments or constants have no buffer of their own.
        return [x.clone() if x.numel() else x for x in found]

    def __call__(self, skeleton: Any, leaves: list[Any]) -> Any:
        self._skeleton = skeleton
        arrays = [x for x in leaves if x.numel()]
        if len(arrays) < len(leaves) or not arrays or self._fixed:
            # There is nothing to compile without elements.
            self._fixed = True
            found = self._run(*leaves)
        else:
            found = [x.clone() if x.numel() else x for x in self._jit(*leaves)]
        realized(self._tensor, found)
        return _filled(self._result, iter(found))


def _leaves(params: dict[str, Any]) -> dict[str, Any]:
    """The params as nodes of their own: equal ones would share their gradients."""
    seen: set[int] = set()
    found = {}
    for name, param in params.items():
        own = param.detach().clone() if param.uop.device is None or id(param.uop) in seen else param
        seen.add(id(own.uop))
        found[name] = own
    return found


def _flattened(tensor: Any, value: Any, leaves: list[Any]) -> Any:
    """The structure of nested containers, whose tensors are added to `leaves`."""
    if isinstance(value, tensor):
        leaves.append(value)
        return None
    if isinstance(value, dict):
        return ("dict", tuple((k, _flattened(tensor, v, leaves)) for k, v in value.items()))
    if isinstance(value, (tuple, list)):
        return ("tuple", tuple(_flattened(tensor, v, leaves) for v in value))
    return ("value", value)


def _filled(skeleton: Any, leaves: Any) -> Any:
    """The containers of a structure with these tensors."""
    if skeleton is None:
        return next(leaves)
    kind, parts = skeleton
    if kind == "dict":
        return {name: _filled(part, leaves) for name, part in parts}
    if kind == "tuple":
        return tuple(_filled(part, leaves) for part in parts)
    return parts


def realized(tensor: Any, value: Any) -> None:
    """Computes all tensors of nested containers together. Constants get memory."""
    leaves: list[Any] = []
    _flattened(tensor, value, leaves)
    for leaf in leaves:
        if leaf.uop.device is None and leaf.numel():
            leaf.replace(leaf.clone())
    found = [x for x in leaves if x.uop.device is not None]
    if found:
        tensor.realize(*found)


def as_numpy(tensor: Any) -> NDArray[Any]:
    """Converts a tinygrad tensor to a NumPy array of the same dtype."""
    from tinygrad.dtype import dtypes  # noqa: PLC0415

    if tensor.dtype == dtypes.bfloat16:
        import ml_dtypes  # noqa: PLC0415

        bits: NDArray[Any] = tensor.clone().realize().bitcast(dtypes.uint16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    found: NDArray[Any] = tensor.numpy()
    return found


def _without_threads(renderer: Any) -> None:
    """Makes tinygrad run each kernel for the CPU as a whole.

    tinygrad 0.14 cuts large kernels for threads, although it runs the parts one after the other. If
    such a kernel does not read one of its buffers, tinygrad mixes up the arguments, and the process
    ends with a segmentation fault.
    """
    if getattr(renderer, "has_threads", False):
        renderer.has_threads = False


def find_compiler() -> str | None:
    """The clang that tinygrad calls for the CPU; None if there is none.

    tinygrad reads `CC` once, and takes `clang` if it is not set. Where that does not exist, or is
    another compiler, this tells tinygrad, and no other code, the path of a clang.
    """
    import os  # noqa: PLC0415
    import shutil  # noqa: PLC0415

    from tinygrad.helpers import PARALLEL, getenv  # noqa: PLC0415

    own: str = getenv("CC", "clang")
    if "clang" in os.path.basename(own) and shutil.which(own):
        return own
    found = next(iter(_compilers()), None)
    if found is not None:
        before = os.environ.get("CC")
        os.environ["CC"] = found
        # `getenv` remembers what it read.
        cached: Any = getenv
        cached.cache_clear()
        getenv("CC", "clang")
        del os.environ["CC"]
        if before is not None:
            os.environ["CC"] = before
        # Worker processes would read `CC` again.
        PARALLEL.value = 0
    return found


def _compilers() -> list[str]:
    """Paths of clang, the newest version first."""
    import re  # noqa: PLC0415
    import shutil  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    plain = shutil.which("clang")
    versions = [str(p) for p in Path("/usr/bin").glob("clang-*") if p.name[6:].isdigit()]
    versions += map(str, Path("/usr/lib").glob("llvm-*/bin/clang"))
    versions.sort(key=lambda path: -int(re.findall(r"\d+", path)[0]))
    return [plain, *versions] if plain else versions


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
