"""all-MiniLM-L6-v2 as an fp32 ONNX graph: token ids and mask in, one unit vector per text out. Pure: weights in, bytes out.

BERT (Devlin et al. 2018; post-norm, exact GELU) with mean pooling over the mask and L2 normalisation inside. Written by hand
because an exporter needs torch, and one that was tried gave wrong vectors in silence: whoever loads the graph compares it
with a stored vector. It knows no file and no tokenizer. Whoever changes the graph raises REVISION in built.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYERS, HEADS, HEAD_WIDTH, WIDTH = 6, 12, 32, 384
IDS, MASK, EMBEDDING = "input_ids", "attention_mask", "embedding"

_OPSET, _IR_VERSION = 17, 10
_EPSILON = 1e-12
_MASKED = -1e9
"""Added to the attention scores of padding: far below every score, and no infinity that could become NaN."""

Weights = Mapping[str, "NDArray[np.float32]"]


def build(weights: Weights) -> bytes:
    """Return the serialised model: int64 `input_ids` and `attention_mask` (n, length) to float32 `embedding` (n, 384).

    `weights` are the tensors of the official model.safetensors by name; raises KeyError for a missing one.
    """
    graph = _Graph(weights)
    mask = graph.node("Cast", MASK, to=TensorProto.FLOAT)
    bias = graph.node("Mul", graph.node("Sub", graph.number("one", 1.0), mask), graph.number("masked", _MASKED))
    bias = graph.node("Unsqueeze", bias, graph.integers("axes_1_2", [1, 2]))
    hidden = _embeddings(graph)
    for layer in range(LAYERS):
        hidden = _layer(graph, hidden, bias, f"encoder.layer.{layer}.")
    graph.node("LpNormalization", _mean(graph, hidden, mask), into=EMBEDDING, axis=1, p=2)
    return graph.serialised()


class _Graph:
    """A model that grows: nodes and constants go straight into it, since each copy of the weights is 90 MB."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._known: set[str] = set()
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in (IDS, MASK)]
        outputs = [helper.make_tensor_value_info(EMBEDDING, TensorProto.FLOAT, ["n", WIDTH])]
        empty = helper.make_graph([], "all-MiniLM-L6-v2", inputs, outputs)
        self._model = helper.make_model(empty, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)

    def node(self, operator: str, *inputs: str, into: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its one output."""
        output = into or f"{operator}_{len(self._model.graph.node)}"
        self._model.graph.node.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a constant, once under each name."""
        if name not in self._known:
            self._known.add(name)
            self._model.graph.initializer.append(numpy_helper.from_array(value.copy(order="C"), name))
        return name

    def number(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, np.float32))

    def integers(self, name: str, value: int | list[int]) -> str:
        return self.constant(name, np.array(value, np.int64))

    def weight(self, name: str) -> NDArray[np.float32]:
        return self._weights[name]

    def tensor(self, name: str) -> str:
        return self.constant(name, self.weight(name))

    def linear(self, hidden: str, name: str) -> str:
        product = self.node("MatMul", hidden, self.constant(f"{name}.weight.T", self.weight(f"{name}.weight").T))
        return self.node("Add", product, self.tensor(f"{name}.bias"))

    def norm(self, hidden: str, name: str) -> str:
        scale, shift = self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias")
        return self.node("LayerNormalization", hidden, scale, shift, axis=-1, epsilon=_EPSILON)

    def serialised(self) -> bytes:
        return bytes(self._model.SerializeToString(deterministic=True))


def _embeddings(graph: _Graph) -> str:
    """Word, position and type embeddings, normalised: (n, length, 384)."""
    words = graph.node("Gather", graph.tensor("embeddings.word_embeddings.weight"), IDS)
    length = graph.node("Slice", graph.node("Shape", IDS), graph.integers("from_1", [1]), graph.integers("to_2", [2]))
    table = graph.tensor("embeddings.position_embeddings.weight")
    positions = graph.node("Slice", table, graph.integers("from_0", [0]), length)
    first_type = graph.constant("type_0", graph.weight("embeddings.token_type_embeddings.weight")[0])
    total = graph.node("Add", graph.node("Add", words, positions), first_type)
    return graph.norm(total, "embeddings.LayerNorm")


def _layer(graph: _Graph, hidden: str, bias: str, prefix: str) -> str:
    attended = graph.linear(_attention(graph, hidden, bias, prefix), f"{prefix}attention.output.dense")
    hidden = graph.norm(graph.node("Add", attended, hidden), f"{prefix}attention.output.LayerNorm")
    inner = _gelu(graph, graph.linear(hidden, f"{prefix}intermediate.dense"))
    widened = graph.linear(inner, f"{prefix}output.dense")
    return graph.norm(graph.node("Add", widened, hidden), f"{prefix}output.LayerNorm")


def _attention(graph: _Graph, hidden: str, bias: str, prefix: str) -> str:
    """Scaled dot-product attention of all heads; `bias` hides the padding."""

    def heads(part: str, order: list[int]) -> str:
        split = graph.integers("split", [0, 0, HEADS, HEAD_WIDTH])
        return graph.node(
            "Transpose", graph.node("Reshape", graph.linear(hidden, f"{prefix}attention.self.{part}"), split), perm=order
        )

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = graph.node("Mul", graph.node("MatMul", query, key), graph.number("scale", HEAD_WIDTH**-0.5))
    shares = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    together = graph.node("Transpose", graph.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    return graph.node("Reshape", together, graph.integers("joined", [0, 0, WIDTH]))


def _gelu(graph: _Graph, x: str) -> str:
    """x/2 · (1 + erf(x/√2)): the exact form, as the model was trained with."""
    half = graph.node("Mul", x, graph.number("half", 0.5))
    erf = graph.node("Erf", graph.node("Mul", x, graph.number("root_half", 2**-0.5)))
    return graph.node("Mul", half, graph.node("Add", erf, graph.number("one", 1.0)))


def _mean(graph: _Graph, hidden: str, mask: str) -> str:
    """The mean of the tokens that the mask lets through; every text has at least its two special tokens."""
    axis = graph.integers("axis_1", [1])
    kept = graph.node("Mul", hidden, graph.node("Unsqueeze", mask, graph.integers("axis_2", [2])))
    count = graph.node("ReduceSum", mask, axis, keepdims=1)
    return graph.node("Div", graph.node("ReduceSum", kept, axis, keepdims=0), count)
