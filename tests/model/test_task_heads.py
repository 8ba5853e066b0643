"""Heads over tokens: logits equal to transformers', the joint head against its definition, and the way through files."""

import dataclasses

import pytest
import torch
import transformers
from torch import nn

from conftest import small_model
from electra.data.tokenizer import train_tokenizer
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.hf_tasks import load_question_answerer, load_tagger, save_question_answerer, save_tagger
from electra.model.task_heads import JointSpanHead, PlainSpanHead, TokenHead

FAMILY = {"classic": "Electra", "modern": "ModernBert"}


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the chef cooked the meal and ate it"] * 5, 60).save_pretrained(path)
    return path


@pytest.fixture(params=["classic", "modern"])
def encoder(request):
    torch.manual_seed(0)
    return Encoder(dataclasses.replace(small_model(request.param).discriminator, vocab_size=60)).eval()


def batch(encoder):
    torch.manual_seed(1)
    ids_BL = torch.randint(5, 60, (3, 14))
    mask_BL = torch.ones(3, 14, dtype=torch.bool)
    mask_BL[1, 9:] = False
    types_BL = (torch.arange(14) > 5).long().expand(3, -1) if encoder.config.blocks == "classic" else None
    return ids_BL, mask_BL, types_BL


def theirs(encoder, kind, path):
    """The Hugging Face model of a directory; nothing may be missing in it or left over."""
    cls = getattr(transformers, f"{FAMILY[encoder.config.blocks]}For{kind}")
    model, info = cls.from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def their_inputs(ids_BL, mask_BL, types_BL):
    segments = {} if types_BL is None else {"token_type_ids": types_BL}
    return {"input_ids": ids_BL, "attention_mask": mask_BL.long()} | segments


