"""Curvature against exact Hessians of small models, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.probe.curvature import curvature
from polysweep.trainer.probe.probe import probe
from polysweep.trainer.probe.settings import CurvatureSettings
from polysweep.trainer.probe.surface import Surface
from polysweep.trainer.stack.oracles import rows_of
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import stream
from polysweep.trainer.task import Buffers
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.loading import load_task

SIZE, CLASSES = 40, 3


def convolution() -> nn.Module:
    """Convolution, batch norm, ReLU, pooling, linear: 94 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, CLASSES)
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 2), nn.Tanh(), nn.Dropout(0.5), nn.Linear(2, CLASSES))


def surface_of(
    build: object, width: int, dtype: torch.dtype, size: int = SIZE
) -> tuple[Surface, Tensor, list[nn.Module]]:
    """K models with weights and running statistics of their own, on the same images and labels of their own."""
    modules = []
    for row in range(width):
        torch.manual_seed(row)
        module = build().to(dtype)  # type: ignore[operator]
        for _ in range(3):
            module(torch.randn(16, 1, 6, 6).to(dtype) * (1 + row))
        modules.append(module.eval())
    rows = [rows_of(module, dtype) for module in modules]
    buffers = Buffers(
        torch.cat([row.buffers.floats for row in rows]), torch.cat([row.buffers.counters for row in rows])
    )
    generator = torch.Generator().manual_seed(9)
    images = torch.randn(size, 1, 6, 6, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(CLASSES, (width, size), generator=generator)
    batches = [(images[at], labels[:, at]) for at in torch.arange(size).split(17)]
    surface = Surface(build().to(dtype), buffers, batches, Classification.losses)  # type: ignore[operator]
    return surface, torch.cat([row.theta for row in rows]), modules


def exact(module: nn.Module, surface: Surface, row: int) -> tuple[object, Tensor]:
    """f of a flat weight vector, and its Hessian (P, P), in float64."""
    module = module.double().eval()
    names, shapes = zip(*[(name, p.shape) for name, p in module.named_parameters()], strict=True)

    def f(flat: Tensor) -> Tensor:
        parts = flat.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        total = torch.zeros((), dtype=torch.float64)
        for images, labels in surface.batches:
            outputs = functional_call(module, weights, (images.double(),))
            total = total + nn.functional.cross_entropy(outputs, labels[row], reduction="sum")
        return total / SIZE

    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    return f, hessian(f, theta)


@pytest.mark.parametrize("build", [convolution, perceptron])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-4)])
@pytest.mark.parametrize("width", [1, 3])
def test_eigenvalues_trace_and_sam_loss_are_those_of_the_exact_hessian(
    build: object, dtype: torch.dtype, tolerance: float, width: int
) -> None:
    surface, theta, modules = surface_of(build, width, dtype)
    size = theta.shape[1]
    settings = CurvatureSettings(eigenvalues=5, steps=size, vectors=40, radii=(0.05, 0.5))
    measured = curvature(surface, theta, settings)
    assert list(measured) == settings.columns
    for row, module in enumerate(modules):
        f, matrix = exact(module, surface, row)
        top = torch.linalg.eigvalsh(matrix).flip(0)[:5]
        ours = torch.stack([measured[f"curvature/eigenvalue-{n}"][row].double() for n in range(1, 6)])
        assert torch.allclose(ours, top, rtol=tolerance, atol=tolerance)
        error = measured["curvature/trace_se"][row]
        assert abs(measured["curvature/trace"][row] - matrix.trace()) < 5 * error
        x = theta[row].double()
        gradient = torch.func.grad(f)(x)  # type: ignore[arg-type]
        assert torch.allclose(measured["curvature/grad_norm"][row].double(), gradient.norm(), rtol=tolerance)
        for radius in settings.radii:
            rise = f(x + radius * gradient / gradient.norm()) - f(x)  # type: ignore[operator]
            assert torch.allclose(measured[f"curvature/sam-{radius:g}"][row].double(), rise, rtol=tolerance, atol=1e-6)


def test_a_product_with_the_hessian_is_that_of_the_exact_one() -> None:
    surface, theta, modules = surface_of(convolution, 2, torch.float64)
    v = torch.randn(theta.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ours = surface.hessian_times(theta, v)
    for row, module in enumerate(modules):
        assert torch.allclose(ours[row], exact(module, surface, row)[1] @ v[row], atol=1e-13)


def test_where_the_gradient_is_zero_the_loss_does_not_rise() -> None:
    surface, theta, _ = surface_of(perceptron, 1, torch.float64, size=3)
    uniform = Surface(surface.module, surface.buffers, surface.batches, lambda outputs, _: 0 * outputs.sum((1, 2)))
    measured = curvature(uniform, theta, CurvatureSettings())
    assert {float(values) for values in measured.values()} == {0.0}


def test_a_trial_with_noisy_labels_is_measured_on_those_that_it_was_trained_on() -> None:
    """Beside a clean one in the same stack: each row has its own labels, on the same images."""
    common = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "constant", "lr": 0.1}
    configs = [TrialConfig.parse({**common, "label_noise": share}) for share in (0.0, 0.5)]
    stack = Stack(configs, load_task(configs[0]))
    clean, noisy = probe(configs, [stack.row_state(row) for row in range(2)], CurvatureSettings(images=200))
    order = torch.randperm(stack.task.size, generator=stream(0, "probe"))[:200].expand(2, -1)
    images, labels = stack.task.mini_batch(order, None, None)
    stack._oracle.begin(stack.buffers, torch.tensor(0))
    losses = stack._oracle.pass_at(stack.theta, images, labels).loss
    assert (labels[0] != labels[1]).float().mean() > 0.4
    for ours, loss in zip((clean, noisy), losses, strict=True):
        assert ours["curvature/loss"] == pytest.approx(float(loss), rel=1e-5)
    (alone,) = probe(configs[1:], [stack.row_state(1)], CurvatureSettings(images=200))
    assert alone == pytest.approx(noisy, rel=1e-3)
