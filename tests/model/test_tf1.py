"""Checkpoints of the authors' TensorFlow code: one that TensorFlow wrote (tests/golden/tf1), others by the tests' own writer.

The right numbers come from the networks written down once more, in numpy, on the variables as TensorFlow lays them.
"""

import importlib.util
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tensor_bundle_writer import write_bundle
from transformers import ElectraForMaskedLM, ElectraForPreTraining

from electra import cli
from electra.errors import UserError
from electra.model.tensor_bundle import TensorBundle, crc32c
from electra.model.tf1 import checkpoint_prefix, read_checkpoint
from electra.train.tf1 import import_checkpoint

GOLDEN = Path(__file__).parent.parent / "golden" / "tf1"
_spec = importlib.util.spec_from_file_location("make_tf1", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)
IDS = np.array([[2, 7, 5, 9, 3], [2, 6, 6, 11, 3]])


def golden_variables():
    return {name: make.value(name, shape) for name, shape in make.SHAPES.items()}


# ------------------------------------------------------------------------------------ the networks, written down once more


def gelu(x):
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def dense(v, name, x):
    return x @ v[f"{name}/kernel"] + v[f"{name}/bias"]


def norm(v, name, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * v[f"{name}/LayerNorm/gamma"] + v[f"{name}/LayerNorm/beta"]


def run_encoder(v, scope, tables, heads, ids):
    tables = f"{tables}/embeddings"
    x = v[f"{tables}/word_embeddings"][ids] + v[f"{tables}/token_type_embeddings"][0]
    x = norm(v, tables, x + v[f"{tables}/position_embeddings"][: ids.shape[1]])
    if f"{scope}/embeddings_project/kernel" in v:
        x = dense(v, f"{scope}/embeddings_project", x)
    rows, length, width = x.shape
    for index in range(2):
        layer = f"{scope}/encoder/layer_{index}"
        q, k, u = (
            dense(v, f"{layer}/attention/self/{part}", x).reshape(rows, length, heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // heads))
        mixed = (scores / scores.sum(-1, keepdims=True) @ u).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(v, f"{layer}/attention/output", x + dense(v, f"{layer}/attention/output/dense", mixed))
        inner = gelu(dense(v, f"{layer}/intermediate/dense", x))
        x = norm(v, f"{layer}/output", x + dense(v, f"{layer}/output/dense", inner))
    return x


def discriminator_logits(v, ids, heads=2):
    x = gelu(dense(v, "discriminator_predictions/dense", run_encoder(v, "electra", "electra", heads, ids)))
    return dense(v, "discriminator_predictions/dense_1", x)[..., 0]


def generator_logits(v, ids, scope="generator", tables="electra", heads=1):
    x = gelu(dense(v, "generator_predictions/dense", run_encoder(v, scope, tables, heads, ids)))
    x = norm(v, "generator_predictions", x)
    return x @ v[f"{tables}/embeddings/word_embeddings"].T + v["generator_predictions/output_bias"]


def ours(imported, ids):
    ids = torch.from_numpy(ids)
    with torch.no_grad():
        encoder, head = imported.discriminator
        first = head(encoder(ids)).numpy()
        encoder, head = imported.generator
        return first, head.logits(encoder(ids)).numpy()


# ------------------------------------------------------------------------------------------------------------------ tests


def test_a_checkpoint_that_tensorflow_wrote():
    imported = read_checkpoint(checkpoint_prefix(GOLDEN), num_heads=2)
    found, guessed = ours(imported, IDS)
    np.testing.assert_allclose(found, discriminator_logits(golden_variables(), IDS), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(guessed, generator_logits(golden_variables(), IDS), atol=1e-5, rtol=1e-4)
    main, generator = imported.discriminator[0].config, imported.generator[0].config
    assert (main.hidden_size, main.embedding_size, main.num_layers, main.intermediate_size) == (8, 4, 2, 32)
    assert (generator.hidden_size, generator.num_heads, generator.intermediate_size) == (4, 1, 16)
    assert (main.max_length, main.vocab_size, imported.shared) == (16, 12, "embeddings")


def test_every_value_that_tensorflow_wrote_is_read_exactly():
    bundle = TensorBundle(GOLDEN / "model.ckpt-7")
    assert bundle.read("global_step") == 7
    assert bundle.read("electra/embeddings/word_embeddings/adam_m").eq(1.0).all()
    for name, array in golden_variables().items():
        assert torch.equal(bundle.read(name), torch.from_numpy(array)), name
    assert len(bundle.shapes) == len(make.SHAPES) + 4 + 1


def test_a_generator_with_embeddings_of_its_own(tmp_path):
    variables = golden_variables()
    variables |= {  # as wide as the generator is: the reference does so with untied_generator_embeddings
        name.replace("electra/", "generator/"): 0.7 * array[..., ::-1].copy()
        for name, array in variables.items()
        if name.startswith("electra/embeddings/")
    }
    write_bundle(tmp_path / "model.ckpt-3", variables)
    imported = read_checkpoint(tmp_path / "model.ckpt-3", num_heads=2)
    assert imported.shared == "nothing"
    found, guessed = ours(imported, IDS)
    np.testing.assert_allclose(found, discriminator_logits(variables, IDS), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(guessed, generator_logits(variables, IDS, tables="generator"), atol=1e-5, rtol=1e-4)


def test_a_generator_that_shares_every_weight(tmp_path):
    """As released Small++ is not: no generator/ at all. Double precision and an odd position table on the way."""
    draw = np.random.default_rng(0)
    shapes = {n: s for n, s in make.SHAPES.items() if not n.startswith("generator/")}
    shapes["generator_predictions/dense/kernel"] = (make.D, make.E)
    shapes["electra/embeddings/position_embeddings"] = (512, make.E)
    variables = {name: draw.normal(0.0, 0.5, shape) for name, shape in shapes.items()}
    write_bundle(tmp_path / "model.ckpt-3", variables)
    imported = read_checkpoint(tmp_path / "model.ckpt-3", num_heads=2)
    assert (imported.shared, imported.discriminator[0].config.max_length) == ("all", 512)
    found, guessed = ours(imported, IDS)
    np.testing.assert_allclose(found, discriminator_logits(variables, IDS), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(guessed, generator_logits(variables, IDS, "electra", heads=2), atol=1e-4, rtol=1e-4)


def test_import_writes_what_transformers_loads(tmp_path, capsys):
    for file in GOLDEN.glob("*[0-9x]"):
        shutil.copy(file, tmp_path)
    where = "/nowhere/of/another/machine"
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{where}/model.ckpt-7"\n')
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    words = [str(tmp_path), str(tmp_path / "out"), "--config", str(GOLDEN / "config.json")]
    assert cli.main(["import", *words]) == 0
    assert "shared with the discriminator: embeddings" in capsys.readouterr().out
    ids = torch.from_numpy(IDS)
    with torch.no_grad():
        theirs = ElectraForPreTraining.from_pretrained(tmp_path / "out" / "discriminator")(ids).logits.numpy()
        guessed = ElectraForMaskedLM.from_pretrained(tmp_path / "out" / "generator")(ids).logits.numpy()
    np.testing.assert_allclose(theirs, discriminator_logits(golden_variables(), IDS), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(guessed, generator_logits(golden_variables(), IDS), atol=1e-5, rtol=1e-4)
    assert json.loads((tmp_path / "out" / "generator" / "config.json").read_text())["num_attention_heads"] == 1
    assert (tmp_path / "out" / "discriminator" / "tokenizer.json").is_file()
    assert (
        "imported from: TensorFlow checkpoint model.ckpt-7"
        in (tmp_path / "out" / "generator" / "README.md").read_text()
    )


def test_what_does_not_fit_is_said(tmp_path):
    said = []
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"--size small: hidden_size is 256.* have 8"):
        import_checkpoint(GOLDEN, out, size="small", say=said.append)
    (tmp_path / "config.json").write_text('{"num_attention_heads": 3}')
    with pytest.raises(UserError, match="8 units do not divide into 3 attention heads"):
        import_checkpoint(GOLDEN, out, config=tmp_path / "config.json")
    with pytest.raises(UserError, match="no such checkpoint"):
        import_checkpoint(tmp_path / "model.ckpt-9", out)
    with pytest.raises(UserError, match=r"which checkpoint is meant.*no \*\.index"):
        import_checkpoint(tmp_path, out)
    variables = golden_variables()
    write_bundle(tmp_path / "more", variables | {"electra/pooler/dense/kernel": np.ones((8, 8), np.float32)})
    with pytest.raises(UserError, match="electra/pooler/dense/kernel, which ELECTRA's networks do not have"):
        read_checkpoint(tmp_path / "more", 2)
    write_bundle(tmp_path / "bert", {"bert/embeddings/word_embeddings": np.ones((8, 8), np.float32)})
    with pytest.raises(UserError, match="only pre-training checkpoints of ELECTRA"):
        read_checkpoint(tmp_path / "bert")
    del variables["generator_predictions/LayerNorm/gamma"]
    write_bundle(tmp_path / "less", variables)
    with pytest.raises(UserError, match=r"lack norm\.weight"):
        read_checkpoint(tmp_path / "less", 2)
    assert not out.exists()


def test_a_checkpoint_without_a_generator_gives_the_discriminator_alone(tmp_path):
    variables = {n: a for n, a in golden_variables().items() if not n.startswith("generator")}
    write_bundle(tmp_path / "model.ckpt-1", variables)
    said = []
    imported = import_checkpoint(tmp_path, tmp_path / "out", config=GOLDEN / "config.json", say=said.append)
    assert imported.generator is None
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["discriminator"]
    assert any("no vocab.txt" in line for line in said)
    assert any("holds no generator" in line for line in said)


@pytest.mark.parametrize("part", ["index", "data-00000-of-00002"])
def test_one_wrong_bit_anywhere_is_found(part, tmp_path):
    draw = np.random.default_rng(1)
    tensors = {f"a/{name}": draw.normal(size=(3, 2)).astype(np.float32) for name in "bcdefghijklm"}
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, tensors)
    path = prefix.with_name(f"{prefix.name}.{part}")
    whole = path.read_bytes()

    def read_all():
        bundle = TensorBundle(prefix)
        return {name: bundle.read(name).numpy() for name in bundle.shapes}

    found = read_all()
    assert all((found[name] == array).all() for name, array in tensors.items())
    assert found.keys() == tensors.keys()
    harmless = range(len(whole) - 48, len(whole)) if part == "index" else range(3)  # unused padding
    for position in draw.choice(len(whole), 60, replace=False):
        if position in harmless:
            continue
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(UserError):
            read_all()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError):
        read_all()
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        read_all()


def test_a_compressed_index_is_refused(tmp_path):
    write_bundle(tmp_path / "m", {"a": np.ones(2, np.float32)}, compression=1)
    with pytest.raises(UserError, match="compressed"):
        TensorBundle(tmp_path / "m")


def test_checksum_of_short_and_long_content():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of RFC 3720's polynomial
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4
    content = np.random.default_rng(0).bytes(50_000)  # three lanes' worth and a rest
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    assert crc32c(content) == remainder ^ 0xFFFFFFFF
