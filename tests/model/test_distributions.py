"""Densities are densities: they integrate to 1, and what is drawn, measured and bounded agrees with them."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.errors import ModelError
from prefrl.model.distributions import EDGE, Categorical, Gaussian, Squashed, log_slope


def outputs(mean, log_std, n=1):
    return torch.tensor([[mean, log_std]], dtype=torch.float64).expand(n, 2).clone()


def integral(over, low, high, out, temperature=1.0):
    """Of the density over a fine grid, by the midpoint rule."""
    step = (high - low) / 200_000
    grid = torch.linspace(low + step / 2, high - step / 2, 200_000, dtype=torch.float64)[:, None]
    return float((over.log_prob(out.expand(len(grid), -1), grid, temperature).exp() * step).sum())


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.7, 0.5)])
def test_a_squashed_density_integrates_to_1(mean, log_std, temperature):
    over = Squashed([-2.0], [4.0])
    assert integral(over, -2.0, 4.0, outputs(mean, log_std), temperature) == pytest.approx(1.0, abs=1e-4)
    assert integral(over, -2.0, 1.0, outputs(mean, log_std), temperature) == pytest.approx(
        float(torch.special.ndtr(torch.tensor(-mean / (math.exp(log_std) * math.sqrt(temperature))))), abs=1e-4
    )


@pytest.mark.parametrize("log_std", [0.0, -1.0])
def test_a_gaussian_density_integrates_to_1(log_std):
    assert integral(Gaussian([-2.0], [4.0]), -60.0, 60.0, outputs(0.4, log_std)) == pytest.approx(1.0, abs=1e-6)


def test_densities_by_hand():
    # Half the range is 3, the centre 1; at a = 1 the squashed u is 0 and the slope of tanh 1.
    normal = -0.5 * math.log(2 * math.pi)
    at = torch.tensor([[1.0]], dtype=torch.float64)
    for over in (Gaussian([-2.0], [4.0]), Squashed([-2.0], [4.0])):
        assert over.log_prob(outputs(0.0, 0.0), at).item() == pytest.approx(normal - math.log(3.0))
    # a = 1 + 3 tanh(.5): u = .5, slope 1 - tanh(.5)^2 = .786448.
    at = torch.tensor([[1.0 + 3.0 * math.tanh(0.5)]], dtype=torch.float64)
    wanted = normal - 0.125 - math.log(0.786447732966) - math.log(3.0)
    assert Squashed([-2.0], [4.0]).log_prob(outputs(0.0, 0.0), at).item() == pytest.approx(wanted)


def test_several_dimensions_add_up():
    over, out = Squashed([-1.0, 0.0], [1.0, 10.0]), torch.tensor([[0.3, -0.2, -0.5, 0.1]])
    at = torch.tensor([[0.2, 7.0]])
    alone = [
        Squashed([low], [high]).log_prob(out[:, [i, i + 2]], at[:, [i]])
        for i, (low, high) in enumerate([(-1.0, 1.0), (0.0, 10.0)])
    ]
    assert over.log_prob(out, at).item() == pytest.approx((alone[0] + alone[1]).item(), rel=1e-5)


@pytest.mark.parametrize("over", [Gaussian([-2.0], [4.0]), Squashed([-2.0], [4.0])])
def test_the_entropy_is_the_mean_of_minus_the_log_density(over):
    out = outputs(0.4, -0.3, 200_000)
    uniforms = torch.rand(200_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = over.draw(out, uniforms)
    sampled = -over.log_prob(out, drawn)
    assert over.entropy(out[:1]).item() == pytest.approx(float(sampled.mean()), abs=4 * float(sampled.std()) / 447)
    out = outputs(0.4, -0.3).requires_grad_()
    over.entropy(out).sum().backward()
    for i in range(2):
        shift = torch.zeros(1, 2, dtype=torch.float64)
        shift[0, i] = 1e-5
        slope = (over.entropy(out.detach() + shift) - over.entropy(out.detach() - shift)) / 2e-5
        assert out.grad[0, i].item() == pytest.approx(slope.item(), abs=1e-6)


def test_the_entropy_of_a_squashed_gaussian_by_quadrature_of_its_density():
    over, out = Squashed([-1.0], [1.0]), outputs(0.7, 0.2)
    grid = torch.linspace(-1 + 5e-6, 1 - 5e-6, 200_000, dtype=torch.float64)[:, None]
    logs = over.log_prob(out.expand(len(grid), -1), grid)
    assert over.entropy(out).item() == pytest.approx(float(-(logs.exp() * logs).sum() * 1e-5), abs=1e-3)


@pytest.mark.parametrize("kind", [Gaussian, Squashed])
def test_kl_by_hand(kind):
    # KL(N(0, 1) || N(1, 4)) = log 2 + (1 + 1) / 8 - 1/2, and one map of both changes nothing.
    over = kind([-2.0], [4.0])
    found = over.kl(outputs(0.0, 0.0), outputs(1.0, math.log(2.0)))
    assert found.item() == pytest.approx(math.log(2.0) + 0.25 - 0.5)
    assert over.kl(outputs(0.3, -0.4), outputs(0.3, -0.4)).item() == pytest.approx(0.0, abs=1e-12)


def test_temperature_multiplies_the_variance():
    over, grid = Gaussian([-1.0], [1.0]), torch.tensor([[0.3], [-1.1]], dtype=torch.float64)
    # p^(1/T) renormalised: the difference of two log-densities is divided by T.
    hot, plain = (over.log_prob(outputs(0.2, -0.5, 2), grid, t).diff() for t in (0.25, 1.0))
    assert hot.item() == pytest.approx(plain.item() / 0.25)


def test_draws_keep_their_bounds_and_what_was_drawn_has_a_finite_density():
    over = Squashed([-2.0], [4.0])
    out = torch.tensor([[30.0, 2.0], [-30.0, 2.0], [0.0, -5.0]])
    for uniform in (0.0, 0.5, 1.0 - 2.0**-53):
        drawn = over.draw(out, torch.full((3, 1), uniform, dtype=torch.float64))
        assert bool(((drawn > -2.0) & (drawn < 4.0)).all())
        logp = over.log_prob(out.clone().requires_grad_(), drawn)
        assert bool(logp.isfinite().all())
    assert over.best(torch.tensor([[0.0, 0.0]])).item() == 1.0
    assert Gaussian([-2.0], [4.0]).best(torch.tensor([[1.0, 0.0]])).item() == 4.0
    assert Gaussian([-math.inf], [math.inf]).best(torch.tensor([[0.7, 0.0]])).item() == pytest.approx(0.7)


def test_the_slope_of_tanh_is_finite_everywhere():
    u = torch.tensor([0.0, 0.5, 40.0, -400.0], requires_grad=True)
    slope = log_slope(u)
    assert slope[:2].tolist() == pytest.approx([0.0, math.log(0.786447732966)])
    assert slope[2:].tolist() == pytest.approx([2 * (math.log(2) - 40), 2 * (math.log(2) - 400)])
    slope.sum().backward()
    assert bool(u.grad.isfinite().all())


def test_the_edge_can_be_had_back_in_float32():
    assert math.atanh(torch.tensor(EDGE, dtype=torch.float32).item()) < 8.0


def test_encoded_actions():
    assert Categorical(3).encode(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert Squashed([-2.0], [4.0]).encode(torch.tensor([[4.0], [1.0], [-2.0]])).tolist() == [[1.0], [0.0], [-1.0]]


@pytest.mark.parametrize(
    ("kind", "low", "high", "message"),
    [
        (Squashed, [-math.inf], [1.0], "squashed Gaussian needs finite ones. Use the distribution gaussian"),
        (Gaussian, [1.0], [1.0], "expected as many, each low below its high"),
        (Gaussian, [0.0], [1.0, 2.0], "expected as many"),
    ],
)
def test_bounds_that_cannot_be_are_refused(kind, low, high, message):
    with pytest.raises(ModelError, match=message):
        kind(low, high)
