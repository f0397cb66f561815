// ---------------------------------------------------------------------------------------------------------------------
// 3. The panel: controls, what they show, and what a reader takes away. Everything is made in `host`, a plain element.

const MENUS = ["model", "accelerator", "layout", "precision", "efficiency"];
const DEFAULTS = {
  model: "llama-3.1-8b", accelerator: "h100-sxm", devices: 1, layout: "tensor", precision: "bf16", efficiency: "floor",
  prompt: 1024, output: 128, cached: 0, batch: 1,
};
// least and most may ask the setting; `unit` in words, for one; `quantum`: the finest step; `zero`: the scale begins at 0.
const RANGES = {
  prompt: { label: "prompt", unit: "token", least: 1, most: 131_072 },
  output: { label: "output", unit: "token", least: 1, most: 65_536 },
  cached: { label: "of it cached", unit: "token", least: 0, most: (s) => s.prompt - 1, zero: true },
  batch: { label: "batch", unit: "request", least: 1, most: 4096 },
  devices: { label: "devices", unit: "device", least: 1, most: 256 },
  position: { label: "output so far", unit: "token", least: 1, most: (s) => Math.max(1, s.output - 1), even: true },
  target: { label: "latency target", unit: "ms a token", least: 1, most: 1000, quantum: 0.1 },
  load: { label: "load", unit: "% of what it can take", units: "% of what it can take", least: 5, most: 200, even: true },
  times: { label: "prefill faster", unit: "time", least: 1, most: 1000, quantum: 0.1 },
  dollars: { label: "a GPU-hour", unit: "dollar", least: 0.1, most: 20, quantum: 0.01 },
};
const bound = (limit, s) => (typeof limit === "function" ? limit(s) : limit);

// A scale from its least to its most value, as {share, value}: logarithmic, and from zero on log(1 + value).
function scaleOf(range, s) {
  const [least, most, quantum] = [range.least, Math.max(bound(range.most, s), range.least), range.quantum ?? 1];
  const [to, back] = range.even ? [(v) => v, (v) => v] : range.zero ? [Math.log1p, Math.expm1] : [Math.log, Math.exp];
  const across = to(most) - to(least) || 1;
  const held = (value) => Number(Math.min(most, Math.max(least, Math.round(value / quantum) * quantum)).toPrecision(12));
  return {
    least, most, held,
    share: (value) => (to(Math.min(most, Math.max(least, value))) - to(least)) / across,
    value: (share) => held(Number(back(to(least) + share * across).toPrecision(3))),
    // The next round value above or below: 12,800 goes to 13,000 and to 12,000.
    next: (value, way) => {
      const size = range.even ? most / 100 : 10 ** (Math.floor(Math.log10(Math.max(value * (way < 0 ? 0.999 : 1), 1e-9))) - 1);
      const step = Math.max(quantum, range.even ? roundUp(size) : size);
      const steps = value / step;
      return held(step * (way > 0 ? Math.floor(steps + 1 + 1e-9) : Math.ceil(steps - 1 - 1e-9)));
    },
  };
}

function inWords(range, value) {
  const units = range.units ?? (range.unit.startsWith("ms") ? range.unit : `${range.unit}s`);
  return `${inFull(value)} ${value === 1 ? range.unit : units}`;
}

function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside);
  return made;
}

// The setting in a page's address, for this view; {} where there is none, or where it is another's.
function fromAddress(name, start) {
  const [view, query] = decodeURI(globalThis.location?.hash ?? "").split("?");
  if (view !== `#explore-${name}` || !query) return {};
  const found = {};
  for (const [key, value] of new URLSearchParams(query)) {
    if (!(key in start)) continue;
    if (typeof start[key] !== "number") found[key] = value;
    else if (Number.isFinite(Number(value)) && value.trim()) found[key] = Number(value);
  }
  return found;
}

const cell = (value) => `"${String(value).replaceAll('"', '""')}"`;
const csvOf = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n");

// [name, value] of each setting that this view has, as a table and an address say them.
const settingsOf = (view, s) => [...MENUS, "devices", ...view.controls].map((key) => [key, s[key]]);

function legendOf(legend) {
  return legend.map(([look, words]) => `<li><span class="swatch ${look}"></span>${escaped(words)}</li>`).join("");
}

