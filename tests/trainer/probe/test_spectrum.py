"""Lanczos and Hutchinson on matrices that are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polysweep.trainer.probe.spectrum import hutchinson, lanczos


def symmetric(*spectra: list[float]) -> Tensor:
    """Matrices (K, P, P) with these eigenvalues, each in axes of its own."""
    generator = torch.Generator().manual_seed(0)
    matrices = []
    for spectrum in spectra:
        axes, _ = torch.linalg.qr(torch.randn(len(spectrum), len(spectrum), generator=generator, dtype=torch.float64))
        matrices.append(axes @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ axes.T)
    return torch.stack(matrices)


def times(matrices: Tensor) -> tuple[object, Tensor]:
    """v -> H v, and a tensor of the rows' shape."""
    return lambda v: torch.einsum("kij,kj->ki", matrices.to(v), v), matrices[:, 0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_as_many_products_as_dimensions_give_every_eigenvalue_of_every_row(
    dtype: torch.dtype, tolerance: float
) -> None:
    spectra = [[5.0, 4.0, -7.0, 0.5, 0.25], [-1.0, -2.0, -3.0, -4.0, -5.0]]
    product, like = times(symmetric(*spectra))
    top = lanczos(product, like.to(dtype), 5, 5)  # type: ignore[arg-type]
    expected = torch.tensor([sorted(spectrum, reverse=True) for spectrum in spectra], dtype=torch.float64)
    assert torch.allclose(top.values, expected, atol=10 * tolerance) and bool((top.errors < 10 * tolerance).all())


def test_an_eigenvalue_that_occurs_twice_and_a_zero_matrix_end_the_krylov_space_and_are_still_right() -> None:
    """Two directions of one eigenvalue are one to Lanczos, until it continues from a new one."""
    product, like = times(torch.stack([torch.eye(4).double() * 3, torch.zeros(4, 4).double()]))
    top = lanczos(product, like, 4, 4)  # type: ignore[arg-type]
    assert torch.allclose(top.values, torch.tensor([[3.0] * 4, [0.0] * 4]).double(), atol=1e-14)
    assert bool((top.errors < 1e-14).all())


def test_the_largest_of_many_eigenvalues_are_found_within_the_bound_that_is_given() -> None:
    generator = torch.Generator().manual_seed(1)
    bulk = torch.rand(297, generator=generator, dtype=torch.float64).tolist()
    product, like = times(symmetric([*bulk, 10.0, 6.0, 3.0]))
    top = lanczos(product, like, 3, 12)  # type: ignore[arg-type]
    off = (top.values - torch.tensor([[10.0, 6.0, 3.0]]).double()).abs()
    assert bool((off <= top.errors + 1e-12).all()) and bool((top.errors < 0.05).all())


def test_more_eigenvalues_than_there_are_dimensions_are_undefined() -> None:
    product, like = times(symmetric([2.0, 1.0]))
    top = lanczos(product, like, 3, 9)  # type: ignore[arg-type]
    assert torch.allclose(top.values[0, :2], torch.tensor([2.0, 1.0]).double()) and bool(top.values[0, 2].isnan())


def test_the_trace_of_a_diagonal_matrix_is_exact_and_the_error_of_any_other_is_as_wide_as_it_says() -> None:
    product, like = times(torch.diag_embed(torch.tensor([[1.0, 2.0, -4.0], [3.0, 0.5, 0.25]]).double()))
    trace, error = hutchinson(product, like, 3)  # type: ignore[arg-type]
    assert torch.allclose(trace, torch.tensor([-1.0, 3.75]).double()) and bool((error < 1e-14).all())

    spectra = [[float(n % 7) for n in range(200)] for _ in range(40)]
    matrices = symmetric(*spectra)
    product, like = times(matrices)
    trace, error = hutchinson(product, like, 30)  # type: ignore[arg-type]
    off = (trace - sum(spectra[0])) / error
    assert float(off.abs().max()) < 5 and 0.5 < float(off.std()) < 2  # 40 draws of nearly a t distribution
    true_error = ((2 * (matrices.square().sum((1, 2)) - matrices.diagonal(dim1=1, dim2=2).square().sum(1))) / 30).sqrt()
    assert torch.allclose(error.mean(), true_error.mean(), rtol=0.15)


def test_a_row_whose_products_are_not_finite_leaves_the_others_as_they_are() -> None:
    product, like = times(
        torch.stack([torch.eye(3).double() * torch.nan, torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()])
    )
    top = lanczos(product, like, 3, 3)  # type: ignore[arg-type]
    assert bool(top.values[0].isnan().all()) and bool(top.errors[0].isnan().all())
    assert torch.allclose(top.values[1], torch.tensor([3.0, 2.0, 1.0]).double())
