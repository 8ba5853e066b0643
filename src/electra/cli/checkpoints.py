"""The commands that carry checkpoints out of this package and into it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electra.cli.arguments import Model, positional


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write a run's newest checkpoint for plain `transformers`, each network in a directory of its own with a model card.

    MODEL may also be a Hugging Face directory (a fine-tuned classifier, say), which is copied.
    """

    model: Model
    out: Annotated[tyro.conf.Positional[Path], positional("OUT", "Directory to write to.")]
    onnx: bool = False
    """Write model.onnx, too, and check its numbers with ONNX Runtime."""
    push_to_hub: str | None = None
    """OWNER/MODEL to push to: a run's networks get -discriminator and -generator behind it."""
    private: bool = False
    """Of --push-to-hub: make a private repository."""

    def run(self) -> None:
        from electra.train.export import export_model

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for directory in export_model(options.pop("model"), options.pop("out"), **options):
            print(directory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Import:
    """Write a TensorFlow checkpoint of google-research/electra as OUT/discriminator and OUT/generator, without TensorFlow."""

    checkpoint: Annotated[
        tyro.conf.Positional[Path], positional("CKPT", "model.ckpt-N (without .index), or the directory it lies in.")
    ]
    out: Annotated[tyro.conf.Positional[Path], positional("OUT", "Directory to write to.")]
    config: Path | None = None
    """The model's configuration as JSON, for the number of attention heads; left out, a head has 64 units."""
    size: Literal["small", "base", "large"] | None = None
    """Instead of --config: the paper's size that the weights have to be of."""
    vocab: Path | None = None
    """Its vocab.txt; left out, the one beside the checkpoint."""
    lowercase: bool = True
    """Whether the vocabulary is of lower case ("uncased")."""

    def run(self) -> None:
        from electra.train.tf1 import import_checkpoint

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        imported = import_checkpoint(options.pop("checkpoint"), options.pop("out"), **options)
        print(f"discriminator: {self.out / 'discriminator'}")
        if imported.generator is not None:
            print(f"generator:     {self.out / 'generator'} (shared with the discriminator: {imported.shared})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddTokens:
    """Write a model's tokenizer with words added, for `electra prepare --vocab OUT` and `electra pretrain --init-from MODEL`."""

    source: Annotated[tyro.conf.Positional[str], positional("MODEL", "Model or tokenizer directory, or a vocab.txt.")]
    out: Annotated[tyro.conf.Positional[Path], positional("OUT", "Directory to write to.")]
    words: Path
    """Text file, a word a line (##x for a piece that continues a word)."""

    def run(self) -> None:
        from electra.data.added_tokens import add_tokens
        from electra.vocabulary import read_vocabulary

        words = read_vocabulary(self.words)
        added = add_tokens(self.source, self.out, words)
        print(f"{self.out}: {added:,} new word pieces, {len(words) - added:,} were there")
