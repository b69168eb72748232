import { BASES, MODELLED, NOT_MEASURED, PUBLIC, Release, TooLarge } from "./engine.js";

// What is shown: a view of choices, kept in the address, becomes a query, a table, a picture and words.

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5195", "#8C6D1F", "#4C4C4C", "#56B4E9"];
const WITHOUT = {
  large: "Some error bars are missing: what they rest on is too large for this page. The command below gives them.",
  drawn: "Some error bars are missing: the table of all attributes that are asked about is too large for this page to draw others like it. The command below may give them.",
  between: "Some error bars are missing: these values were measured together only. The command below gives them.",
  unknown: "Some error bars are missing: how far the model is off cannot be said of these answers.",
};
const MOST_SHOWN = 2000, MOST_BARS = 60;

// ---------------------------------------------------------------------------------------------------------------------
// Views, and the queries that they ask.

/** A view as the text of a link, and back. */
export function asText(view, data) {
  const found = new URLSearchParams();
  for (const key of ["show", "rows", "columns", "as"]) if (view[key]) found.set(key, view[key]);
  for (const [axis, codes] of Object.entries(view.where)) found.set(`only.${data.attributes[axis].name}`, codes.join("."));
  return found.toString();
}

export function fromText(text, data) {
  const given = new URLSearchParams(text), view = { show: "counts", rows: "", columns: "", as: "", where: {} };
  for (const key of ["show", "rows", "columns", "as"]) if (given.has(key)) view[key] = given.get(key);
  data.attributes.forEach((attribute, axis) => {
    const codes = (given.get(`only.${attribute.name}`) ?? "").split(".").filter(each => /^\d+$/.test(each)).map(Number);
    const kept = [...new Set(codes)].filter(code => code < attribute.labels.length).sort((a, b) => a - b);
    if (kept.length && kept.length < attribute.labels.length) view.where[axis] = kept;
  });
  const known = new Set(["", ...choicesOf(data).map(each => each.value)]);
  for (const key of ["rows", "columns"]) if (!known.has(view[key])) view[key] = "";
  if (!measuresOf(data).some(each => each.value === view.show)) view.show = "counts";
  return view;
}

/** What can stand in rows and columns: each attribute, and each of its levels, by number and level. */
export function choicesOf(data) {
  return data.attributes.flatMap((attribute, axis) => [
    ...attribute.levels.map((level, k) => ({ value: `${axis}/${k}`, text: `${attribute.title}: ${level.name}` })),
    { value: String(axis), text: attribute.title },
  ]);
}

export function measuresOf(data) {
  const means = data.attributes.flatMap((attribute, axis) => (attribute.midpoints ? [{ value: `mean/${axis}`, text: `mean of ${attribute.title}` }] : []));
  return [
    { value: "counts", text: "counts" }, { value: "total", text: "shares of all shown" },
    { value: "row", text: "shares of each row" }, { value: "column", text: "shares of each column" }, ...means,
  ];
}

/** The groups of values along one side of the table: those of a level, or each value, as far as the filter lets them. */
function side(data, chosen, where) {
  const [axis, level] = chosen.split("/").map(Number), attribute = data.attributes[axis];
  const whole = level === undefined ? null : attribute.levels[level];
  const picked = where[axis] && new Set(where[axis]);
  const all = whole ? whole.groups : attribute.labels.map((_, code) => [code]);
  const labels = whole ? whole.labels : attribute.labels;
  const kept = all.map((codes, k) => ({ label: labels[k], whole: codes, codes: picked ? codes.filter(code => picked.has(code)) : codes, k }));
  const groups = kept.filter(group => group.codes.length);
  return {
    axis, attribute, level, groups,
    cut: groups.some(group => group.codes.length < group.whole.length),
    unnamed: Boolean(whole) && whole.spelled === null,
    spelled: whole ? whole.spelled : attribute.spelled,
    title: whole ? `${attribute.title}: ${whole.name}` : attribute.title,
  };
}

