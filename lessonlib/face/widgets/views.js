// ---------------------------------------------------------------------------------------------------------------------
// 2. Views: from a setting to numbers and a picture, as strings. Each has the axes that its lesson needs, and keeps them.

const inHtml = (words) => escaped(words).replaceAll("$", "<span>&#36;</span>"); // no mathematics, where a page has them
const escaped = (said) => String(said).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const inFull = (value) => (Number.isInteger(value) ? commas(value) : String(value)); // any number of a control
const px = (value) => (Math.round(10 * value) / 10).toString();

// The first of 1, 2, 5, 10, 20, 50 ... (or of others than 1, 2, 5) that is at least the value.
function roundUp(value, digits = [1, 2, 5, 10]) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * digits.find((digit) => digit * power >= value * (1 - 1e-12));
}
const FINE = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

const geometric = (low, high, count) =>
  Array.from({ length: count }, (_, i) => low * (high / low) ** (i / Math.max(1, count - 1)));
const wholes = (values) => [...new Set(values.map(Math.round))];

const text = (x, y, said, look = "") => `<text x="${px(x)}" y="${px(y)}" class="${look}">${escaped(said)}</text>`;
const path = (along, look) => `<path d="${along}" class="${look}"/>`;
const box = (x, y, width, height, look) =>
  `<rect x="${px(x)}" y="${px(y)}" width="${px(Math.max(0, width))}" height="${px(Math.max(0, height))}" class="${look}"/>`;
const picture = (width, height, said, drawn) =>
  `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(said)}">${drawn}</svg>`;

function axis(said, low, high, { log = false, show = tokensLabel } = {}) {
  const share = (value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const ticks = (most) => {
    if (!log) {
      const step = roundUp((high - low) / most);
      return Array.from({ length: Math.floor((high - low) / step + 1e-9) + 1 }, (_, i) => low + i * step);
    }
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const every = Math.ceil((last - first + 1) / most);
    return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => 10 ** (first + i * every));
  };
  return { said: said + (said && log ? " (log scale)" : ""), low, high, show, share, ticks };
}

// A panel with its two axes: {across, up} say where a value lies, `drawn` is its frame.
function panel({ left, right, top, bottom }, x, y) {
  const across = (value) => left + (right - left) * x.share(value);
  const up = (value) => bottom - (bottom - top) * y.share(value);
  let drawn = text(left - 46, top - 10, y.said, "quiet");
  for (const tick of x.ticks(Math.max(2, Math.floor((right - left) / 62)))) {
    drawn += path(`M${px(across(tick))} ${top}V${bottom}`, "grid");
    drawn += text(across(tick), bottom + 17, x.show(tick), "quiet middle");
  }
  for (const tick of y.ticks(Math.max(2, Math.floor((bottom - top) / 26)))) {
    drawn += path(`M${left} ${px(up(tick))}H${right}`, "grid");
    drawn += text(left - 6, up(tick) + 4, y.show(tick), "quiet end");
  }
  drawn += text((left + right) / 2, bottom + 36, x.said, "quiet middle");
  const inside = ([a, b]) => x.share(a) >= -1e-9 && x.share(a) <= 1.001 && y.share(b) >= -1e-9 && y.share(b) <= 1.001;
  const along = (points) => points.map(([a, b]) => `${px(across(a))} ${px(up(b))}`).join("L");
  const line = (points, look) => {
    const seen = points.filter(inside);
    return seen.length > 1 ? path(`M${along(seen)}`, `line ${look}`) : "";
  };
  const mark = (at, said, row = 0) => {
    if (x.share(at) < 0 || x.share(at) > 1) return "";
    const [side, anchor] = x.share(at) > 0.5 ? [-5, "end"] : [5, ""];
    return path(`M${px(across(at))} ${top}V${bottom}`, "boundary") + text(across(at) + side, top + 13 + 16 * row, said, `${anchor} halo`);
  };
  const dot = (a, b, look = "here") =>
    inside([a, b]) ? `<circle cx="${px(across(a))}" cy="${px(up(b))}" r="${look === "here" ? 6 : 4}" class="${look}"/>` : "";
  return { across, up, drawn, line, mark, dot, inside, left, right, top, bottom };
}

// The area between two lists of points with the same places across.
const area = (on, low, high, look) => {
  const there = high.map(([a, b]) => `${px(on.across(a))} ${px(on.up(b))}`);
  const back = low.map(([a, b]) => `${px(on.across(a))} ${px(on.up(b))}`).reverse();
  return there.length > 1 ? path(`M${[...there, ...back].join("L")}Z`, `area ${look}`) : "";
};

