"""sentence-transformers loads what we export and gives the mean of our own hidden states."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from electra.model.hf import load_encoder

sentence_transformers = pytest.importorskip("sentence_transformers")


def test_embeddings_are_the_mean_of_our_hidden_states(exported):
    texts = ["a good film", "the story it was, well, awful"]
    model = sentence_transformers.SentenceTransformer(str(exported / "discriminator"), device="cpu")
    found = model.encode(texts)
    encoder = load_encoder(exported / "discriminator").encoder
    tokens = AutoTokenizer.from_pretrained(exported / "discriminator")(texts, return_tensors="pt", padding=True)
    mask = tokens["attention_mask"]
    with torch.no_grad():
        hidden = encoder(tokens["input_ids"], mask)
    expected = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4, rtol=1e-4)
