"""The networks of a checkpoint that the authors' own code wrote (google-research/electra, TensorFlow 1).

Its variables are those of the Hugging Face class under other names: matrices lie transposed, norms have beta and gamma.
With shared embeddings (the default there) the tables are under `electra/` alone; a generator that shares every weight has
none of its own. Sources: `run_pretraining.py` (_build_transformer, _get_masked_lm_output, _get_discriminator_output) and
`model/modeling.py` of that repository.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead, ReplacedTokenHead
from electra.model.hf_names import GENERATOR, REPLACED_TOKEN, encoder_from_hf, fill, head_names
from electra.model.tensor_bundle import TensorBundle

_HEAD_SIZE = 64  # of every network of the reference, its generators included


@dataclasses.dataclass(frozen=True)
class Imported:
    """What a checkpoint held. Without pre-training heads, as after fine-tuning, there is nothing to import."""

    discriminator: tuple[Encoder, ReplacedTokenHead]
    generator: tuple[Encoder, GeneratorHead] | None
    """None where there was none (a uniform generator)."""
    shared: str
    """What the two share: nothing, embeddings or all weights."""


def checkpoint_prefix(path: Path) -> Path:
    """The checkpoint's path without `.index`, from that path, the index file, or a directory with a `checkpoint` file."""
    if path.suffix == ".index":
        return path.with_suffix("")
    if not path.is_dir():
        if not path.with_name(f"{path.name}.index").is_file():
            raise UserError(
                f"{path}: no such checkpoint; give model.ckpt-N (without .index) or the directory it lies in"
            )
        return path
    if (path / "checkpoint").is_file():
        text = (path / "checkpoint").read_text(encoding="utf-8")
        if named := re.search(r'^model_checkpoint_path:\s*"(.+)"', text, re.MULTILINE):
            return path / Path(named[1]).name  # it may be absolute, of the machine where it was written
    found = sorted(path.glob("*.index"))
    if len(found) != 1:
        names = ", ".join(file.stem for file in found) or "no *.index file"
        raise UserError(f"{path}: which checkpoint is meant? It has {names}; name one")
    return found[0].with_suffix("")


def read_checkpoint(prefix: Path, num_heads: int | None = None) -> Imported:
    """Both networks of a checkpoint, in float32; optimizer slots are passed over.

    Sizes follow from the shapes. What they do not tell is the number of attention heads: `num_heads` of the discriminator,
    else hidden size / 64; the generator's is hidden size / 64, at least 1, as in the reference. Raises UserError for a
    checkpoint without a discriminator's weights, or with weights that ELECTRA's networks do not have.
    """
    bundle = TensorBundle(prefix)
    names = {name for name in bundle.shapes if not re.search(r"/adam_[mv]$|^global_step$", name)}
    if "discriminator_predictions/dense/kernel" not in names:
        raise UserError(
            f"{prefix}: holds no discriminator_predictions/; only pre-training checkpoints of ELECTRA can be imported"
        )
    discriminator = _encoder(bundle, names, "electra", num_heads)
    read = _Reader(bundle, names)
    main = read.encoder(discriminator, "electra", "electra"), read.replaced_token_head(discriminator)

    generator, shared = None, "nothing"
    if "generator_predictions/output_bias" in names:
        scope = "generator" if any(name.startswith("generator/encoder/") for name in names) else "electra"
        tables = "generator" if any(name.startswith("generator/embeddings/") for name in names) else "electra"
        shared = "all" if scope == "electra" else "embeddings" if tables == "electra" else "nothing"
        config = discriminator if scope == "electra" else _encoder(bundle, names, "generator", None, tables)
        encoder = read.encoder(config, scope, tables)
        generator = encoder, read.generator_head(config, encoder)
    if strange := sorted(name for name in names - read.used if name.split("/")[0] in ("electra", "generator")):
        raise UserError(f"{prefix}: holds {strange[0]}, which ELECTRA's networks do not have; it is of another model")
    return Imported(main, generator, shared)