const arrow = (r) => `${commas(r.prompt)}${r.cached ? ` (${commas(r.prompt - r.cached)} new)` : ""} → ${commas(r.output)}`;
const whose = (s) => `${s.model} on ${s.devices > 1 ? `${s.devices} × ` : ""}${s.accelerator}`;

export const VIEWS = {};

// ---- 02: where the time of a request goes

const BARS = [["prefill", "prefill"], ["weights", "decode: linear layers"], ["cache", "decode: attention"], ["other", "waits"]];

// [name, what it amounts to, its parts]: the bars of a request, alone and among others.
function sharesOf(d, r, batch) {
  const parts = (cost) => {
    const { linear, attention, seconds } = cost.decode;
    return [cost.prefill.seconds, linear.seconds, attention.seconds, seconds - linear.seconds - attention.seconds];
  };
  const alone = requestCost(d, r, 1);
  const flops = [alone.prefill.flops, alone.decode.linear.flops, alone.decode.attention.flops, 0];
  const bars = [["FLOPs of one", formatFlops(alone.flops), flops]];
  bars.push(["seconds, alone", formatSeconds(alone.seconds), parts(alone)]);
  for (const [at, name] of [[batch, ""], [steadyState(d, r, null).batch, "full, "]]) {
    const state = steadyState(d, r, at);
    const each = [state.parts.prefill, state.parts.linear, state.parts.attention, 0];
    bars.push([`${name}batch ${commas(at)}`, `${formatSeconds(state.secondsPerRequest)} each`, each]);
  }
  return bars;
}

VIEWS.request = {
  title: "Where the time of a request goes",
  controls: ["prompt", "output", "cached", "batch"],
  start: { prompt: 1024, output: 128, batch: 32 },
  height: 244,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    const cost = requestCost(d, r, s.batch);
    const { linear } = cost.decode;
    const busy = linear.computeSeconds > linear.memorySeconds ? "compute" : "memory";
    const bars = sharesOf(d, r, s.batch);
    const full = steadyState(d, r, null);
    const share = (bar) => bar[2][0] / bar[2].reduce((sum, part) => sum + part, 0);
    const says = (bar) => formatPercent(share(bar));
    const tokens = r.prompt + r.output;
    return {
      bars,
      legend: BARS.slice(0, 3),
      said: `${arrow(r)}: prefill is ${says(bars[0])} of the FLOPs, ${says(bars[1])} of the time alone, ` +
        `${says(bars[3])} on a full server`,
      numbers: [
        ["started together: GPU clock of the batch", formatSeconds(cost.seconds)],
        ["started together: share of one", formatSeconds(cost.seconds / s.batch)],
        ["started together: request clock", formatSeconds(cost.undisturbed)],
        ["full server: GPU time of one", formatSeconds(full.secondsPerRequest)],
        ["full server: wait of a user", formatSeconds(full.wait)],
        ["time to first token", formatSeconds(cost.ttft)],
        ["time per output token, undisturbed", formatSeconds(cost.tpot)],
        ["decode's linear layers", cost.decode.seconds ? `${busy} bound` : "no decode step"],
        ["decode share of GPU time", formatPercent(cost.decodeShare, 5)],
        ["decode share of FLOPs", formatPercent(cost.decode.flops / cost.flops, 4)],
        ["memory needed", `${formatBytes(d.memoryNeeded(tokens, s.batch), 3)} of ${formatBytes(d.memoryAvailable, 3)}`],
        ["largest batch, started together", commas(largestBatch(d, tokens))],
        ["memory batch, full server", commas(full.batch)],
      ],
    };
  },
  svg({ bars, said }, width) {
    const [left, right] = [10, width - 10];
    let drawn = "";
    bars.forEach(([name, whole, parts], i) => {
      const [y, sum] = [22 + 56 * i, parts.reduce((a, b) => a + b, 0)];
      drawn += text(left, y - 6, name, "bold") + text(right, y - 6, whole, "quiet end");
      let x = left;
      parts.forEach((part, j) => {
        const wide = ((right - left) * part) / sum;
        drawn += box(x, y, wide, 24, `area ${BARS[j][0]}`);
        if (wide > 54) drawn += text(x + wide / 2, y + 17, formatPercent(part / sum, 3), `middle on ${BARS[j][0]}`);
        x += wide;
      });
    });
    return picture(width, 240, said, drawn);
  },
};

// ---- 02: every request on one plane

const PLANE = { prompts: 10 ** 5.3, outputs: 1e5 };
const RHO_OF_FIVE_PERCENT = 0.05 / 0.95;

