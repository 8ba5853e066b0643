"""From files of every kind to a store that holds all of the text; and what cannot be prepared is said in one line."""

import builtins
import errno
import gzip
import json
import lzma
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from transformers import AutoTokenizer

from electra.data import prepare as prepare_module
from electra.data import text as text_module
from electra.data.prepare import prepare
from electra.data.shards import StoreWriter, TokenStore
from electra.data.text import ReadOptions, find_sources, read_pieces
from electra.data.tokenizer import load_tokenizer, special_ids, tokenizer_hash, train_tokenizer
from electra.errors import UserError

DOCUMENTS = [["The chef cooked.", "It was good."], ["Another one."]]


def documents_of(path, **options):
    found = []
    for source in find_sources([path]):
        for piece in read_pieces(source, ReadOptions(**options)):
            if piece.starts_document:
                found.append([])
            if piece.starts_line:
                found[-1].append("")
            found[-1][-1] += piece.text
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
def test_text_files_with_any_line_end_and_chunk_border(tmp_path, monkeypatch, end, chunk):
    monkeypatch.setattr(text_module, "_CHUNK", chunk)
    path = tmp_path / "a.txt"
    text = "\ufeff\nThe chef cooked.\nIt was good.\n\n\n  \nAnother öne €.\n"
    path.write_bytes(text.replace("\n", end).encode("utf-8"))
    assert documents_of(path) == [["The chef cooked.", "It was good."], ["Another öne €."]]
    assert len(documents_of(path, one_document_per_line=True)) == 3


def write(path, records):
    texts = ["\n".join(lines) for lines in records]
    if path.name.startswith("t.parquet"):
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
        return
    kind = path.name.split(".")[1]
    if kind == "txt":
        content = "\n\n".join(texts)
    elif kind == "jsonl":
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    else:
        content = "id,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts))
    opener = {".gz": gzip.open, ".xz": lzma.open, ".zst": zstandard.open}.get(path.suffix, builtins.open)
    with opener(path, "wb") as file:
        file.write(content.encode())


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv"])
@pytest.mark.parametrize("packed", ["", ".gz", ".xz", ".zst"])
def test_kinds_and_compressions(tmp_path, kind, packed):
    path = tmp_path / f"t.{kind}{packed}"
    write(path, DOCUMENTS)
    assert documents_of(path) == DOCUMENTS


def test_parquet_and_directories(tmp_path):
    write(tmp_path / "t.parquet", DOCUMENTS)
    write(tmp_path / "t.txt", DOCUMENTS)
    (tmp_path / "readme.md").write_text("not text to train on")
    assert documents_of(tmp_path) == DOCUMENTS * 2


def test_a_hub_data_set_is_loaded_by_the_datasets_library(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "t.parquet", DOCUMENTS)
    assert documents_of(f"hf:{tmp_path / 'data'}") == DOCUMENTS


def test_a_line_of_any_length_is_kept_whole(tmp_path):
    words = " ".join(f"word{i}" for i in range(40_000))
    (tmp_path / "long.txt").write_text(words + "x" * 130_000)
    (document,) = documents_of(tmp_path / "long.txt")
    assert document == [words + "x" * 130_000]