function tableOf(now, kept) {
  const before = new Map(kept ?? []);
  const rows = now.map(([label, value]) => {
    const other = kept ? `<td>${inHtml(before.get(label) ?? "-")}</td>` : "";
    return `<tr><th scope="row">${inHtml(label)}</th><td>${inHtml(value)}</td>${other}</tr>`;
  });
  const head = kept ? "<thead><tr><th></th><th scope=\"col\">this setting</th><th scope=\"col\">kept</th></tr></thead>" : "";
  return `<table>${head}<tbody>${rows.join("")}</tbody></table>`;
}

// Picture and table of a setting as one string, for a page where nothing runs; `image`: the address of the picture drawn.
export function still(data, name, start = {}, image = "") {
  const view = VIEWS[name];
  const found = view.compute(data, { ...DEFAULTS, ...view.start, ...start });
  const drawn = image ? `<img src="${image}" alt="${escaped(`${view.title}. ${found.said}`)}" style="max-width:100%">`
    : `<div class="drawn"><ul class="legend">${legendOf(found.legend)}</ul>${view.svg(found, 720)}</div>`;
  return `<p><strong>${escaped(view.title)}.</strong> ${escaped(found.said)}</p>${drawn}${tableOf(found.numbers)}`;
}

// Single changes of a setting after which the view can be computed: [words, change], the nearest first.
function waysOut(data, view, s, deep = true) {
  const works = (change) => {
    try {
      view.compute(data, { ...s, ...change });
      return true;
    } catch (error) {
      if (error instanceof Refused) return false;
      throw error;
    }
  };
  const found = [];
  const largest = (key, least) => {
    if (!(key in RANGES) || !view.controls.includes(key) || s[key] <= least || !works({ [key]: least })) return;
    let [low, high] = [least, s[key]];
    while (high - low > Math.max(1, low / 200)) {
      const middle = Math.floor((low + high) / 2);
      [low, high] = works({ [key]: middle }) ? [middle, high] : [low, middle];
    }
    found.push([`${RANGES[key].label} ${inFull(low)}`, { [key]: low }]);
  };
  for (const key of ["batch", "output", "prompt", "cached"]) largest(key, RANGES[key].least);
  const layouts = s.layout === "tensor" ? ["tensor", "expert"] : ["expert", "tensor"];
  const many = [1, 2, 4, 8, 16, 32, 64, 128].flatMap((devices) => layouts.map((layout) => ({ devices, layout })));
  const group = many.find((change) => (change.devices !== s.devices || change.layout !== s.layout) && works(change));
  if (group) found.push([`${inWords(RANGES.devices, group.devices)}${group.devices > 1 ? `, ${LAYOUTS[group.layout]}` : ""}`, group]);
  const precision = Object.keys(data.precisions).find((name) => name !== s.precision && works({ precision: name }));
  if (precision) found.push([`precision ${precision}`, { precision }]);
  const device = [...data.accelerators].sort((a, b) => a.memory - b.memory).find(({ name }) => works({ accelerator: name }));
  if (device) found.push([device.label ?? device.name, { accelerator: device.name }]);
  if (s.target && works({ target: 1000 })) found.push(["latency target 1,000 ms", { target: 1000 }]);
  const { prompt, output, cached } = data.presets.chat; // where no single change does: a smaller case, and then one
  for (const [words, change] of [["batch 1", { batch: 1 }], ["batch 1, a chat request", { batch: 1, prompt, output, cached }]]) {
    if (found.length || !deep) break;
    if (works(change)) found.push([words, change]);
    for (const [and, more] of found.length ? [] : waysOut(data, view, { ...s, ...change }, false)) {
      found.push([`${words}, ${and}`, { ...change, ...more }]);
    }
  }
  return found;
}

let panels = 0;