// For prompts from left to right the output at which omega is 1: above it memory is full before the roof is reached.
function edgeOfOmega(d) {
  return geometric(1, PLANE.prompts, 30).map(Math.round).map((prompt) => {
    let [low, high] = [0, Math.log(PLANE.outputs)];
    for (let i = 0; i < 12; i += 1) {
      const middle = (low + high) / 2;
      const above = omega(d, { prompt, output: Math.round(Math.exp(middle)), cached: 0 }) > 1;
      [low, high] = above ? [low, middle] : [middle, high];
    }
    return [prompt, Math.exp(high)];
  });
}

VIEWS.plane = {
  title: "Every request on one plane",
  controls: ["prompt", "output", "cached", "batch"],
  start: { prompt: 1024, output: 128, batch: 32 },
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    const state = steadyState(d, r, s.batch);
    const full = steadyState(d, r, null);
    const [about, over, reads] = [rho(d, r, s.batch), omega(d, r), chi(d, r)];
    const { prefill, linear, attention } = state.parts;
    const first = over > 1 ? "memory is full before the linear layers are busy" : "the linear layers are busy before memory is full";
    return {
      edge: edgeOfOmega(d),
      slope: rho(d, { prompt: 1, output: 1, cached: 0 }, s.batch) / RHO_OF_FIVE_PERCENT,
      batch: s.batch,
      dots: Object.values(data.presets).map((p) => [p.label.split(", ").at(-1), p.prompt - p.cached, p.output, p.cached]),
      here: [r.prompt - r.cached, r.output],
      legend: [["boundary", "rho: prefill takes 5 %"], ["cache", "omega above 1: memory is full before the roof"]],
      said: `${arrow(r)} at batch ${commas(s.batch)}: rho ${general(about, 3)}, so prefill takes about ` +
        `${formatPercent(about / (1 + about), 2)}; omega ${general(over, 3)}: ${first}`,
      numbers: [
        ["rho, the estimate", general(about, 3)],
        ["prefill / decode, exact", general(prefill / (linear + attention), 3)],
        ["prefill's share, exact", formatPercent(prefill / state.secondsPerRequest)],
        ["omega", general(over, 3)],
        ["roof batch (estimate)", commas(Math.round(roofBatch(d, r)))],
        ["memory batch", commas(full.batch)],
        ["chi", general(reads, 3)],
        ["cache reads on a full server", formatPercent(full.parts.attention / full.secondsPerRequest)],
      ],
    };
  },
  svg({ edge, slope, batch, dots, here, said }, width) {
    const x = axis("new prompt tokens", 1, PLANE.prompts, { log: true });
    const y = axis("output tokens", 1, PLANE.outputs, { log: true });
    const on = panel({ left: 56, right: width - 12, top: 26, bottom: 350 }, x, y);
    let drawn = area(on, edge, edge.map(([a]) => [a, PLANE.outputs]), "cache faint") + on.drawn;
    drawn += on.line(edge, "cache dashed") + text(on.left + 6, on.up(edge[0][1]) - 6, "omega = 1", "ink-cache");
    const [first, last] = [Math.max(1, 1 / slope), Math.min(PLANE.prompts, PLANE.outputs / slope)];
    if (first < last) {
      drawn += on.line([[first, first * slope], [last, last * slope]], "edge dashed");
      const at = first * (last / first) ** 0.78;
      const turn = (Math.atan2(on.up(at * 2 * slope) - on.up(at * slope), on.across(2 * at) - on.across(at)) * 180) / Math.PI;
      const place = `${px(on.across(at))} ${px(on.up(at * slope))}`;
      drawn += `<text transform="translate(${place}) rotate(${px(turn)})" y="16" class="middle halo">${escaped(`rho = 0.053 at batch ${commas(batch)}`)}</text>`;
    }
    for (const [label, a, b, cached] of dots) {
      const [side, anchor] = cached ? [-9, "end"] : [9, ""];
      drawn += on.dot(a, b, "other-dot") + text(on.across(a) + side, on.up(b) + 4, label, `quiet halo ${anchor}`);
    }
    const at = Math.min(on.right - 44, Math.max(on.left + 44, on.across(here[0])));
    const below = on.up(here[1]) + (here[1] < 4 ? -11 : 21);
    drawn += on.dot(...here) + text(at, below, "your request", "bold halo middle");
    return picture(width, 394, said, drawn);
  },
};

// ---- 03: growth, along the answer