@pytest.mark.parametrize("chunk", [1, 4, 5, 1 << 20])
def test_bytes_that_are_not_utf8(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(text_module, "_CHUNK", chunk)
    path = tmp_path / "bad.txt"
    path.write_bytes("ab€".encode() + b"\xff" + b"cd\n")
    with pytest.raises(UserError, match=r"bad\.txt: byte 5 is not UTF-8"):
        documents_of(path)
    assert documents_of(path, invalid_utf8="replace") == [["ab€\ufffdcd"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"id,body\n1,x\n", r"has no column 'text'; it has 'id', 'body'"),
        ("a.jsonl", b'{"body": "x"}\n', r"has no column 'text'; it has 'body'"),
        ("a.jsonl", b"{oops\n", "line 1 is not JSON"),
        ("a.jsonl", b'{"text": 5}\n', "holds int, not text"),
        ("a.csv", b'text\n"open\n', "not proper CSV"),
        ("a.txt.gz", gzip.compress(b"hello " * 5000, mtime=0)[:60], "damaged or cut off"),
        ("a.parquet", b"PAR1 not really", "damaged or cut off"),
        ("a.txt", b"\n \n", "no text"),
        ("a.docx", b"x", "unknown kind of file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        prepare([tmp_path / name], tmp_path / "store", vocab_size=50, quiet=True)
    assert not (tmp_path / "store").exists()
    assert not list(tmp_path.glob(".store*"))


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.txt: no such file"):
        prepare([tmp_path / "nowhere.txt"], tmp_path / "store", quiet=True)


def test_the_store_holds_all_of_the_text(tmp_path, corpus_file, store):
    opened = TokenStore.open(store)
    opened.verify()
    tokenizer = AutoTokenizer.from_pretrained(opened.tokenizer_dir)
    expected = []
    for document in corpus_file.read_text().strip().split("\n\n"):
        for line in document.split("\n"):
            expected += tokenizer(line, add_special_tokens=False)["input_ids"]
        expected.append(tokenizer.sep_token_id)
    assert opened.tokens.tolist() == expected
    assert opened.tokens.dtype == np.uint16
    assert len(opened.document_starts) == opened.manifest["documents"] == 200
    assert len(opened.line_starts) == opened.manifest["lines"] == 2000
    assert special_ids(tokenizer) == opened.special


def test_a_literal_mask_in_the_text_is_text(tmp_path, store):
    (tmp_path / "a.txt").write_text("the [MASK] and the [SEP] ate the soup")
    prepare([tmp_path / "a.txt"], tmp_path / "s", vocab=store / "tokenizer", quiet=True)
    opened = TokenStore.open(tmp_path / "s")
    assert opened.special.mask not in opened.tokens
    assert opened.tokens.tolist().count(opened.special.sep) == 1


def test_case_and_accents_are_separate_choices():
    texts = ["Über Éclair über éclair uber eclair UBER"] * 3
    pieces = {}
    for lowercase in (True, False):
        for strip in (True, False):
            tokenizer = train_tokenizer(texts, 90, lowercase=lowercase, strip_accents=strip)
            pieces[lowercase, strip] = "".join(tokenizer.tokenize("Über")).replace("##", "")
    assert pieces == {(True, True): "uber", (True, False): "über", (False, True): "Uber", (False, False): "Über"}


def test_vocabularies_that_do_not_serve(tmp_path, corpus_file):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    with pytest.raises(UserError, match=r"lacks \[MASK\]"):
        prepare([corpus_file], tmp_path / "s", vocab=tmp_path / "vocab.txt", quiet=True)
    with pytest.raises(UserError, match="no such vocabulary"):
        load_tokenizer(tmp_path / "none.txt")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nchef\n")
    assert load_tokenizer(tmp_path / "vocab.txt")("The chef")["input_ids"] == [2, 5, 6, 3]


def test_what_is_there_already_is_kept(tmp_path, corpus_file, store):
    before = TokenStore.open(store).fingerprint
    with pytest.raises(UserError, match="holds a token store already"):
        prepare([corpus_file], store, vocab=store / "tokenizer", quiet=True)
    other = tmp_path / "vocab.txt"
    other.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    with pytest.raises(UserError, match="made by another tokenizer"):
        prepare([corpus_file], store, vocab=other, quiet=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("x")
    with pytest.raises(UserError, match="no token store"):
        prepare([corpus_file], tmp_path / "thesis", vocab_size=50, quiet=True)
    assert TokenStore.open(store).fingerprint == before


def test_torn_stores_are_refused(tmp_path, corpus_file):
    prepare([corpus_file], tmp_path / "s", vocab_size=80, quiet=True)
    tokens = tmp_path / "s" / "tokens.bin"
    whole = tokens.read_bytes()
    tokens.write_bytes(whole[:-2])
    with pytest.raises(UserError, match=r"tokens\.bin has"):
        TokenStore.open(tmp_path / "s")
    tokens.write_bytes(b"\0\0" + whole[2:])
    with pytest.raises(UserError, match=r"tokens\.bin is damaged"):
        TokenStore.open(tmp_path / "s").verify()
    (tmp_path / "s" / "manifest.json").unlink()
    with pytest.raises(UserError, match="not a complete token store"):
        TokenStore.open(tmp_path / "s")


def test_a_full_disk_leaves_nothing_that_opens(tmp_path, corpus_file, monkeypatch):
    def full(self, index, values):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(StoreWriter, "_write", full)
    with pytest.raises(UserError, match="No space left on device"):
        prepare([corpus_file], tmp_path / "s", vocab_size=80, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_held_out_documents_are_the_same_ones_and_in_one_store_only(tmp_path, corpus_file, store):
    for name in ("a", "b"):
        prepare([corpus_file], tmp_path / name, vocab=store / "tokenizer", heldout_share=0.2, quiet=True)
    first, second = (TokenStore.open(tmp_path / f"{name}-heldout") for name in ("a", "b"))
    assert first.tokens.tolist() == second.tokens.tolist()
    assert 10 < first.manifest["documents"] < 120
    whole = TokenStore.open(store).manifest
    rest = TokenStore.open(tmp_path / "a").manifest
    assert first.manifest["tokens"] + rest["tokens"] == whole["tokens"]


def test_the_same_text_gives_the_same_vocabulary_in_another_process(tmp_path, corpus_file):
    """The trainer of the library numbers pieces by a hash table that differs from process to process."""
    program = (
        "import sys; from electra.data.tokenizer import train_tokenizer, tokenizer_hash; "
        "print(tokenizer_hash(train_tokenizer(open(sys.argv[1]).read().split('\\n'), 90)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(corpus_file)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    found.add(tokenizer_hash(train_tokenizer(corpus_file.read_text().split("\n"), 90)) + "\n")
    assert len(found) == 1


# ----------------------------------------------------------------------------------------------- duplicates and order


def texts_of(path):
    """The documents of a store as words, in the store's order."""
    store = TokenStore.open(path)
    tokenizer = load_tokenizer(store.tokenizer_dir)
    ends = [*store.document_starts[1:], len(store.tokens)]
    return [tokenizer.decode(store.tokens[a : b - 1]) for a, b in zip(store.document_starts, ends, strict=True)]


def with_duplicates(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    long = "the quick brown fox jumps over the lazy dog while the other animals watch from the hill and say nothing"
    first.write_text(f"one two\nthree\n\n{long}\n\none two three\n")
    second.write_text(f"  one two \r\nthree\n\nsomething else\n\n{long} today\n")
    return [first, second], long


@pytest.mark.parametrize(
    ("options", "kept", "counts"),
    [
        ({}, [0, 1, 2, 3, 4, 5], (0, 0)),
        ({"deduplicate": "exact"}, [0, 1, 2, 4, 5], (1, 0)),  # 2 has other lines than 0
        ({"deduplicate": "near"}, [0, 1, 4], (1, 2)),
        ({"deduplicate": "near", "similarity": 1.0}, [0, 1, 4, 5], (1, 1)),
    ],
)
def test_duplicates_are_left_out(tmp_path, options, kept, counts):
    files, long = with_duplicates(tmp_path)
    texts = ["one two three", long, "one two three", "one two three", "something else", f"{long} today"]
    report = prepare(files, tmp_path / "store", vocab_size=120, quiet=True, **options)
    assert texts_of(tmp_path / "store") == [texts[index] for index in kept]
    assert (report.exact_duplicates, report.near_duplicates) == counts
    assert report.documents == len(kept)
    said = str(report).replace("\n", " ")
    assert (f"and {counts[1]} near" in said, f"left out: {counts[0]} exact" in said) == (counts[1] > 0, counts[0] > 0)


def test_no_held_out_document_has_a_twin(tmp_path):
    lines = [f"document number {n % 40} says so" for n in range(400)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    options = {"one_document_per_line": True, "heldout_share": 0.3, "deduplicate": "exact", "quiet": True}
    report = prepare([tmp_path / "lines.txt"], tmp_path / "store", vocab_size=100, **options)
    kept, held = texts_of(tmp_path / "store"), texts_of(tmp_path / "store-heldout")
    assert (len(kept) + len(held), report.exact_duplicates) == (40, 360)
    assert not set(kept) & set(held)


def test_near_duplicates_need_a_library(tmp_path, corpus_file, monkeypatch):
    real_import = builtins.__import__
    monkeypatch.setattr(
        builtins,
        "__import__",
        lambda name, *a: (_ for _ in ()).throw(ImportError()) if name == "datasketch" else real_import(name, *a),
    )
    with pytest.raises(UserError, match=r"needs the datasketch library \(pip install"):
        prepare([corpus_file], tmp_path / "store", vocab_size=100, deduplicate="near", quiet=True)
    assert not list(tmp_path.glob(".*"))


def test_shuffled_documents_are_whole_and_of_all_files(tmp_path, corpus_file):
    half = corpus_file.read_text().split("\n\n")
    (tmp_path / "a.txt").write_text("\n\n".join(half[:20]))
    (tmp_path / "b.txt").write_text("\n\n".join(half[20:40]))
    inputs = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for name, options in {"plain": {}, "one": {"seed": 1}, "again": {"seed": 1}, "two": {"seed": 2}}.items():
        prepare(inputs, tmp_path / name, vocab_size=100, shuffle=name != "plain", quiet=True, **options)
    plain, one, two = (texts_of(tmp_path / name) for name in ("plain", "one", "two"))
    assert sorted(plain) == sorted(one) == sorted(two)
    assert plain != one != two
    assert len({text in plain[:20] for text in one[:20]}) == 2  # both files in the first half
    stores = {name: TokenStore.open(tmp_path / name) for name in ("plain", "one", "again")}
    assert stores["one"].fingerprint == stores["again"].fingerprint
    stores["one"].verify()
    for store in stores.values():  # ten lines in each document, each beginning with its first word
        assert np.array_equal(store.line_starts[::10], store.document_starts)
        assert len(set(store.tokens[store.line_starts].tolist())) == 1
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        path.name for path in (tmp_path / "plain").iterdir()
    }


def test_the_store_is_the_same_with_any_number_of_workers(tmp_path, corpus_file, monkeypatch):
    monkeypatch.setattr(prepare_module, "_BATCH_CHARACTERS", 2000)
    monkeypatch.setattr(prepare_module, "_LITTLE", 0)
    options = {"vocab_size": 90, "heldout_share": 0.2, "deduplicate": "near", "shuffle": True, "quiet": True}
    found = set()
    for workers in (0, 2, None):
        prepare([corpus_file], tmp_path / f"{workers}", num_workers=workers, **options)
        stores = (TokenStore.open(tmp_path / name) for name in (f"{workers}", f"{workers}-heldout"))
        found.add(tuple(store.fingerprint for store in stores))
    assert len(found) == 1


def test_ctrl_c_leaves_nothing_behind(tmp_path, corpus_file, monkeypatch):
    def pressed(self, pieces):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoreWriter, "add", pressed)
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        prepare(
            [corpus_file],
            tmp_path / "out" / "s",
            vocab_size=80,
            shuffle=True,
            deduplicate="near",
            num_workers=2,
            quiet=True,
        )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": 80}, "similarity is 80"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"heldout_share": 1}, "heldout"),
    ],
)
def test_settings_that_cannot_be(tmp_path, corpus_file, options, message):
    with pytest.raises(UserError, match=message):
        prepare([corpus_file], tmp_path / "s", **options)


def test_half_a_character_in_json(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a \\ud800 b \\ud83d\\ude00"}\n')
    assert documents_of(tmp_path / "a.jsonl") == [["a \ufffd b \U0001f600"]]
