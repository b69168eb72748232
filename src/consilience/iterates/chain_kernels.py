"""What one record adds to the statistics of a round: the one place where the chain knows the algorithm.

An iterative algorithm releases, in round t, noisy sums over the records of φ(x, θ_{t−1}). The chain needs no more of it
than two compiled functions, which switch on the kind:

    locate(kind, θ, x)                    the cell of the record: which block of the statistics it touches
    contribute(kind, θ, x, cell, …)       φ(x, θ), as a short list of places in the statistics and amounts

k-means       θ is the K × d centroids, the cell the nearest one (ties to the lowest index), and φ is 1 at place `cell`
              and x at the d places from K + d·cell on: K counts, then K sums.
logistic      θ is the coefficients, and below them how gradients are clipped (record_functions.py). There is one
              cell, and φ is 1 and the clipped gradient of the record's loss.
own           θ is any matrix. There is one cell, and φ is 1 and what a user's function gives (record_functions.py): a
              third algorithm needs no more than that.

*Adding a kind.* Give it a number, write its `locate` and `contribute` beside those of k-means, add a branch to each of
the two switches below and to `statistics_size`. Two laws must hold. Records of different cells touch
disjoint places, and records of one cell touch the same places in the same order: then a replaced record changes each
place once. A record's cell and contribution depend on the record and θ alone. An algorithm whose records all touch
everything has one cell, 0. Coordinates that are no numbers on a scale (a label) go last, and the proposal leaves them
alone (`Proposal.spreads` of 0): the region bounds the leading coordinates only.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.kernels.record_functions import clipped_gradient
from consilience.kernels.regions import BOX, project_rows

Array = NDArray[np.float64]

KMEANS, LOGISTIC, OWN = 0, 1, 2


@njit(nogil=True, cache=True)
def nearest_centroid(centroids: Array, point: Array) -> int:
    """The lowest index of the centroids nearest to the point."""
    best, least = 0, np.inf
    for k in range(centroids.shape[0]):
        distance = 0.0
        for i in range(centroids.shape[1]):
            difference = point[i] - centroids[k, i]
            distance += difference * difference
        if distance < least:
            best, least = k, distance
    return best


@njit(nogil=True, cache=True)
def contribute_to_clusters(theta: Array, point: Array, cell: int, places: NDArray[np.int64], amounts: Array) -> int:
    """Count 1 and the point's coordinates, at the places of its cluster."""
    clusters, dimensions = theta.shape
    places[0], amounts[0] = cell, 1.0
    for i in range(dimensions):
        places[i + 1] = clusters + dimensions * cell + i
        amounts[i + 1] = point[i]
    return dimensions + 1


@njit(nogil=True, cache=True)
def contribute_to_gradient(theta: Array, point: Array, places: NDArray[np.int64], amounts: Array) -> int:
    """Count 1, then φ: what a record of the chain adds to the statistics of a round.

    `theta` has the coefficients in its first row, and the clipping bound and the norm at the start of its second. The
    point has the label as its last coordinate.
    """
    size = theta.shape[1]
    places[0], amounts[0] = 0, 1.0
    clipped_gradient(theta[0], point, point[size - 1], theta[1, 0], int(theta[1, 1]), amounts[1:])
    for j in range(size):
        places[j + 1] = j + 1
    return size + 1


@njit(nogil=True, cache=True)
def contribute_values(own: Any, theta: Array, point: Array, places: NDArray[np.int64], amounts: Array) -> int:
    """Count 1, then what the user's function gives."""
    amounts[0] = 1.0
    amounts[1:] = 0.0
    own(theta, point, amounts[1:])
    for j in range(amounts.shape[0]):
        places[j] = j
    return int(amounts.shape[0])


@njit(nogil=True, cache=True)
def locate(kind: int, theta: Array, point: Array) -> int:
    """The cell of the record under θ."""
    if kind == KMEANS:
        return nearest_centroid(theta, point)
    return 0


