"""The likelihood of a point process whose rates are sums of fading counts: exact, with its derivatives, compiled.

theta holds the rate of all newcomers together, the base rate of whoever has acted, and what each of the numbers that
`source_acts` writes (but for the first) adds, in units of its own pace: so the entry of a fading count is how many acts
one event brings about at that pace. The log-likelihood is the sum of log lambda over the acts less the integral of
lambda, which is theta times `exposure`: no sampling.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import nnls

from tsnn.intensity.acts import Acts, Grid
from tsnn.kernel_cache import kernel
from tsnn.types import F64, I64, Bool

ROUNDS = 60
TOLERANCE = 1e-7  # of the log-likelihood per act that a round has to gain
MAX_TERMS = 18  # of theta that are not 0


@kernel()
def _at_acts(
    actor: I64, role: I64, t: F64, known: I64, rates: F64, roles: int, theta: F64, gradient: F64, hessian: F64
) -> float:
    """The sum of log lambda over the acts. Adds its gradient by theta, and the negative of its second derivatives."""
    scales = len(rates)
    people = actor.max() + 1 if len(actor) else 0
    counts = np.zeros((people, roles * scales))
    last, acted = np.zeros(people), np.zeros(people, np.int64)
    begun = np.zeros(people, np.bool_)
    x = np.zeros(len(theta))
    value, j = 0.0, 0
    for i in range(len(actor)):
        if role[i]:
            continue
        while j < known[i]:
            a = actor[j]
            for c in range(roles * scales):
                counts[a, c] *= math.exp(-rates[c % scales] * (t[j] - last[a]))
            for k in range(scales):
                counts[a, role[j] * scales + k] += 1.0
            acted[a] += 1 - role[j]
            last[a] = t[j]
            j += 1
        a = actor[i]
        if not acted[a] and begun[a]:
            continue  # of what a newcomer does at once, the first thing is that it comes
        begun[a] = True
        x[0], x[1] = acted[a] == 0, acted[a] > 0
        for k in range(scales):
            fade = rates[k] * math.exp(-rates[k] * (t[i] - last[a]))
            for r in range(roles):
                x[2 + r * scales + k] = counts[a, r * scales + k] * fade
            x[2 + roles * scales + k] = fade if acted[a] else 0.0
        rate = 0.0
        for k in range(len(theta)):
            rate += theta[k] * x[k]
        if rate <= 0:
            return -np.inf
        value += math.log(rate)
        for k in range(len(theta)):
            x[k] /= rate
            gradient[k] += x[k]
            if x[k] > 0:
                for m in range(k + 1):
                    hessian[k, m] += x[k] * x[m]
    return value


def exposure(acts: Acts, grid: Grid) -> F64:
    """The integral over time and actors of what each entry of theta stands before."""
    order = np.argsort(acts.actor, kind="stable")
    actor, role, t, seen_from = acts.actor[order], acts.role[order], acts.t[order], acts.seen_from[order]
    begins = np.diff(actor, prepend=-1) > 0
    did = np.cumsum(role == 0)
    acted = did - np.repeat((did - (role == 0))[begins], np.diff(np.flatnonzero(begins), append=len(actor)))
    until = np.where(np.append(begins[1:], True), acts.end, np.append(seen_from[1:], acts.end))
    known = float((until - seen_from)[acted > 0].sum())
    ticks = np.unique(t) if grid.tick else np.zeros(0)
    end = np.full(len(t), acts.end)
    of_role = [
        [_faded(r, t, seen_from, end, ticks)[role == one].sum() for r in grid.rates] for one in range(grid.roles)
    ]
    idle = [_faded(r, t, seen_from, until, ticks)[acted > 0].sum() for r in grid.rates]
    return np.array([acts.end, known, *np.ravel(of_role), *idle])


def _faded(rate: float, t: F64, start: F64, stop: F64, ticks: F64) -> F64:
    """The integral of rate exp(-rate (x - t)) from start to stop; on a clock the sum over its ticks after start.

    There a tick stands for the time since the one before.
    """
    if not len(ticks):
        faded: F64 = np.exp(-rate * (start - t)) - np.exp(-rate * (stop - t))
        return faded
    rest = np.zeros(len(ticks))  # the sum from each tick on, of what is 1 at that tick
    for j in range(len(ticks) - 2, -1, -1):
        gap = ticks[j + 1] - ticks[j]
        rest[j] = np.exp(-rate * gap) * (rate * gap + rest[j + 1])
    first, last = np.searchsorted(ticks, start), np.searchsorted(ticks, stop)
    return np.exp(-rate * (start - t)) * rest[first] - np.exp(-rate * (stop - t)) * rest[last]


def log_likelihood(acts: Acts, grid: Grid, theta: F64, exposed: F64) -> tuple[float, F64, F64]:
    """Its value, gradient and negative second derivatives."""
    gradient, hessian = np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    value = _at_acts(acts.actor, acts.role, acts.t, acts.known, grid.rates, grid.roles, theta, gradient, hessian)
    hessian += np.tril(hessian, -1).T
    return value - float(theta @ exposed), gradient - exposed, hessian


def maximize(acts: Acts, grid: Grid) -> F64:
    """The theta >= 0 of greatest likelihood, with `MAX_TERMS` entries that are not 0 at most.

    Most are 0 anyway. If more are left, those that bring about fewest acts go.
    """
    exposed = exposure(acts, grid)
    used = exposed > 0
    if not used.any():  # all at one time
        return np.zeros(len(exposed))
    theta = _climb(acts, grid, exposed, used)
    while np.count_nonzero(theta) > MAX_TERMS:
        brings = np.where(theta > 0, theta * exposed, np.inf)
        used[np.argmin(brings)] = False
        used &= theta > 0
        theta = _climb(acts, grid, exposed, used)
    return theta


def _climb(acts: Acts, grid: Grid, exposed: F64, used: Bool) -> F64:
    """The negative log-likelihood is convex, so Newton's method finds its least value.

    Each round goes to the best point, with no negative entry, of the parabola that touches it, or as far towards that
    point as there is a gain.
    """
    unit = np.where(used, exposed, 1.0)  # in which every entry counts acts
    theta = np.where(used, len(acts.t) / unit, 0.0)
    value, gradient, hessian = log_likelihood(acts, grid, theta, exposed)
    for _ in range(ROUNDS):
        some = np.ix_(used, used)
        target = np.zeros(len(theta))
        scaled = (hessian / np.outer(unit, unit))[some]
        target[used] = _best_of_parabola((theta * unit)[used], (gradient / unit)[used], scaled) / unit[used]
        step, found = 1.0, log_likelihood(acts, grid, target, exposed)
        while found[0] < value and step > 1e-6:
            step /= 4
            found = log_likelihood(acts, grid, theta + step * (target - theta), exposed)
        gain = found[0] - value
        if gain <= 0:
            break
        theta = theta + step * (target - theta)
        value, gradient, hessian = found
        if gain < TOLERANCE * len(acts.t):
            break
    return theta


def _best_of_parabola(at: F64, gradient: F64, hessian: F64) -> F64:
    """The x >= 0 of greatest gradient (x - at) - (x - at)' hessian (x - at) / 2."""
    size = len(at)
    ridge = 1e-9 * max(float(np.trace(hessian)) / size, 1e-300)
    factor = np.linalg.cholesky(hessian + ridge * np.eye(size))
    best, _ = nnls(factor.T, factor.T @ at + np.linalg.solve(factor, gradient), maxiter=100 * size)
    return np.asarray(best, dtype=np.float64)
