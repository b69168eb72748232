// Fast ways against slow, obvious ones. Run by test_explorer.py, which puts the modules beside this file.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eliminate, planElimination, widths } from "./engine.js";
import { places, weighted } from "./tables.js";
import { asText, csvOf, fromText, questionOf } from "./page.js";

const close = (found, wanted, within = 1e-9) => {
  assert.equal(found.length, wanted.length);
  found.forEach((number, k) => assert.ok(number === wanted[k] || Math.abs(number - wanted[k]) <= within * Math.max(1, Math.abs(wanted[k])), `${number} for ${wanted[k]}`));
};

let state = 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
const range = size => Array.from({ length: size }, (_, k) => k);
const product = sizes => sizes.reduce((a, b) => a * b, 1);

/** log Σ exp of the sum of all tables, for each cell of the kept axes: by looking at every cell there is. */
function slowly(scopes, sizes, kept, codes, logs) {
  const lists = new Map(), axes = range(sizes.length);
  const every = scopes.map(scope => places(axes, sizes, scope, scope.map(axis => sizes[axis])));
  for (let cell = 0; cell < product(sizes); cell++) {
    const index = axes.map(axis => Math.floor(cell / product(sizes.slice(axis + 1))) % sizes[axis]);
    if (axes.some(axis => codes.has(axis) && !codes.get(axis).includes(index[axis]))) continue;
    const key = kept.map(axis => index[axis]).join();
    lists.set(key, [...(lists.get(key) ?? []), scopes.reduce((sum, _, k) => sum + logs[k][every[k][cell]], 0)]);
  }
  return [...lists.values()].map(list => {
    const most = Math.max(...list);
    return most === -Infinity ? most : most + Math.log(list.reduce((sum, each) => sum + Math.exp(each - most), 0));
  });
}

test("elimination is the sum over all cells, also where potentials span thousands of nats", () => {
  const sizes = [2, 3, 4, 2], choices = [[[0, 1], [1, 2], [2, 3]], [[0, 1], [1, 2], [2, 0], [3]], [[0, 1, 2], [2, 3]], [[3], [2], [1], [0]]];
  for (let round = 0; round < 40; round++) {
    const scopes = choices[round % 4], spread = [1, 50, 4000][round % 3];
    const logs = scopes.map(scope => Float64Array.from({ length: product(scope.map(axis => sizes[axis])) }, () => (random() < 0.05 ? -Infinity : spread * (random() - 0.5))));
    const kept = range(4).filter(() => random() < 0.4), codes = new Map(round % 2 ? [[2, [1, 3]]] : []);
    close(eliminate(planElimination(scopes, sizes, kept, codes), logs), slowly(scopes, sizes, kept, codes, logs));
  }
});

test("rows weigh the cells of a table", () => {
  const found = weighted(Float64Array.from([1, 2, 3, 4, 5, 6]), [{ rows: [[[0, 1]], [[1, 2]]] }, { rows: [[[4, 1], [7, 1]]] }], [[0, 1], [2, 4, 7]]);
  assert.deepEqual([...found], [5, 22]);
});

test("a width is the ⌈level·(n + 1)⌉-th smallest error, and what is no number is the largest", () => {
  const errors = range(20).map(k => Float64Array.of(k % 2 ? -k : k));
  assert.equal(widths(errors, 0.9)[0], 18);
  errors[3][0] = NaN;
  assert.equal(widths(errors, 0.9)[0], 19);
  assert.equal(widths(errors, 0.99)[0], Infinity);
});

const attribute = (name, labels, more = {}) => ({ name, title: name, spelled: name, labels, values: labels, levels: [], ordered: false, ...more });
const data = {
  private: true,
  attributes: [attribute("age", ["a", "b", "c", "d"], { midpoints: [1, 2, 3, 0], ordinary: 3, levels: [{ name: "halves", spelled: "halves(age)", labels: ["ab", "cd"], groups: [[0, 1], [2, 3]] }] }), attribute("sex", ["F", "M"])],
};
const asked = text => questionOf(data, fromText(text, data));

test("views become words of the query language", () => {
  const texts = ["rows=0", "rows=0/0&columns=1", "rows=1&only.age=0.1", "show=total&rows=1&only.age=2", "show=row&rows=0&columns=1", "show=mean/0&rows=1", "rows=0&only.age=0.1"].map(text => asked(text).text);
  assert.deepEqual(texts, ["by age", "by halves(age), sex", "age=a|b by sex", "age=c by sex per age=c", "by age, sex per by age", "mean(age) by sex", "age=a|b by age"]);
  assert.equal(asked("rows=0/0&only.age=0.2").text, null);
  assert.match(asked("show=mean/0&rows=0").refused, /mean of age/);
  assert.deepEqual(asked("show=row&rows=1&columns=0").asked.at, [0, 0, 0, 0, 1, 1, 1, 1]);
  assert.deepEqual(asked("show=column&rows=1&columns=0").asked.at, [0, 1, 2, 3, 0, 1, 2, 3]);
});

test("links lead back to their view, and odd ones to what there is", () => {
  const view = { show: "row", rows: "0/0", columns: "1", as: "bars", where: { 0: [0, 2] } };
  assert.deepEqual(fromText(asText(view, data), data), view);
  assert.deepEqual(fromText("show=x&rows=9&columns=%3Cb%3E&only.age=7.-1.z", data), { show: "counts", rows: "", columns: "", as: "", where: {} });
});

test("text that a spreadsheet would run is written with an apostrophe, and simulated noise is told in every line", () => {
  const odd = { private: false, attributes: [attribute("=x", ["=1+1", 'a "b", c'])] }, found = { estimates: [1.5, NaN], low: [1, NaN], high: [2, NaN], basis: [0, 3] };
  const lines = csvOf(odd, questionOf(odd, fromText("rows=0", odd)), found).split("\r\n");
  assert.deepEqual(lines, ["NOT PRIVATE,'=x,estimate,low,high,basis", "simulated noise,'=1+1,1.5,1,2,measured", 'simulated noise,"a ""b"", c",,,,not measured', ""]);
});