def shaken(module):
    """Weights of some size everywhere, so that a forgotten one shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.randn_like(parameter) * 0.2
    return module.eval()


@torch.no_grad()
def test_a_tagger_equals_the_hugging_face_class_and_comes_back(encoder, tokenizer_dir, tmp_path):
    head = shaken(TokenHead(encoder.config, 3, dropout=0.1))
    inputs = batch(encoder)
    save_tagger(encoder, head, ["O", "B-X", "I-X"], tmp_path / "m")
    model = theirs(encoder, "TokenClassification", tmp_path / "m")
    assert model.config.id2label == {0: "O", 1: "B-X", 2: "I-X"}
    logits_BLC = head(encoder(*inputs))
    torch.testing.assert_close(model(**their_inputs(*inputs)).logits[inputs[1]], logits_BLC[inputs[1]])
    again, head_again, labels = load_tagger(tmp_path / "m")
    assert labels == ["O", "B-X", "I-X"]
    torch.testing.assert_close(head_again(again(*inputs)), logits_BLC)
    with pytest.raises(UserError, match="not a question answerer"):
        load_question_answerer(tmp_path / "m")


@torch.no_grad()
def test_the_plain_span_head_equals_the_hugging_face_class_and_comes_back(encoder, tmp_path):
    head = shaken(PlainSpanHead(encoder.config))
    inputs = batch(encoder)
    save_question_answerer(encoder, head, tmp_path / "m")
    model = theirs(encoder, "QuestionAnswering", tmp_path / "m")
    found = model(**their_inputs(*inputs))
    hidden_BLD = encoder(*inputs)
    start_BL, end_BL = head(hidden_BLD).unbind(-1)
    torch.testing.assert_close(found.start_logits[inputs[1]], start_BL[inputs[1]])
    torch.testing.assert_close(found.end_logits[inputs[1]], end_BL[inputs[1]])
    # Where every token may be an answer, the loss is theirs, too.
    start_B, end_B = torch.tensor([2, 0, 5]), torch.tensor([4, 0, 5])
    whole = {name: tensor for name, tensor in their_inputs(*inputs).items() if name != "attention_mask"}
    loss = model(**whole, start_positions=start_B, end_positions=end_B).loss
    hidden_BLD = encoder(inputs[0], None, inputs[2])
    ours_B = head.loss(hidden_BLD, torch.ones(3, 14, dtype=torch.bool), start_B, end_B, start_B == 0)
    torch.testing.assert_close(ours_B.mean(), loss)
    loaded, again = load_question_answerer(tmp_path / "m")
    torch.testing.assert_close(again(loaded.encoder(*inputs)), head(encoder(*inputs)))
    with pytest.raises(UserError, match="not a tagger"):
        load_tagger(tmp_path / "m")


def test_the_joint_head_is_what_its_definition_says(encoder, tmp_path):
    """Start and end probabilities by loops, with the matrix applied to [start; end] as the reference has it."""
    config = encoder.config
    head = shaken(JointSpanHead(config, answerability=True))
    torch.manual_seed(2)
    hidden_BLD = torch.randn(2, 6, config.hidden_size)
    allowed_BL = torch.tensor([[1, 0, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0]]).bool()
    gelu = nn.GELU()
    found = head.spans(hidden_BLD, allowed_BL, beam=3)
    start_B, end_B, impossible_B = torch.tensor([3, 0]), torch.tensor([5, 0]), torch.tensor([False, True])
    loss_B = head.loss(hidden_BLD, allowed_BL, start_B, end_B, impossible_B)
    for row, hidden_LD in enumerate(hidden_BLD):
        places = allowed_BL[row].nonzero().flatten().tolist()
        start = torch.full((6,), float("-inf"))
        start[places] = head.start(hidden_LD[places]).squeeze(-1)
        start_p = start.softmax(-1)

        def end_p(at, hidden_LD=hidden_LD, places=places):
            logits = torch.full((6,), float("-inf"))
            for place in places:
                logits[place] = head.end(gelu(head.hidden(torch.cat([hidden_LD[at], hidden_LD[place]]))))
            return logits.softmax(-1)

        weighted = (start_p[:, None] * hidden_LD).sum(0)
        no_answer = head.answerable(gelu(head.answerable_hidden(torch.cat([hidden_LD[0], weighted]))))[0]
        torch.testing.assert_close(found.no_answer_B[row], no_answer)
        best = sorted(places, key=lambda place: -start_p[place])[:3]
        assert found.start_at_BK[row].tolist() == best
        torch.testing.assert_close(found.start_BK[row].exp(), start_p[best])
        for k, at in enumerate(best):
            ends = found.end_at_BKK[row, k]
            torch.testing.assert_close(found.end_BKK[row, k].exp(), end_p(at)[ends])
            assert ends[0] == end_p(at).argmax()
        right = -(start_p[start_B[row]].log() + end_p(start_B[row])[end_B[row]].log()) / 2
        doubt = nn.functional.binary_cross_entropy_with_logits(no_answer, impossible_B[row].float())
        torch.testing.assert_close(loss_B[row], right + 0.5 * doubt)
    save_question_answerer(encoder, head, tmp_path / "m")
    _, again = load_question_answerer(tmp_path / "m")
    for ours, theirs_ in zip(again.spans(hidden_BLD, allowed_BL, 3), found, strict=True):
        torch.testing.assert_close(ours, theirs_)
    model, info = transformers.AutoModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not info["missing_keys"]
    inputs = batch(encoder)
    torch.testing.assert_close(
        model.eval()(**their_inputs(*inputs)).last_hidden_state[inputs[1]], encoder(*inputs)[inputs[1]]
    )


def test_the_plain_spans_are_the_likeliest(encoder):
    head = shaken(PlainSpanHead(encoder.config))
    hidden_BLD = torch.randn(2, 6, encoder.config.hidden_size)
    allowed_BL = torch.tensor([[1, 0, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0]]).bool()
    found = head.spans(hidden_BLD, allowed_BL, beam=2)
    start_BL, end_BL = head(hidden_BLD).unbind(-1)
    torch.testing.assert_close(found.no_answer_B, start_BL[:, 0] + end_BL[:, 0])
    for row in range(2):
        places = allowed_BL[row].nonzero().flatten().tolist()
        best = sorted(places, key=lambda place: -start_BL[row, place])[:2]
        assert found.start_at_BK[row].tolist() == best
        torch.testing.assert_close(found.start_BK[row], start_BL[row, best])
        best = sorted(places, key=lambda place: -end_BL[row, place])[:2]
        assert found.end_at_BKK[row].tolist() == [best, best]