VIEWS.growth = {
  title: "A decode step along the answer",
  controls: ["prompt", "output", "batch", "position"],
  start: { prompt: 128, output: 12_800, batch: 32, position: 6_400 },
  plays: "position",
  compute(data, s) {
    const [d, r, last] = [deploymentOf(data, s), requestOf(s), s.output - 1];
    if (last < 2) throw new Refused("The answer has fewer than two steps, so nothing grows; choose a longer output.");
    const at = (k, together) => ({ k, ...stepParts(d, r, k, s.batch, together) });
    const places = wholes(Array.from({ length: 33 }, (_, i) => 1 + ((last - 1) * i) / 32));
    const steady = places.map((k) => at(k, false));
    let together = null; // the ends of all of them may not fit where their middles do
    try {
      together = places.map((k) => at(k, true));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    const here = at(Math.min(s.position, last), false);
    const traffic = answerTraffic(d, r, s.batch);
    const passes = spanWhereCachePassesWeights(d, s.batch);
    const read = answerTraffic(d, { ...r, output: Math.min(s.position, last) + 1 }, s.batch).triangle;
    const whole = (d.memoryAvailable / d.bandwidth) * 1e3;
    const most = 1e3 * Math.max(...steady.map((p) => p.seconds), ...(together ?? []).map((p) => p.seconds));
    const ends = (steps) => (steps ? [steps[0], steps.at(-1)].map((p) => formatSeconds(p.seconds)) : ["-", "does not fit"]);
    const [first, final] = ends(steady);
    const [firstTogether, finalTogether] = ends(together);
    return {
      steady, together, here, last, whole,
      top: roundUp(Math.max(1.05 * whole, most), FINE),
      legend: [["weights", "linear layers"], ["cache", "the neighbours' caches"], ["own", "its own cache"],
        ["boundary", "all started together"]],
      said: `${s.model}, batch ${commas(s.batch)}, token ${commas(here.k + 1)}: a step takes ${formatSeconds(here.seconds)}, ` +
        `of which its own cache ${formatPercent(here.own / here.seconds, 2)}`,
      numbers: [
        ["first step, steady", first],
        ["last step, steady", final],
        ["first step, together", firstTogether],
        ["last step, together", finalTogether],
        ["this step: linear layers", formatSeconds(here.linear + here.other)],
        ["this step: the neighbours' caches", formatSeconds(here.neighbours)],
        ["this step: its own cache", formatSeconds(here.own)],
        ["cache of one token", formatBytes(d.cacheBytesPerToken)],
        ["cache read so far, the batch", formatBytes(read)],
        ["cache read over the answer", formatBytes(traffic.triangle)],
        ["if it had its final size", formatBytes(traffic.end)],
        ["cache passes weights at", passes === null ? "never" : `${commas(passes)} tokens`],
      ],
    };
  },
  svg({ steady, together, here, last, whole, top, said }, width) {
    const on = panel({ left: 56, right: width - 12, top: 26, bottom: 270 },
      axis("output tokens so far", 0, last + 1), axis("ms a step", 0, top));
    const sums = steady.map((p) => {
      const linear = 1e3 * (p.linear + p.other);
      const beside = linear + 1e3 * p.neighbours;
      return [[p.k, 0], [p.k, linear], [p.k, beside], [p.k, 1e3 * p.seconds]];
    });
    let drawn = on.drawn;
    ["weights", "cache", "own"].forEach((look, i) => {
      drawn += area(on, sums.map((sum) => sum[i]), sums.map((sum) => sum[i + 1]), look);
    });
    const later = sums.filter(([[k]]) => k >= here.k);
    if (later.length > 1) drawn += area(on, later.map((sum) => sum[0]), later.map((sum) => sum[3]), "veil");
    if (together) drawn += on.line(together.map((p) => [p.k, 1e3 * p.seconds]), "edge dashed");
    drawn += on.line([[0, whole], [last + 1, whole]], "limit");
    drawn += text(on.left + 6, on.up(whole) - 5, `all of memory read once: ${general(whole, 3)} ms`, "quiet");
    drawn += path(`M${px(on.across(here.k))} ${on.top}V${on.bottom}`, "now") + on.dot(here.k, 1e3 * here.seconds);
    return picture(width, 314, said, drawn);
  },
};

// ---- 03: kinds of layer

const stepReads = (d, tokens) => total(d.sizes.kinds, (kind) => kind.cacheBytes * kind.law.read(tokens, 1) + kind.stateBytes);

VIEWS.kinds = {
  title: "What kinds of layer keep and read",
  controls: ["prompt", "output", "batch"],
  start: { model: "gpt-oss-20b", prompt: 128, output: 12_800, batch: 1 },
  compute(data, s) {
    const d = deploymentOf(data, s);
    const tokens = s.prompt + s.output - 1;
    const places = geometric(1, 1e6, 61).map(Math.round);
    const by = cacheByKind(d, tokens);
    const curves = by.map((kind, i) => places.map((n) => [n, kindBytes(d.sizes.kinds[i], n)]));
    const held = places.map((n) => [n, d.sequenceBytes(n)]);
    const read = places.map((n) => [n, stepReads(d, n)]);
    const positions = d.maxPositions ?? Infinity;
    const size = (n) => (n <= positions ? formatBytes(d.sequenceBytes(n), 3) : "beyond its positions");
    const looks = ["weights", "prefill", "own", "other"];
    return {
      curves: curves.map((points, i) => [points, looks[i % looks.length]]),
      held, read, tokens,
      here: d.sequenceBytes(tokens),
      legend: [["held", "held, all layers"], ["cache", "read in a step"],
        ...by.map((kind, i) => [looks[i % looks.length], `${kind.layers} × ${kind.label}`])],
      said: `${s.model}: at ${commas(tokens)} tokens one sequence holds ${formatBytes(d.sequenceBytes(tokens), 3)}, ` +
        `and a step reads ${formatBytes(stepReads(d, tokens), 3)} of it`,
      numbers: [
        ...by.map((kind) => [`${kind.layers} × ${kind.label}, at ${commas(tokens)} tokens`, formatBytes(kind.bytes, 3)]),
        ["held at 1 token", size(1)],
        ["held at 4,096 tokens", size(4096)],
        ["held at 32,768 tokens", size(32_768)],
        ["held at 131,072 tokens", size(131_072)],
        [`read in a step at ${commas(tokens)} tokens`, formatBytes(stepReads(d, tokens), 3)],
        ["held by the batch", formatBytes(s.batch * d.sequenceBytes(tokens), 3)],
        ["weights", formatBytes(d.weightBytes, 3)],
      ],
    };
  },
  svg({ curves, held, read, tokens, here, said }, width) {
    const show = (value) => formatBytes(value, 1);
    const on = panel({ left: 62, right: width - 12, top: 26, bottom: 310 },
      axis("tokens of the sequence", 1, 1e6, { log: true }), axis("bytes of one sequence", 1e3, 1e12, { log: true, show }));
    let drawn = on.drawn;
    for (const [points, look] of curves) drawn += on.line(points, look);
    drawn += on.line(held, "held") + on.line(read, "cache dashed") + on.mark(tokens, `${commas(tokens)} tokens`) + on.dot(tokens, here);
    return picture(width, 354, said, drawn);
  },
};

// ---- 04: what a batch pays for, and a latency target

VIEWS.batch = {
  title: "What a bigger batch gives, and when it ends",
  controls: ["prompt", "output", "cached", "batch", "target"],
  start: { prompt: 128, output: 12_800, batch: 32, target: 20 },
  many: true,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    if (r.output < 2) throw new Refused("One output token has no time from one token to the next; choose a longer output.");
    const full = steadyState(d, r, null);
    const places = wholes(geometric(1, full.batch, 28));
    const states = places.map((b) => steadyState(d, r, b));
    const mixed = places.map((b) => [b, steadyState(d, r, b, true).tokensPerSecond]);
    const here = steadyState(d, r, s.batch);
    const least = states[0].tpot;
    const kept = s.target / 1e3 >= least ? atLatency(d, r, s.target / 1e3) : null;
    const roof = roofBatch(d, r);
    const binds = kept === null ? `no batch keeps ${general(s.target, 4)} ms a token`
      : kept.binds === "memory" ? `memory is full at ${commas(kept.batch)}, within ${general(s.target, 4)} ms a token`
      : `${general(s.target, 4)} ms a token end it at ${commas(kept.batch)}, memory at ${commas(full.batch)}`;
    return {
      rates: states.map((state) => [state.batch, state.tokensPerSecond]),
      mixed, roof, kept, here, target: s.target, memory: full.batch,
      waits: states.map((state) => [state.batch, 1e3 * state.tpot]),
      legend: [["edge", "each prompt by itself"], ["prefill", "prompts mixed into steps"], ["limit", "latency target"]],
      said: `${whose(s)}: ${commas(Math.round(states[0].tokensPerSecond))} tokens/s alone, ` +
        `${commas(Math.round(here.tokensPerSecond))} at batch ${commas(s.batch)}; ${binds}`,
      numbers: [
        ["memory batch", commas(full.batch)],
        ["roof batch (estimate)", commas(Math.round(roof))],
        ["omega", general(omega(d, r), 3)],
        ["tokens/s at batch 1", fixed(states[0].tokensPerSecond, 1, true)],
        ["tokens/s at this batch", fixed(here.tokensPerSecond, 1, true)],
        ["tokens/s at the memory batch", fixed(full.tokensPerSecond, 1, true)],
        ["TPOT at batch 1", formatSeconds(least)],
        ["TPOT at this batch", formatSeconds(here.tpot)],
        ["TPOT at the memory batch", formatSeconds(full.tpot)],
        ["GPU seconds a request, memory batch", formatSeconds(full.secondsPerRequest)],
        ["largest batch within the target", kept === null ? "none" : commas(kept.batch)],
        ["tokens/s there", kept === null ? "-" : fixed(kept.state.tokensPerSecond, 1, true)],
      ],
    };
  },
  svg({ rates, mixed, roof, kept, here, target, memory, waits, said }, width) {
    const x = axis("", 1, 1e4, { log: true });
    const upper = panel({ left: 56, right: width - 12, top: 26, bottom: 196 }, x, axis("output tokens a second", 1, 1e5, { log: true }));
    const lower = panel({ left: 56, right: width - 12, top: 246, bottom: 376 },
      { ...x, said: "batch size (log scale)" }, axis("ms a token", 1, 1e3, { log: true }));
    let drawn = upper.drawn + lower.drawn;
    drawn += upper.line(mixed, "prefill dashed") + upper.line(rates, "edge") + lower.line(waits, "edge");
    drawn += upper.mark(memory, `memory is full: ${commas(memory)}`, 9.4) + lower.mark(memory, "");
    drawn += upper.mark(roof, `roof of the linear layers: ${commas(Math.round(roof))}`, 8.3);
    drawn += lower.line([[1, target], [1e4, target]], "limit") + text(lower.left + 6, lower.up(target) - 5, `target: ${general(target, 4)} ms`, "quiet");
    if (kept) drawn += path(`M${px(lower.across(kept.batch))} ${px(lower.up(1e3 * kept.state.tpot))}V${lower.bottom}`, "limit");
    drawn += upper.dot(here.batch, here.tokensPerSecond) + lower.dot(here.batch, 1e3 * here.tpot);
    return picture(width, 420, said, drawn);
  },
};

