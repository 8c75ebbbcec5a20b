"""How sharp the minimum is at which each row of a stack stands."""

from __future__ import annotations

import torch
from torch import Tensor

from polysweep.trainer.probe.settings import CurvatureSettings
from polysweep.trainer.probe.spectrum import hutchinson, lanczos
from polysweep.trainer.probe.surface import Surface


def curvature(surface: Surface, theta: Tensor, settings: CurvatureSettings) -> dict[str, Tensor]:
    r"""By column, (K,) each, for rows `theta` (K, P), with f the mean loss and H its Hessian:

        curvature/loss              f(x)
        curvature/grad_norm         ||grad f(x)||
        curvature/eigenvalue-n      the n-th largest eigenvalue of H, by Lanczos
        curvature/eigenvalue_error  a bound of how far any of these is from an eigenvalue of H
        curvature/trace             tr H, by Hutchinson
        curvature/trace_se          its standard error
        curvature/sam-rho           f(x + rho d) - f(x), d = grad f(x) / ||grad f(x)||, 0 where the gradient is 0

    The last is what SAM minimises besides f: eq. (SAM) of the paper's introduction.
    """

    def times(v: Tensor) -> Tensor:
        return surface.hessian_times(theta, v)

    loss, gradient = surface.value(theta), surface.gradient(theta)
    norm = torch.linalg.vector_norm(gradient, dim=1)
    eigenvalues = lanczos(times, theta, settings.eigenvalues, settings.steps)
    trace, trace_se = hutchinson(times, theta, settings.vectors)
    d = torch.where(norm > 0, 1 / norm, 0.0).unsqueeze(1) * gradient
    sam = [surface.value(theta + radius * d) - loss for radius in settings.radii]
    values = [loss, norm, *eigenvalues.values.T, eigenvalues.errors[:, : theta.shape[1]].amax(1), trace, trace_se, *sam]
    return dict(zip(settings.columns, values, strict=True))
