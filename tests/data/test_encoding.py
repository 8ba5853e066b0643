"""Looking words up gives what the library gives, on any text."""

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from electra.data import encoding as encoding_module
from electra.data.encoding import TextEncoder
from electra.data.tokenizer import SPECIAL_TOKENS, train_tokenizer

TEXTS = [
    "the chef cooked the soup, didn't he?",
    "Füße, naïve café: 東京 は 大きい",
    "the the the soup-chef e.g. 3.14 [MASK] ##s",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 150)


def encoder_of(tokenizer, dtype="<u2", by_word=True):
    encoder = TextEncoder(tokenizer.backend_tokenizer.to_str(), dtype)
    if not by_word:
        encoder.by_word = False
    return encoder


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=5))
@example(
    [
        "a\x1cb\x1d c\x0bd\x0ce",
        "a\u00a0b\u200bc\u2028d\u0085e\u3000f",
        "\u0301 \u0301e e\u0301\u0323",
        "ΑΣ ΑΣΑ İstanbul",
        "",
    ]
)
@example(
    ["x" * 200, "the\x00soup \ufffd \ue000", "[SEP][MASK] [PAD]", "\U0001f468\u200d\U0001f469 \U00020000\U00020001"]
)
def test_any_text(tokenizer, texts):
    encoder = encoder_of(tokenizer)
    assert encoder.by_word
    expected = [ids for ids, _ in encoder_of(tokenizer, by_word=False)(texts)]
    assert [ids for ids, _ in encoder(texts)] == expected
    assert [ids for ids, _ in encoder(texts)] == expected  # from memory


@pytest.mark.parametrize("keep_case", [False, True])
def test_a_full_memory(keep_case, monkeypatch):
    tokenizer = train_tokenizer(TEXTS, 150, lowercase=not keep_case)
    monkeypatch.setattr(encoding_module, "MAX_WORDS", 5)
    encoder, plain = encoder_of(tokenizer, "<u4"), encoder_of(tokenizer, "<u4", by_word=False)
    for text in TEXTS * 3:
        assert encoder([text, text.upper()]) == plain([text, text.upper()])
    assert len(encoder._known) <= 5
    ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert np.frombuffer(encoder([TEXTS[0]])[0][0], "<u4").tolist() == ids


def test_tokenizers_that_do_not_split_at_white_space_go_to_the_library(tokenizer):
    other = train_tokenizer(TEXTS, 150)
    other.add_tokens([AddedToken("the soup", normalized=True)])
    encoder = encoder_of(other)
    assert not encoder.by_word
    ((ids, words),) = encoder(["eat the soup"])
    assert np.frombuffer(ids, "<u2")[-1] == other.convert_tokens_to_ids("the soup")
    assert words == 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=5), st.booleans())
@example(["Straße STRASSE über 東京タワー", "don't stop, 3.14\x0bpi \x1c x\u00a0y\u0085z \u0301e"], True)
@example(["0⹃"], False)  # punctuation to newer Unicode tables than the library's
def test_a_vocabulary_is_the_library_s(texts, lowercase):
    """Counting words first gives what the library's trainer makes of the texts."""
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    # With more characters than the alphabet's limit the library drops some of equal count as its hash table has them.
    assume(len(set(normalizer.normalize_str("".join(texts)))) <= 40)
    ours = train_tokenizer(texts, 120, lowercase=lowercase).get_vocab()
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizer
    model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    named = [
        piece
        for piece, number in sorted(ours.items(), key=lambda item: item[1])
        if len(piece) == 3 and piece[:2] == "##"
    ]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=[*SPECIAL_TOKENS, *named], limit_alphabet=40, show_progress=False
    )
    model.train_from_iterator(texts, trainer)
    assert model.get_vocab() == ours