// ---- 04: a server in motion, from idle to overloaded

// Gaps between arrivals, with a mean of 1: exponential, and the same in every run.
function gaps(count) {
  let seed = 1_234_567;
  return Array.from({ length: count }, () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return -Math.log(seed / 2_147_483_647);
  });
}

VIEWS.timeline = {
  title: "A server in motion",
  controls: ["prompt", "output", "batch", "load"],
  start: { prompt: 1268, output: 1527, batch: 64, load: 90 },
  many: true,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf({ ...s, cached: 0 })];
    const full = steadyState(d, r, null).batch;
    const most = Math.min(s.batch, full);
    const each = steadyState(d, r, most).secondsPerRequest; // at best one request is done in that time
    const watched = 6 * Math.max(most, 10) * each;
    const rate = s.load / 100 / each;
    let clock = 0;
    const arrivals = gaps(Math.ceil((1.3 * watched * s.load) / 100 / each)).map((gap) => (clock += gap / rate)).filter((at) => at < watched);
    if (arrivals.length < 2) throw new Refused("Hardly a request arrives in the time that is watched; raise the load.");
    const run = timeline(d, arrivals.map(() => r), arrivals, { maxBatch: most, horizon: watched });
    const { time, running, waiting } = run.occupancy;
    const firsts = arrivals.map((at, i) => [at, run.firstToken[i] - at]).filter(([, wait]) => !Number.isNaN(wait));
    const median = (from, to) => {
      const waits = arrivals.map((at, i) => [at, run.firstToken[i] - at]).filter(([at]) => at >= from && at < to);
      const sorted = waits.map(([, wait]) => (Number.isNaN(wait) ? Infinity : wait)).sort((a, b) => a - b);
      return sorted[Math.floor((sorted.length - 1) / 2)] ?? NaN;
    };
    const words = (seconds) => (seconds === Infinity ? "not within this time" : formatSeconds(seconds, 3));
    const elapsed = run.end - run.start;
    const prompt = firsts.filter(([, wait]) => wait <= 1).length / arrivals.length;
    const [offered, served] = [(arrivals.length * r.output) / watched, run.outputTokens / elapsed];
    return {
      time, running, waiting, firsts, watched, most,
      legend: [["cache", "requests being served"], ["prefill", "requests that wait"], ["edge", "time to first token"]],
      said: `${arrow(r)}, ${general(rate, 3)} requests a second: ${commas(Math.round(offered))} tokens/s are asked for, ` +
        `${commas(Math.round(served))} served; at the end ${commas(waiting.at(-1))} requests wait`,
      numbers: [
        ["requests a second that it can take", general(1 / each, 3)],
        ["requests a second that arrive", general(rate, 3)],
        ["tokens/s asked for", fixed(offered, 1, true)],
        ["tokens/s served", fixed(served, 1, true)],
        ["GPU busy", formatPercent(1 - run.seconds.idle / elapsed)],
        ["median time to first token, first third", words(median(0, watched / 3))],
        ["the same, last third", words(median((2 * watched) / 3, watched))],
        ["first token within 1 s", formatPercent(prompt)],
        ["waiting at the end", commas(waiting.at(-1))],
        ["served at a time, at most", commas(run.peakRunning)],
        ["memory batch", commas(full)],
      ],
    };
  },
  svg({ time, running, waiting, firsts, watched, most, said }, width) {
    const x = axis("", 0, watched);
    const upper = panel({ left: 56, right: width - 12, top: 26, bottom: 206 }, x, axis("requests", 0, 6.5 * most));
    const lower = panel({ left: 56, right: width - 12, top: 256, bottom: 376 }, { ...x, said: "seconds" },
      axis("seconds to the first token", 0.01, 1000, { log: true, show: (value) => general(value, 3) }));
    const keep = Math.ceil(time.length / 400); // as many as there are pixels to tell them apart
    const seen = time.map((at, i) => [at, running[i], Math.min(6.5 * most, running[i] + waiting[i])]).filter((_, i) => i % keep === 0);
    const steps = seen.flatMap(([at, a, b], i) => (i ? [[at, seen[i - 1][1], seen[i - 1][2]], [at, a, b]] : [[at, a, b]]));
    const level = (i) => steps.map((one) => [one[0], i < 0 ? 0 : one[1 + i]]);
    const dots = firsts.filter(lower.inside).map(([at, wait]) => `M${px(lower.across(at))} ${px(lower.up(wait))}h0`).join("");
    return picture(width, 420, said, area(upper, level(-1), level(0), "cache") + area(upper, level(0), level(1), "prefill") +
      upper.drawn + lower.drawn + upper.line([[0, most], [watched, most]], "limit") +
      text(upper.right - 4, upper.up(most) - 5, `at most ${commas(most)} at a time`, "end halo") + path(dots, "dots"));
  },
};