// The explorer `name` in `host`, from its start setting or `start`. Returns {settings, destroy}.
export function mount(host, data, name, start = {}, options = {}) {
  const view = VIEWS[name];
  const id = `explore-${name}-${(panels += 1)}`;
  const initial = { ...DEFAULTS, ...view.start, ...start };
  let s = { ...initial, ...fromAddress(name, initial) };
  let kept = null; // {s, found} of the setting that is shown beside
  let found = null;
  let later = 0;
  let playing = 0;
  let wide = 0;
  const controls = {};
  const calm = () => globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches;

  const sentence = make("p", { class: "said", role: "status", "aria-live": "polite" });
  const legend = make("ul", { class: "legend" });
  const now = make("figure");
  const beside = make("figure", { hidden: true });
  const pictures = make("div", { class: "pictures" }, now, beside);
  const ways = make("div", { class: "ways", role: "group", "aria-label": "What would fit" });
  const table = make("div", { class: "numbers" });
  const told = make("p", { class: "told", role: "status" });
  const button = (words, does, more = {}) => make("button", { type: "button", onclick: does, ...more }, words);

  function set(change) {
    s = { ...s, ...change };
    for (const key of view.controls) {
      const { least, most, held } = scaleOf(RANGES[key], s);
      if (s[key] < least || s[key] > most) s[key] = held(s[key]);
    }
    show();
  }

  function show() {
    for (const control of Object.values(controls)) control.follow();
    clearTimeout(later);
    ways.replaceChildren();
    try {
      found = view.compute(data, s);
      sentence.removeAttribute("data-refused");
      sentence.textContent = found.said;
      legend.innerHTML = legendOf(found.legend);
      draw();
      table.innerHTML = tableOf(found.numbers, kept?.found.numbers);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      found = null;
      sentence.setAttribute("data-refused", "");
      sentence.textContent = `Not computed. ${error.message}`;
      now.replaceChildren();
      table.replaceChildren();
      later = setTimeout(offer, 30); // the sentence first
    }
  }

  function offer() {
    const choices = waysOut(data, view, s).map(([words, change]) => button(`Take ${words}`, () => set(change)));
    ways.replaceChildren("What would fit: ", ...choices, button("Back to the start", reset));
  }

  function draw() {
    const width = Math.round(Math.min(720, Math.max(300, now.clientWidth || 720)));
    now.innerHTML = (kept ? "<figcaption>this setting</figcaption>" : "") + view.svg(found, width);
    if (kept) beside.innerHTML = `<figcaption>kept: ${escaped(kept.found.said)}</figcaption>${view.svg(kept.found, width)}`;
  }

  function reset() {
    stop();
    set(initial);
  }

  function keep() {
    kept = kept || !found ? null : { s, found };
    beside.hidden = !kept;
    if (!kept) beside.replaceChildren();
    table.classList.toggle("two", Boolean(kept));
    compare.textContent = kept ? "Drop the kept setting" : "Keep beside";
    show();
  }

  async function copy(words, what) {
    told.replaceChildren();
    try {
      await navigator.clipboard.writeText(words);
      told.textContent = `${what} copied.`;
    } catch {
      const field = make("textarea", { readonly: true, rows: 3, "aria-label": what });
      field.value = words;
      told.replaceChildren(`${what}: `, field);
      field.select();
    }
  }

  function asCsv() {
    const rows = [...settingsOf(view, s), ...(found?.numbers ?? [["not computed", sentence.textContent]])];
    const others = kept && new Map([...settingsOf(view, kept.s), ...kept.found.numbers]);
    const head = kept ? ["", "this setting", "kept"] : ["", "this setting"];
    return csvOf([head, ...rows.map(([label, value]) => (kept ? [label, value, others.get(label) ?? ""] : [label, value]))]);
  }

  function address() {
    const changed = settingsOf(view, s).filter(([key, value]) => value !== { ...DEFAULTS, ...view.start }[key]);
    const page = globalThis.location?.href.split("#")[0] ?? "";
    return `${page}#explore-${name}?${new URLSearchParams(changed)}`;
  }

  function stop() {
    cancelAnimationFrame(playing);
    clearTimeout(playing);
    playing = 0;
    if (player) player.textContent = "Play along the answer";
  }

  function play() {
    if (playing) return stop();
    const last = bound(RANGES[view.plays].most, s);
    const [stops, began] = [calm() ? 8 : 0, performance.now()];
    const from = s[view.plays] >= last ? 1 : s[view.plays];
    player.textContent = "Stop";
    const step = (count) => {
      const share = stops ? count / stops : Math.min(1, (performance.now() - began) / 8000);
      set({ [view.plays]: Math.round(from + share * (last - from)) });
      if (share >= 1) return stop();
      playing = stops ? setTimeout(step, 1000, count + 1) : requestAnimationFrame(step);
    };
    playing = 1;
    step(1);
  }

  function rangeOf(key) {
    const range = RANGES[key];
    const slider = make("input", { type: "range", id: `${id}-${key}`, min: 0, max: 1, step: "any" });
    const most = typeof range.most === "function" ? null : range.most;
    const field = make("input", { type: "number", min: range.least, max: most, step: "any", "aria-label": `${range.label}, ${range.unit}s` });
    slider.addEventListener("input", () => set({ [key]: scaleOf(range, s).value(Number(slider.value)) }));
    slider.addEventListener("keydown", (event) => {
      const { least, most: end, held, next } = scaleOf(range, s);
      const ways = {
        ArrowRight: () => next(s[key], 1), ArrowUp: () => next(s[key], 1), ArrowLeft: () => next(s[key], -1),
        ArrowDown: () => next(s[key], -1), PageUp: () => held(2 * s[key] || 1), PageDown: () => held(s[key] / 2),
        Home: () => least, End: () => end,
      };
      if (!(event.key in ways) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      set({ [key]: ways[event.key]() });
    });
    const typed = () => {
      const { held, least, most: end } = scaleOf(range, s);
      const value = field.value.trim() === "" ? NaN : Number(field.value);
      if (!Number.isFinite(value)) told.textContent = `${range.label} stays ${inFull(s[key])}: no number was typed.`;
      else if (value < least || value > end) told.textContent = `${range.label} goes from ${inFull(least)} to ${inFull(end)}.`;
      else told.textContent = "";
      set({ [key]: Number.isFinite(value) ? held(value) : s[key] });
      field.value = s[key];
    };
    field.addEventListener("change", typed);
    field.addEventListener("input", () => {
      const { held, least, most: end } = scaleOf(range, s);
      const value = Number(field.value);
      if (field.value.trim() && value >= least && value <= end && held(value) === value) set({ [key]: value });
    });
    const follow = () => {
      const scale = scaleOf(range, s);
      slider.value = scale.share(s[key]);
      slider.setAttribute("aria-valuetext", inWords(range, s[key]));
      if (field !== field.getRootNode().activeElement || Number(field.value) !== s[key]) field.value = s[key];
    };
    controls[key] = { follow };
    const unit = make("span", { class: "unit" }, range.units ?? (range.unit.startsWith("ms") ? range.unit : `${range.unit}s`));
    return make("div", { class: "range" }, make("label", { for: slider.id }, range.label), slider, field, unit);
  }

  function menuOf(key, choices) {
    const select = make("select", { id: `${id}-${key}`, onchange: () => set({ [key]: select.value }) });
    for (const [value, words] of choices) select.append(make("option", { value }, words));
    controls[key] = { follow: () => (select.value = s[key]) };
    return make("div", { class: "menu" }, make("label", { for: select.id }, key), select);
  }

  const labels = (rows) => rows.map((row) => [row.name, row.label ?? row.name]);
  const same = (names) => [...new Set(names)].map((each) => [each, each]);
  const menus = make("div", { class: "menus" },
    menuOf("model", labels(data.models)), menuOf("accelerator", labels(data.accelerators)),
    menuOf("precision", same(Object.keys(data.precisions))),
    menuOf("efficiency", same([...Object.keys(data.efficiencies), "high", "typical", "low"])),
    menuOf("layout", Object.entries(LAYOUTS)));
  const presets = make("div", { class: "presets", role: "group", "aria-label": "Workloads to begin with" }, "Take ");
  for (const [word, preset] of Object.entries(data.presets)) {
    const { prompt, output, cached } = (view.many && preset.mean) || preset;
    presets.append(button(word, () => set({ prompt, output, cached })));
  }
  const compare = button("Keep beside", keep);
  const player = view.plays ? button("Play along the answer", play) : null;
  const buttons = make("div", { class: "buttons" }, ...(player ? [player] : []), button("Reset", reset), compare,
    button("Copy numbers as CSV", () => copy(asCsv(), "Numbers")), button("Copy link", () => copy(address(), "Link")));
  const ranges = make("div", { class: "ranges" }, ...view.controls.map(rangeOf), rangeOf("devices"));
  const root = make("section", { class: "lesson-explore", "aria-label": view.title, "data-lm-suppress-shortcuts": "true" },
    make("p", { class: "title" }, view.title), presets, ranges, menus, sentence, legend, pictures, ways, buttons, told, table);
  host.replaceChildren(root);
  set({});
  const watcher = new ResizeObserver(() => {
    if (now.clientWidth === wide || !found) return;
    wide = now.clientWidth;
    draw();
  });
  watcher.observe(pictures);
  if (Object.keys(fromAddress(name, initial)).length) root.scrollIntoView({ block: "nearest" });
  const destroy = () => {
    stop();
    clearTimeout(later);
    watcher.disconnect();
    host.replaceChildren();
  };
  return { settings: () => ({ ...s }), destroy };
}

export default {
  render({ model, el }) {
    return mount(el, model.get("data"), model.get("view"), model.get("start")).destroy;
  },
};
