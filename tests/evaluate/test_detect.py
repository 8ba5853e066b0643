"""Detection from Hugging Face directories of both kinds."""

import io
import json
import sys

import pytest
import torch
from transformers import AutoTokenizer, ElectraForPreTraining

from electra.cli import main
from electra.errors import UserError
from electra.evaluate import detect as detect_module
from electra.evaluate.detect import Detector, _windows, as_json, detect, detect_lines, render, word_probabilities


def test_detection(exported):
    text = "The film was, well, a lovely story"
    (verdicts,) = detect(exported / "discriminator", [text])
    assert next(text[v.start : v.end].lower() for v in verdicts if v.token != "[UNK]") == "the"
    assert all(0.0 < v.probability < 1.0 for v in verdicts)
    assert len(word_probabilities(verdicts)) == 9  # seven words and two commas
    assert as_json(text, verdicts)["tokens"][0]["probability"] == verdicts[0].probability
    assert render(text, verdicts).plain.replace(" ", "").startswith("The")
    together = Detector(exported / "discriminator")([text, "a story", text])
    assert [v.probability for v in together[2]] == pytest.approx([v.probability for v in verdicts], abs=1e-6)
    with pytest.raises(UserError):
        detect(exported / "generator", [text])
    (many,) = detect(exported / "discriminator", ["the film " * 60], max_length=20)
    assert len(many) == 120


def test_a_file_is_judged_line_by_line(exported, tmp_path, capsys, monkeypatch):
    lines = ["the film was good", "", "a story " * 90, "well"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(detect_module, "_LINES_AT_ONCE", 2)
    assert main(["detect", str(exported / "discriminator"), "--file", str(tmp_path / "lines.txt")]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == lines
    for line, record in zip(lines, records, strict=True):
        alone = as_json(line, detect(exported / "discriminator", [line])[0])["tokens"]
        assert [token["token"] for token in record["tokens"]] == [token["token"] for token in alone]
        found = [token["probability"] for token in record["tokens"]]
        assert found == pytest.approx([token["probability"] for token in alone], abs=1e-5)
    assert main(["detect", str(exported / "discriminator")]) == 2
    assert "either a TEXT in quotes or --file" in capsys.readouterr().err
    assert main(["detect", str(exported / "discriminator"), "--file", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: no such file" in capsys.readouterr().err


def test_the_same_numbers_as_transformers(exported):
    directory = exported / "discriminator"
    if "ForPreTraining" not in (directory / "config.json").read_text():
        pytest.skip("transformers has no replaced-token class for ModernBERT")
    tokenizer, network = AutoTokenizer.from_pretrained(directory), ElectraForPreTraining.from_pretrained(directory)
    texts = ["the film was good", "a story", "it was, well, the lovely story", "weak"]
    for text, verdicts in zip(texts, detect(directory, texts), strict=True):
        with torch.no_grad():
            expected = network.eval()(**tokenizer(text, return_tensors="pt")).logits[0, 1:-1].sigmoid()
        assert [v.probability for v in verdicts] == pytest.approx(expected.tolist(), abs=1e-6)


def test_lines_are_read_as_they_are_needed(exported, monkeypatch):
    monkeypatch.setattr(detect_module, "_CHARACTERS_AT_ONCE", 100)
    read = []

    def lines():
        for number in range(1000):
            read.append(number)
            yield "a lovely story"

    judged = detect_lines(exported / "discriminator", lines())
    assert next(judged)["text"] == "a lovely story"
    assert len(read) < 10


def standard_input(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_the_standard_input(exported, capsys, monkeypatch):
    words = ["detect", str(exported / "discriminator"), "--file", "-"]
    standard_input(monkeypatch, "\ufeffa film\r\n\n\u6f22\u5b57 was \U0001f642\n".encode())
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where a bar is shown: the answers are not for it
    assert main(words) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == ["a film", "", "\u6f22\u5b57 was \U0001f642"]
    assert [token["token"] for token in records[2]["tokens"]] == ["[UNK]", "[UNK]", "was", "[UNK]"]
    standard_input(monkeypatch, b"a film\n\xff\n")
    assert main(words) == 2
    assert "standard input: line 2 is not UTF-8" in capsys.readouterr().err


def test_what_is_no_text(exported):
    detector = Detector(exported / "discriminator")
    assert detector([]) == []
    for texts, message in (
        ("a film", "list of texts"),
        (["a", "\udc80"], "text 2 is not proper"),
        ([1], "of type int"),
    ):
        with pytest.raises(UserError, match=message):
            detector(texts)


@pytest.mark.parametrize(("count", "size"), [(0, 10), (5, 10), (10, 10), (11, 10), (37, 10), (100, 18), (101, 3)])
def test_windows_count_every_token_once(count, size):
    seen = []
    for start, keep in _windows(count, size):
        assert 0 <= keep.start <= keep.stop <= size
        seen += range(start + keep.start, start + keep.stop)
    assert seen == list(range(count))