// ---- 05: what a faster prefill saves

VIEWS.prefill = {
  title: "What a faster prefill saves",
  controls: ["prompt", "output", "cached", "batch", "times"],
  start: { prompt: 1024, output: 128, batch: 32, times: 2 },
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    const cost = requestCost(d, r, s.batch);
    const full = steadyState(d, r, null);
    const [alone, here] = [1, s.batch].map((b) => steadyState(d, r, b));
    const share = (state) => state.parts.prefill / state.secondsPerRequest;
    const saved = (part, k) => part * (1 - 1 / k);
    const clock = cost.ttft / cost.undisturbed;
    const parts = [["alone", share(alone), "edge"], [`batch ${commas(s.batch)}`, share(here), "prefill"],
      [`full, batch ${commas(full.batch)}`, share(full), "cache"]];
    return {
      curves: parts.map(([name, part, look]) => [look, name, geometric(1, 1000, 40).map((k) => [k, 100 * saved(part, k)]), 100 * saved(part, s.times)]),
      times: s.times,
      legend: parts.map(([name, , look]) => [look, name]),
      said: `${arrow(r)}: a prefill ${general(s.times, 4)} times as fast saves ${formatPercent(saved(share(alone), s.times), 2)} ` +
        `alone, ${formatPercent(saved(share(full), s.times), 2)} of a full server's GPU time`,
      numbers: [
        ["prefill share, GPU clock", formatPercent(share(here))],
        ["prefill share, request clock", formatPercent(clock)],
        ["prefill share, alone", formatPercent(share(alone))],
        ["prefill share, full server", formatPercent(share(full))],
        ["saved by this prefill, GPU", formatPercent(saved(share(here), s.times))],
        ["saved by this prefill, full server", formatPercent(saved(share(full), s.times))],
        ["rho, the estimate", general(rho(d, r, s.batch), 3)],
        ["time to first token", formatSeconds(cost.ttft)],
        ["under 5 % from this output on", `${commas(breakEvenOutput(d, r.prompt, s.batch))} tokens`],
      ],
    };
  },
  svg({ curves, times, said }, width) {
    const on = panel({ left: 56, right: width - 12, top: 26, bottom: 270 },
      axis("prefill this many times as fast", 1, 1000, { log: true }), axis("% of time saved", 0, 100));
    let drawn = on.drawn + path(`M${px(on.across(times))} ${on.top}V${on.bottom}`, "now");
    for (const [look, , points, at] of curves) drawn += on.line(points, look) + on.dot(times, at, "small");
    return picture(width, 314, said, drawn);
  },
};

