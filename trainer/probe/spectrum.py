"""What products with a symmetric matrix tell of its spectrum: Lanczos and Hutchinson, K matrices at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from polysweep.trainer.streams import stream

Times = Callable[[Tensor], Tensor]
"""v -> H v with a matrix of its own for every row: (K, P) -> (K, P)."""


class Eigenvalues(NamedTuple):
    """The largest first, (K, count), NaN beyond P; and how far each is at most from an eigenvalue of H, (K, count)."""

    values: Tensor
    errors: Tensor


def lanczos(times: Times, like: Tensor, count: int, steps: int) -> Eigenvalues:
    r"""The `count` largest eigenvalues of H after `steps` products with it; at least `count` of them.

        beta_{j+1} q_{j+1} = H q_j - alpha_j q_j - beta_j q_{j-1},     alpha_j = <H q_j, q_j>

    The eigenvalues are those of the tridiagonal T of alpha and beta; that of an eigenvector s of T is at most
    beta_{m+1} |s_m| from one of H, and rounding of about sqrt(P) eps |lambda_1|. Every q is made orthogonal to all
    before it, twice. If a row's Krylov space ends (beta = 0) it continues from a new direction, so that P steps give
    all eigenvalues. `like` (K, P) says shape, dtype and device. There are at most P eigenvalues; beyond, and of a row
    whose products are not finite, they are NaN. The first direction is drawn, the same for every row. Source: Lanczos
    1950; Golub and Van Loan, Matrix Computations, section 10.1.
    """
    rows, size = like.shape
    basis: list[Tensor] = []
    alphas, betas = [], []
    direction = _drawn(like, "lanczos", 0, torch.randn)
    for step in range(min(steps, size)):
        q = _unit(_orthogonal(direction, basis))
        basis.append(q)
        product = times(q)
        alpha = torch.linalg.vecdot(product, q)
        rest = _orthogonal(product, basis)
        length = torch.linalg.vector_norm(rest, dim=1)
        ends = length <= 10 * size**0.5 * torch.finfo(like.dtype).eps * torch.linalg.vector_norm(product, dim=1)
        alphas.append(alpha)
        betas.append(torch.where(ends, 0.0, length))
        direction = torch.where(ends.unsqueeze(1), _drawn(like, "lanczos", step + 1, torch.randn), rest)
    off = torch.stack(betas, dim=1).double()
    tridiagonal = torch.diag_embed(torch.stack(alphas, dim=1).double())
    tridiagonal += torch.diag_embed(off[:, :-1], 1) + torch.diag_embed(off[:, :-1], -1)
    is_sound = tridiagonal.isfinite().all((1, 2))
    values, vectors = torch.linalg.eigh(torch.where(is_sound.view(-1, 1, 1), tridiagonal, 0.0))  # in increasing order
    rounding = size**0.5 * torch.finfo(like.dtype).eps * values.abs().amax(1, keepdim=True)
    errors = off[:, -1:] * vectors[:, -1].abs() + rounding
    values, errors = (torch.where(is_sound.unsqueeze(1), part, torch.nan) for part in (values, errors))
    missing = torch.full((rows, max(0, count - values.shape[1])), torch.nan, dtype=values.dtype, device=values.device)
    largest, bounds = (torch.cat([part.flip(1)[:, :count], missing], dim=1) for part in (values, errors))
    return Eigenvalues(largest, bounds)


def hutchinson(times: Times, like: Tensor, vectors: int) -> tuple[Tensor, Tensor]:
    r"""The trace of H and its standard error, (K,) each, from `vectors` products with it, at least two.

        tr H ~ mean of <z, H z>,   standard error = std(<z, H z>) / sqrt(vectors)

    with z of independent signs +-1, the same for every row. The estimate has no bias; of a diagonal H it is exact.
    Source: Hutchinson 1990, A stochastic estimator of the trace of the influence matrix.
    """
    estimates = []
    for number in range(vectors):
        z = _drawn(like, "hutchinson", number, torch.rand).sub(0.5).sign()
        estimates.append(torch.linalg.vecdot(z, times(z)).double())
    std, mean = torch.std_mean(torch.stack(estimates), dim=0)
    return mean, std / vectors**0.5


def _drawn(like: Tensor, name: str, number: int, draw: Callable[..., Tensor]) -> Tensor:
    """One vector for all rows, (K, P), from a stream of the probe's own: the same on every device."""
    vector = draw(like.shape[1], generator=stream(0, name, number), dtype=torch.float64)
    return vector.to(like).expand_as(like)


def _orthogonal(v: Tensor, basis: list[Tensor]) -> Tensor:
    """v (K, P) without its parts along the basis, taken off twice: once leaves rounding of the size of v."""
    if not basis:
        return v
    q = torch.stack(basis, dim=1)
    for _ in range(2):
        v = v - torch.einsum("kjp,kj->kp", q, torch.einsum("kjp,kp->kj", q, v))
    return v


def _unit(v: Tensor) -> Tensor:
    unit: Tensor = v / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return unit
