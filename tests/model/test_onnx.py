"""ONNX: the file gives the numbers of `transformers` at any batch and length, and one that does not is not left behind."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from conftest import small_model
from electra.errors import UserError
from electra.model import onnx
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead, ReplacedTokenHead
from electra.model.hf import save_discriminator, save_sequence_classifier

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {name: tensor.numpy() for name, tensor in inputs.items()})[0]


def small_encoder(blocks):
    torch.manual_seed(0)
    return Encoder(dataclasses.replace(small_model(blocks).discriminator, vocab_size=50, local_attention=6)).eval()


def rows(batch, length):
    """Random ids, the last row half padding."""
    ids = torch.randint(5, 50, (batch, length))
    mask = torch.ones_like(ids)
    mask[-1, length - length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.slow
def test_a_discriminator_of_modern_blocks(tmp_path):
    encoder = small_encoder("modern")
    head = ReplacedTokenHead(encoder.config).eval()
    save_discriminator(encoder, head, tmp_path)
    path = onnx.export_onnx(tmp_path)
    assert [file.name for file in tmp_path.glob("*onnx*")] == ["model.onnx"]
    for batch, length in ((1, 4), (3, 33), (5, 64)):
        inputs = rows(batch, length)
        mask = inputs["attention_mask"].bool()
        with torch.no_grad():
            expected = head(encoder(inputs["input_ids"], mask))
        np.testing.assert_allclose(run(path, inputs)[..., 0][mask], expected[mask], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_classifier_and_a_file_with_other_numbers(tmp_path, monkeypatch):
    encoder = small_encoder("classic")
    head = ClassificationHead(encoder.config, 3, "first").eval()
    torch.nn.init.normal_(head.classifier.weight)
    save_sequence_classifier(encoder, head, ["bad", "fair", "good"], tmp_path)
    path = onnx.export_onnx(tmp_path)
    for batch, length in ((1, 4), (3, 33)):
        inputs = rows(batch, length)
        types = (torch.arange(length) > 2).long().expand(batch, length).contiguous()
        with torch.no_grad():
            expected = head(encoder(inputs["input_ids"], inputs["attention_mask"].bool(), types))
        np.testing.assert_allclose(run(path, inputs | {"token_type_ids": types}), expected, atol=1e-5, rtol=1e-4)

    whole = path.read_bytes()
    path.unlink()

    class Program:
        """What the exporter gives, without the seconds that it takes."""

        def save(self, to):
            Path(to).write_bytes(whole)

    class Wrong(onnxruntime.InferenceSession):
        def run(self, *arguments):
            return [logits + 0.5 for logits in super().run(*arguments)]

    monkeypatch.setattr("torch.onnx.export", lambda *_, **__: Program())
    assert onnx.export_onnx(tmp_path) == path
    path.unlink()
    monkeypatch.setattr("onnxruntime.InferenceSession", Wrong)
    with pytest.raises(UserError, match="does not give the model's numbers"):
        onnx.export_onnx(tmp_path)
    assert not list(tmp_path.glob("*onnx*"))


def test_without_a_head_there_is_nothing_to_export(tmp_path):
    transformers.ElectraModel(transformers.ElectraConfig(vocab_size=20, hidden_size=8, embedding_size=8,
        num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(UserError, match="is a ElectraModel, without a head"):
        onnx.export_onnx(tmp_path)