// ---- 06: which lever

VIEWS.levers = {
  title: "Which lever helps whom",
  controls: ["prompt", "output", "cached", "batch"],
  start: { prompt: 128, output: 12_800, batch: 1 },
  many: true,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    const ranked = rankLevers(d, r, s.batch);
    const [best] = ranked;
    return {
      ranked, batch: s.batch,
      legend: [["other", `batch ${commas(s.batch)}`], ["held", "each on its own full server"]],
      said: `${arrow(r)}, full server: most is gained by "${best.name}", ${fixed(best.atLimit, 2)} times as fast`,
      numbers: ranked.map(({ name, held, atLimit }) => [name, `${fixed(held, 2, true)} → ${fixed(atLimit, 2, true)}`]),
    };
  },
  svg({ ranked, said }, width) {
    const row = 46;
    const x = axis("times faster: GPU time before over after", 0.5, 8, { log: true });
    const ends = { left: 10, right: width - 46, top: 12, bottom: 12 + row * ranked.length };
    const on = { across: (v) => ends.left + (ends.right - ends.left) * Math.min(1.05, Math.max(0, x.share(v))) };
    let drawn = "";
    for (const tick of [0.5, 1, 2, 4, 8]) {
      drawn += path(`M${px(on.across(tick))} ${ends.top}V${ends.bottom}`, tick === 1 ? "boundary" : "grid");
      drawn += text(on.across(tick), ends.bottom + 17, `${tick}`, "quiet middle");
    }
    ranked.forEach(({ name, held, atLimit }, i) => {
      const y = ends.top + row * i + 14;
      [[held, "other"], [atLimit, "held"]].forEach(([gain, look], j) => {
        const [from, to] = [on.across(Math.min(1, gain)), on.across(Math.max(1, gain))];
        drawn += box(from, y + 6 + 12 * j, Math.max(1.5, to - from), 9, `area ${look}`);
        drawn += text(to + 4, y + 14.5 + 12 * j, fixed(gain, 2, true), "tiny halo");
      });
      drawn += text(ends.left, y, width < 520 ? name.split(/ \(|: /)[0] : name, "halo");
    });
    drawn += text(width / 2, ends.bottom + 36, x.said, "quiet middle");
    return picture(width, ends.bottom + 44, said, drawn);
  },
};

