"""Words added to a vocabulary: old ids stay, the words come out whole, and what could never come up is refused."""

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from electra import cli
from electra.data.added_tokens import add_tokens
from electra.data.tokenizer import load_tokenizer, train_tokenizer
from electra.errors import UserError


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the chef cooked the meal and ate it with naive guests"] * 5, 70).save_pretrained(path)
    return path


def test_old_ids_stay_and_new_words_come_out_whole(source, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("covid\nchef\ntheremin\n##edly\n", encoding="utf-8")
    words = [str(source), str(tmp_path / "out"), "--words", str(tmp_path / "words.txt")]
    assert cli.main(["add-tokens", *words]) == 0
    assert "3 new word pieces, 1 were there" in capsys.readouterr().out
    old, new = load_tokenizer(source).get_vocab(), load_tokenizer(tmp_path / "out").get_vocab()
    assert {piece: new[piece] for piece in old} == old
    assert [new[word] - len(old) for word in ("covid", "theremin", "##edly")] == [0, 1, 2]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.tokenize("Covid, theremin chef") == [
        "covid",
        *load_tokenizer(source).tokenize(","),
        "theremin",
        "chef",
    ]
    assert tokenizer.tokenize("covidedly") == ["covid", "##edly"]


@pytest.mark.parametrize(
    ("word", "seen"), [("Covid", "covid"), ("naïve", "naive"), ("new york", "new york"), ("covid-19", "covid - 19")]
)
def test_a_word_that_could_never_come_up_is_refused(word, seen, source, tmp_path):
    with pytest.raises(UserError, match=f"can never come up: the tokenizer sees '{seen}'"):
        add_tokens(source, tmp_path / "out", [word])
    assert not (tmp_path / "out").exists()


def test_other_kinds_of_vocabulary_are_refused(tmp_path):
    import tokenizers

    specials = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(specials, unk_token="[UNK]"))
    names = {f"{name.strip('[]').lower()}_token": name for name in specials}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(tmp_path / "t")
    with pytest.raises(UserError, match="its vocabulary is WordLevel"):
        add_tokens(tmp_path / "t", tmp_path / "out", ["x"])