@njit(nogil=True, cache=True)
def contribute(
    kind: int, own: Any, theta: Array, point: Array, cell: int, places: NDArray[np.int64], amounts: Array
) -> int:
    """Write φ(x, θ) to `places` and `amounts`, and return how many of them there are."""
    if kind == KMEANS:
        return contribute_to_clusters(theta, point, cell, places, amounts)
    if kind == LOGISTIC:
        return contribute_to_gradient(theta, point, places, amounts)
    if kind == OWN:
        return contribute_values(own, theta, point, places, amounts)
    return 0


@njit(nogil=True, cache=True)
def fill_statistics(kind: int, own: Any, theta: Array, points: Array, found: Array) -> None:
    """Write φ(x, θ) of each point to its column of `found`, which holds zeros."""
    places, amounts = np.empty(found.shape[0], np.int64), np.empty(found.shape[0])
    for i in range(points.shape[0]):
        number = contribute(kind, own, theta, points[i], locate(kind, theta, points[i]), places, amounts)
        for j in range(number):
            found[places[j], i] = amounts[j]


def statistics_size(kind: int, theta_shape: tuple[int, ...]) -> int:
    """How many numbers one round releases, for the kinds whose θ says so.

    >>> statistics_size(KMEANS, (15, 2)), statistics_size(LOGISTIC, (2, 7))
    (45, 8)
    """
    rows, columns = theta_shape
    return {KMEANS: rows * (1 + columns), LOGISTIC: 1 + columns}[kind]


# ----------------------------------------------------------------------------------------------------------------------
# Steps of the chain over datasets (Lee and Kifer 2016, §3.3, and two more moves), compiled.
#
# The state is n' points, of which point i stands for m_i records. With S_t = Σ_i m_i φ(x_i, θ_{t−1}) the log posterior
# is
#
#     ln π(D) = −Σ_t Σ_p  a_tp |y_tp − S_tp| + c_tp (y_tp − S_tp)²,
#
# a = 1/b for Laplace noise of scale b, c = 1/2σ² for Gaussian noise, and −∞ as soon as a point leaves the region: the
# prior is uniform over points of the region and over masses of one total. Records that an algorithm moves into a
# smaller region before it sums them (the L1 ball) are simulated where they were: the prior is then uniform over the
# box, x stands for its image in φ(x, θ), and the surface of the ball has its due weight. Each step is one of three
# moves, chosen by chance alone, and accepted with the probability min{1, ratio}:
#
#     jump      a point x is replaced by x', drawn from a fixed mixture q:     ratio π(D')/π(D) · q(x)/q(x')
#     walk      a point is moved by a Gaussian step:                           ratio π(D')/π(D)
#     transfer  a Gaussian amount of mass goes from one point to another,
#               and to none if a mass would become negative:                   ratio π(D')/π(D)
#
# The published chain jumps only. All three are one thing to the sums: some mass leaves one place and arrives at
# another. Where λ = `prior_power` is above 0 a prior in proportion to Π q(x_i)^λ takes the place of the uniform one:
# the ratio of a jump or a walk then has the factor (q(x')/q(x))^λ besides.
#
# Only the two touched blocks of each round change, so that a step costs O(T·K·d).
#
# q(x) is kept for each point. It is either the density of the whole mixture, or that of the one component that the
# point was drawn from (the ratio as it is printed in the paper). The second is the ratio for pairs of a point and a
# component that reaches it, whose target is π times the uniform law of pairs. It is exact for π where as many
# components reach every point, as Gaussians do, but rejects the more the more they overlap. A coordinate of spread 0
# takes the component's value as it is.


Integers = NDArray[np.int64]

LOG_POSTERIOR, BEST = 0, 1
"""Places in `State.scores`."""
JUMP, WALK, TRANSFER = 0, 1, 2
"""Columns of `State.tally`, whose rows are steps tried and steps accepted."""

NEGLIGIBLE = -40.0
"""Components this far below the nearest one (in log density) do not change the last digit of the sum."""


