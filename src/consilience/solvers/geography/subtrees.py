"""What the measurements below a place say of it: variances of residual coefficients, for all places measured alike.

Let a place have the coefficients z of one residual, a vector of length b, and its children z_c with Σ z_c = z. What its
own subtree says of it has a mean m and a covariance κA + B in the limit κ → ∞: A spans what nothing tells, B is the
covariance of the rest, 0 where it is known exactly. A leaf of which nothing was measured has A = 1 and B = 0, so that
what nothing tells apart is divided evenly over leaves. With sums over children A_t, B_t

    up:    (Σ m_c, A_t, B_t) is conditioned on the place's own measurements, an eigenvector of their precision after
           the other: the filter for diffuse states (Koopman and Durbin 2000), where f'Af > 0 or not;
    down:  z_c = m_c + J_c (z − Σ m_c),   J_c = lim (κA_c + B_c)(κA_t + B_t)⁻¹ = A_c X + B_c C,
           C = (N B_t N)⁺,  X = A_t⁺ L,  L = R (1 − B_t C),  R the projection to the range of A_t, and N = 1 − R;
           Var z_c = κA_c + B_c − J_c (κA_t + B_t) J_cᵀ + J_c Var z J_cᵀ, expanded to the orders κ and 1.

None of it depends on what was counted, and all places whose subtrees were measured alike share it: they are of one
*class*. Classes are found from the leaves up, by the sum of hashes of the children's; a second hash is compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.fit import Array
from consilience.solvers.trees.layout import Layout

Blocks = tuple[Array, ...]
"""For each residual a stack of b × b matrices."""
Labels = NDArray[np.int64]

UNTOLD = 1e-9
"""Eigenvalues of A below this share of the number of leaves are rounding errors; others are at least 1."""
KNOWN = 1e-12
"""Variances below this share of the largest of a place are 0."""


def depths(layout: Layout) -> list[tuple[int, int]]:
    """The nodes of each depth, from the roots down: the first, and one past the last."""
    found = [(0, layout.roots)]
    while found[-1][0] < found[-1][1]:
        begin, end = found[-1]
        found.append((int(layout.first[begin]) if end > begin else end, int(layout.first[end])))
    return found[:-1]


@dataclass(frozen=True, eq=False)
class Classes:
    """Which places were measured alike together with all below them; classes of children come before their parents'."""

    of: Labels
    """The class of each node."""
    kind: Labels
    """How the places of a class were measured themselves."""
    ends: tuple[tuple[int, int], ...]
    """The classes of each depth, from the deepest up."""
    first: Labels
    """Where the children of a class begin in `children`."""
    children: Labels
    """The classes of the children of one place of each class."""

    @staticmethod
    def of_nodes(layout: Layout, kinds: Labels) -> "Classes":
        of = np.empty(layout.nodes, dtype=np.int64)
        kind, ends, widths, children, number = [], [], [], [], 0
        for begin, end in reversed(depths(layout)):
            first = layout.first[begin : end + 1]
            keys = []
            for salt in (0, 1):
                below = np.concatenate([[np.uint64(0)], np.cumsum(_mixed(of[first[0] : first[-1]], 2 + salt))])
                keys.append(_mixed(kinds[begin:end], 4 + salt) * np.uint64(3) + np.diff(below[first - first[0]]))
            _, chosen, label = np.unique(keys[0], return_index=True, return_inverse=True)
            if np.any(keys[1] != keys[1][chosen][label]):  # two sums of hashes fell together
                chosen = label = np.arange(end - begin)
            of[begin:end] = number + label
            kind.append(kinds[begin:end][chosen])
            widths.append(np.diff(first)[chosen])
            children += [of[first[place] : first[place + 1]] for place in chosen]
            ends.append((number, number + len(chosen)))
            number += len(chosen)
        starts = np.concatenate([[0], np.cumsum(np.concatenate(widths))])
        return Classes(of, np.concatenate(kind), tuple(ends), starts, np.concatenate(children))

    def summed(self, stack: Array, begin: int, end: int) -> Array:
        """Σ over the children of one place of each of these classes."""
        found = np.zeros((end - begin, *stack.shape[1:]), dtype=stack.dtype)
        first = self.first[begin : end + 1]
        inner = np.flatnonzero(np.diff(first))
        if inner.size:
            found[inner] = np.add.reduceat(stack[self.children[first[0] : first[-1]]], first[inner] - first[0], axis=0)
        return found


