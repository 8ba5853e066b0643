"""A batch of ten tokens with networks that answer from a table, small enough to work out by hand; and a real pair and batch."""

import torch
from torch import nn

from conftest import small_model
from electra.config import EncoderConfig, GeneratorConfig, ModelConfig, ObjectiveConfig
from electra.data.loader import Batch
from electra.data.tokenizer import SpecialIds
from electra.model.pair import Parts
from electra.objectives import make_objective, make_pair
from electra.objectives.base import Corrupted, Counts

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCAB = 12
#        [CLS]                         [SEP] [PAD] [PAD]
TEXT = [2, 5, 6, 7, 8, 9, 10, 3, 0, 0]
MASKED_AT = [2, 4, 5]
MASKED_TEXT = [2, 5, 4, 7, 4, 4, 10, 3, 0, 0]
REPLACED_TEXT = [2, 5, 6, 7, 11, 9, 10, 3, 0, 0]
"""What the hand-made generator makes of it: right at 2 and 5, wrong at 4."""


class FixedLogits(nn.Module):
    """A network that answers with a table, so that losses and samples are known beforehand."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(table)
        self.seen = None

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, at_BK=None):
        self.seen = input_ids.clone()
        return self.table[None] if at_BK is None else self.table[at_BK]


class AnswerHead(nn.Module):
    """Passes the table's rows on as logits: multiplied with the identity."""

    def __init__(self):
        super().__init__()
        self.decoder_weight = nn.Parameter(torch.eye(VOCAB))
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, hidden):
        return hidden


class HandMadePair(nn.Module):
    """Generator: sure of 6 at position 2 (right), of 11 at 4 (wrong), of 9 at 5 (right). Discriminator: logits 0..9 / 10."""

    parts = Parts()

    def __init__(self):
        super().__init__()
        table = torch.zeros(10, VOCAB)
        table[2, 6] = table[4, 11] = table[5, 9] = 50.0
        self.generator = FixedLogits(table)
        self.generator_head = AnswerHead()
        self.discriminator = FixedLogits(torch.arange(10).float() / 10)
        self.discriminator_head = nn.Identity()


class TokenPair(HandMadePair):
    """The main network predicts tokens: token 5 + position has logit 3 everywhere, all others 0. Copy logits 0..9 / 10."""

    def __init__(self):
        super().__init__()
        table = torch.zeros(10, VOCAB)
        table[torch.arange(7), 5 + torch.arange(7)] = 3.0
        self.discriminator = FixedLogits(table)
        self.vocabulary_head = AnswerHead()
        self.copy_head = FixedCopy()


class FixedCopy(nn.Module):
    def forward(self, hidden_BLD):
        return (torch.arange(10).float() / 10)[None]


def hand_made() -> Corrupted:
    ids = torch.tensor([TEXT])
    masked = ids.clone()
    masked[0, MASKED_AT] = SPECIAL.mask
    return Corrupted(
        input_ids=ids,
        masked_ids=masked,
        attention_mask=ids != 0,
        token_type_ids=None,
        scored=(ids > 4),
        positions=torch.tensor(MASKED_AT),
        columns=torch.tensor([MASKED_AT]),
        filled=torch.arange(3),
        labels=torch.tensor([6, 8, 9]),
        uniforms=torch.full((3,), 0.5),
        counts=Counts(num_masked=3, num_scored=6),
    )


def objective(name="electra", **changes):
    return make_objective(ObjectiveConfig(name=name, **changes), vocab_size=VOCAB, special=SPECIAL, seed=0)


def real_batch(num_rows=4, length=16):
    ids = torch.randint(5, VOCAB, (num_rows, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    zeros = torch.zeros(num_rows, dtype=torch.long)
    return Batch(input_ids=ids, attention_mask=None, token_type_ids=None, row_ids=torch.arange(num_rows), epochs=zeros)


def real_pair(blocks, name="electra", tying="embeddings", **changes):
    """A generator of half the width, or for two-stage of the same size."""
    torch.manual_seed(0)
    config = small_model(blocks, dropout=0.0)
    encoder = EncoderConfig(**{**vars(config.discriminator), "vocab_size": VOCAB})
    generator = GeneratorConfig(width=1.0) if name == "two-stage" else config.generator
    pair = make_pair(
        ModelConfig(discriminator=encoder, generator=generator, tying=tying), ObjectiveConfig(name=name, **changes)
    )
    if pair.parts.frequencies:
        pair.frequencies.set((torch.arange(VOCAB) > SPECIAL.mask).float())
    return pair