class Target(NamedTuple):
    """ln π: the algorithm, what it released and the noise."""

    kind: int
    region: int
    """The region's code (kernels/regions.py)."""
    bounded: int
    """The region bounds so many leading coordinates."""
    places: int
    """One record touches at most so many statistics of a round."""
    thetas: Array
    """θ_{t−1} for each round."""
    released: Array
    """y, a row for each round."""
    linear: Array
    quadratic: Array
    own: Any
    """The user's function of the kind OWN; else one that is never called."""
    image: int = BOX
    """Leading coordinates are moved to this region before a point counts; inside the box, "box" leaves them alone."""


class Proposal(NamedTuple):
    """How points and masses may change."""

    whole_mixture: bool
    """Whether q(x) is the density of the whole mixture."""
    centres: Array
    spreads: Array
    """The standard deviations, for each component and coordinate."""
    log_heights: Array
    """ln(weight / Π spreads) for each component: its log density at the centre, up to a constant."""
    cumulative: Array
    """The weights summed up, to draw from."""
    prior_power: float
    """λ of the prior: q^λ for each point, uniform at 0."""
    walk_share: float
    walk_spreads: Array
    transfer_share: float
    transfer_spread: float


class State(NamedTuple):
    """Points and what follows from them, changed in place."""

    points: Array
    images: Array
    """The points as they count."""
    masses: Array
    cells: Integers
    """The cell of each point under each θ."""
    sums: Array
    """Σ m φ of each round."""
    components: Integers
    log_densities: Array
    """ln q of each point, of the mixture or of its component."""
    saved_images: Array
    saved_masses: Array
    stamps: Integers
    """Where stamps[i] is the version, the best dataset has the saved image i, and elsewhere the current one."""
    version: Integers
    scores: Array
    """The log posterior now and at its best."""
    tally: Integers


class Chance(NamedTuple):
    """The random numbers of some steps, a row each."""

    picks: Integers
    uniforms: Array
    normals: Array


@njit(nogil=True, cache=True)
def is_inside(region: int, bounded: int, point: Array) -> bool:
    """Whether the leading coordinates lie in [−1, 1], or in the unit ball of the L1 norm."""
    size = 0.0
    for i in range(bounded):
        magnitude = abs(point[i])
        if magnitude > 1.0:
            return False
        size += magnitude
    return region == BOX or size <= 1.0


@njit(nogil=True, cache=True)
def write_image(target: Target, point: Array, image: Array, room: Array) -> None:
    """The point as it counts; `room` has one row of the bounded coordinates."""
    image[:] = point
    if target.image != BOX:
        room[0] = point[: target.bounded]
        project_rows(room, target.image)
        image[: target.bounded] = room[0]


@njit(nogil=True, cache=True)
def component_log_density(proposal: Proposal, component: int, point: Array) -> float:
    """ln of one component's weight times its density, up to a constant that all components share."""
    exponent = 0.0
    for i in range(point.shape[0]):
        difference = point[i] - proposal.centres[component, i]
        spread = proposal.spreads[component, i]
        if spread > 0.0:
            exponent += (difference / spread) ** 2
        elif difference != 0.0:
            return -np.inf
    return proposal.log_heights[component] - 0.5 * exponent


@njit(nogil=True, cache=True)
def mixture_log_density(proposal: Proposal, point: Array, scratch: Array) -> float:
    """ln q(x), summed from the largest term down to those that count."""
    largest = -np.inf
    for component in range(scratch.shape[0]):
        scratch[component] = component_log_density(proposal, component, point)
        largest = max(largest, scratch[component])
    if largest == -np.inf:
        return largest
    total = 0.0
    for component in range(scratch.shape[0]):
        below = scratch[component] - largest
        if below > NEGLIGIBLE:
            total += np.exp(below)
    return largest + np.log(total)


@njit(nogil=True, cache=True)
def point_log_density(proposal: Proposal, component: int, point: Array, scratch: Array) -> float:
    """What the acceptance ratio takes for ln q(x)."""
    if proposal.whole_mixture:
        return mixture_log_density(proposal, point, scratch)
    return component_log_density(proposal, component, point)


