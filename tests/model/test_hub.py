"""The hub, through its own client: against a server of ours on this machine; no other is asked."""

from pathlib import Path

import pytest
from fake_hub import FakeHub

from electra.errors import UserError
from electra.model.hf_files import model_directory
from electra.model.hub import check_push, is_hub_name, push


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "electra"}')
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(range(256)))
    return tmp_path / "model"


def test_every_file_arrives(folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    with FakeHub() as hub:
        address = push(folder, "me/my-model", private=True, endpoint=hub.address)
    assert address == f"{hub.address}/me/my-model"
    assert hub.files == {"me/my-model": {path.name: path.read_bytes() for path in folder.iterdir()}}
    assert hub.private["me/my-model"]


def test_a_refusal_is_one_line_and_costs_nothing(folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with (
        FakeHub() as hub,
        pytest.raises(UserError, match=r"cannot be pushed to the hub .* is whole, push it again") as error,
    ):
        push(folder, "me/my-model", endpoint=hub.address)
    assert "\n" not in str(error.value)
    assert hub.files == {}
    with pytest.raises(UserError, match="cannot be pushed"):  # nobody listens there any more
        push(folder, "me/my-model", endpoint=hub.address)


def test_without_a_token_or_with_half_a_name_nothing_is_tried(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_STORED_TOKENS_PATH", str(tmp_path / "none either"))
    with pytest.raises(UserError, match=r"no token for the hub; log in with `hf auth login`"):
        push(folder, "me/my-model")
    with pytest.raises(UserError, match="give OWNER/MODEL"):
        check_push("my-model")


def test_what_is_a_name_and_what_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert is_hub_name("google/electra-small-discriminator")
    for path in ("runs/gone", "/google/electra", "electra", "a/b/c", "./a/b", "../a"):
        assert not is_hub_name(path)
    with pytest.raises(UserError, match="no such directory"):
        model_directory(tmp_path / "runs" / "gone", "discriminator")


def test_a_name_that_cannot_be_fetched(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"google/none: no such directory here, and it cannot be fetched") as error:
        model_directory(Path("google/none"), "discriminator")
    assert "\n" not in str(error.value)