/** A view as what the engine is asked, and in the words of the query language (null where it has none). */
export function questionOf(data, view) {
  const sides = [view.rows, view.columns].filter((each, k, all) => each !== "" && (k === 0 || each.split("/")[0] !== all[0].split("/")[0])).map(each => side(data, each, view.where));
  const rows = view.rows === "" ? null : sides[0], columns = view.columns === "" ? null : sides[rows ? 1 : 0] ?? null;
  const mean = view.show.startsWith("mean/") ? Number(view.show.slice(5)) : null;
  if (mean !== null && (sides.some(each => each.axis === mean) || view.where[mean])) {
    return { refused: `The mean of ${data.attributes[mean].title} cannot be asked by, or among some of, its own values.` };
  }
  const filters = Object.keys(view.where).map(Number);
  const one = codes => [codes.map(code => [code, 1])];
  const hidden = kept => filters.filter(axis => !kept.some(each => each.axis === axis)).map(axis => ({ attribute: axis, rows: one(view.where[axis]) }));
  const listed = kept => kept.map(each => ({ attribute: each.axis, rows: each.groups.map(group => group.codes.map(code => [code, 1])) }));
  const query = kept => [...hidden(kept), ...listed(kept)];
  const shape = sides.map(each => each.groups.length), size = shape.reduce((a, b) => a * b, 1);
  const found = { sides, rows, columns, size, refused: "", cut: sides.some(each => each.cut), asked: { query: query(sides) } };
  const words = kept => textOf(data, view.where, kept);
  found.text = words(sides);
  const at = kept => Array.from({ length: size }, (_, k) => (kept.length === 0 ? 0 : kept[0] === sides[0] && sides.length > 1 ? Math.floor(k / shape[1]) : kept[0] === sides[0] ? k : k % shape[1]));
  if (mean !== null) {
    const attribute = data.attributes[mean], ordinary = Array.from({ length: attribute.ordinary }, (_, code) => code);
    const above = [{ attribute: mean, rows: [ordinary.map(code => [code, attribute.midpoints[code]])] }, ...query(sides)];
    const below = [{ attribute: mean, rows: one(ordinary) }, ...query(sides)];
    found.asked = { query: above, per: below, at: Array.from({ length: size }, (_, k) => k) };
    found.text = meanText(data, attribute, view.where, sides);
  } else if (view.show !== "counts") {
    const kept = view.show === "total" ? [] : (view.show === "row" ? [rows] : [columns]).filter(Boolean);
    found.asked.per = query(kept);
    found.asked.at = at(kept);
    found.text = `${found.text} per ${words(kept)}`;
  }
  if (found.cut || sides.some(each => each.unnamed)) found.text = null;
  return found;
}

function conditionsOf(data, where) {
  return Object.entries(where).map(([axis, codes]) => {
    const attribute = data.attributes[axis];
    return `${attribute.spelled}=${codes.map(code => attribute.values[code]).join("|")}`;
  }).join(" and ");
}

const byOf = sides => (sides.length ? `by ${sides.map(each => each.spelled).join(", ")}` : "");

function textOf(data, where, sides) {
  return [conditionsOf(data, where), byOf(sides)].filter(Boolean).join(" ") || "total";
}

function meanText(data, attribute, where, sides) {
  const conditions = conditionsOf(data, where);
  return [`mean(${attribute.spelled})`, conditions && `where ${conditions}`, byOf(sides)].filter(Boolean).join(" ");
}

// ---------------------------------------------------------------------------------------------------------------------
// Words and numbers.

const plain = digits => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const WHOLE = plain(0), TENTHS = plain(1);

function writer(view) {
  if (view.show === "counts") return number => WHOLE.format(Math.round(number) + 0);
  if (view.show.startsWith("mean/")) return number => TENTHS.format(number);
  return number => `${TENTHS.format(100 * number)} %`;
}

