"""Loops over the cells of tables by the value of what the tables share; see `shared_margins` for the layout."""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def sum_cells(cells, scale, index, ends, runs, begins, places, sums):  # pragma: no cover - compiled
    for e in range(begins.size):
        value, run = index[ends[e] : ends[e + 1]], runs[e]
        cell = cells[begins[e] : begins[e] + value.size * run]
        times = scale[begins[e] : begins[e] + value.size * run]
        into = sums[places[e] : places[e + 1]]
        if run == 1:
            for i in range(value.size):
                into[value[i]] += cell[i] * times[i]
        else:
            for i in range(value.size):
                some, part = cell[i * run : (i + 1) * run], times[i * run : (i + 1) * run]
                total = 0.0
                for j in range(run):
                    total += some[j] * part[j]
                into[value[i]] += total


@numba.njit(nogil=True, cache=True)
def spread_margins(sums, index, ends, runs, begins, places, cells):  # pragma: no cover - compiled
    for e in range(begins.size):
        value, run = index[ends[e] : ends[e + 1]], runs[e]
        cell = cells[begins[e] : begins[e] + value.size * run]
        source = sums[places[e] : places[e + 1]]
        if run == 1:
            for i in range(value.size):
                cell[i] += source[value[i]]
        else:
            for i in range(value.size):
                some, amount = cell[i * run : (i + 1) * run], source[value[i]]
                for j in range(run):
                    some[j] += amount


@numba.njit(nogil=True, cache=True)
def solve_margins(sums, resistance, masses, strength, groups, values, places):  # pragma: no cover - compiled
    # (diag(r) + s·m mᵀ)⁻¹ t = t/r − (m/r)·s·(m·t/r)/(1 + s·m·m/r), value by value; members without resistance stay out.
    for g in range(values.size):
        first, last = groups[g], groups[g + 1]
        for v in range(values[g]):
            along, length = 0.0, 0.0
            for e in range(first, last):
                at = places[e] + v
                if resistance[at] > 0.0:
                    along += masses[at] * sums[at] / resistance[at]
                    length += masses[at] * masses[at] / resistance[at]
            s = strength[places[first] + v]
            back = s * along / (1.0 + s * length)
            for e in range(first, last):
                at = places[e] + v
                if resistance[at] > 0.0:
                    sums[at] = (sums[at] - masses[at] * back) / resistance[at]
                else:
                    sums[at] = 0.0


@numba.njit(nogil=True, cache=True)
def balance(potentials, index, ends, runs, begins, groups, values):  # pragma: no cover - compiled
    for g in range(values.size):
        first, last = groups[g], groups[g + 1]
        peaks = np.full((last - first, values[g]), -np.inf)
        middle = np.zeros(values[g])
        for e in range(first, last):
            value, run = index[ends[e] : ends[e + 1]], runs[e]
            cell = potentials[begins[e] : begins[e] + value.size * run]
            peak = peaks[e - first]
            for i in range(value.size):
                highest = peak[value[i]]
                for j in range(i * run, (i + 1) * run):
                    highest = max(highest, cell[j])
                peak[value[i]] = highest
            for v in range(values[g]):
                middle[v] += peak[v] / (last - first)
        for e in range(first, last):
            value, run = index[ends[e] : ends[e + 1]], runs[e]
            cell = potentials[begins[e] : begins[e] + value.size * run]
            peak = peaks[e - first]
            for v in range(values[g]):
                peak[v] = middle[v] - peak[v]
            for i in range(value.size):
                change = peak[value[i]]
                for j in range(i * run, (i + 1) * run):
                    cell[j] += change