// ---- 09: what an output token costs

VIEWS.price = {
  title: "What an output token costs",
  controls: ["prompt", "output", "cached", "batch", "dollars"],
  start: { prompt: 1024, output: 128, batch: 1, dollars: 2 },
  many: true,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    if (r.output < 2) throw new Refused("One output token comes from the prefill: there is no step to price. Choose more.");
    const full = steadyState(d, r, null).batch;
    const worth = (b) => outputTokenInPromptTokens(d, r, b);
    const million = (b) => (priceOfRequest(d, r, b, s.dollars) * 1e6) / r.output;
    const here = worth(s.batch);
    const each = requestCost(d, r, s.batch).tpot / s.batch;
    return {
      prices: wholes(geometric(1, full, 28)).map((b) => [b, worth(b)]),
      full, here: [s.batch, here],
      legend: [["edge", "one output token, in prompt tokens"]],
      said: `${arrow(r)}, batch ${commas(s.batch)}: one output token costs as much GPU time as ${fixed(here, 1, true)} prompt tokens`,
      numbers: [
        ["one output token, in prompt tokens", fixed(here, 1, true)],
        ["at batch 1", fixed(worth(1), 1, true)],
        ["at the memory batch", fixed(worth(full), 1, true)],
        ["memory batch", commas(full)],
        ["$ a million output, here", `$${fixed(million(s.batch), 2, true)}`],
        ["$ a million output, at the memory batch", `$${fixed(million(full), 2, true)}`],
        ["GPU time of one output token", formatSeconds(each)],
      ],
    };
  },
  svg({ prices, full, here, said }, width) {
    const on = panel({ left: 56, right: width - 12, top: 26, bottom: 290 },
      axis("batch size", 1, 1e4, { log: true }), axis("price, in prompt tokens", 1, 1e4, { log: true }));
    let drawn = on.drawn + on.line(prices, "edge") + on.mark(full, `memory is full: ${commas(full)}`) + on.dot(...here);
    drawn += on.line([[1, 1], [1e4, 1]], "limit") + text(on.right - 4, on.up(1) - 5, "a prompt token", "quiet end");
    return picture(width, 334, said, drawn);
  },
};
