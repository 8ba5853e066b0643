"""Models by name: fetched from and pushed to the Hugging Face hub, by its own client."""

from __future__ import annotations

import re
from pathlib import Path

from electra.errors import UserError

_TEXT = ["*.json", "*.txt", "*.model"]


def is_hub_name(name: Path | str) -> bool:
    """Whether this is OWNER/MODEL rather than a path: two plain words, and no directory here is called OWNER."""
    text = str(name)
    return bool(re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text)) and not Path(text.split("/")[0]).exists()


def fetch(name: str) -> Path:
    """The directory of a hub model's files, downloaded unless they lie in the cache. Raises UserError when that fails."""
    from huggingface_hub import snapshot_download

    try:
        path = Path(snapshot_download(name, allow_patterns=[*_TEXT, "*.safetensors"]))
        if not any(path.glob("*.safetensors")):  # of before 2023
            path = Path(snapshot_download(name, allow_patterns=[*_TEXT, "pytorch_model.bin"]))
    except Exception as error:  # the client raises many kinds
        raise UserError(
            f"{name}: no such directory here, and it cannot be fetched from the hub ({_reason(error)}); give a "
            f"directory, or check name and network"
        ) from None
    return path


def check_push(name: str) -> None:
    """Raises UserError when `push` could not begin: a name that is not OWNER/MODEL, or no token."""
    from huggingface_hub import get_token

    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        raise UserError(f"--push-to-hub is {name!r}: give OWNER/MODEL")
    if get_token() is None:
        raise UserError(f"{name}: no token for the hub; log in with `hf auth login`, or set HF_TOKEN")


def push(folder: Path, name: str, *, private: bool = False, endpoint: str | None = None) -> str:
    """Upload a model's directory as OWNER/MODEL, making it if need be. Returns its address.

    `endpoint` is another hub's address. The token is the client's own (`hf auth login`, or HF_TOKEN). Raises UserError without
    one, or when the hub refuses.
    """
    from huggingface_hub import HfApi

    check_push(name)
    api = HfApi(endpoint=endpoint)
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"{folder.name}, by electra export")
    except Exception as error:
        raise UserError(
            f"{name}: cannot be pushed to the hub ({_reason(error)}); {folder} is whole, push it again"
        ) from None
    return str(address)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
