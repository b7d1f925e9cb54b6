"""Native code: threads within a call, and calls from several threads."""

import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from comparing import chain, random
from conftest import has

import mithril as ml
from mithril.models import Linear, Relu, Softmax

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")


@pytest.mark.parametrize(
    "rows, inner, columns", [(32, 784, 256), (128, 3072, 768), (1, 4096, 1024)]
)
def test_products_of_few_rows_are_shared_evenly(rows, inner, columns):
    model = Linear(columns, use_bias=False)
    compiled = ml.compile(model, ml.CpuBackend(threads=2), shapes={"input": [rows, inner]})
    tasks = re.search(r"tasks (\d+)", compiled.code)
    assert tasks and int(tasks[1]) in (2, 4, 6)


@pytest.mark.parametrize("threads", [1, 4])
def test_many_threads_may_call_at_once(threads):
    compiled = ml.compile(chain(Linear(32), Relu()), ml.CpuBackend(threads=threads))
    params = compiled.randomize_params(seed=0)
    calls = [{"input": random(batch, 24, seed=batch)} for batch in (8, 3, 200)]
    wanted = [compiled.evaluate(params, inputs)["output"] for inputs in calls]
    wrong = []

    def work():
        for _ in range(334):
            for inputs, want in zip(calls, wanted):
                if not np.array_equal(compiled.evaluate(params, inputs)["output"], want):
                    wrong.append(inputs)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_threads_do_not_change_results():
    x = random(300, 130)
    found = []
    for threads in (1, 2, 5):
        compiled = ml.compile(chain(Linear(70), Softmax()), ml.CpuBackend(threads=threads))
        params = compiled.randomize_params(seed=0)
        found.append(compiled.evaluate(params, {"input": x})["output"])
    assert all(np.array_equal(found[0], other) for other in found)


def test_an_interrupt_ends_a_call():
    """A call returns at the end of the current launch."""
    layers = [Linear(1024, use_bias=False, name=f"l{i}") for i in range(100)]
    compiled = ml.compile(
        chain(*layers), ml.CpuBackend(threads=1), shapes={"input": ["n", 1024]}, inference=True
    )
    weight = np.eye(1024, dtype=np.float32)
    params = dict.fromkeys(compiled.params, weight)
    x = random(1024, 1024)
    compiled.evaluate(params, {"input": x[:1]})
    start = time.perf_counter()
    np.testing.assert_array_equal(compiled.evaluate(params, {"input": x})["output"], x)
    whole = time.perf_counter() - start
    # Late enough for the call to have started, early enough that most of it is left.
    timer = threading.Timer(whole / 10, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        compiled.evaluate(params, {"input": x})
    assert time.perf_counter() - start < whole / 2
    timer.join()
    np.testing.assert_array_equal(compiled.evaluate(params, {"input": x})["output"], x)
