"""Published architectures, made of blocks. `load` reads the weights of public implementations."""

from .classic import MLP, LeNet
from .convolutional import MobileNetV2, ResNet
from .language import BERT, GPT2, Llama
from .recurrent import LSTMClassifier, Seq2Seq
from .t5 import T5
from .transformer import Transformer
from .unet import UNet
from .vision import CLIP, ViT
from .weights import Weights, load
from .whisper import WhisperEncoder

__all__ = [
    "BERT",
    "CLIP",
    "GPT2",
    "MLP",
    "T5",
    "LSTMClassifier",
    "LeNet",
    "Llama",
    "MobileNetV2",
    "ResNet",
    "Seq2Seq",
    "Transformer",
    "UNet",
    "ViT",
    "Weights",
    "WhisperEncoder",
    "load",
]
