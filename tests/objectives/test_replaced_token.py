"""The objective on a batch of ten tokens, small enough to work out by hand; and that gradients go where they should."""

import math

import pytest
import torch
from torch import nn

from conftest import small_model
from electra.config import EncoderConfig, ModelConfig, ObjectiveConfig
from electra.data.loader import Batch
from electra.data.tokenizer import SpecialIds
from electra.model.pair import Pair
from electra.objectives import OBJECTIVES, make_objective
from electra.objectives.base import Corrupted, Counts
from electra.objectives.replaced_token import put_samples

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCAB = 12
#        [CLS]                         [SEP] [PAD] [PAD]
TEXT = [2, 5, 6, 7, 8, 9, 10, 3, 0, 0]
MASKED_AT = [2, 4, 5]


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

    def __init__(self):
        super().__init__()
        table = torch.zeros(10, VOCAB)
        table[2, 6] = table[4, 11] = table[5, 9] = 50.0
        self.generator = FixedLogits(table)
        self.generator_head = AnswerHead()
        self.discriminator = FixedLogits(torch.arange(10).float() / 10)
        self.discriminator_head = nn.Identity()


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


def electra(**changes):
    return make_objective(ObjectiveConfig(**changes), vocab_size=VOCAB, special=SPECIAL, seed=0)


def test_ten_tokens_by_hand():
    pair, corrupted = HandMadePair(), hand_made()
    output = electra().step(pair, corrupted, corrupted.counts)
    # The generator saw [MASK]s, the discriminator the samples: 6 (right), 11 (wrong), 9 (right).
    assert pair.generator.seen.tolist() == [[2, 5, 4, 7, 4, 4, 10, 3, 0, 0]]
    assert pair.discriminator.seen.tolist() == [[2, 5, 6, 7, 11, 9, 10, 3, 0, 0]]
    # MLM: -log p is 50 at the wrong one and 0 at the right ones.
    generator_sum, masked = output.sums["generator_loss"]
    assert (generator_sum.item(), masked) == (pytest.approx(50.0), 3)
    # Real tokens are at 1..6; only position 4 is replaced. A right sample counts as original.
    bce = sum(math.log1p(math.exp(x / 10)) for x in (1, 2, 3, 5, 6)) + math.log1p(math.exp(-0.4))
    discriminator_sum, scored = output.sums["discriminator_loss"]
    assert (discriminator_sum.item(), scored) == (pytest.approx(bce, rel=1e-6), 6)
    assert output.loss.item() == pytest.approx(50.0 / 3 + 50.0 * bce / 6, rel=1e-6)
    assert output.sums["replaced_share"][0].item() == 1
    assert output.sums["generator_accuracy"][0].item() == 2
    assert output.histograms["discriminator"].sum(1).tolist() == [5, 1]


def test_weights_of_the_losses():
    pair, corrupted = HandMadePair(), hand_made()
    loss = electra(generator_weight=2.0, discriminator_weight=0.0).step(pair, corrupted, corrupted.counts).loss
    assert loss.item() == pytest.approx(100.0 / 3)


def test_a_sample_equal_to_the_original_is_original():
    corrupted = hand_made()
    replaced_ids, is_replaced = put_samples(corrupted, torch.tensor([6, 8, 9]))
    assert torch.equal(replaced_ids, corrupted.input_ids)
    assert not is_replaced.any()


def real_batch(num_rows=4, length=16):
    ids = torch.randint(5, VOCAB, (num_rows, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    zeros = torch.zeros(num_rows, dtype=torch.long)
    return Batch(input_ids=ids, attention_mask=None, token_type_ids=None, row_ids=torch.arange(num_rows), epochs=zeros)


def real_pair(blocks, tying="embeddings"):
    torch.manual_seed(0)
    config = small_model(blocks, dropout=0.0)
    encoder = EncoderConfig(**{**vars(config.discriminator), "vocab_size": VOCAB})
    return Pair(ModelConfig(discriminator=encoder, generator=config.generator, tying=tying))


@pytest.mark.parametrize("blocks", ["classic", "modern"])
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
class TestEveryObjective:
    def test_micro_batches_give_the_gradient_of_the_whole_batch(self, name, blocks):
        objective = make_objective(ObjectiveConfig(name=name), vocab_size=VOCAB, special=SPECIAL, seed=0)
        batch, gradients = real_batch(), []
        for size in (4, 1):
            pair = real_pair(blocks)
            parts = [objective.corrupt(part) for part in batch.split(size)]
            counts = Counts(
                sum(part.counts.num_masked for part in parts), sum(part.counts.num_scored for part in parts)
            )
            for part in parts:
                objective.step(pair, part, counts).loss.backward()
            gradients.append({n: p.grad for n, p in pair.named_parameters()})
        for parameter in gradients[0]:
            torch.testing.assert_close(gradients[0][parameter], gradients[1][parameter], atol=1e-6, rtol=1e-4)

    def test_one_batch_can_be_learned_by_heart(self, name, blocks):
        config = ObjectiveConfig(name=name, discriminator_weight=1.0)
        objective = make_objective(config, vocab_size=VOCAB, special=SPECIAL, seed=0)
        pair = real_pair(blocks)
        corrupted = objective.corrupt(real_batch())
        optimizer = torch.optim.AdamW(pair.parameters(), lr=2e-2)
        losses = []
        for _ in range(150):
            output = objective.step(pair, corrupted, corrupted.counts)
            optimizer.zero_grad()
            output.loss.backward()
            optimizer.step()
            losses.append(output.sums["generator_loss"][0].item() / corrupted.counts.num_masked)
        assert losses[-1] < 0.2 < 2.0 < losses[0]


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_the_discriminator_loss_never_reaches_the_generator(blocks):
    pair = real_pair(blocks, tying="none")
    corrupted = electra().corrupt(real_batch())
    electra(generator_weight=0.0).step(pair, corrupted, corrupted.counts).loss.backward()
    for name, parameter in pair.named_parameters():
        reached = parameter.grad is not None and parameter.grad.abs().sum() > 0
        if name.startswith("generator"):
            assert not reached, name
    assert pair.discriminator.embeddings.tokens.weight.grad.abs().sum() > 0


def test_unknown_objective_names_the_nearest():
    with pytest.raises(Exception, match=r"'electro'.*'electra'"):
        electra(name="electro")