/** The view in words, such as "Counts by age and sex, only sex: Female". */
export function titleOf(data, view) {
  const named = measuresOf(data).find(each => each.value === view.show).text, choices = choicesOf(data);
  const sides = [view.rows, view.columns].filter(Boolean).map(each => choices.find(choice => choice.value === each).text);
  const only = Object.entries(view.where).map(([axis, codes]) => {
    const attribute = data.attributes[axis], labels = codes.map(code => attribute.labels[code]);
    return `${attribute.title}: ${labels.length > 4 ? `${labels.length} of ${attribute.labels.length}` : labels.join(" or ")}`;
  });
  const head = named[0].toUpperCase() + named.slice(1);
  return [sides.length ? `${head} by ${sides.join(" and ")}` : `${head === "Counts" ? "Number of all" : head}`, ...(only.length ? [`only ${only.join("; ")}`] : [])].join(", ");
}

/** Why answers are not measured. */
export function whyNot(data, question) {
  const groups = data.evidence.groups, asked = question.asked.query.map(each => each.attribute);
  const never = asked.filter(axis => !groups.some(group => group.includes(axis)));
  const named = axes => axes.map(axis => `“${data.attributes[axis].title}”`).join(", ");
  const parts = groups.map(group => asked.filter(axis => group.includes(axis))).filter(group => group.length);
  const told = [];
  if (never.length) told.push(`${named(never)} ${never.length > 1 ? "were" : "was"} never measured`);
  if (parts.length > 1) told.push(`no measurement links ${parts.map(named).join(" with ")}`);
  return told.join(", and ") || "the values asked for were not told apart by any measurement";
}