@njit(nogil=True, cache=True)
def settle(target: Target, proposal: Proposal, state: State) -> None:
    """Everything that follows from points and masses, computed from nothing: cells, sums, densities, ln π."""
    places, amounts = np.empty(target.places, np.int64), np.empty(target.places)
    scratch, room = np.empty(proposal.cumulative.shape[0]), np.empty((1, target.bounded))
    state.sums[:] = 0.0
    for i in range(state.points.shape[0]):
        write_image(target, state.points[i], state.images[i], room)
        for t in range(state.cells.shape[1]):
            cell = locate(target.kind, target.thetas[t], state.images[i])
            state.cells[i, t] = cell
            touched = contribute(target.kind, target.own, target.thetas[t], state.images[i], cell, places, amounts)
            for m in range(touched):
                state.sums[t, places[m]] += state.masses[i] * amounts[m]
        state.log_densities[i] = point_log_density(proposal, state.components[i], state.points[i], scratch)
    state.scores[LOG_POSTERIOR] = log_posterior(target, state.sums)


@njit(nogil=True, cache=True)
def log_posterior(target: Target, sums: Array) -> float:
    """ln π of a dataset with these sums."""
    energy = 0.0
    for t in range(sums.shape[0]):
        for p in range(sums.shape[1]):
            residual = target.released[t, p] - sums[t, p]
            energy += target.linear[t, p] * abs(residual) + target.quadratic[t, p] * residual * residual
    return -energy


@njit(nogil=True, cache=True)
def gain(target: Target, sums: Array, t: int, place: int, change: float) -> float:
    """By how much ln π grows when one of the sums changes."""
    before = target.released[t, place] - sums[t, place]
    after = before - change
    linear = abs(before) - abs(after)
    return target.linear[t, place] * linear + target.quadratic[t, place] * linear * (abs(before) + abs(after))


@njit(nogil=True, cache=True)
def gain_of_moving(
    target: Target, sums: Array, mass: float, source: Array, source_cells: Integers, goal: Array, goal_cells: Integers,
    places: Integers, amounts: Array,
) -> float:  # fmt: skip
    """ln π(D') − ln π(D) when so much mass moves from one point to another.

    Where both points have one cell its places change once, by the difference.
    """
    total = 0.0
    for t in range(source_cells.shape[0]):
        theta = target.thetas[t]
        touched = contribute(target.kind, target.own, theta, source, source_cells[t], places[0], amounts[0])
        contribute(target.kind, target.own, theta, goal, goal_cells[t], places[1], amounts[1])
        for m in range(touched):
            if source_cells[t] == goal_cells[t]:
                total += gain(target, sums, t, places[0, m], mass * (amounts[1, m] - amounts[0, m]))
            else:
                total += gain(target, sums, t, places[0, m], -mass * amounts[0, m])
                total += gain(target, sums, t, places[1, m], mass * amounts[1, m])
    return total


@njit(nogil=True, cache=True)
def move_mass(
    target: Target, sums: Array, mass: float, source: Array, source_cells: Integers, goal: Array, goal_cells: Integers,
    places: Integers, amounts: Array,
) -> None:  # fmt: skip
    """Bring the sums up to date after so much mass has moved from one point to another."""
    for t in range(source_cells.shape[0]):
        theta = target.thetas[t]
        touched = contribute(target.kind, target.own, theta, source, source_cells[t], places[0], amounts[0])
        contribute(target.kind, target.own, theta, goal, goal_cells[t], places[1], amounts[1])
        for m in range(touched):
            sums[t, places[0, m]] -= mass * amounts[0, m]
            sums[t, places[1, m]] += mass * amounts[1, m]


@njit(nogil=True, cache=True)
def keep_for_best(state: State, i: int) -> None:
    """Before point i changes: note it down if the best dataset still has it."""
    if state.stamps[i] != state.version[0]:
        state.stamps[i] = state.version[0]
        state.saved_images[i] = state.images[i]
        state.saved_masses[i] = state.masses[i]


@njit(nogil=True, cache=True)
def keep_all_for_best(state: State) -> None:
    """Before all masses change."""
    for i in range(state.points.shape[0]):
        keep_for_best(state, i)


