"""Passes of a stack's rows through one module."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.support.stacks import config, flat_buffers, load, mini_batches, plain_module, stack_of


def test_a_stack_of_one_has_bitwise_the_gradients_and_statistics_of_the_plain_module() -> None:
    stack = stack_of(config(optimizer="sgd", scheduler="constant"))
    module = plain_module(stack)
    load(module, stack)
    _, step, images, labels = next(mini_batches(stack))
    loss = F.cross_entropy(module(images[0]), labels[0])
    grads = torch.autograd.grad(loss, list(module.parameters()))
    done = stack.step(images, labels, step)
    assert torch.equal(done.result.x.grad[0], torch.cat([g.reshape(-1) for g in grads]))
    assert torch.equal(stack.buffers.floats[0], flat_buffers(module))


def test_statistics_of_both_passes_differ_from_those_of_the_first() -> None:
    both, first = stack_of(config()), stack_of(config(batchnorm_statistics="first"))
    _, step, images, labels = next(mini_batches(both))
    both.step(images, labels, step)
    first.step(images, labels, step)
    assert torch.equal(both.theta, first.theta)
    assert not torch.equal(both.buffers.floats, first.buffers.floats)
    assert set(both.buffers.counters.unique().tolist()) == {2}
    assert set(first.buffers.counters.unique().tolist()) == {1}
