"""A checkpoint of the authors' own TensorFlow code as two Hugging Face directories."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra import __version__
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.files import write_directory
from electra.model.card import Card, write_card
from electra.model.hf import save_discriminator, save_generator
from electra.model.tf1 import Imported, checkpoint_prefix, read_checkpoint
from electra.presets import PRESETS

_SIZES = ("hidden_size", "num_hidden_layers", "intermediate_size", "embedding_size", "vocab_size")
_OURS = {"num_hidden_layers": "num_layers"}


def import_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    config: Path | None = None,
    size: str | None = None,
    vocab: Path | None = None,
    lowercase: bool = True,
    say: Callable[[str], None] = print,
) -> Imported:
    """Write `out/discriminator` and `out/generator` from `model.ckpt-N.index` and its data file.

    `config` (BERT's or Hugging Face's JSON) or `size` (a preset of the paper) gives the number of attention heads, which the
    weights do not tell, and is compared with the rest; without either a head has 64 units, as in the reference. `vocab` is
    the vocab.txt, by default the one beside the checkpoint. Raises UserError for what cannot be read or does not fit.
    """
    prefix = checkpoint_prefix(checkpoint)
    if config is not None and size is not None:
        raise UserError("give --config or --size, not both: they say the same")
    stated = _stated(config, size)
    imported = read_checkpoint(prefix, stated.get("num_attention_heads"))
    encoder = imported.discriminator[0].config
    for name in _SIZES:
        found = getattr(encoder, _OURS.get(name, name))
        if stated.get(name, found) != found:
            where = config or f"--size {size}"
            raise UserError(
                f"{where}: {name} is {stated[name]}, the weights of {prefix} have {found}; they are of two models"
            )
    vocab = vocab or next((path for path in [prefix.with_name("vocab.txt")] if path.is_file()), None)
    tokenizer = load_tokenizer(vocab, lowercase=lowercase) if vocab is not None else None
    if tokenizer is None:
        say(f"no vocab.txt beside {prefix}: the directories get no tokenizer; name one with --vocab")

    with tempfile.TemporaryDirectory() as tokenizer_dir:
        source = None
        if tokenizer is not None:
            tokenizer.save_pretrained(tokenizer_dir)
            source = Path(tokenizer_dir)
        writers: dict[str, tuple[Callable[..., None], Any]] = {
            "discriminator": (save_discriminator, imported.discriminator)
        }
        if imported.generator is not None:
            writers["generator"] = (save_generator, imported.generator)
        for role, (save, parts) in writers.items():
            card = Card(
                role=role, version=__version__, training={"imported from": f"TensorFlow checkpoint {prefix.name}"}
            )

            def write(target: Path, save: Any = save, parts: Any = parts, card: Card = card) -> None:
                save(*parts, target, source)
                write_card(target, parts[0].config, card)

            write_directory(out / role, write)
    if imported.generator is None:
        say(f"{prefix}: holds no generator; only the discriminator is written")
    return imported


def _stated(config: Path | None, size: str | None) -> dict[str, Any]:
    """What the user says of the discriminator, under the names of BERT's configuration."""
    if size is not None:
        encoder = PRESETS[size]().model.discriminator
        sizes = {name: getattr(encoder, _OURS.get(name, name)) for name in _SIZES if name != "vocab_size"}
        return {**sizes, "num_attention_heads": encoder.num_heads}
    if config is None:
        return {}
    try:
        stated = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{config}: no such file; give the model's configuration as JSON") from None
    except ValueError:
        raise UserError(f"{config}: not valid JSON") from None
    if not isinstance(stated, dict):
        raise UserError(f"{config}: must hold the settings of the model as an object")
    return stated