@njit(nogil=True, cache=True)
def note_accepted(state: State, move: int, gained: float) -> None:
    """Count an accepted step, and notice when it led to the best dataset so far."""
    state.tally[1, move] += 1
    state.scores[LOG_POSTERIOR] += gained
    if state.scores[LOG_POSTERIOR] > state.scores[BEST]:
        state.scores[BEST] = state.scores[LOG_POSTERIOR]
        state.version[0] += 1


@njit(nogil=True, cache=True)
def draw_point(proposal: Proposal, state: State, chance: Chance, step: int, walks: bool, point: Array) -> int:
    """Write the proposed point, and return the component that it belongs to."""
    i = chance.picks[step]
    if walks:
        for j in range(point.shape[0]):
            point[j] = state.points[i, j] + proposal.walk_spreads[j] * chance.normals[step, j]
        return int(state.components[i])
    found = np.searchsorted(proposal.cumulative, chance.uniforms[step, 0], side="right")
    component = min(found, proposal.cumulative.shape[0] - 1)
    for j in range(point.shape[0]):
        spread = proposal.spreads[component, j]
        point[j] = proposal.centres[component, j] + spread * chance.normals[step, j]
    return component


@njit(nogil=True, cache=True)
def advance(target: Target, proposal: Proposal, state: State, chance: Chance, trace: Array) -> None:
    """One step for each row of random numbers; `trace` gets the log posterior after each."""
    n, dimensions = state.points.shape
    point, image, room = np.empty(dimensions), np.empty(dimensions), np.empty((1, target.bounded))
    cells = np.empty(state.cells.shape[1], np.int64)
    places, amounts = np.empty((2, target.places), np.int64), np.empty((2, target.places))
    scratch = np.empty(proposal.cumulative.shape[0])
    for step in range(chance.picks.shape[0]):
        i = chance.picks[step]
        log_chance, lot = np.log(chance.uniforms[step, 1]), chance.uniforms[step, 2]
        if lot < proposal.transfer_share:
            state.tally[0, TRANSFER] += 1
            j = min(int(chance.uniforms[step, 0] * n), n - 1)
            mass = proposal.transfer_spread * chance.normals[step, 0]
            if i != j and -state.masses[j] <= mass <= state.masses[i]:
                gained = gain_of_moving(
                    target, state.sums, mass, state.images[i], state.cells[i], state.images[j], state.cells[j],
                    places, amounts,
                )  # fmt: skip
                if log_chance < gained:
                    move_mass(
                        target, state.sums, mass, state.images[i], state.cells[i], state.images[j], state.cells[j],
                        places, amounts,
                    )  # fmt: skip
                    keep_for_best(state, i)
                    keep_for_best(state, j)
                    state.masses[i] -= mass
                    state.masses[j] += mass
                    note_accepted(state, TRANSFER, gained)
        else:
            walks = lot < proposal.transfer_share + proposal.walk_share
            state.tally[0, WALK if walks else JUMP] += 1
            component = draw_point(proposal, state, chance, step, walks, point)
            if is_inside(target.region, target.bounded, point):
                write_image(target, point, image, room)
                for t in range(cells.shape[0]):
                    cells[t] = locate(target.kind, target.thetas[t], image)
                mass = float(state.masses[i])
                gained = gain_of_moving(
                    target, state.sums, mass, state.images[i], state.cells[i], image, cells, places, amounts
                )
                log_density = point_log_density(proposal, component, point, scratch)
                fall = state.log_densities[i] - log_density
                correction = -proposal.prior_power * fall if walks else (1.0 - proposal.prior_power) * fall
                if log_chance < gained + correction:
                    move_mass(target, state.sums, mass, state.images[i], state.cells[i], image, cells, places, amounts)
                    keep_for_best(state, i)
                    state.points[i], state.images[i], state.cells[i] = point, image, cells
                    state.components[i], state.log_densities[i] = component, log_density
                    note_accepted(state, WALK if walks else JUMP, gained)
        trace[step] = state.scores[LOG_POSTERIOR]
