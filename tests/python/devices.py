"""The device on which tests put PyTorch's arrays: MITHRIL_TORCH_DEVICE, by default the CPU."""

import os

import mithril as ml

DEVICE = os.environ.get("MITHRIL_TORCH_DEVICE")


def use() -> None:
    """Makes it the device of every PyTorch backend that names none. Convolutions on it are then
    as exact as on the CPU, and `np.asarray` takes its tensors."""
    if not DEVICE:
        return
    import torch  # noqa: PLC0415

    from mithril.backends.torch import as_numpy  # noqa: PLC0415

    ml.TorchBackend.__init__.__kwdefaults__["device"] = DEVICE
    torch.backends.cudnn.allow_tf32 = False
    torch.Tensor.__array__ = lambda self, dtype=None, copy=None: as_numpy(self).astype(
        dtype or as_numpy(self).dtype
    )
