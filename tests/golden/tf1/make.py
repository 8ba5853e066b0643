"""Made the checkpoint beside this file, once, with TensorFlow's own writer (tensorflow-cpu 2.21): python make.py

Names and shapes are those of google-research/electra's `run_pretraining.py` with shared embeddings and a generator of half
the size. Optimizer slots and global_step are there, as in a real one; the values follow `value` below.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
V, E, D, F, LENGTH = 12, 4, 8, 32, 16


def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/LayerNorm/beta": (size,), f"{name}/LayerNorm/gamma": (size,)}


def encoder(scope: str, hidden: int, inner: int, layers: int) -> dict[str, tuple[int, ...]]:
    shapes = dense(f"{scope}/embeddings_project", E, hidden) if hidden != E else {}
    for layer in (f"{scope}/encoder/layer_{index}" for index in range(layers)):
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= dense(f"{layer}/attention/{part}", hidden, hidden)
        shapes |= norm(f"{layer}/attention/output", hidden) | norm(f"{layer}/output", hidden)
        shapes |= dense(f"{layer}/intermediate/dense", hidden, inner) | dense(f"{layer}/output/dense", inner, hidden)
    return shapes


SHAPES: dict[str, tuple[int, ...]] = {
    "electra/embeddings/word_embeddings": (V, E),
    "electra/embeddings/token_type_embeddings": (2, E),
    "electra/embeddings/position_embeddings": (LENGTH, E),
    **norm("electra/embeddings", E),
    **encoder("electra", D, F, 2),
    **encoder("generator", D // 2, F // 2, 2),
    **dense("discriminator_predictions/dense", D, D),
    **dense("discriminator_predictions/dense_1", D, 1),
    **dense("generator_predictions/dense", D // 2, E),
    **norm("generator_predictions", E),
    "generator_predictions/output_bias": (V,),
}


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Float32, in [-0.5, 0.5): decided by the variable's place among the sorted names and the element's number."""
    first = 101 * sorted(SHAPES).index(name)
    return (((np.arange(np.prod(shape)) * 37 + first) % 997 - 498.5) / 997).astype(np.float32).reshape(shape)


def main() -> None:
    import tensorflow.compat.v1 as tf  # type: ignore[import-not-found]

    tf.disable_eager_execution()
    variables = [tf.get_variable(name, initializer=value(name, shape)) for name, shape in SHAPES.items()]
    slots = [
        tf.get_variable(f"{name}/{slot}", initializer=np.ones(SHAPES[name], np.float32))
        for name in ("electra/embeddings/word_embeddings", "generator_predictions/dense/kernel")
        for slot in ("adam_m", "adam_v")
    ]
    step = tf.get_variable("global_step", initializer=np.int64(7))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver([*variables, *slots, step], save_relative_paths=True).save(
            session, str(HERE / "model.ckpt"), global_step=7, write_meta_graph=False
        )
    heads = {"num_attention_heads": 2, "hidden_size": D, "num_hidden_layers": 2, "intermediate_size": F}
    (HERE / "config.json").write_text(json.dumps(heads) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