def _mixed(numbers: Labels, salt: int) -> NDArray[np.uint64]:
    """Numbers as 64 bits that look random (the finaliser of SplitMix64)."""
    found = numbers.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (2 * salt + 1)) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class Precisions:
    """How places can have been measured themselves: matrices for each residual, a row for each kind of place.

    A kind can also be *given*: a place whose whole subtree was fitted elsewhere, with what that says of it.
    """

    noisy: Blocks
    """Λ: the sum of DᵀD/σ²."""
    known: Blocks
    """The projection to what is known exactly."""
    given: NDArray[np.bool_]
    untold: Blocks
    told: Blocks
    """A and B of kinds that are given."""
    leaves: Array
    """How many leaves a place of a kind stands for: 1, if it is not given."""

    @staticmethod
    def none(sizes: Sequence[int]) -> "Precisions":
        """The kind of places that were not measured."""
        zeros = tuple(np.zeros((1, b, b)) for b in sizes)
        return Precisions(zeros, zeros, np.zeros(1, dtype=bool), zeros, zeros, np.ones(1))


@dataclass(frozen=True, eq=False)
class Subtrees:
    """For each class A and B, and the maps by which means go up and down the tree."""

    classes: Classes
    untold: Blocks
    told: Blocks
    from_children: Blocks
    """What Σ m_c counts in m."""
    from_own: Blocks
    """What the sum of the place's own precision × value counts in m."""
    leaves: Array

    @staticmethod
    def of(classes: Classes, precisions: Precisions) -> "Subtrees":
        number = len(classes.kind)
        sizes = [each.shape[1] for each in precisions.noisy]
        untold, told, from_children, from_own = (tuple(np.zeros((number, b, b)) for b in sizes) for _ in range(4))
        leaves = np.zeros(number)
        for begin, end in classes.ends:
            kind, chosen = classes.kind[begin:end], slice(begin, end)
            leaf = np.diff(classes.first[begin : end + 1]) == 0
            leaves[chosen] = np.where(leaf, precisions.leaves[kind], classes.summed(leaves, begin, end))
            given = precisions.given[kind]
            for place, b in enumerate(sizes):
                start = np.where(leaf[:, None, None], np.eye(b), classes.summed(untold[place], begin, end))
                state = _State(start, classes.summed(told[place], begin, end), leaves[chosen])
                state.learn(precisions.noisy[place][kind], precisions.known[place][kind])
                of_kind = given[:, None, None]
                untold[place][chosen] = np.where(of_kind, precisions.untold[place][kind], state.untold)
                told[place][chosen] = np.where(of_kind, precisions.told[place][kind], state.told)
                from_children[place][chosen] = np.where(of_kind, 0.0, state.before)
                from_own[place][chosen] = np.where(of_kind, np.eye(b), state.own)
        return Subtrees(classes, untold, told, from_children, from_own, leaves)

    @cached_property
    def all_told(self) -> NDArray[np.bool_]:
        """Of which classes everything is told."""
        found = np.ones(len(self.leaves), dtype=bool)
        for each in self.untold:
            found &= np.trace(each, axis1=1, axis2=2) <= UNTOLD * self.leaves
        return found

    @cached_property
    def shares(self) -> tuple[Blocks, Blocks]:
        """X and C of each class."""
        classes = self.classes
        found = [(np.zeros_like(untold), np.zeros_like(untold)) for untold in self.untold]
        for begin, end in classes.ends:
            for place, (x, c) in enumerate(found):
                sums = classes.summed(self.untold[place], begin, end), classes.summed(self.told[place], begin, end)
                _, projected, rest = _limits(*sums, self.leaves[begin:end])
                x[begin:end], c[begin:end] = projected, rest
        return tuple(x for x, _ in found), tuple(c for _, c in found)

    def below(self, place: int, parents: Labels, children: Labels, above: tuple[Array, Array]) -> tuple[Array, Array]:
        """The infinite and the finite part of the variance of children of places, from those of the places.

        `parents` and `children` are classes, a pair for each row of `above`.
        """
        distinct, label = np.unique(parents, return_inverse=True)
        sums = [np.array([part[place][self._children(each)].sum(axis=0) for each in distinct]) for part in self._parts]
        inverse, x, c = _limits(sums[0], sums[1], self.leaves[distinct])
        remaining = sums[1] - sums[1] @ c @ sums[1]
        second = -inverse @ remaining @ x
        first = _turned(_ranged(inverse, sums[0]) @ (np.eye(c.shape[1]) - sums[1] @ c), inverse)
        inverse, x, c, second, first = (each[label] for each in (inverse, x, c, second, first))
        a, b = self.untold[place][children], self.told[place][children]
        gain = a @ x + b @ c
        gain_next = a @ second + b @ first
        infinite, finite = above
        cross = a @ x @ b
        spread = gain @ infinite @ _transposed(gain_next)
        found = b - b @ c @ b - cross - _transposed(cross) - a @ second @ a
        found += gain @ finite @ _transposed(gain) + spread + _transposed(spread)
        return a - a @ inverse @ a + gain @ infinite @ _transposed(gain), found

    def gain(self, place: int, parent: int, child: int) -> Array:
        """J: how much of its parent's error a place of a class has."""
        x, c = self.shares
        return self.untold[place][child] @ x[place][parent] + self.told[place][child] @ c[place][parent]

    @property
    def _parts(self) -> tuple[Blocks, Blocks]:
        return self.untold, self.told

    def _children(self, of: int) -> Labels:
        return self.classes.children[self.classes.first[of] : self.classes.first[of + 1]]


