"""Recurrent networks of text: a classifier, and seq2seq."""

from __future__ import annotations

from ..models import LSTM, Dropout, Embedding, Linear
from .weights import Architecture, Rule, linear, recurrent, table

__all__ = ["LSTMClassifier", "Seq2Seq"]


class LSTMClassifier(Architecture):
    """Classifies a text by the last states of an LSTM: tokens, (batch, time), to (batch, classes).

    With `use_lengths`, the input `lengths`, (batch), has the number of tokens of each text.
    Weights: a module with `embedding` (`nn.Embedding`), `lstm` (`nn.LSTM`, whose input has
    `pack_padded_sequence` if there are lengths) and `fc` (`nn.Linear` of the last hidden state of
    the last layer, forward then backward).

    Source: S. Hochreiter, J. Schmidhuber. Long Short-Term Memory. Neural Computation 9(8), 1997;
    F. Gers, J. Schmidhuber, F. Cummins. Learning to Forget. Neural Computation 12(10), 2000.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 100,
        hidden: int = 256,
        layers: int = 1,
        classes: int = 2,
        bidirectional: bool = True,
        dropout: float = 0.0,
        use_lengths: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self |= Embedding(vocabulary, width, name="embedding")(input="input", output="embedded")
        lstm = LSTM(
            hidden,
            bidirectional=bidirectional,
            layers=layers,
            return_sequence=False,
            dropout=dropout if layers > 1 else 0.0,
            name="lstm",
        )
        lengths = {}
        if use_lengths:
            lengths["lengths"] = self.add_input("lengths", shape=["batch"])
        self |= lstm(input="embedded", **lengths, output="state")
        if dropout:
            self |= Dropout(dropout)(input="state", output="dropped")
        source = "dropped" if dropout else "state"
        self |= Linear(classes, name="fc")(input=source, output="output")
        self.set_shapes(input=["batch", "time"])
        self._rules = [
            *table("embedding", "embedding"),
            *_lstm("lstm", "lstm", layers, bidirectional),
            *linear("fc"),
        ]


class Seq2Seq(Architecture):
    """An LSTM that reads a text, and one that writes another: tokens `input`, (batch, time), and
    `target`, (batch, steps), to scores of the next token, (batch, steps, `target_vocabulary`).

    Step i sees the input and the first i + 1 tokens of `target`, the first of which marks the
    start. Weights: a module with `encoder.embedding`, `encoder.rnn`, `decoder.embedding`,
    `decoder.rnn` and `decoder.fc_out`, as in pytorch-seq2seq by bentrevett.

    Source: I. Sutskever, O. Vinyals, Q. Le. Sequence to Sequence Learning with Neural Networks.
    NIPS 2014, arXiv:1409.3215.
    """

    def __init__(
        self,
        vocabulary: int,
        target_vocabulary: int,
        *,
        width: int = 256,
        hidden: int = 512,
        layers: int = 2,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        between = dropout if layers > 1 else 0.0
        for side, tokens, size in (
            ("encoder", "input", vocabulary),
            ("decoder", "target", target_vocabulary),
        ):
            self |= Embedding(size, width, name=f"{side}_embedding")(
                input=tokens, output=f"{side}_embedded"
            )
            if dropout:
                self |= Dropout(dropout)(input=f"{side}_embedded", output=f"{side}_dropped")
        kind = "dropped" if dropout else "embedded"
        self |= LSTM(hidden, layers=layers, dropout=between, name="encoder")(
            input=f"encoder_{kind}", last_hidden="hidden", last_cell="cell"
        )
        self |= LSTM(hidden, layers=layers, dropout=between, name="decoder")(
            input=f"decoder_{kind}", hidden="hidden", cell="cell", output="states"
        )
        self |= Linear(target_vocabulary, name="fc_out")(input="states", output="output")
        self.set_shapes(input=["batch", "time"], target=["batch", "steps"])
        self._rules = [
            *linear("fc_out", "decoder.fc_out"),
            *(rule for side in ("encoder", "decoder") for rule in _side(side, layers)),
        ]


def _side(side: str, layers: int) -> list[Rule]:
    """The rules of the encoder or decoder of `Seq2Seq`."""
    rules = _lstm(side, f"{side}.rnn", layers, bidirectional=False)
    return rules + table(f"{side}_embedding", f"{side}.embedding")


def _lstm(ours: str, theirs: str, layers: int, bidirectional: bool) -> list[Rule]:
    """The rules of each layer and direction of an LSTM."""
    if not bidirectional:
        pairs = [(f"{ours}.layer_{at}", f"l{at}") for at in range(layers)]
    else:
        pairs = [
            (f"{ours}.layer_{at}.{direction}", f"l{at}{suffix}")
            for at in range(layers)
            for direction, suffix in (("forward", ""), ("backward", "_reverse"))
        ]
    return [rule for name, suffix in pairs for rule in recurrent(name, theirs, suffix)]
