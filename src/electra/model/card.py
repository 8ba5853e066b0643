"""The model card (README.md) of an exported network: what it is, what it was trained on, and how to load it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jinja2

from electra.config import EncoderConfig

_LOADERS = {
    ("discriminator", "classic"): "AutoModelForPreTraining",
    ("discriminator", "modern"): "AutoModelForTokenClassification",
}

_SAYS = {
    "discriminator": (
        "An ELECTRA *discriminator*: for every token a logit, above 0 where it looks replaced. This is the network to fine-tune; "
        "`AutoModel` gives its encoder."
    ),
    "generator": (
        "An ELECTRA *generator*: a small masked language model that proposed the replacements. To fine-tune, take the "
        "discriminator."
    ),
    "main": "A masked language model. `AutoModel` gives its encoder, which is the network to fine-tune.",
}

_TEMPLATE = """---
library_name: transformers
license: other
pipeline_tag: {{ "token-classification" if role == "discriminator" else "fill-mask" }}
tags:
- electra
- {{ role }}
{%- if base_model %}
base_model: {{ base_model }}
{%- endif %}
---

# {{ title }}

{{ says }}

*License: not chosen yet. Put yours here and into the lines above before you publish this model.*

## Load

```python
from transformers import {{ loader }}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("PATH_OR_NAME")
model = {{ loader }}.from_pretrained("PATH_OR_NAME")
```

## What it is not for

Raw, it gives no sentence embeddings: its vectors were never trained to be compared, and nearest neighbours by them are
poor. Train them first (`sentence-transformers` loads this directory), or fine-tune on labels. It generates no text.

## Network

{% for name, value in network.items() -%}
- {{ name }}: {{ value }}
{% endfor %}
{%- if training %}
## Training

{% for name, value in training.items() -%}
- {{ name }}: {{ value }}
{% endfor %}
{%- endif %}
{%- if scores %}
## Scores on held-out text

{% for name, value in scores.items() -%}
- {{ name.replace("_", " ") }}: {{ "%.4f"|format(value) }}
{% endfor %}
{%- endif %}
Made with electra-pretraining {{ version }}.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says beside the network itself. Whatever is not known is left out."""

    role: str
    """discriminator, generator or main."""
    version: str
    training: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Objective, data, compute, ...: name -> words."""
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    base_model: str | None = None
    """Hub name of the model that training went on from."""


def write_card(directory: Path, encoder: EncoderConfig, card: Card) -> None:
    """Write `README.md` into an exported network's directory."""
    network = {
        "blocks": "classic (Hugging Face ELECTRA)"
        if encoder.blocks == "classic"
        else "modern (Hugging Face ModernBERT)",
        "layers": f"{encoder.num_layers} of width {encoder.hidden_size}, {encoder.num_heads} heads",
        "feed-forward width": f"{encoder.intermediate_size:,}",
        "vocabulary": f"{encoder.vocab_size or 0:,} word pieces",
        "longest input": f"{encoder.max_length:,} tokens",
    }
    text = jinja2.Template(_TEMPLATE, keep_trailing_newline=True).render(
        title=f"ELECTRA {card.role}" if card.role != "main" else "Masked language model",
        says=_SAYS[card.role],
        loader=_LOADERS.get((card.role, encoder.blocks), "AutoModelForMaskedLM"),
        network=network,
        **{field.name: getattr(card, field.name) for field in dataclasses.fields(card)},
    )
    (directory / "README.md").write_text(text, encoding="utf-8")
