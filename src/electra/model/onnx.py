"""A Hugging Face directory as `model.onnx`, by PyTorch's own exporter, and checked with ONNX Runtime before it is kept.

What is exported is the `transformers` class, so the file has its inputs (input_ids, attention_mask and, for classic blocks,
token_type_ids) and its output, logits; batch and length are free.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from electra.errors import UserError
from electra.model.hf_config import read_hf_config

FILE = "model.onnx"
_TOLERANCE = 1e-3  # float32 sums in another order; a wrong mask or position is off by far more


def export_onnx(directory: Path) -> Path:
    """Write `model.onnx` beside a model's weights. Returns its path.

    Raises UserError when the exporter or the runtime is not installed, for a class without logits, and when the file does not
    give the model's numbers at sizes other than those it was traced with (then it is not left behind).
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it, and says so less clearly)
    except ImportError:
        raise UserError("ONNX needs its own packages: pip install 'electra-pretraining[onnx]'") from None
    config = read_hf_config(directory)
    [architecture] = config.architectures or ["none"]
    if "For" not in architecture:
        raise UserError(
            f"{directory}: is a {architecture}, without a head; only models with logits are exported to ONNX"
        )
    model = getattr(transformers, architecture).from_pretrained(directory, attn_implementation="eager").eval()
    path, partial = directory / FILE, directory / f".{FILE}.partial"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        inputs = _inputs(model, batch=2, length=9)
        program = torch.onnx.export(
            model,
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in inputs},
            input_names=list(inputs),
            output_names=["logits"],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    program.save(str(partial))
    try:
        session = onnxruntime.InferenceSession(str(partial), providers=["CPUExecutionProvider"])
        for batch, length in ((1, 6), (3, min(40, config.max_position_embeddings))):
            _check(session, model, _inputs(model, batch, length), directory)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _inputs(model: Any, batch: int, length: int) -> dict[str, Tensor]:
    """Rows of random ids, the last one padded by a third, with two segments where the model has segments."""
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(0, model.config.vocab_size, (batch, length), generator=draw)
    mask = torch.ones_like(ids)
    mask[-1, length - length // 3 :] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.config.model_type == "electra":
        types = (torch.arange(length) >= length // 2).long() % model.config.type_vocab_size
        inputs["token_type_ids"] = types.expand(batch, length).contiguous()
    return inputs


@torch.no_grad()
def _check(session: Any, model: Any, inputs: dict[str, Tensor], directory: Path) -> None:
    expected = model(**inputs).logits
    found = torch.from_numpy(session.run(["logits"], {name: tensor.numpy() for name, tensor in inputs.items()})[0])
    if found.shape == expected.shape:
        per_token = expected.shape[:2] == inputs["input_ids"].shape  # padding's own logits are nobody's business
        real = inputs["attention_mask"].bool() if per_token else torch.ones(len(expected), dtype=torch.bool)
        if (found - expected)[real].abs().max() <= _TOLERANCE * max(1.0, float(expected[real].abs().max())):
            return
    raise UserError(
        f"{directory}: the ONNX file does not give the model's numbers; it is left out (another torch may mend it)"
    )
