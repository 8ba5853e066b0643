"""What lies in a Hugging Face model directory: where it is, its weights, its tokenizer's files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from electra.errors import UserError
from electra.model.hub import fetch, is_hub_name
from electra.vocabulary import read_vocabulary

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
)


def model_directory(path: Path, network: str) -> Path:
    """The directory that holds config.json: `path` itself, its `network` folder (a run or an export), or what the hub has of
    that name."""
    if not path.is_dir() and is_hub_name(path):
        path = fetch(str(path))
    if not path.is_dir():
        raise UserError(f"{path}: no such directory; give a model in Hugging Face format or a run directory")
    if (path / "config.json").is_file():
        return path
    for folder in (network, "main"):  # a main network that predicts tokens is what its run has
        if (path / folder / "config.json").is_file():
            return path / folder
    if (path / "config.yaml").is_file():
        raise UserError(f"{path}: this run has no {network}/ yet; let it finish or use `electra export {path} OUT`")
    raise UserError(f"{path}: holds no config.json; give a model in Hugging Face format or a run directory")


def has_network(path: Path, network: str) -> bool:
    """Whether this is a directory of several networks (a run or an export), `network` being one of them."""
    return (path / network / "config.json").is_file()


def tokenizer_directory(path: Path) -> Path | None:
    """A model's directory if it has a tokenizer, else None."""
    return path if any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")) else None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every weight of a directory: one safetensors file, several with an index, or torch's older format."""
    index = path / "model.safetensors.index.json"
    old = path / "pytorch_model.bin"
    try:
        if (path / "model.safetensors").is_file():
            return load_file(path / "model.safetensors")
        if index.is_file():
            files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            return {name: tensor for file in files for name, tensor in load_file(path / file).items()}
        if old.is_file():
            return torch.load(old, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path}: {Path(str(error.filename or index)).name} is missing; copy the whole model") from None
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UserError(
            f"{path}: the weights cannot be read ({' '.join(str(error).split())}); copy them again"
        ) from None
    raise UserError(f"{path}: holds no weights (model.safetensors); give the directory of a saved model")


def tokenizer_size(path: Path) -> int:
    """Word pieces of the tokenizer in a directory, 0 if there is none."""
    if (path / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path / "tokenizer.json")).get_vocab_size(with_added_tokens=True)
    if (path / "vocab.txt").is_file():
        return len(read_vocabulary(path / "vocab.txt"))
    return 0


def check_vocabulary(num_pieces: int, vocab_size: int | None, tokenizer_dir: Path) -> None:
    """Raises UserError when the tokenizer has ids that the model has no row for."""
    if vocab_size is None or num_pieces > vocab_size:
        raise UserError(
            f"{tokenizer_dir}: the tokenizer has {num_pieces} word pieces, the model {vocab_size}: use the "
            "tokenizer that the model was trained with"
        )
