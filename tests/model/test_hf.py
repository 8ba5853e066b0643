"""Parity with plain transformers both ways: logits, hidden states, gradients; no missing or unexpected weights."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
)

from conftest import small_model
from electra.config import ModelConfig
from electra.data.tokenizer import load_tokenizer, train_tokenizer
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead, ReplacedTokenHead
from electra.model.hf import (
    export_discriminator,
    export_generator,
    load_discriminator,
    load_encoder,
    load_generator,
    save_discriminator,
    save_sequence_classifier,
)
from electra.model.hf_files import tokenizer_size
from electra.model.pair import Pair

CLASSES = {
    "classic": (ElectraForPreTraining, ElectraForMaskedLM, ElectraForSequenceClassification),
    "modern": (ModernBertForTokenClassification, ModernBertForMaskedLM, ModernBertForSequenceClassification),
}


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the chef cooked the meal and ate it"] * 5, 60).save_pretrained(path)
    return path


@pytest.fixture
def batch(tokenizer_dir):
    torch.manual_seed(1)
    size = len(AutoTokenizer.from_pretrained(tokenizer_dir))
    mask = torch.ones(3, 14, dtype=torch.long)
    mask[1, 9:] = 0
    return {"input_ids": torch.randint(5, size, (3, 14)), "attention_mask": mask}


def make_pair(blocks, tokenizer_dir, embedding_size=12, window=128):
    size = len(AutoTokenizer.from_pretrained(tokenizer_dir))
    model = small_model(blocks)
    encoder = dataclasses.replace(
        model.discriminator,
        vocab_size=size,
        embedding_size=embedding_size,
        local_attention=window,
        global_attention_every=2,
    )
    pair = Pair(ModelConfig(discriminator=encoder, generator=model.generator))
    for parameter in pair.parameters():  # away from a start at which much is zero
        torch.nn.init.normal_(parameter, std=0.3)
    return pair.eval()


def load(model_class, path):
    model, info = model_class.from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"], info
    assert not info["unexpected_keys"], info
    assert not info["mismatched_keys"], info
    return model.eval()


def types(model, batch):
    return (
        {**batch, "token_type_ids": torch.zeros_like(batch["input_ids"])}
        if "Electra" in type(model).__name__
        else batch
    )


@pytest.mark.parametrize("embedding_size", [12, 16])
@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_exported_pair_gives_equal_logits(blocks, embedding_size, tokenizer_dir, tmp_path, batch):
    pair = make_pair(blocks, tokenizer_dir, embedding_size, window=4)
    ids, mask = batch["input_ids"], batch["attention_mask"].bool()
    export_discriminator(pair, tmp_path / "discriminator", tokenizer_dir)
    export_generator(pair, tmp_path / "generator", tokenizer_dir)
    with torch.no_grad():
        model = load(CLASSES[blocks][0], tmp_path / "discriminator")
        theirs = model(**types(model, batch)).logits
        ours = pair.discriminator_head(pair.discriminator(ids, mask))
        torch.testing.assert_close(theirs.view(ours.shape)[mask], ours[mask], atol=1e-4, rtol=1e-4)
        model = load(CLASSES[blocks][1], tmp_path / "generator")
        theirs = model(**types(model, batch)).logits
        ours = pair.generator_head.logits(pair.generator(ids, mask))
        torch.testing.assert_close(theirs[mask], ours[mask], atol=1e-3, rtol=1e-4)
        hidden = AutoModel.from_pretrained(tmp_path / "discriminator").eval()
        theirs = hidden(**types(hidden, batch)).last_hidden_state
        torch.testing.assert_close(theirs[mask], pair.discriminator(ids, mask)[mask], atol=1e-4, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "discriminator")("the chef")["input_ids"]
    # One configuration for each network.
    widths = [
        json.loads((tmp_path / n / "config.json").read_text())["hidden_size"] for n in ("discriminator", "generator")
    ]
    assert widths == [16, 8]


def hugging_face_model(blocks, vocab_size):
    if blocks == "classic":
        return ElectraModel(
            ElectraConfig(vocab_size=vocab_size, embedding_size=12, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
                          intermediate_size=20, max_position_embeddings=40)
        )  # fmt: skip
    return ModernBertModel(
        ModernBertConfig(vocab_size=vocab_size, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=20,
                         max_position_embeddings=40, local_attention=6, global_attn_every_n_layers=3, pad_token_id=0,
                         bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3)
    )  # fmt: skip


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_loaded_encoder_has_equal_hidden_states_and_gradients(blocks, tmp_path, tokenizer_dir, batch):
    torch.manual_seed(0)
    size = len(AutoTokenizer.from_pretrained(tokenizer_dir))
    theirs = hugging_face_model(blocks, size).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tokenizer_dir).save_pretrained(tmp_path)
    ours = load_encoder(tmp_path).encoder.eval()
    mask = batch["attention_mask"].bool()
    their_layers = theirs(**types(theirs, batch), output_hidden_states=True).hidden_states
    our_layers = ours(batch["input_ids"], mask, return_all_layers=True)
    assert len(their_layers) == len(our_layers)
    for one, other in zip(their_layers, our_layers, strict=True):
        torch.testing.assert_close(one[mask], other[mask], atol=2e-4, rtol=1e-3)
    weights = torch.randn(int(mask.sum()), 16)
    (their_layers[-1][mask] * weights).sum().backward()
    (our_layers[-1][mask] * weights).sum().backward()
    table = theirs.embeddings.word_embeddings if blocks == "classic" else theirs.embeddings.tok_embeddings
    torch.testing.assert_close(table.weight.grad, ours.embeddings.tokens.weight.grad, atol=2e-3, rtol=1e-3)
    their_norm = sum(p.grad.double().square().sum() for p in theirs.parameters() if p.grad is not None) ** 0.5
    our_norm = sum(p.grad.double().square().sum() for p in ours.parameters() if p.grad is not None) ** 0.5
    assert float(our_norm) == pytest.approx(float(their_norm), rel=1e-4)


@pytest.mark.parametrize(("blocks", "pooling"), [("classic", "first"), ("modern", "first"), ("modern", "mean")])
def test_exported_classifier_gives_equal_logits(blocks, pooling, tokenizer_dir, tmp_path, batch):
    pair = make_pair(blocks, tokenizer_dir)
    head = ClassificationHead(pair.discriminator.config, 3, pooling, 0.1).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_sequence_classifier(pair.discriminator, head, ["bad", "fair", "good"], tmp_path, tokenizer_dir)
    model = load(CLASSES[blocks][2], tmp_path)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        ours = head(pair.discriminator(batch["input_ids"], mask), mask)
        torch.testing.assert_close(model(**types(model, batch)).logits, ours, atol=1e-4, rtol=1e-4)
    assert model.config.id2label == {0: "bad", 1: "fair", 2: "good"}


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_one_network_is_never_taken_for_the_other(blocks, tokenizer_dir, tmp_path):
    pair = make_pair(blocks, tokenizer_dir)
    export_discriminator(pair, tmp_path / "discriminator", tokenizer_dir)
    export_generator(pair, tmp_path / "generator", tokenizer_dir)
    load_discriminator(tmp_path / "discriminator")
    load_generator(tmp_path / "generator")
    with pytest.raises(UserError):
        load_generator(tmp_path / "discriminator")
    with pytest.raises(UserError):
        load_discriminator(tmp_path / "generator")


def test_a_regression_is_not_taken_for_a_discriminator(tmp_path):
    """Its head has the same shape as the replaced-token head of a ModernBERT."""
    config = dataclasses.replace(hugging_face_model("modern", 60).config, num_labels=1)
    ModernBertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="ForSequenceClassification, not a discriminator"):
        load_discriminator(tmp_path)


@pytest.mark.parametrize(("blocks", "name"), [("classic", "generator_lm_head.weight"), ("modern", "decoder.weight")])
def test_a_generator_with_an_output_matrix_of_its_own_is_refused(blocks, name, tokenizer_dir, tmp_path):
    pair = make_pair(blocks, tokenizer_dir, embedding_size=16)
    export_generator(pair, tmp_path, tokenizer_dir)
    tensors = load_file(tmp_path / "model.safetensors")
    table = pair.generator.embeddings.tokens.weight.detach()
    if blocks == "modern":
        table = pair.generator.embeddings_project(table).detach()
    save_file(tensors | {name: table.clone()}, tmp_path / "model.safetensors")
    load_generator(tmp_path)
    save_file(tensors | {name: table + 1.0}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="output matrix is not its token table"):
        load_generator(tmp_path)


def test_a_vocabulary_file_may_hold_any_character_but_the_line_feed(tokenizer_dir, tmp_path):
    """U+0085 and U+2028 end a line for Python's splitlines, which would count too many pieces here."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\u2028", "\x85", "b"]
    model = small_model("classic").discriminator
    encoder = Encoder(dataclasses.replace(model, vocab_size=len(pieces)))
    save_discriminator(encoder, ReplacedTokenHead(encoder.config), tmp_path)
    (tmp_path / "vocab.txt").write_bytes("\n".join([*pieces, ""]).encode())
    assert tokenizer_size(tmp_path) == len(pieces) == load_encoder(tmp_path).config.vocab_size
    assert load_tokenizer(tmp_path).convert_tokens_to_ids("b") == 8


def test_what_is_no_model_is_said_so(tmp_path):
    with pytest.raises(UserError, match="no such directory"):
        load_encoder(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no config\.json"):
        load_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match="gpt2"):
        load_encoder(tmp_path)