# ----------------------------------------------------------------------------------------------------------------------
# Stacks of small matrices.


def _transposed(stack: Array) -> Array:
    return stack.transpose(0, 2, 1)


def _ranged(inverse: Array, matrix: Array) -> Array:
    """The projection to the range of matrices, from their pseudo-inverses."""
    return inverse @ matrix


def _turned(left: Array, inverse: Array) -> Array:
    """Lᵀ A⁺ L."""
    return _transposed(left) @ inverse @ left


def _eigen(stack: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors; of numbers, themselves."""
    if stack.shape[1] == 1:
        return stack[:, :, 0], np.ones_like(stack)
    values, vectors = np.linalg.eigh((stack + _transposed(stack)) / 2.0)
    return values, vectors


def _inverse(stack: Array, smallest: Array) -> Array:
    """Pseudo-inverses: eigenvalues up to the smallest are 0."""
    values, vectors = _eigen(stack)
    kept = values > smallest[:, None]
    return (vectors * np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)[:, None, :]) @ _transposed(vectors)


def _limits(untold: Array, told: Array, leaves: Array) -> tuple[Array, Array, Array]:
    """A⁺, X and C of sums over children."""
    inverse = _inverse(untold, UNTOLD * leaves)
    within = _ranged(inverse, untold)
    outside = np.eye(untold.shape[1]) - within
    largest = np.trace(told, axis1=1, axis2=2)
    c = _inverse(outside @ told @ outside, KNOWN * largest)
    return inverse, inverse @ within @ (np.eye(untold.shape[1]) - told @ c), c


class _State:
    """A and B of some classes, conditioned on their own measurements, and what these and the children count in m."""

    def __init__(self, untold: Array, told: Array, leaves: Array) -> None:
        self.untold, self.told = untold, told
        self.smallest = UNTOLD * leaves
        self.before = np.zeros_like(untold) + np.eye(untold.shape[1])
        self.own = np.zeros_like(untold)

    def learn(self, noisy: Array, known: Array) -> None:
        """Facts first, then what noisy measurements say of the rest."""
        free, across = np.eye(noisy.shape[1]) - known, np.zeros_like(noisy)
        if known.any():
            values, vectors = _eigen(known)
            for column in range(noisy.shape[1]):
                row = vectors[:, :, column]
                self._observe(row, np.zeros(len(row)), row, values[:, column] > 0.5)
            across = free @ noisy @ known
        values, vectors = _eigen(free @ noisy @ free)
        largest = np.trace(noisy, axis1=1, axis2=2)
        for column in range(noisy.shape[1]):
            told, row = values[:, column] > KNOWN * largest, vectors[:, :, column]
            variance = 1.0 / np.where(told, values[:, column], 1.0)
            seen = np.einsum("ub,ubc->uc", row, free - across) * variance[:, None]
            self._observe(row, variance, seen, told)

    def _observe(self, row: Array, variance: Array, seen: Array, told: NDArray[np.bool_]) -> None:
        """Condition on row · z, of which the value is `seen` · the place's own sum, with this variance."""
        of_untold, of_told = np.einsum("ubc,uc->ub", self.untold, row), np.einsum("ubc,uc->ub", self.told, row)
        infinite = (row * of_untold).sum(axis=1)
        finite = (row * of_told).sum(axis=1) + variance
        diffuse = told & (infinite > self.smallest)
        usual = told & ~diffuse & (finite > KNOWN * np.trace(self.told, axis1=1, axis2=2)) & (finite > 0.0)
        gain = np.where(diffuse[:, None], of_untold / np.where(diffuse, infinite, 1.0)[:, None], 0.0)
        gain += np.where(usual[:, None], of_told / np.where(usual, finite, 1.0)[:, None], 0.0)
        outer = gain[:, :, None] * gain[:, None, :]
        crossed = gain[:, :, None] * of_told[:, None, :]
        self.untold = self.untold - outer * np.where(diffuse, infinite, 0.0)[:, None, None]
        moved = outer * finite[:, None, None] - crossed - _transposed(crossed)
        self.told = self.told + np.where((diffuse | usual)[:, None, None], moved, 0.0)
        for maps, added in ((self.before, None), (self.own, seen)):
            along = np.einsum("ub,ubc->uc", row, maps)
            along = -along if added is None else added - along
            maps += gain[:, :, None] * along[:, None, :]
