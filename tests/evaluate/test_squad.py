"""SQuAD files, windows and offsets, and the official scores."""

import json

import numpy as np
import pytest
import torch

from electra.data.tokenizer import train_tokenizer
from electra.errors import UserError
from electra.evaluate.question_windows import cut, encode_questions
from electra.evaluate.squad import (
    Question,
    best_over_answers,
    exact_match,
    normalized,
    read_squad,
    squad_scores,
    token_f1,
)


def squad(path, context, *questions):
    """A file with one text; each question is (answers with their places, the rest of its entry)."""
    entries = [
        {
            "id": f"q{i}",
            "question": f"who {i}?",
            "answers": [{"text": t, "answer_start": s} for t, s in answers],
            **more,
        }
        for i, (answers, more) in enumerate(questions)
    ]
    content = {"version": "2", "data": [{"title": "x", "paragraphs": [{"context": context, "qas": entries}]}]}
    path.write_text(json.dumps(content))
    return path


def test_reads_answers_where_they_are(tmp_path):
    context = "The cat saw the cat. A dog saw it."
    path = squad(
        tmp_path / "a.json",
        context,
        ([("The cat", 0), ("dog", 23)], {}),
        ([("the cat", 9)], {}),  # stands at 12, three further on (and, in capitals, at 0)
        ([("elephant", 0)], {}),
        ([], {"is_impossible": True, "plausible_answers": [{"text": "dog", "answer_start": 23}]}),
    )
    found = read_squad(path)
    assert [question.span for question in found.questions] == [(0, 7), (12, 19), None, None]
    assert [question.impossible for question in found.questions] == [False, False, False, True]
    assert found.questions[0].answers == ("The cat", "dog")
    assert (found.corrected, found.not_found) == (1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n {,', r"line 2, column 3: not valid JSON"),
        ("[]", "is a list, not an object"),
        ("{}", "has no 'data'"),
        ('{"data": []}', "holds no questions"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\]: has no 'context'"),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 3}]}]}]}', r"qas\[0\]: 'id' is a int, not a str"),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1", "question": "", "answers": [{"text": "a"}]}]}]}]}',
            r"qas\[0\].answers\[0\]: has no 'answer_start'",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_squad(tmp_path / "a.json")


def test_normalisation_exact_match_and_f1_of_the_script():
    assert normalized("The  Cat's, an (old) a-team!") == "cats old ateam"
    assert normalized("a theory") == "theory"
    assert exact_match("the Normans", "Normans.") == 1.0
    # gold: 10th and 11th centuries; said: in the 10th century -> 1 common word of 3 said and 4 gold
    assert token_f1("10th and 11th centuries", "in the 10th century") == pytest.approx(
        2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4)
    )
    assert token_f1("cat cat dog", "cat cat cat") == pytest.approx(
        2 / 3
    )  # common words are counted as often as both have them
    assert token_f1("cat", "dog") == 0.0
    assert token_f1("", "") == 1.0
    assert token_f1("", "dog") == 0.0
    question = Question("1", "", "", ("a dog", "big dog", "the"), None)
    assert best_over_answers(question, "the big dog") == (1.0, 1.0)
    assert best_over_answers(question, "dog big red") == (0.0, pytest.approx(0.8))
    assert best_over_answers(Question("1", "", "", (), None), "") == (1.0, 1.0)
    assert best_over_answers(Question("1", "", "", (), None), "x") == (0.0, 0.0)


def test_scores_with_and_without_answers_at_a_fixed_and_at_the_best_threshold():
    questions = [
        Question("right", "", "", ("cat",), None),
        Question("half", "", "", ("big dog",), None),
        Question("none", "", "", (), None),
        Question("other", "", "", (), None),
    ]
    predicted = {"right": "cat", "half": "dog", "none": "cow", "other": "hen"}
    no_answer = {"right": 0.1, "half": 0.6, "none": 0.3, "other": 0.9}
    scores = squad_scores(questions, predicted, no_answer, threshold=0.5)
    # Above 0.5 nothing is answered: half counts as none given (0), other as right; none is answered and wrong.
    assert scores["exact_match"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert scores["f1"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert (scores["answerable_f1"], scores["unanswerable_f1"]) == (0.5, 0.5)
    # All refused: 2 right. From the surest on: +1 (right) -1 (none) +2/3 (half) -1 (other): best after the first.
    assert (scores["best_f1"], scores["best_f1_threshold"]) == (0.75, 0.1)
    assert (scores["best_exact_match"], scores["best_exact_match_threshold"]) == (0.75, 0.1)
    # Without unanswerable questions (1.1) there is nothing to refuse.
    assert squad_scores(questions[:2], predicted, no_answer, 0.5) == {
        "exact_match": 0.5,
        "f1": pytest.approx((1 + 2 / 3) / 2),
    }


CONTEXT = "Zoë's CAFÉ (1895–1943) served the chef in the big old town, and the Crème brûlée was cooked for the king."


def encoded(questions, tokenizer, **changes):
    settings = {"max_length": 24, "max_question_length": 4, "stride": 6, "with_types": True} | changes
    return encode_questions(questions, tokenizer, **settings)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([CONTEXT, "who was cooked for the king and what"] * 3, 150)


def test_answers_come_back_from_the_original_text(tokenizer):
    answers = ["Zoë", "CAFÉ", "1895", "Crème brûlée", "king"]
    questions = [
        Question(
            str(i),
            "who was cooked for the king?",
            CONTEXT,
            (text,),
            (CONTEXT.index(text), CONTEXT.index(text) + len(text)),
        )
        for i, text in enumerate(answers)
    ]
    windows = encoded(questions, tokenizer)
    starts, ends = windows.targets(questions)
    found = [set() for _ in questions]
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        ids = windows.texts.ids[row]
        assert len(ids) <= 24
        assert windows.text_at[row] == 6  # [CLS], four pieces of the question, [SEP]
        assert windows.texts.types[row] == [0] * 6 + [1] * (len(ids) - 6)
        if start:
            pieces = windows.offsets[row][[start - 6, end - 6]]
            found[windows.question[row]].add(cut(CONTEXT, pieces[0, 0], pieces[1, 1]))
    assert found == [{text} for text in answers]


def test_each_piece_may_start_an_answer_in_one_window_only(tokenizer):
    question = Question("1", "who", CONTEXT, (), None)
    windows = encoded([question], tokenizer, with_types=False)
    assert windows.texts.types is None
    assert len(windows.texts) > 2
    starts = np.concatenate([offsets[mine, 0] for offsets, mine in zip(windows.offsets, windows.mine, strict=True)])
    every = tokenizer(CONTEXT, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert sorted(starts.tolist()) == [start for start, _ in every]
    allowed_BL = windows.allowed(np.array([0]), 30, torch.device("cpu"))
    count = len(windows.offsets[0])
    assert allowed_BL[0].nonzero().flatten().tolist() == [0, *range(3, 3 + count)]


def test_an_accent_of_its_own_belongs_to_the_answer():
    assert cut("cafe\u0301 x", 0, 4) == "cafe\u0301"
