"""Models of torchvision and transformers with random weights; nothing is downloaded. Neither package is required."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.torch_models.written import Case

COMPILED = ("nms", "qnms")
"""Operators of torchvision whose names its import asks for."""

CLASSIFIERS = (
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "densenet121",
    "squeezenet1_1",
    "shufflenet_v2_x1_0",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "regnet_y_400mf",
)


def torchvision() -> Any:
    """The package. Its compiled operators do not load into a torch for CPUs alone; no model here calls them."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in COMPILED:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)
        import torchvision
    return torchvision


KEPT: list[torch.library.Library] = []
"""A library's operators live as long as the library."""


def classifier(name: str, size: int) -> Case:
    """A classifier of images; a ViT has as many positions as the image has patches."""
    more = {"image_size": size} if name.startswith("vit") else {}
    return Case(getattr(torchvision().models, name)(weights=None, **more), (torch.randn(1, 3, size, size),))


class Picked(nn.Module):
    """A model, and of its results the tensors that are compared."""

    def __init__(self, inner: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.inner, self.names, self.fixed = inner, names, fixed

    def forward(self, *args: torch.Tensor, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.inner(*args, **named, **self.fixed)
        return tuple(found[name] for name in self.names)


def deeplabv3(size: int) -> Case:
    """DeepLabV3 on a ResNet-50."""
    made = torchvision().models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    return Case(Picked(made, "out"), (torch.randn(1, 3, size, size),))


def transformers() -> Any:
    """The package; it imports torchvision where that is installed."""
    with contextlib.suppress(ImportError):
        torchvision()
    import transformers

    return transformers


def words(count: int, length: int) -> torch.Tensor:
    """Numbers of random words: two sentences."""
    return torch.randint(0, count, (2, length))


def bert(layers: int | None) -> Case:
    """BERT-base with a mask: the second sentence is shorter."""
    hf = transformers()
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 11:] = 0
    model = Picked(
        hf.BertModel(hf.BertConfig(num_hidden_layers=layers or 12)), "last_hidden_state", "pooler_output"
    )
    return Case(model, (), {"input_ids": words(30522, 16), "attention_mask": mask})


def distilbert(layers: int | None) -> Case:
    """DistilBERT."""
    hf = transformers()
    model = hf.DistilBertModel(hf.DistilBertConfig(n_layers=layers or 6))
    return Case(Picked(model, "last_hidden_state"), (words(30522, 16),))


def gpt2(layers: int | None) -> Case:
    """GPT-2's smallest on a prompt of 16 words."""
    hf = transformers()
    model = hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=layers or 12))
    return Case(Picked(model, "logits", use_cache=False), (words(50257, 16),))


class Step(nn.Module):
    """One word after others whose keys and values are given."""

    def __init__(self, inner: nn.Module, layers: int) -> None:
        super().__init__()
        self.inner, self.layers = inner, layers

    def forward(self, word: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = transformers().DynamicCache()
        for at in range(self.layers):
            cache.update(past[2 * at], past[2 * at + 1], at)
        found = self.inner(word, past_key_values=cache, use_cache=True)
        last = found["past_key_values"].layers[-1]
        return found["logits"], last.keys, last.values


def gpt2_step(layers: int | None) -> Case:
    """GPT-2's smallest for one more word after 16."""
    hf = transformers()
    config = hf.GPT2Config(n_layer=layers or 12)
    past = [torch.randn(2, config.n_head, 16, 64) for _ in range(2 * config.n_layer)]
    return Case(Step(hf.GPT2LMHeadModel(config), config.n_layer), (words(50257, 1), *past))


def llama(layers: int | None) -> Case:
    """Four layers of Llama: RMS norm, RoPE, SwiGLU, and two heads of keys for eight of queries."""
    hf = transformers()
    config = hf.LlamaConfig(
        vocab_size=2000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=layers or 4,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    return Case(Picked(hf.LlamaForCausalLM(config), "logits", use_cache=False), (words(2000, 16),))


def t5(layers: int | None) -> Case:
    """T5-small, encoder and decoder."""
    hf = transformers()
    model = Picked(
        hf.T5ForConditionalGeneration(hf.T5Config(num_layers=layers or 6)), "logits", use_cache=False
    )
    return Case(model, (), {"input_ids": words(32128, 16), "decoder_input_ids": words(32128, 8)})


def clip(layers: int | None) -> Case:
    """Two layers of CLIP's image side."""
    hf = transformers()
    config = hf.CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=layers or 2,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
    )
    model = Picked(hf.CLIPVisionModel(config), "last_hidden_state", "pooler_output")
    return Case(model, (torch.randn(1, 3, 64, 64),))


def mae(layers: int | None) -> Case:
    """Two layers of a masked autoencoder's encoder; which patches it sees is drawn outside."""
    hf = transformers()
    config = hf.ViTMAEConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=layers or 2,
        num_attention_heads=4,
        image_size=64,
        patch_size=8,
    )
    images, drawn = torch.randn(2, 3, 64, 64), torch.rand(2, 64)
    return Case(Picked(hf.ViTMAEModel(config), "last_hidden_state"), (images, drawn))


TRANSFORMERS: dict[str, Callable[[int | None], Case]] = {
    "bert": bert,
    "distilbert": distilbert,
    "gpt2": gpt2,
    "gpt2_step": gpt2_step,
    "llama": llama,
    "t5": t5,
    "clip": clip,
    "mae": mae,
}
"""Functions of the number of layers, by name; None for as many as the model has."""
