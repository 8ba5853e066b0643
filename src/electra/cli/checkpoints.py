"""The commands that carry checkpoints out of this package and into it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electra.cli.arguments import positional


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write a run's newest checkpoint as OUT/discriminator and OUT/generator, for plain `transformers`."""

    run_dir: Annotated[tyro.conf.Positional[Path], positional("RUN", "Run directory of `electra pretrain`.")]
    out: Annotated[tyro.conf.Positional[Path], positional("OUT", "Directory to write to.")]

    def run(self) -> None:
        from electra.train.export import export

        export(self.run_dir, self.out)
        print(f"discriminator: {self.out / 'discriminator'}\ngenerator:     {self.out / 'generator'}")


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
