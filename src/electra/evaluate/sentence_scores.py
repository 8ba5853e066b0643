"""How natural a network finds a sentence: one number each, the higher the more natural. No labels are needed.

    discriminator    sum over the word pieces of log(1 - p_replaced); one pass
    pll              sum of log P(piece | all the others), one mask a piece (Salazar et al. 2020, "Masked language model scoring")
    pll-within-word  the same, but with a piece the later pieces of its word are masked, too, which else give rare words of
                     several pieces away (Kauf and Ivanova 2023, "A better way to do masked language model scoring")

Sentences of one length go together, so nothing is ever padded, and a sentence that comes twice is scored once: equal sentences
have equal scores to the last bit, and are ties.

Shapes: B batch, L length with special tokens, P word pieces, S sentences, V vocabulary.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from electra.errors import UserError
from electra.evaluate.batching import tokens_at_once
from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead, ReplacedTokenHead

Progress = Callable[[int], None]
"""Called with the number of further sentences scored."""
Scorer = Callable[[Any, Any, Sequence[str], Progress], NDArray[np.float64]]
"""(network, tokenizer, sentences, progress) -> one number a sentence, the higher the more natural."""
MOST_UNKNOWN = 0.5
"""With a larger share of unknown pieces, the text is in a script or language that the vocabulary is not of."""


class Discriminator(nn.Module):
    """Encoder and replaced-token head as one network: ids [B, L] -> logits [B, L]. The weights stay shared."""

    def __init__(self, encoder: Encoder, head: ReplacedTokenHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids_BL: Tensor) -> Tensor:
        return self.head(self.encoder(ids_BL))


class MaskedLM(nn.Module):
    """Encoder and vocabulary head as one network: ids [B, L] and one place in each row [B] -> logits there [B, V]."""

    def __init__(self, encoder: Encoder, head: GeneratorHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids_BL: Tensor, at_B: Tensor) -> Tensor:
        return self.head.logits(self.encoder(ids_BL, at_BK=at_B[:, None]).squeeze(1))


def silent(count: int) -> None:
    """The progress that nobody watches."""


@torch.inference_mode()
def naturalness(
    network: nn.Module, tokenizer: Any, sentences: Sequence[str], progress: Progress = silent
) -> NDArray[np.float64]:
    """Sum over each sentence's word pieces of log(1 - p_replaced), [CLS] and [SEP] apart.

    `network` gives logits [B, L] of ids, as `Discriminator` does. Raises UserError for a sentence that is longer than its
    position table, and for sentences that its vocabulary does not know.
    """
    device = _device(network)
    scores = np.zeros(len(sentences))
    with _evaluating(network):
        for group in _groups(network, tokenizer, sentences):
            for part_SP, which in zip(
                *(values.split(_rows_at_once(device, group.length)) for values in (group.ids_SP, group.which_S)),
                strict=True,
            ):
                logits_BP = network(_framed(part_SP, tokenizer).to(device))[:, 1:-1].double()
                group.put(scores, which, F.logsigmoid(-logits_BP).sum(dim=1), progress)
    return scores


@torch.inference_mode()
def pseudo_log_likelihood(
    network: nn.Module,
    tokenizer: Any,
    sentences: Sequence[str],
    progress: Progress = silent,
    *,
    within_word: bool = False,
) -> NDArray[np.float64]:
    """Sum over each sentence's word pieces of log P(piece | the rest), with the piece masked; one row a piece.

    With `within_word` the later pieces of its word are masked, too. Words are those of the tokenizer's splitter, so that
    punctuation is a word of its own. `network` gives logits [B, V] of ids and places, as `MaskedLM` does: the softmax is taken
    at the masked place only. Raises UserError as `naturalness`.
    """
    device = _device(network)
    scores = np.zeros(len(sentences))
    with _evaluating(network):
        for group in _groups(network, tokenizer, sentences):
            rows = max(1, _rows_at_once(device, group.length) // max(1, group.length))
            for part_SP, words_SP, which in zip(
                *(values.split(rows) for values in (group.ids_SP, group.words_SP, group.which_S)), strict=True
            ):
                group.put(
                    scores, which, _masked_in_turn(network, tokenizer, part_SP, words_SP, within_word, device), progress
                )
    return scores


def _masked_in_turn(
    network: nn.Module, tokenizer: Any, ids_SP: Tensor, words_SP: Tensor, within_word: bool, device: torch.device
) -> Tensor:
    """Pseudo-log-likelihoods [S] of sentences of one length."""
    num_sentences, length = ids_SP.shape
    sums_S = torch.zeros(num_sentences, dtype=torch.float64)
    if not length:  # a text of control characters alone
        return sums_S
    # Copy number i is of sentence i // P, with piece i % P masked.
    for copies_B in torch.arange(num_sentences * length).split(_rows_at_once(device, length)):
        sentence_B, at_B = copies_B // length, copies_B % length
        column_P = torch.arange(length)
        hidden_BP = column_P == at_B[:, None]
        if within_word:
            same_BP = words_SP[sentence_B] == words_SP[sentence_B, at_B][:, None]
            hidden_BP |= same_BP & (column_P > at_B[:, None])
        masked_BP = ids_SP[sentence_B].masked_fill(hidden_BP, tokenizer.mask_token_id)
        logits_BV = network(_framed(masked_BP, tokenizer).to(device), (at_B + 1).to(device)).float()
        piece_B = ids_SP[sentence_B, at_B].to(device)
        found_B = logits_BV.gather(1, piece_B[:, None]).squeeze(1) - logits_BV.logsumexp(dim=1)
        sums_S.index_add_(0, sentence_B, found_B.double().cpu())
    return sums_S


SCORERS: dict[str, Scorer] = {
    "discriminator": naturalness,
    "pll": pseudo_log_likelihood,
    "pll-within-word": functools.partial(pseudo_log_likelihood, within_word=True),
}
"""By name; the first takes a `Discriminator`, the others a `MaskedLM`."""


# ------------------------------------------------------------------------------------------------------------- batches


class _Group(NamedTuple):
    """Different sentences of one length, without special tokens."""

    ids_SP: Tensor
    words_SP: Tensor
    """Number of the word that each piece belongs to."""
    which_S: Tensor
    """Index in `places`."""
    places: list[list[int]]
    """Where each different sentence stands among those asked for."""

    @property
    def length(self) -> int:
        return self.ids_SP.shape[1]

    def put(self, scores: NDArray[np.float64], which: Tensor, values: Tensor, progress: Progress) -> None:
        """Write the scores of some of the sentences wherever these stand."""
        count = 0
        for index, value in zip(which.tolist(), values.tolist(), strict=True):
            scores[self.places[index]] = value
            count += len(self.places[index])
        progress(count)


def _groups(network: nn.Module, tokenizer: Any, sentences: Sequence[str]) -> Iterator[_Group]:
    """The different sentences by length, short ones first. Raises UserError for those that do not fit the network."""
    encodings = tokenizer(list(sentences), add_special_tokens=False, return_attention_mask=False).encodings
    places: dict[tuple[int, ...], list[int]] = {}
    words: dict[tuple[int, ...], list[int]] = {}
    for index, encoding in enumerate(encodings):
        ids = tuple(encoding.ids)
        places.setdefault(ids, []).append(index)
        words.setdefault(ids, encoding.word_ids)
    different = sorted(places, key=len)
    _check(network, tokenizer, different, lambda ids: sentences[places[ids][0]])
    where = [places[ids] for ids in different]
    lengths = np.array([len(ids) for ids in different])
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length).tolist()
        shape = (len(chosen), int(length))
        yield _Group(
            torch.tensor([different[index] for index in chosen], dtype=torch.int64).view(shape),
            torch.tensor([words[different[index]] for index in chosen], dtype=torch.int64).view(shape),
            torch.tensor(chosen),
            where,
        )


def _check(
    network: nn.Module, tokenizer: Any, rows: Sequence[tuple[int, ...]], sentence_of: Callable[[tuple[int, ...]], str]
) -> None:
    config = network.encoder.config if isinstance(network, Discriminator | MaskedLM) else None
    if config is not None and config.blocks == "classic" and rows and len(rows[-1]) + 2 > config.max_length:
        start = sentence_of(rows[-1])[:40]
        needed, most = len(rows[-1]) + 2, config.max_length
        raise UserError(f"the sentence that starts {start!r} has {needed} tokens, the model takes {most}: leave it out")
    num_pieces = sum(map(len, rows))
    num_unknown = sum(row.count(tokenizer.unk_token_id) for row in rows)
    if num_unknown > MOST_UNKNOWN * num_pieces:
        raise UserError(
            f"the model's vocabulary does not know {num_unknown / num_pieces:.0%} of the words: it is of another language or "
            "script than the data; take a model of the data's language"
        )


def _framed(ids_BP: Tensor, tokenizer: Any) -> Tensor:
    """[CLS] pieces [SEP]: [B, P] -> [B, P + 2]."""
    return F.pad(F.pad(ids_BP, (1, 0), value=tokenizer.cls_token_id), (0, 1), value=tokenizer.sep_token_id)


def _rows_at_once(device: torch.device, length: int) -> int:
    return max(1, tokens_at_once(device) // (length + 2))


def _device(network: nn.Module) -> torch.device:
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


@contextlib.contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Without dropout, and then every module as it was."""
    was_training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in was_training.items():
            module.training = training