def _encoder(
    bundle: TensorBundle, names: set[str], scope: str, num_heads: int | None, tables: str | None = None
) -> EncoderConfig:
    """An encoder's sizes, read off the shapes of its variables."""
    tables = tables or scope

    def shape(name: str) -> tuple[int, ...]:
        if name not in bundle.shapes:
            raise UserError(f"{bundle.prefix}: lacks {name}; only checkpoints of ELECTRA can be imported")
        return bundle.shapes[name]

    vocab_size, embedding_size = shape(f"{tables}/embeddings/word_embeddings")
    layers = {match[1] for name in names if (match := re.match(rf"{scope}/encoder/layer_(\d+)/", name))}
    hidden_size, intermediate_size = shape(f"{scope}/encoder/layer_0/intermediate/dense/kernel")
    if num_heads is None:
        num_heads = max(1, hidden_size // _HEAD_SIZE)
    if hidden_size % num_heads:
        raise UserError(
            f"{bundle.prefix}: {hidden_size} units do not divide into {num_heads} attention heads; give the model's "
            "configuration (--config)"
        )
    return EncoderConfig(
        blocks="classic",
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        num_layers=len(layers),
        num_heads=num_heads,
        intermediate_size=intermediate_size,
        max_length=shape(f"{tables}/embeddings/position_embeddings")[0],
        type_vocab_size=shape(f"{tables}/embeddings/token_type_embeddings")[0],
    )


class _Reader:
    """Modules filled from the checkpoint; remembers which variables were used."""

    def __init__(self, bundle: TensorBundle, names: set[str]) -> None:
        self.bundle, self.names, self.used = bundle, names, set[str]()

    def encoder(self, config: EncoderConfig, scope: str, tables: str) -> Encoder:
        with torch.device("meta"):
            encoder = Encoder(config)
        theirs = self._named_as_hugging_face(f"{tables}/embeddings/", tables)
        for part in ("embeddings_project", "encoder"):
            theirs |= self._named_as_hugging_face(f"{scope}/{part}/", scope)
        fill(encoder, encoder_from_hf(config, theirs), self.bundle.prefix)
        return encoder.eval()

    def replaced_token_head(self, config: EncoderConfig) -> ReplacedTokenHead:
        with torch.device("meta"):
            head = ReplacedTokenHead(config)
        return self._fill_head(head, REPLACED_TOKEN, "discriminator_predictions/")

    def generator_head(self, config: EncoderConfig, encoder: Encoder) -> GeneratorHead:
        with torch.device("meta"):
            head = GeneratorHead(config, encoder.embeddings.tokens)
        return self._fill_head(head, GENERATOR, "generator_predictions/")

    def _fill_head(self, head: Any, names: dict[str, dict[str, str]], start: str) -> Any:
        theirs = self._named_as_hugging_face(start)
        state = {ours: theirs[name] for ours, name in head_names(head, names).items() if name in theirs}
        fill(head, state, self.bundle.prefix)
        return head.eval()

    def _named_as_hugging_face(self, start: str, scope: str | None = None) -> dict[str, Tensor]:
        """The variables whose names start so, renamed and turned; without their `scope/`."""
        tensors = {}
        for name in (name for name in self.names if name.startswith(start)):
            self.used.add(name)
            tensor = self.bundle.read(name).float()
            renamed = name.removeprefix(f"{scope}/").replace("layer_", "layer.").replace("/", ".")
            renamed = re.sub(r"\.kernel$|\.gamma$|(?<=_embeddings)$", ".weight", renamed)
            renamed = re.sub(r"\.beta$", ".bias", renamed).replace("dense_1.", "dense_prediction.")
            renamed = renamed.replace("generator_predictions.output_bias", "generator_lm_head.bias")
            tensors[renamed] = tensor.t().contiguous() if name.endswith("/kernel") else tensor
        return tensors
