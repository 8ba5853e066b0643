"""What many tests need: a small text with structure worth learning, a store made of it, and a run of seconds."""

import dataclasses
import random
from pathlib import Path

import pytest
import torch

from electra import presets
from electra.config import EncoderConfig, GeneratorConfig, ModelConfig, OptimizerConfig, PretrainConfig
from electra.data.prepare import prepare
from electra.data.tokenizer import load_tokenizer, train_tokenizer
from electra.model.hf import export_discriminator, export_generator
from electra.model.pair import Pair

torch.set_num_threads(1)

SUBJECTS = ["chef", "cook", "waiter", "guest", "child", "farmer", "baker", "king"]
VERBS = ["cooked", "ate", "served", "burned", "praised", "sold", "hid", "shared"]
OBJECTS = ["meal", "soup", "bread", "cake", "fish", "rice", "stew", "pie"]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Lines such as "the chef cooked the soup ."; who does what to what is not independent, so there is much to learn."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        i = draw.randrange(8)
        j = (i + draw.randrange(2)) % 8
        lines.append(f"the {SUBJECTS[i]} {VERBS[j]} the {OBJECTS[(i + j) % 8]} .")
    return lines


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 documents of 10 lines."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = sentences(2000)
    documents = ["\n".join(lines[start : start + 10]) for start in range(0, 2000, 10)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def store(corpus_file: Path) -> Path:
    """A token store of about 12,000 tokens and 100 word pieces."""
    out = corpus_file.parent / "store"
    prepare([corpus_file], out, vocab_size=100, quiet=True)
    return out


def small_model(blocks: str, dropout: float = 0.1) -> ModelConfig:
    """Two layers of 16, a generator of half the width."""
    return ModelConfig(
        discriminator=EncoderConfig(
            blocks=blocks, embedding_size=12, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32,
            max_length=64, hidden_dropout=dropout, attention_dropout=dropout, global_attention_every=2,
        ),
        generator=GeneratorConfig(width=0.5),
    )  # fmt: skip


def fitting_model(objective: str, blocks: str, dropout: float = 0.1) -> ModelConfig:
    """The same as the objective wants it: for two-stage the generator is as large as the main network, and apart from it."""
    model = small_model(blocks, dropout)
    if objective == "two-stage":
        return dataclasses.replace(model, generator=GeneratorConfig(width=1.0), tying="none")
    return model


@pytest.fixture
def run_config(store: Path, tmp_path: Path) -> PretrainConfig:
    """12 steps of 8 rows of 16 tokens with classic blocks and dropout."""
    return PretrainConfig(
        run_dir=tmp_path / "run",
        data=dataclasses.replace(presets.small().data, store=store, length=16),
        model=small_model("classic"),
        optimizer=OptimizerConfig(peak_learning_rate=3e-3, warmup_steps=2),
        train=dataclasses.replace(
            presets.small().train, num_steps=12, batch_size=8, micro_batch_size=4, save_every=5, log_every=3, seed=7
        ),
    )


@pytest.fixture(scope="session", params=["classic", "modern"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with discriminator/ and generator/ of random weights, in Hugging Face format."""
    path = tmp_path_factory.mktemp(request.param)
    texts = ["good great lovely fine bad awful poor weak the a film it was, well story"] * 3
    train_tokenizer(texts, 120).save_pretrained(path / "tokenizer")
    torch.manual_seed(0)
    config = small_model(request.param)
    size = len(load_tokenizer(path / "tokenizer"))
    encoder = dataclasses.replace(config.discriminator, vocab_size=size)
    pair = Pair(dataclasses.replace(config, discriminator=encoder))
    export_discriminator(pair, path / "discriminator", path / "tokenizer")
    export_generator(pair, path / "generator", path / "tokenizer")
    return path