export function csvOf(data, question, found) {
  const safe = text => (/^[=+\-@\t\r\n]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
  const cell = text => (/[",\r\n]/.test(safe(text)) ? `"${safe(text).replaceAll('"', '""')}"` : safe(text));
  const number = each => (Number.isFinite(each) ? String(each) : "");
  const notice = data.private ? [] : ["NOT PRIVATE"];
  const head = [...notice, ...question.sides.map(each => each.title), "estimate", "low", "high", "basis"];
  const lines = [head.map(cell).join(",")];
  for (let k = 0; k < question.size; k++) {
    const labels = labelsAt(question, k), mark = data.private ? [] : ["simulated noise"];
    lines.push([...mark, ...labels, ...[found.estimates[k], found.low[k], found.high[k]].map(number), BASES[found.basis[k]]].map(cell).join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

function labelsAt({ sides }, k) {
  if (sides.length < 2) return sides.map(each => each.groups[k].label);
  const across = sides[1].groups.length;
  return [sides[0].groups[Math.floor(k / across)].label, sides[1].groups[k % across].label];
}

/** What a shell takes for one word. */
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

// ---------------------------------------------------------------------------------------------------------------------
// The page. Everything from the release becomes text, never markup.

export function start(document, window) {
  const data = JSON.parse(document.getElementById("release").textContent), release = new Release(data);
  const at = id => document.getElementById(id);
  let view, last, latest;

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name in made && name !== "list") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function drawing(tag, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  }

  const options = (select, choices) => select.replaceChildren(...choices.map(({ value, text }) => element("option", { value }, text)));

  function first() {
    at("title").textContent = `Explore ${data.name}`;
    const total = release.answer({ query: [] });
    const about = `${data.tables} noisy ${data.tables === 1 ? "table" : "tables"}, privacy budget ${data.spent}.`;
    at("about").textContent = Number.isFinite(total.estimates[0]) ? `About ${WHOLE.format(total.estimates[0])} ${data.counted}, from ${about}` : about;
    at("banner").hidden = data.private;
    options(at("show"), measuresOf(data));
    options(at("rows"), [{ value: "", text: "(nothing: one number)" }, ...choicesOf(data)]);
    options(at("columns"), [{ value: "", text: "(nothing else)" }, ...choicesOf(data)]);
    options(at("as"), [{ value: "", text: "table and picture" }, { value: "table", text: "table alone" }, { value: "bars", text: "bars" }, { value: "lines", text: "lines" }, { value: "heatmap", text: "heatmap" }]);
    for (const id of ["show", "rows", "columns", "as"]) at(id).addEventListener("change", () => go({ ...view, [id]: at(id).value }));
    at("swap").addEventListener("click", () => go({ ...view, rows: view.columns, columns: view.rows }));
    at("reset").addEventListener("click", () => go(opening()));
    at("link").addEventListener("click", copyLink);
    at("csv").addEventListener("click", download);
    document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); at("answer").focus(); });
    at("filters").replaceChildren(...data.attributes.map(filter));
    at("cost").textContent = `Everything here is computed in this page from numbers that are published already: looking costs no privacy, however often. What was spent when they were measured: ${data.spent}.`;
    at("promise").textContent = data.promise;
    at("made").textContent = `Made with ${data.tool}, release of ${data.created.slice(0, 10)}; checksum of the measurements ${data.checksum}.`;
    window.addEventListener("hashchange", () => { if (window.location.hash.slice(1) !== asText(view, data)) read(); });
    read();
  }

  const opening = () => ({ show: "counts", rows: data.attributes.length ? "0" : "", columns: "", as: "", where: {} });

  function read() {
    const text = window.location.hash.slice(1);
    view = text ? fromText(text, data) : opening();
    for (const id of ["show", "rows", "columns", "as"]) at(id).value = view[id];
    data.attributes.forEach((_, axis) => refresh(axis));
    answer();
  }

  function go(next) {
    window.location.hash = asText(next, data);
    read();
  }

  // Filters.

  function filter(attribute, axis) {
    const boxes = attribute.labels.map((label, code) => element("label", {}, element("input", { type: "checkbox", checked: true, value: String(code), onchange: () => picked(axis) }), label));
    const groups = attribute.levels.flatMap(level => level.labels.length > 60 ? [] : [element("div", { className: "groups", role: "group", "aria-label": level.name },
      ...level.labels.map((label, k) => element("button", { type: "button", onclick: () => choose(axis, level.groups[k]) }, label)))]);
    const all = element("button", { type: "button", onclick: () => choose(axis, null) }, `All of ${attribute.title}`);
    const none = element("button", { type: "button", onclick: () => { for (const box of at(`filter-${axis}`).querySelectorAll("input")) box.checked = false; } }, "Clear, then tick some");
    return element("details", { id: `filter-${axis}` }, element("summary", {}, attribute.title),
      element("div", { className: "groups" }, all, none), ...groups, element("div", { className: "values", role: "group", "aria-label": attribute.title }, ...boxes));
  }

  function picked(axis) {
    const codes = [...at(`filter-${axis}`).querySelectorAll("input:checked")].map(box => Number(box.value));
    choose(axis, codes);
  }

  function choose(axis, codes) {
    const where = { ...view.where };
    if (!codes || !codes.length || codes.length === data.attributes[axis].labels.length) delete where[axis];
    else where[axis] = [...codes].sort((a, b) => a - b);
    go({ ...view, where });
  }

  function refresh(axis) {
    const fold = at(`filter-${axis}`), attribute = data.attributes[axis], chosen = view.where[axis], picked = chosen && new Set(chosen);
    for (const box of fold.querySelectorAll("input")) box.checked = !picked || picked.has(Number(box.value));
    const shown = chosen && (chosen.length > 2 ? `${chosen.length} of ${attribute.labels.length}` : chosen.map(code => attribute.labels[code]).join(" or "));
    fold.querySelector("summary").replaceChildren(attribute.title, ...(chosen ? [": ", element("span", { className: "chosen" }, shown)] : []));
  }

  // Answers.

  function answer() {
    const question = questionOf(data, view), title = titleOf(data, view);
    at("question").textContent = title;
    for (const id of ["picture", "table", "explained"]) at(id).replaceChildren();
    at("status").textContent = "";
    last = null;
    elsewhere(question);
    if (question.refused || question.size > MOST_SHOWN) {
      at("status").textContent = question.refused || `This table has ${WHOLE.format(question.size)} cells, too many to be looked at: filter, or choose a coarser level. The command below gives all of them.`;
      return;
    }
    // The numbers first, and when they are there to be read, their error bars.
    const began = performance.now(), asking = {};
    latest = asking;
    if (!answered(question, title, false)) return;
    at("status").textContent = "Working out the error bars …";
    window.setTimeout(() => {
      if (latest !== asking || !answered(question, title, true)) return;
      at("status").textContent = `Answered here in ${Math.max(1, Math.round(performance.now() - began))} ms.`;
    }, 20);
  }

  /** Shows the answers, with their error bars or without; whether there are any. */
  function answered(question, title, bars) {
    try {
      last = { question, found: release.answer(question.asked, bars), title, bars };
    } catch (error) {
      if (!(error instanceof TooLarge)) throw error;
      at("status").textContent = `This page cannot answer that: ${error.message}. The command below can.`;
      return false;
    }
    const picture = pictureOf(last);
    at("table").replaceChildren(question.columns && question.rows ? crossTable(last) : longTable(last));
    at("picture").replaceChildren(...(picture ? [picture] : []));
    at("explained").replaceChildren(...notesOn(last).map(text => element("li", {}, text)));
    return true;
  }

  function notesOn({ question, found }) {
    const notes = [], level = WHOLE.format(100 * data.level), has = code => found.basis.includes(code);
    const refits = Math.min(...Object.values(data.sets).map(set => set.refits));
    if (found.high.some(Number.isFinite)) notes.push(`From … to …: holds the true number with a probability of ${level} %; it rests on ${refits} refits to simulated noise.`);
    if (wide(found).some(Boolean)) notes.push("In italics: the error bar is wider than the number itself. Do not rely on it.");
    if (has(MODELLED)) notes.push("~ modelled: no measurement determines it; the model fills in from what was measured in parts. Its error bar also holds errors of the model, as large as the interactions that were measured lead one to expect.");
    if (has(PUBLIC)) notes.push(`Public: ${data.public.name} alone says it; nothing that was measured says how far it is off.`);
    if (has(NOT_MEASURED)) notes.push(`– not measured: ${whyNot(data, question)}.`);
    if (found.why) notes.push(WITHOUT[found.why] ?? found.why);
    return [...notes, ...data.notes];
  }

  const wide = found => Array.from(found.estimates, (number, k) => found.high[k] - found.low[k] > Math.abs(number));
  const mark = (found, k) => (found.basis[k] === MODELLED ? "~ " : "");

  function texts(found, k) {
    const write = writer(view), number = found.estimates[k];
    const range = Number.isFinite(found.high[k]) ? `${write(found.low[k])} to ${write(found.high[k])}` : found.high[k] === Infinity ? `${write(found.low[k])} or more` : "";
    return { number: Number.isFinite(number) ? mark(found, k) + write(number) : "–", range };
  }

  function heading(one, group) {
    const next = drilled(one, group);
    if (!next) return group.label;
    return element("button", { type: "button", title: `Look inside ${group.label}`, onclick: () => go(next) }, `${group.label}\u00a0›`);
  }

  /** The view that looks inside one group: its values, or those of the next level. */
  function drilled(one, group) {
    if (one.level === undefined || group.codes.length < 2) return null;
    const finer = one.attribute.levels.findIndex((level, k) => k > one.level && level.groups.some(codes => codes.length < group.codes.length && codes.every(code => group.codes.includes(code))));
    const side = finer < 0 ? String(one.axis) : `${one.axis}/${finer}`;
    const key = view.rows.split("/")[0] === String(one.axis) ? "rows" : "columns";
    return { ...view, [key]: side, where: { ...view.where, [one.axis]: group.codes } };
  }

  function longTable({ question, found, title }) {
    const one = question.sides[0], unsure = wide(found), level = WHOLE.format(100 * data.level);
    const heads = [...(one ? [one.title] : []), "Estimate", `From … to … (${level} %)`, "Stands on"];
    const body = Array.from({ length: question.size }, (_, k) => {
      const { number, range } = texts(found, k);
      return element("tr", {}, ...(one ? [element("th", { scope: "row" }, heading(one, one.groups[k]))] : []),
        element("td", { className: unsure[k] ? "wide" : "" }, number), element("td", { className: "range" }, range), element("td", { className: "basis" }, BASES[found.basis[k]]));
    });
    return element("table", {}, element("caption", {}, title), element("thead", {}, element("tr", {}, ...heads.map(text => element("th", { scope: "col" }, text)))), element("tbody", {}, ...body));
  }

  function crossTable({ question, found, title }) {
    const [down, across] = question.sides, unsure = wide(found), count = across.groups.length;
    const body = down.groups.map((group, i) => element("tr", {}, element("th", { scope: "row" }, heading(down, group)), ...across.groups.map((_, j) => {
      const { number, range } = texts(found, i * count + j);
      return element("td", { className: unsure[i * count + j] ? "wide" : "" }, number, ...(range ? [element("small", {}, range)] : []));
    })));
    const corner = element("th", { scope: "col" }, `${down.title} \\ ${across.title}`);
    return element("table", {}, element("caption", {}, title), element("thead", {}, element("tr", {}, corner, ...across.groups.map(group => element("th", { scope: "col" }, heading(across, group))))), element("tbody", {}, ...body));
  }

  // Pictures: small SVG, with the table beside them for those who do not see them.

  function pictureOf(answer) {
    const { question, found } = answer, two = question.sides.length > 1;
    if (!question.sides.length || view.as === "table" || !Array.from(found.estimates).some(Number.isFinite)) return null;
    const ordered = question.sides[0].attribute.ordered, length = question.sides[0].groups.length;
    const kind = view.as || (two ? "heatmap" : ordered && length > 12 ? "lines" : "bars");
    if (kind === "heatmap") return heatmap(answer);
    if (kind === "lines") return lines(answer);
    return question.size <= MOST_BARS * (two ? 2 : 1) ? bars(answer) : null;
  }

  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const roomFor = width => Math.min(Math.max(300, at("answer").clientWidth || width), 760);

  function frame(width, height, title) {
    const svg = drawing("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}. The table below has the same numbers.` });
    if (!data.private) svg.append(drawing("text", { x: width - 4, y: 12, "text-anchor": "end", "font-size": 11, fill: "#8f1d1d", "font-weight": 700 }, "NOT PRIVATE"));
    return svg;
  }

  function largest(found) {
    const ends = Array.from(found.estimates, (number, k) => (Number.isFinite(found.high[k]) ? found.high[k] : number)).filter(Number.isFinite);
    return Math.max(...ends, 1e-12);
  }

  function bars({ question, found, title }) {
    const two = question.sides.length > 1, across = two ? question.sides[1].groups : [null], write = writer(view);
    const width = roomFor(640), left = Math.min(200, width * 0.32), right = 70, top = two ? roomAbove(across, width) : 18, step = 22, gap = two ? 10 : 4;
    const rows = question.sides[0].groups, height = top + rows.length * (across.length * step + gap);
    const svg = frame(width, height, title), most = largest(found), scale = (width - left - right) / most;
    if (two) legend(svg, across, width);
    rows.forEach((group, i) => {
      const above = top + i * (across.length * step + gap);
      svg.append(drawing("text", { x: left - 8, y: above + across.length * step / 2 + 4, "text-anchor": "end", "font-size": 13, fill: "#1d2329" }, short(group.label, Math.floor(left / 7.5))));
      across.forEach((_, j) => {
        const k = i * across.length + j, number = found.estimates[k], y = above + j * step, middle = y + step / 2 - 1;
        if (!Number.isFinite(number)) {
          svg.append(drawing("text", { x: left + 2, y: middle + 5, "font-size": 13, fill: "#55606a" }, "–"));
          return;
        }
        const faint = found.basis[k] === MODELLED ? { "fill-opacity": 0.45, stroke: COLOURS[j % 8], "stroke-dasharray": "3 2" } : {};
        svg.append(drawing("rect", { x: left, y: y + 2, width: Math.max(0, number * scale), height: step - 6, fill: COLOURS[j % 8], ...faint }));
        const end = Number.isFinite(found.high[k]) ? found.high[k] : number;
        errorBar(svg, left + Math.max(0, found.low[k]) * scale, left + found.high[k] * scale, middle);
        svg.append(drawing("text", { x: left + Math.max(0, end) * scale + 6, y: middle + 4, "font-size": 12, fill: "#1d2329" }, mark(found, k) + write(number)));
      });
    });
    return svg;
  }

  function errorBar(svg, from, to, middle, upright = false, stroke = "#1d2329") {
    if (!Number.isFinite(to)) return;
    const path = upright ? `M${middle - 3} ${from}h6M${middle} ${from}V${to}M${middle - 3} ${to}h6` : `M${from} ${middle - 3}v6M${from} ${middle}H${to}M${to} ${middle - 3}v6`;
    svg.append(drawing("path", { d: path, stroke, "stroke-width": 1.4, fill: "none" }));
  }

  function legend(svg, groups, width) {
    placed(groups, width).forEach(({ text, x, line }, j) => {
      const y = 18 + 18 * line;
      svg.append(drawing("rect", { x, y, width: 12, height: 12, fill: COLOURS[j % 8] }), drawing("text", { x: x + 16, y: y + 10, "font-size": 12, fill: "#1d2329" }, text));
    });
  }

  /** Where each name of a legend stands: one after the other, in as many lines as it takes. */
  function placed(groups, width) {
    let [x, line] = [4, 0];
    return groups.map(group => {
      const text = short(group.label, 20), needed = 30 + text.length * 7;
      if (x > 4 && x + needed > width) [x, line] = [4, line + 1];
      const found = { text, x, line };
      x += needed;
      return found;
    });
  }

  const roomAbove = (groups, width) => 44 + 18 * placed(groups, width).at(-1).line;

  /** A round number not below the largest, which quarters well. */
  function round(most) {
    const unit = 10 ** Math.floor(Math.log10(most));
    return unit * [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(each => each * unit >= most * 0.9999);
  }

  function lines({ question, found, title }) {
    const two = question.sides.length > 1, across = two ? question.sides[1].groups : [null], rows = question.sides[0].groups, write = writer(view);
    const width = roomFor(640), height = 340, left = 64, right = 14, top = two ? roomAbove(across, width) : 22, bottom = 64;
    const svg = frame(width, height, title), most = round(largest(found)), low = height - bottom;
    const y = number => low - (Math.max(0, number) / most) * (low - top), x = i => left + (rows.length > 1 ? (i * (width - left - right)) / (rows.length - 1) : 0);
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(drawing("path", { d: `M${left} ${y(part * most)}H${width - right}`, stroke: "#e2e6ea" }), drawing("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end", "font-size": 11, fill: "#55606a" }, write(part * most)));
    }
    if (two) legend(svg, across, width);
    const every = Math.ceil(rows.length / Math.floor(width / 62));
    rows.forEach((group, i) => {
      if (i % every === 0) svg.append(drawing("text", { x: x(i), y: low + 16, "font-size": 11, fill: "#1d2329", "text-anchor": "end", transform: `rotate(-30 ${x(i)} ${low + 16})` }, short(group.label, 12)));
    });
    across.forEach((_, j) => {
      let path = "";
      rows.forEach((_, i) => {
        const k = i * across.length + j, number = found.estimates[k];
        if (!Number.isFinite(number)) return;
        path += `${path ? "L" : "M"}${x(i)} ${y(number)}`;
        errorBar(svg, y(found.low[k]), y(found.high[k]), x(i) + 4 * (j - (across.length - 1) / 2), true, two ? COLOURS[j % 8] : undefined);
        svg.append(drawing("circle", { cx: x(i), cy: y(number), r: 3, fill: COLOURS[j % 8] }));
      });
      svg.append(drawing("path", { d: path, fill: "none", stroke: COLOURS[j % 8], "stroke-width": 2 }));
    });
    return svg;
  }

  function heatmap({ question, found, title }) {
    if (question.sides.length < 2) return bars({ question, found, title });
    const [down, across] = question.sides, width = roomFor(640), left = Math.min(170, width * 0.3), top = 84, write = writer(view);
    const cell = Math.max(10, Math.min(96, (width - left - 44) / across.groups.length)), tall = Math.min(34, Math.max(14, cell * 0.6));
    const svg = frame(Math.max(width, left + cell * across.groups.length + 44), top + tall * down.groups.length + 6, title), most = largest({ ...found, high: found.estimates });
    across.groups.forEach((group, j) => {
      const x = left + (j + 0.5) * cell;
      if (cell > 14 || j % 2 === 0) svg.append(drawing("text", { x, y: top - 8, "font-size": 12, fill: "#1d2329", transform: `rotate(-35 ${x} ${top - 8})` }, short(group.label, 12)));
    });
    down.groups.forEach((group, i) => {
      const y = top + i * tall;
      svg.append(drawing("text", { x: left - 8, y: y + tall / 2 + 4, "text-anchor": "end", "font-size": 12, fill: "#1d2329" }, short(group.label, Math.floor(left / 7))));
      across.groups.forEach((_, j) => {
        const k = i * across.groups.length + j, number = found.estimates[k], share = Math.max(0, number) / most;
        const known = Number.isFinite(number), dark = known && share > 0.55, text = known ? mark(found, k) + write(number) : "–";
        svg.append(drawing("rect", { x: left + j * cell, y, width: cell - 1, height: tall - 1, fill: known ? shade(share) : "#fff", stroke: known ? "none" : "#c5ccd2" }));
        if (text.length * 7 < cell) svg.append(drawing("text", { x: left + (j + 0.5) * cell, y: y + tall / 2 + 4, "text-anchor": "middle", "font-size": 12, fill: dark ? "#fff" : "#1d2329" }, text));
      });
    });
    return svg;
  }

  function shade(share) {
    const mix = (from, to) => Math.round(from + (to - from) * share);
    return `rgb(${mix(240, 0)},${mix(246, 84)},${mix(250, 140)})`;
  }

  // The same numbers elsewhere.

  function elsewhere(question) {
    const known = question.text !== null && !question.refused, fewest = Math.min(...Object.values(data.sets).map(set => set.refits));
    const more = Number.isFinite(fewest) && fewest !== 200 ? fewest : null, level = data.level === 0.95 ? "" : String(data.level);
    at("elsewhere").textContent = known ? "" : "The query language has no words for this view; choose a finer level, or leave a filter away.";
    at("command").textContent = known ? ["consilience answer", quoted(data.folder), quoted(question.text), "--interval", ...(level ? [`--level ${level}`] : []), ...(more ? [`--refits ${more}`] : [])].join(" ") : "–";
    const options = ["interval=" + data.level, ...(more ? [`refits=${more}`] : [])].join(", ");
    at("python").textContent = known ? `import consilience as cs\n\nrelease = cs.open_release(${JSON.stringify(data.folder)})\nprint(release.answer(${JSON.stringify(question.text)}, ${options}))` : "–";
  }

  async function copyLink() {
    const link = `${window.location.href.split("#")[0]}#${asText(view, data)}`;
    try {
      await window.navigator.clipboard.writeText(link);
      at("status").textContent = "The link is copied.";
    } catch {
      at("status").textContent = `Copy this link: ${link}`;
    }
  }

  function download() {
    if (!last || !last.bars) return;
    const url = URL.createObjectURL(new Blob([csvOf(data, last.question, last.found)], { type: "text/csv" }));
    element("a", { href: url, download: `${last.title.replaceAll(/[^\p{L}\p{N}]+/gu, "-").slice(0, 80)}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  first();
  return { data, release, ask: text => { const question = questionOf(data, fromText(text, data)); return { text: question.text, ...release.answer(question.asked) }; } };
}

if (typeof document !== "undefined") window.consilience = start(document, window);
