"""The template of an optimizer: what every rule shares."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.support.stacks import config, load, mini_batches, plain_module, stack_of


def test_momentum_is_that_of_torch() -> None:
    row = config(optimizer="sgd", scheduler="constant", momentum=0.9, model="mlp", precision="float64")
    stack = stack_of(row)
    module = plain_module(stack)
    load(module, stack)
    sgd = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for _, step, images, labels in mini_batches(stack):
        sgd.zero_grad()
        F.cross_entropy(module(images[0]), labels[0]).backward()
        sgd.step()
        stack.step(images, labels, step)
        if step == 49:
            break
    expected = nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(stack.theta[0], expected, rtol=0, atol=1e-12)
