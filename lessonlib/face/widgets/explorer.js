// The explorers of the lesson: the arithmetic of lessonlib, pictures of it, and the controls beneath them.
//
// One module, no dependency, no build step. Its first part is the library's arithmetic, formula by formula and sentence
// by sentence: tests/test_explorer_arithmetic.py holds every number to Python's and every refusal to its words. Names
// are the library's, SI units inside. What a model, a device and a dtype are comes as plain numbers: explorer_data.py.

// ---------------------------------------------------------------------------------------------------------------------
// 1. Arithmetic. First numbers and values as Python prints them.
const MOST_TOKENS = 2 ** 53; // the largest count that a float64 holds exactly
const total = (items, of) => items.reduce((sum, item) => sum + of(item), 0);
const ratio = (over, under) => (under ? over / under : NaN);
const mapped = (object, of) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, of(value, key)]));
const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined); // no "constructor"
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
const minus = (x) => (x < 0 || Object.is(x, -0) ? "-" : "");
const exponent = (power) => `e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
// round(|x| * 10 ** places), half to even and exact, as Python rounds: the digits of a whole number.
function scaledDigits(x, places) {
  let [whole, bits] = [Math.abs(x), 0n]; // |x| = whole / 2 ** bits
  for (; !Number.isInteger(whole); bits += 1n) whole *= 2;
  const [up, down] = [places, -places].map((power) => 10n ** BigInt(Math.max(power, 0)));
  const [over, under] = [BigInt(whole) * up, down << bits];
  const [quotient, rest] = [over / under, 2n * (over % under)];
  return String(rest > under || (rest === under && quotient % 2n) ? quotient + 1n : quotient);
}
// The first `digits` significant digits, and the power of ten of the first, after rounding.
function significantDigits(x, digits) {
  let power = x ? Math.floor(Math.log10(Math.abs(x))) - 1 : 0;
  while (x && scaledDigits(x, digits - 1 - power).length > digits) power += 1;
  return [x ? scaledDigits(x, digits - 1 - power) : "0".repeat(digits), power];
}
// f"{x:.{places}f}", f"{x:.{digits}g}" and f"{n:,}" of Python; with `comma` a comma after each thousand.
export function fixed(x, places, comma = false) {
  if (!Number.isFinite(x)) return asFloat(x).said;
  const [, whole, rest] = scaledDigits(x, places).padStart(places + 1, "0").match(`^(.*)(.{${places}})$`);
  return minus(x) + (comma ? grouped(whole) : whole) + (places ? `.${rest}` : "");
}
export function general(x, digits, comma = false) {
  if (!Number.isFinite(x)) return asFloat(x).said;
  const [[first, ...rest], power] = significantDigits(x, digits);
  const shorter = (said) => (said.includes(".") ? said.replace(/\.?0*$/, "") : said);
  if (power >= -4 && power < digits) return shorter(fixed(x, digits - 1 - power, comma));
  return minus(x) + shorter(`${first}.${rest.join("")}`) + exponent(power);
}
const commas = (n) => minus(n) + grouped(String(BigInt(Math.abs(n))));

// What cannot be seen, escaped: names come from outside.
const printable = (said) => said.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (letter) => {
  const [size, mark] = letter < "\u0100" ? [2, "x"] : letter.length < 2 ? [4, "u"] : [8, "U"];
  const code = `\\${mark}${letter.codePointAt(0).toString(16).padStart(size, "0")}`;
  return { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[letter] ?? code;
});
// repr(value): a whole number is an int up to 2**53, a BigInt always; what is to be a float comes from `asFloat`.
function repr(value) {
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : asFloat(value).said;
  const words = { true: "True", false: "False", null: "None", undefined: "None" };
  if (typeof value !== "string") return words[value] ?? value.said ?? String(value);
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
  return quote + printable(value.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`)) + quote;
}
function asFloat(value) {
  if (!Number.isFinite(value)) return { said: Number.isNaN(value) ? "nan" : `${minus(value)}inf` };
  const [mantissa, power] = value.toExponential().split("e");
  if (value && (power < -4 || power >= 16)) return { said: mantissa + exponent(Number(power)) };
  return { said: value.toFixed(Math.max(1, mantissa.replace(/\D/g, "").length - 1 - power)) };
}

const PREFIXES = { B: [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] };
Object.assign(PREFIXES, { FLOP: PREFIXES.B, s: [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]] });
function significant(value, digits) {
  if (!value || !Number.isFinite(value)) return value ? repr(value) : "0";
  return fixed(value, Math.max(0, digits - 1 - significantDigits(value, digits)[1]), true);
}
// With `digits` significant digits, an SI prefix and the unit: "15.01 GB". 999,999 B is 1.000 MB, as it is shown.
const formatted = (unit) => (value, digits = 4) => {
  const [first, power] = Number.isFinite(value) ? significantDigits(value, digits) : ["0", 0];
  const size = Number(`${first}e${power - digits + 1}`);
  const [factor, prefix] = PREFIXES[unit].find(([least]) => size >= least) ?? [1, ""];
  return Number.isNaN(value) ? "undefined" : `${significant(value / factor, digits)} ${prefix}${unit}`;
};
export const [formatBytes, formatFlops, formatSeconds] = ["B", "FLOP", "s"].map(formatted);
export const formatPercent = (share, digits = 3) =>
  Number.isNaN(share) ? "undefined" : `${significant(100 * share, digits)} %`;
export const tokensLabel = (value) => // 1, 128, 1k, 12.8k, 1M
  value >= 1e6 ? `${general(value / 1e6, 4)}M` : value >= 1e3 ? `${general(value / 1e3, 4)}k` : general(value, 4);

// ---- Refusals, and what a value must be
// What the library refuses: `message` is its sentence, `kind` the class of its error.
export class Refused extends Error {
  constructor(message, kind = "InvalidInputError") {
    Object.assign(super(printable(message)), { name: "Refused", kind });
  }
}
const refuse = (message, kind) => { throw new Refused(message, kind); };
function wrong(owner, name, value, expected, remedy = "") {
  const [said, letters] = [repr(value), [...repr(value)]];
  const shown = letters.length > 80 ? `${letters.slice(0, 60).join("")}... (${letters.length} characters)` : said;
  return new Refused(`${owner}: ${name} is ${shown}; expected ${expected}${remedy && "; "}${remedy}.`);
}
// What `make` makes; null where it is refused.
function unless(make) {
  try {
    return make();
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

const within = (least, most) => (value) => typeof value === "number" && least <= value && value <= most;
const rule = (expected, takes) => ({ expected, takes });
const whole = (expected, least = 1, most = MOST_TOKENS) =>
  rule(expected, (value) => Number.isInteger(value) && least <= value && value <= most);
const optional = ({ expected, takes }) => rule(`${expected}, or None`, (value) => value == null || takes(value));
const choice = (words) => rule(`one of ${words.join(", ")}`, (value) => words.includes(value));
const [LARGEST, SMALLEST] = [Number.MAX_VALUE, Number.MIN_VALUE];
const rate = (unit) => rule(`a finite number of ${unit}, more than zero`, within(SMALLEST, LARGEST));
const COUNT = whole("a whole number of at least 1", 1, LARGEST);
const BATCH = whole(`a whole number from 1 to ${commas(MOST_TOKENS)}`);
const TOKENS = whole("a whole number from 1 to 2**53, or an array of them");
const CACHED = whole("a whole number from 0 to 2**53, or an array of them", 0);
const PLACES = whole("a whole number from 1 to 9.007199255e+15, or an array of them");
const FLAG = rule("True or False", (value) => typeof value === "boolean");
const FRACTION = rule("a fraction more than 0 and at most 1", within(SMALLEST, 1));
// Refused where a value, in the order given, does not follow its rule: {name: [rule, value]}.
function check(owner, values) {
  for (const [name, [{ expected, takes }, value]] of Object.entries(values)) {
    if (!takes(value)) throw wrong(owner, name, value, expected);
  }
}
// The first whole number above `low` and up to `high` for which `holds`, and for all above it, by halving.
function firstOf(low, high, holds) {
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    [low, high] = holds(middle) ? [low, middle] : [middle, high];
  }
  return high;
}

// ---- Laws of mixers: what a token attends to, what a pass reads, what a sequence holds. c: cached, n: new tokens.
// How many of n tokens have a span below or at `limit`, as no more tokens are there; and the spans of n tokens, summed.
const below = (limit, c, n) => Math.min(Math.max(Math.floor(limit - c), 0), n);
const allSpans = (c, n) => n * c + (n * (n + 1)) / 2;
const spansUpTo = (limit, c, n) => allSpans(c, below(limit, c, n)) + (n - below(limit, c, n)) * limit;
const cutAt = (limit) => (c, n) => [[c, below(limit, c, n)], [c + below(limit, c, n), n - below(limit, c, n)]];
// fillsAt: tokens up to which all are held and seen, and after which both stay the same; null: it has another form.
const ALL = {
  spanSum: allSpans, read: (c) => c, readSum: (c, n, spans) => spans - n, held: (tokens) => tokens,
  stretches: (c, n) => [[c, n]], fillsAt: Infinity, period: null,
};
const LAWS = {
  all: () => ALL,
  window: ({ window }) => ({
    spanSum: (c, n) => spansUpTo(window, c, n), read: (c) => Math.min(c, window - 1),
    held: (tokens) => Math.min(tokens, window), fillsAt: window,
  }),
  chunk({ chunk }) {
    const upTo = (tokens) => Math.floor(tokens / chunk) * allSpans(0, chunk) + allSpans(0, tokens % chunk);
    const spanSum = (c, n) => upTo((c % chunk) + n) - allSpans(0, c % chunk);
    return { spanSum, read: (c) => c % chunk, held: (tokens) => Math.min(tokens, chunk), period: chunk };
  },
  sparse: ({ top_k: most }) => ({
    spanSum: (c, n) => spansUpTo(most, c, n), read: (c, n) => Math.min(c, n * most),
    readSum: (c, n, spans) => spans - below(most, c, n), stretches: cutAt(most),
  }),
  blocks({ top_k: most, block }) {
    function unseen(tokens) {
      const past = Math.max(Math.floor(tokens / block) - most, 0);
      return block * allSpans(0, past) + (tokens % block) * Math.max(Math.floor(tokens / block) + 1 - most, 0);
    }
    const spanSum = (c, n) => allSpans(c, n) - block * (unseen(c + n) - unseen(c));
    return { spanSum, read: (c, n) => Math.min(c, spanSum(c, n) - n), period: block };
  },
  entries({ rate: each, top_k: most }) {
    const limit = most ? each * most : Infinity;
    function upTo(tokens) {
      const growing = Math.min(tokens, limit - 1);
      const full = Math.floor(growing / each);
      const sum = (each ** 2 * full * (full - 1)) / 2 + each * full * (growing - full * each + 1);
      return most ? sum + Math.max(tokens - limit + 1, 0) * limit : sum;
    }
    const spanSum = (c, n) => upTo(c + n) - upTo(c);
    return {
      spanSum, read: (c, n) => Math.min(c, Math.max(spanSum(c, n) - n, 0)), held: (t) => each * Math.floor(t / each),
      readSum: (c, n, sum) => sum - (n - below(each - 1, c, n)), stretches: cutAt(each - 1),
    };
  },
};
// `shared`: of layers that read the cache of another one, and hold nothing.
const lawOf = ({ kind, shared, ...numbers }) =>
  ({ ...ALL, fillsAt: null, ...LAWS[kind](numbers), ...(shared && { held: () => 0, fillsAt: null }) });

// ---- Sizes: a model in a precision on some devices
const LAYOUTS = { tensor: "tensor parallelism", expert: "data-parallel attention with expert parallelism" };
// Copies of what the heads of a mixer share, over a tensor-parallel group; Refused where heads do not divide.
function cacheCopies({ owner, heads = 0, kv_heads: kvHeads = 0, whole: all = false }, split) {
  const divides = (expected) => wrong(owner, "devices", BigInt(split), `a number that divides its ${expected}`);
  if (heads % split) throw divides(`${heads} heads`);
  if (kvHeads % split && split % kvHeads) throw divides(`${kvHeads} KV heads, or a multiple of them`);
  return all ? split : kvHeads ? Math.max(1, split / kvHeads) : 1;
}
const copiedWeights = ({ copies }, split) => total(copies, (copy) => (cacheCopies(copy, split) - 1) * copy.weights);
// Collectives of a pass, and the bytes that one device sends for one of its tokens.
function collectivesOf(model, { sent, dispatched }, devices, layout) {
  if (devices === 1) return [0, 0];
  const each = (2 * (devices - 1) * model.width * sent) / devices;
  if (layout === "tensor") return [model.reduces, model.reduces * each];
  const bytes = total(model.experts, ({ layers, routed_width: width, experts, picked }) => {
    let none = 1; // the chance that a device, with experts / devices of them, holds none of those picked
    for (let i = 0; i < picked; i += 1) none *= Math.max(0, experts - experts / devices - i) / (experts - i);
    return layers * width * ((devices - 1) * (1 - none)) * (dispatched + sent);
  });
  return [total(model.experts, ({ layers }) => 2 * layers), bytes];
}
// All layers of one kernel: FLOPs and bytes of one sequence.
function layerKind(kernel, { bytes, operand, state, usual_state: usual }, split) {
  const { layers, label, cache_part: part = "cache", fresh_pair_flops: fresh } = kernel;
  const [of, copies] = [(name) => kernel[name] ?? 0, layers * (kernel.copied_whole ? split : 1)];
  const cache = layers * of("cache_elements") * cacheCopies(kernel, split);
  const stateBytes = (state ?? kernel.state_bytes ?? usual) * of("state_elements");
  return {
    label, layers, law: lawOf(kernel.law), pairFlops: copies * of("pair_flops"),
    freshPairFlops: copies * (fresh ?? of("pair_flops")), expandFlops: copies * of("expand_flops"),
    tokenFlops: copies * of("token_flops"), cacheBytes: cache * bytes[part],
    stateBytes: layers * (stateBytes + operand * of("conv_elements")),
  };
}
const kindBytes = (kind, tokens) => kind.cacheBytes * kind.law.held(tokens) + kind.stateBytes;
// `shares_head`: of a draft whose head is its target's, which lies in memory once.
function sizesOf(model, precision, devices, layout) {
  const [split, replicas] = layout === "tensor" ? [devices, 1] : [1, devices];
  const { weights, experts: ffns, again, head_bias: bias, shares_head: shared } = model;
  const { bytes } = precision;
  const every = (count) => total(ffns, (ffn) => ffn.layers * count(ffn));
  const copies = (layers) => total(model.mixers, (mixer) => mixer[layers] * copiedWeights(mixer, split));
  const [copied, stored] = [copies("layers"), copies("stored")];
  const routers = (split - 1) * every((ffn) => ffn.router_weights);
  const blocks = (weights.blocks + stored) * bytes.blocks + (weights.other + routers) * bytes.other;
  const more = (again.blocks + copied - stored) * bytes.blocks + again.other * bytes.other;
  const head = weights.head * bytes.head + bias * bytes.other;
  const expertBytes = (ffn) => ffn.weights * bytes.experts + ffn.other_weights * bytes.other;
  const resident = every((ffn) => Math.ceil(ffn.experts / replicas) * expertBytes(ffn));
  const [collectives, collectiveBytes] = collectivesOf(model, precision, devices, layout);
  return {
    tokenFlops: 2 * (weights.used + copied + routers), expertFlops: 2 * weights.picked, logitFlops: 2 * weights.head,
    blockBytes: replicas * (blocks + more), headBytes: replicas * head,
    residentBytes: replicas * (blocks + resident + weights.embedding * bytes.embedding + (shared ? 0 : head)),
    replicas, collectives, collectiveBytes, kinds: model.kernels.map((kernel) => layerKind(kernel, precision, split)),
    experts: ffns.map((ffn) => ({
      bytes: ffn.experts * ffn.layers * expertBytes(ffn),
      logIdle: ffn.picked < ffn.experts ? Math.log1p(1 - ffn.picked / ffn.experts - 1) : -Infinity,
    })),
  };
}
// ---- Work of passes, and its time under the roofline
const NOTHING = { weights: 0, cacheRead: 0, cacheWrite: 0, state: 0, times: 1 };
const work = (kernel, flops, more) => ({ kernel, flops, ...NOTHING, ...more });
// Dense linear layers, routed experts, LM head. `fullest`: tokens of the fullest device over their mean.
function linearWork(sizes, tokens, logits, times = 1, fullest = 1) {
  const streamed = total(sizes.experts, ({ bytes, logIdle }) => -bytes * Math.expm1(tokens * logIdle));
  const dense = work("blocks", sizes.tokenFlops * tokens * fullest, { weights: sizes.blockBytes, times });
  const routed = work("experts", sizes.expertFlops * tokens, { weights: streamed, times });
  const head = work("head", sizes.logitFlops * logits * fullest, { weights: sizes.headBytes, times });
  return sizes.experts.length ? [dense, routed, head] : [dense, head];
}
function pairWork(kind, read, pairs) {
  const expanded = kind.freshPairFlops * pairs + kind.expandFlops * read;
  return !kind.expandFlops ? kind.pairFlops * pairs : read > 0 ? Math.min(kind.pairFlops * pairs, expanded) : expanded;
}
// Attention, or the update of a constant state, of all layers of one kind: in one pass, and in decode steps together.
function attentionWork(kind, n, c, batch, times = 1) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * kind.stateBytes];
  if (!cache) return work("attention", batch * n * kind.tokenFlops, { state, times });
  const read = kind.law.read(c, n);
  const flops = batch * pairWork(kind, read, kind.law.spanSum(c, n));
  return work("attention", flops, { cacheRead: cache * read, cacheWrite: cache * n, times });
}
function attentionOfSteps(kind, prompt, steps, batch) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * steps * kind.stateBytes];
  if (!cache) return [work("attention", batch * steps * kind.tokenFlops, { state })];
  return kind.law.stretches(prompt, steps).map(([c, n]) => {
    const spans = kind.law.spanSum(c, n);
    const moved = { cacheRead: cache * kind.law.readSum(c, n, spans), cacheWrite: cache * n };
    return work("attention", batch * kind.pairFlops * spans, moved);
  });
}
// Sequences that there would be if each device that serves its own had as many as the fullest.
const seats = ({ replicas }, batch) => (replicas === 1 ? batch : Math.ceil(batch / replicas) * replicas);
// Passes: their works, tokens of the fullest device, their number, the share of the works that is done.
function passesOf(sizes, attention, batch, tokens, logits, number) {
  const fullest = seats(sizes, batch) / batch;
  const works = [...attention, ...linearWork(sizes, tokens, logits, number, fullest)];
  return { sizes, works, tokens: (number * tokens * fullest) / sizes.replicas, number, done: 1 / fullest };
}
function equalPasses(sizes, n, c, batch, logits, number = 1) {
  const attention = sizes.kinds.map((kind) => attentionWork(kind, n, c, seats(sizes, batch), number));
  return passesOf(sizes, attention, batch, batch * n, batch * logits, number);
}
function decodeSteps(sizes, prompt, number, batch) {
  const attention = sizes.kinds.flatMap((kind) => attentionOfSteps(kind, prompt, number, seats(sizes, batch)));
  return passesOf(sizes, attention, batch, batch, batch, number);
}

const DONE = ["flops", "cacheRead", "cacheWrite", "state"]; // less where devices less full wait
const SUMS = [...DONE, "weights", "computeSeconds", "memorySeconds", "seconds"];
const bytesOf = (one) => one.weights + one.cacheRead + one.cacheWrite + one.state;
// The seconds of a work under its roof, each time that it runs; they are put into it, too.
function underRoof({ peaks, bandwidth, efficiency }, one) {
  [one.computeSeconds, one.memorySeconds] = [one.flops / peaks[one.kernel], bytesOf(one) / bandwidth];
  const { computeSeconds: compute, memorySeconds: memory } = one;
  return (one.seconds = efficiency.overlap ? Math.max(compute, memory) : compute + memory);
}
// Works under their roofs, added up, each as often as it runs: those of attention, or of all linear layers.
function summed(runs, ofAttention) {
  const sums = Object.fromEntries(SUMS.map((name) => [name, 0]));
  for (const { works, done } of runs) {
    for (const one of works.filter(({ kernel }) => ofAttention === (kernel === "attention"))) {
      const share = one.kernel === "experts" ? 1 : done;
      for (const name of SUMS) sums[name] += one[name] * one.times * (DONE.includes(name) ? share : 1);
    }
  }
  return { ...sums, bytes: bytesOf(sums) };
}
// Passes on a deployment, one after another: bytes and FLOPs of all devices, seconds of the group.
class Phase {
  constructor(deployment, runs) {
    const { efficiency, linkRate: link, collectiveLatency: latency } = deployment;
    Object.assign(this, { runs, passes: total(runs, (run) => run.number) });
    const busy = total(runs, ({ works }) => total(works, (one) => one.times * underRoof(deployment, one)));
    this.communication = total(runs, ({ sizes, tokens, number }) => (!sizes.collectives || link === null ? 0
      : tokens * (sizes.collectiveBytes / link) + number * (sizes.collectives * latency)));
    this.overhead = this.passes * efficiency.overhead;
    this.seconds = busy + this.communication + this.overhead;
  }
  get linear() { return summed(this.runs, false); }
  get attention() { return summed(this.runs, true); }
  get flops() { return this.linear.flops + this.attention.flops; }
}

// ---- Deployment: a model on devices, and what their memory holds
const GIVEN = { devices: 1, layout: "tensor", memoryFraction: 0.9, speculation: null };
const MOST_DEVICES = 1024; // of one group that a remedy may name
// As the library's Deployment. `given`: model, accelerator, precision, efficiency, and what of GIVEN differs.
class Deployment {
  constructor(given) {
    Object.assign(this, GIVEN, given, { given });
    const { model, accelerator, devices, layout, memoryFraction, precision, efficiency, speculation } = this;
    check("Deployment", { devices: [COUNT, devices], layout: [choice(Object.keys(LAYOUTS)), layout] });
    check("Deployment", { memory_fraction: [FRACTION, memoryFraction] });
    const [name, { peaks }] = [repr(accelerator.name), accelerator];
    const unlinked = `has no link figure, so what ${BigInt(devices)} devices send cannot be timed`;
    const remedy = "give link= in byte/s one way, or take devices=1";
    this.collectiveLatency = efficiency[layout === "tensor" ? "all_reduce_latency" : "all_to_all_latency"];
    this.linkRate = accelerator.link;
    if (devices > 1 && this.linkRate === null) refuse(`Deployment: ${name} ${unlinked}; ${remedy}.`);
    this.peaks = mapped(precision.operands, (dtypes) => { // the first that the device multiplies in
      const dtype = dtypes.find((one) => own(peaks, one)) ?? dtypes.at(-1);
      const known = `it has ${Object.keys(peaks).join(", ")}. Choose one of these to compute in.`;
      const missing = () => refuse(`Accelerator ${name} has no ${dtype} peak; ${known}`, "UnknownNameError");
      return devices * efficiency.mfu * (own(peaks, dtype) ?? missing());
    });
    if (model.unknown) refuse(model.unknown);
    this.sizes = sizesOf(model, precision, devices, layout);
    this.draftSizes = speculation && sizesOf(speculation.draft, precision, devices, layout);
    this.weightBytes = this.sizes.residentBytes + (this.draftSizes?.residentBytes ?? 0);
    this.memoryAvailable = memoryFraction * devices * accelerator.memory;
    this.memoryFree = this.memoryAvailable - this.weightBytes;
    this.maxPositions = model.max_positions; // a draft head has its target's
    this.bandwidth = devices * efficiency.mbu * accelerator.bandwidth;
    this.cacheBytesPerToken = total(this.sizes.kinds, (kind) => kind.cacheBytes);
  }
  with(changes) { return new Deployment({ ...this.given, ...changes }); }
  sequenceBytes(tokens) {
    const held = ({ kinds }) => total(kinds, (kind) => kindBytes(kind, tokens));
    return held(this.sizes) + (this.draftSizes ? held(this.draftSizes) : 0);
  }
  memoryNeeded(tokens, batch = 1) { return this.weightBytes + seats(this.sizes, batch) * this.sequenceBytes(tokens); }
  fits(tokens, batch = 1) { return this.memoryNeeded(tokens, batch) <= this.memoryAvailable; }
}
// The deployment of settings: names in the data's lists, or objects of the same form in their place.
export function deploymentOf(data, settings) {
  function find(kind, choices, usual) {
    const wanted = settings[kind] ?? usual;
    if (typeof wanted === "object") return wanted;
    const found = Array.isArray(choices) ? choices.find(({ name }) => name === wanted) : own(choices, wanted);
    const unknown = `Unknown ${kind} ${repr(wanted)}: expected one of the ${Object.keys(choices).length} here.`;
    return found ?? refuse(unknown, "UnknownNameError");
  }
  const [model, accelerator] = [find("model", data.models), find("accelerator", data.accelerators)];
  const precision = find("precision", data.precisions, "bf16");
  const { efficiencies, no_efficiencies: none } = accelerator; // published for its kind, or why there are none
  const known = { ...data.efficiencies, ...efficiencies };
  if (none && typeof settings.efficiency === "string" && !own(known, settings.efficiency)) refuse(none);
  const efficiency = { ...data.efficiencies.floor, ...find("efficiency", known, "floor") };
  const others = Object.entries(settings).filter(([name, value]) => name in GIVEN && value !== undefined);
  return new Deployment({ ...Object.fromEntries(others), model, accelerator, precision, efficiency });
}
// The largest batch of sequences that hold `tokens` tokens each; 0 when not even one fits.
export function largestBatch(d, tokens) {
  check("largest_batch", { tokens: [COUNT, tokens] });
  const each = d.sequenceBytes(tokens);
  if (d.memoryFree <= 0) return 0;
  if (!each) refuse(`largest_batch: ${d.model.name} keeps neither cache nor state; any batch fits.`);
  let batch = Math.floor(Math.min(d.memoryFree / each, MOST_TOKENS));
  while (batch < MOST_TOKENS && d.fits(tokens, batch + 1)) batch += 1;
  while (batch && batch < MOST_TOKENS && !d.fits(tokens, batch)) batch -= 1;
  return batch;
}
// Refused, with the smallest changes that fit, unless `batch` sequences of `tokens` tokens fit.
export function requireFit(d, tokens, batch = 1) {
  check("require_fit", { tokens: [COUNT, tokens], batch: [COUNT, batch] });
  if (d.fits(tokens, batch)) return;
  const [needed, weights, available] = [d.memoryNeeded(tokens, batch), d.weightBytes, d.memoryAvailable];
  const [found, several] = [remedies(d, tokens, batch), d.devices === 1 ? "" : ` (${LAYOUTS[d.layout]})`];
  const nothing = d.linkRate === null ? "no dtype does, and there is no link figure to join more devices"
    : `no dtype and no number of these devices up to ${commas(MOST_DEVICES)} does`;
  const what = `${d.model.name} with ${commas(batch)} x ${commas(tokens)} tokens`;
  const parts = `(weights ${formatBytes(weights)}, cache ${formatBytes(needed - weights)})`;
  const there = `available are ${formatBytes(available)} (${fixed(100 * d.memoryFraction, 0)}% of the memory)`;
  const on = `${BigInt(d.devices)} x ${d.accelerator.name}${several}`;
  const remedy = `What would fit: ${found.join("; or ") || nothing}.`;
  refuse(`${what} on ${on} needs ${formatBytes(needed)} ${parts}; ${there}. ${remedy}`, "DoesNotFitError");
}
// The smallest change of each kind that fits: batch, precision, devices.
function remedies(d, tokens, batch) {
  const [largest, { smaller = {} }] = [largestBatch(d, tokens), d.precision];
  const dtypes = Object.keys(smaller).find((words) => d.with({ precision: smaller[words] }).fits(tokens, batch));
  const found = [...(largest ? [`batch=${BigInt(largest)}`] : []), ...(dtypes ? [dtypes] : [])];
  return d.linkRate === null ? found : [...found, ...moreDevices(d, tokens, batch, !found.length)];
}
// The fewest devices that hold the batch; failing that, if `alone`, the fewest that hold a smaller one.
function moreDevices(d, tokens, batch, alone) {
  const least = Math.ceil(d.memoryNeeded(tokens, batch) / (d.memoryFraction * d.accelerator.memory));
  const fewest = d.layout === "tensor" ? least : 0; // there more devices never need fewer bytes
  let second = [];
  for (let devices = d.devices + 1; devices <= MOST_DEVICES; devices += 1) {
    if (devices < fewest && (second.length || batch === 1 || !alone)) continue;
    const more = unless(() => d.with({ devices })); // heads may not divide over so many
    if (more?.fits(tokens, batch)) return [`devices=${devices}`];
    const largest = more && alone && !second.length && batch > 1 ? largestBatch(more, tokens) : 0;
    if (largest) second = [`devices=${devices} with batch=${BigInt(largest)}`];
  }
  return second;
}

// ---- Requests. d: a deployment, r: {prompt, output, cached}, which `requestOf` has let through.
export function requestOf({ prompt, output, cached = 0 }) {
  check("Request", { prompt: [TOKENS, prompt], output: [TOKENS, output], cached: [CACHED, cached] });
  if (cached < prompt) return { prompt, output, cached };
  const most = "at least one prompt token must be computed, so expected at most prompt - 1";
  return refuse(`Request: cached is ${commas(cached)} but the prompt has ${commas(prompt)} tokens; ${most}.`);
}
// The prompts of a batch, in one pass, or one on each device with sequences of its own; a draft prefills them likewise.
function prefillPhase(d, prompt, cached, batch) {
  const [{ sizes, draftSizes }, n] = [d, prompt - cached];
  const models = draftSizes ? [sizes, draftSizes] : [sizes];
  const passes = (...of) => models.map((each) => equalPasses(each, n, cached, ...of));
  if (sizes.replicas === 1) return new Phase(d, passes(batch, 1, 1));
  const [full, rest] = [Math.floor(batch / sizes.replicas), batch % sizes.replicas];
  const last = passes(Math.max(rest, 1), 1, Math.min(rest, 1));
  return new Phase(d, [...passes(sizes.replicas, 1, full), ...last]);
}
// The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them.
function decodePhase(d, prompt, output, batch) {
  const { sizes, speculation, draftSizes } = d;
  if (!speculation) return new Phase(d, [decodeSteps(sizes, prompt, output - 1, batch)]);
  const [{ draft_tokens: drafts, acceptance }, context] = [speculation, prompt + (output - 2) / 2];
  const tokens = -Math.expm1((drafts + 1) * Math.log1p(acceptance - 1)) / (1 - acceptance); // of a round
  const rounds = (output - 1) / tokens;
  const verifying = equalPasses(sizes, drafts + 1, context, batch, drafts + 1, rounds);
  const drafting = equalPasses(draftSizes, 1, context, batch, 1, rounds * drafts);
  return new Phase(d, [verifying, drafting]);
}
// Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep: both clocks, both phases.
export function requestCost(d, { prompt, output, cached }, batch = 1) {
  check("request_cost", { batch: [TOKENS, batch] });
  const [limit, tokens, name] = [d.maxPositions, prompt + output, d.model.name];
  const both = `prompt ${commas(prompt)} + output ${commas(output)} is ${commas(tokens)} tokens`;
  const most = () => `${name} has ${commas(limit)} positions; shorten one of them`;
  if (limit !== null && tokens > limit) refuse(`Request: ${both}, but ${most()}.`);
  requireFit(d, tokens, batch);
  const [prefill, decode] = [prefillPhase(d, prompt, cached, batch), decodePhase(d, prompt, output, batch)];
  const ttft = batch === 1 ? prefill.seconds : prefillPhase(d, prompt, cached, 1).seconds;
  const seconds = prefill.seconds + decode.seconds;
  return {
    prefill, decode, ttft, seconds, undisturbed: ttft + decode.seconds,
    tpot: ratio(decode.seconds, output - 1), decodeShare: decode.seconds / seconds,
    get flops() { return prefill.flops + decode.flops; }, // summed only where somebody asks
  };
}

// ---- A full server: requests that come and go
const middle = ({ prompt, output }) => prompt + Math.floor((output + 1) / 2); // tokens held in the middle of the answer
// How many identical requests are under way at a time when memory is full on average; 0 when not even one fits.
export const memoryBatch = (d, r) => largestBatch(d, middle(r));
function fullBatch(d, r) {
  const found = memoryBatch(d, r);
  if (!found) requireFit(d, r.prompt + r.output);
  return Math.max(1, found);
}
// `batch` identical requests in steady state, null: the memory batch. Seconds of the GPU clock.
export function steadyState(d, request, batch = null, mixed = false) {
  const { prompt, output, cached } = request;
  check("steady_state", { batch: [optional(BATCH), batch], mixed: [FLAG, mixed] });
  const [alone, steps] = [requestCost(d, request), output - 1];
  if (batch === null) batch = fullBatch(d, request);
  else if (batch > 1) requireFit(d, middle(request), batch);
  const [decode, prompts] = [decodePhase(d, prompt, output, batch), Math.min(batch, d.sizes.replicas)];
  const attention = decode.attention.seconds / batch;
  const linear = decode.seconds / batch - attention;
  const ttft = (prompts > 1 ? prefillPhase(d, prompt, cached, prompts) : alone.prefill).seconds;
  const riding = () => (mixedPass(d, request, batch) * steps) / batch - linear - attention;
  const parts = { prefill: mixed ? Math.max(0, riding()) : ttft / prompts, linear, attention };
  const secondsPerRequest = parts.prefill + linear + attention;
  const wait = batch * secondsPerRequest;
  return {
    batch, ttft, parts, wait, secondsPerRequest, tokensPerSecond: output / secondsPerRequest,
    shares: mapped(parts, (seconds) => seconds / secondsPerRequest),
    tpot: ratio(wait - (mixed ? 0 : ttft), steps), step: ratio(batch * (linear + attention), steps),
  };
}
// Seconds of one pass that carries `batch` decode tokens and the prompt tokens that arrive meanwhile.
function mixedPass(d, { prompt, output, cached }, batch) {
  const [{ sizes }, steps, n] = [d, output - 1, prompt - cached];
  if (!steps) refuse("mixed_pass: the request has one output token; it has no decode step to ride on.");
  const [begun, tokens] = [batch / steps, batch + (batch / steps) * n];
  const attention = sizes.kinds.map((kind) => attentionWork(kind, n, cached, 1, begun));
  const works = [...linearWork(sizes, tokens, batch + begun), ...attention];
  const together = new Phase(d, [{ sizes, works, tokens: tokens / sizes.replicas, number: 1 }]);
  return together.seconds + decodePhase(d, prompt, output, batch).attention.seconds / steps;
}
// The largest batch of identical requests whose TPOT is at most `tpot`: {batch, binds, state}.
export function atLatency(d, request, tpot = 0.03, mixed = false) {
  check("at_latency", { tpot: [rate("seconds a token"), tpot], mixed: [FLAG, mixed] });
  const { output } = request;
  if (output < 2) throw wrong("at_latency", "output", output, "2 or more", "one output token has no TPOT");
  const stateOf = (batch) => steadyState(d, request, batch, mixed);
  const [full, one] = [stateOf(fullBatch(d, request)), stateOf(1)];
  if (full.tpot <= tpot) return { batch: full.batch, binds: "memory", state: full };
  const least = `at least ${general(one.tpot, 4)} s, the TPOT of one request at a time on this deployment`;
  const remedy = "take a longer target, a faster deployment or a smaller model";
  if (one.tpot > tpot) throw wrong("at_latency", "tpot", asFloat(tpot), least, remedy);
  const batch = firstOf(1, full.batch, (some) => stateOf(some).tpot > tpot) - 1;
  return { batch, binds: "target", state: stateOf(batch) };
}

// ---- Estimates, in one line each
function passOf(d, batch) {
  if (batch > MOST_TOKENS) throw wrong("pass_cost", "batch", BigInt(batch), BATCH.expected);
  return new Phase(d, [equalPasses(d.sizes, 1, 0, batch, 1)]);
}
// Tokens in one pass at which the linear layers turn from memory bound to compute bound.
export const ridgeTokens = (d) => ((d.peaks.blocks / d.bandwidth) * d.precision.bytes.blocks) / 2;
// Block weights that one token uses over those that a decode step at `batch` reads.
function usedOverRead({ model: { experts, block_matmul_weights: used }, sizes }, batch = 1) {
  const distinct = experts.map((ffn, i) => -ffn.experts * Math.expm1(batch * sizes.experts[i].logIdle));
  const idle = experts.map((ffn, i) => ffn.layers * ffn.weights * (distinct[i] - ffn.picked));
  return used / (used + total(idle, (weights) => weights));
}
// About prefill time over decode time at `batch`: decode heavy is much below 1.
export function rho(d, { prompt, output, cached }, batch = 1) {
  check("rho", { batch: [TOKENS, batch] });
  return ((prompt - cached) / output) * Math.min((batch * usedOverRead(d, batch)) / ridgeTokens(d), 1);
}
// Time to read caches over time to compute the linear layers at peak, whatever the batch and the memory.
export function chi(d, { prompt, output, cached }) {
  const { kinds, replicas } = d.sizes;
  const each = total(kinds, (kind) => kind.cacheBytes * (kind.law.read(prompt + output / 2 - 1, 1) + 1));
  const computing = ((prompt - cached + output) * passOf(d, replicas).linear.computeSeconds) / replicas;
  return (output * each) / d.bandwidth / computing;
}
// The batch at which the linear layers of passes that mix prefill in turn compute bound.
export const roofBatch = (d, { prompt, output, cached }) =>
  ridgeTokens(d) / usedOverRead(d, MOST_TOKENS) / (1 + (prompt - cached) / output);
// Roof batch over memory batch: above 1, memory is full before the linear layers are busy.
export function omega(d, request) {
  const none = "keeps no growing cache, so omega says nothing about it";
  if (d.memoryFree <= 0) requireFit(d, 1);
  if (!d.cacheBytesPerToken) refuse(`omega: ${d.model.name} ${none}.`);
  return (roofBatch(d, request) * d.sequenceBytes(request.prompt + request.output / 2)) / d.memoryFree;
}

// ---- The cache over an answer
// [{label, layers, bytes}] by kind of layer: what one sequence of `tokens` tokens holds.
export const cacheByKind = ({ sizes }, tokens) =>
  sizes.kinds.map((kind) => ({ label: kind.label, layers: kind.layers, bytes: kindBytes(kind, tokens) }));
// The step that emits output token `position` + 1: {linear, neighbours, own, other, seconds}.
export function stepParts(d, request, position, batch = 1, together = false) {
  const [{ prompt, output }, { sizes }] = [request, d];
  check("step_parts", { position: [PLACES, position], batch: [BATCH, batch], together: [FLAG, together] });
  requestCost(d, request);
  requireFit(d, together ? prompt + output : middle(request), batch);
  const [steps, said] = [output - 1, { said: `np.float64(${asFloat(position).said})` }];
  const expected = `whole numbers from 1 to ${commas(steps)}, its steps`;
  if (position > steps) throw wrong("step_parts", "position", said, expected);
  const secondsOf = (run) => new Phase(d, [run]).attention.seconds;
  const mine = secondsOf(equalPasses(sizes, 1, prompt + position - 1, 1, 1));
  const neighbour = together ? mine : secondsOf(decodeSteps(sizes, prompt, steps, 1)) / steps;
  const [shared, neighbours] = [passOf(d, batch), (Math.ceil(batch / sizes.replicas) - 1) * neighbour];
  const [linear, other] = [shared.linear.seconds, shared.communication + shared.overhead];
  return { linear, neighbours, own: mine, other, seconds: linear + neighbours + mine + other };
}
const gcd = (one, other) => (other ? gcd(other, one % other) : one);
// The first span at which a step moves more bytes of cache and state than of weights; null when it never does.
export function spanWhereCachePassesWeights({ sizes }, batch = 1) {
  check("span_where_cache_passes_weights", { batch: [BATCH, batch] });
  const weights = total(linearWork(sizes, batch, batch), (one) => one.weights);
  const above = (span) => total(sizes.kinds, (kind) => bytesOf(attentionWork(kind, 1, span - 1, batch))) > weights;
  const periods = [...new Set(sizes.kinds.map((kind) => kind.law.period).filter(Boolean))];
  const anew = periods.reduce((one, other) => (one * other) / gcd(one, other), 1); // where all such laws begin anew
  const last = Math.floor(MOST_TOKENS / anew);
  if (!above(last * anew)) return null;
  const end = anew * firstOf(0, last, (times) => above(times * anew));
  const peaks = [end];
  for (const period of periods) for (let at = end - anew + period; at < end; at += period) peaks.push(at);
  const peak = Math.min(...peaks.filter(above));
  return firstOf(Math.max(end - anew, ...peaks.filter((at) => at < peak)), peak, above);
}
// Cache reads of all decode steps: as they are, and as if the cache had its final size all along.
export function answerTraffic(d, request, batch = 1) {
  check("answer_traffic", { batch: [BATCH, batch] });
  const [triangle, steps] = [requestCost(d, request, batch).decode.attention.cacheRead, request.output - 1];
  const last = request.prompt + steps - 1; // tokens that the last step finds
  const end = total(d.sizes.kinds, (kind) => attentionWork(kind, 1, last, batch).cacheRead);
  return { triangle, end: steps ? steps * end : 0 };
}

// ---- What a faster prefill buys, and what tokens cost
// The least output at which prefill is under `share` of the GPU clock.
export function breakEvenOutput(d, prompt, batch = 1, share = 0.05) {
  check("break_even_output", { prompt: [PLACES, prompt], batch: [BATCH, batch], share: [FRACTION, share] });
  const allowed = (prefillPhase(d, prompt, 0, batch).seconds * (1 - share)) / share;
  const isEnough = (output) => decodePhase(d, prompt, output, batch).seconds > allowed;
  const none = `break_even_output: no output up to 2**53 tokens brings prefill under ${general(share, 6)}.`;
  let high = 2;
  for (; !isEnough(high); high *= 2) if (high > MOST_TOKENS) refuse(none);
  return firstOf(1, high, isEnough);
}
// GPU seconds of an output token at `batch` over those of a prompt token in a prefill of `prompt` tokens alone.
export function outputTokenInPromptTokens(d, request, batch, prompt = 1024) {
  check("output_token_in_prompt_tokens", { batch: [BATCH, batch], prompt: [BATCH, prompt] });
  return steadyState(d, request, batch).step / batch / (prefillPhase(d, prompt, 0, 1).seconds / prompt);
}
// Price of one request in steady state, in the currency of `hourly`, the price of a device for a busy hour.
export function priceOfRequest(d, request, batch, hourly) {
  check("price_of_request", { batch: [BATCH, batch], price_per_hour: [rate("currency an hour"), hourly] });
  return (steadyState(d, request, batch).secondsPerRequest * d.devices * hourly) / 3600;
}

// ---- Levers: changes of a case, {d, r, batch}
const onDeployment = (change) => (one) => ({ ...one, d: one.d.with(change(one.d)) });
const onAccelerator = (change) => onDeployment(({ accelerator: old }) => ({ accelerator: { ...old, ...change(old) } }));
const onRequest = (change) => (one) => ({ ...one, r: { ...one.r, ...change(one.r) } });
const stored = (words) => onDeployment(({ precision }) => ({ precision: precision.smaller[words] }));
// What one may do, in words to a change; not what is there already.
function usualLevers({ model, accelerator, precision, devices }, r) {
  const { blocks, experts, cache } = precision.bytes;
  const wide = Math.max(blocks, experts) > 1;
  const layouts = accelerator.link === null ? [] : model.experts.length ? ["tensor", "expert"] : ["tensor"];
  const spread = (layout) => onDeployment(() => ({ devices: 2 * devices, layout }));
  const found = {
    "twice the FLOP/s": onAccelerator(({ peaks }) => ({ peaks: mapped(peaks, (peak) => 2 * peak) })),
    "twice the bandwidth": onAccelerator(({ bandwidth }) => ({ bandwidth: 2 * bandwidth })),
    "twice the memory": onAccelerator(({ memory }) => ({ memory: 2 * memory })),
    "half the thought: answers half as long": onRequest(({ output }) => ({ output: Math.ceil(output / 2) })),
    "W8A8: weights and activations in fp8": wide && accelerator.peaks.fp8 && stored("fp8 weights"),
    "4-bit weights (head stays)": wide && stored("int4 weights"),
    "fp8 cache": cache > 1 && stored("an fp8 cache"),
    "half of each prompt in a prefix cache": !r.cached &&
      onRequest(({ prompt }) => ({ cached: Math.floor(prompt / 2) })),
    ...mapped(model.others, (numbers) => onDeployment(() => ({ model: { ...model, ...numbers } }))),
    ...mapped(model.drafts, (speculation) => onDeployment(() => ({ speculation }))),
    ...Object.fromEntries(layouts.map((layout) => [`twice the devices, ${layout} parallel`, spread(layout)])),
  };
  return Object.fromEntries(Object.entries(found).filter(([, lever]) => lever));
}
// Seconds of one request when many are always under way: at the batch of the case, and at its own memory batch.
function bothPrices({ d, r, batch }) {
  function price(number) {
    const decode = decodePhase(d, r.prompt, r.output, number).seconds / number;
    const prompts = Math.min(number, d.sizes.replicas);
    return { seconds: prefillPhase(d, r.prompt, r.cached, prompts).seconds / prompts + decode, decode };
  }
  const each = d.sequenceBytes(middle(r));
  if (!each) refuse(`memory_batch: ${d.model.name} keeps neither cache nor state; any number fits`);
  const limit = Math.floor(Math.min(d.memoryFree / each, MOST_TOKENS));
  if (limit < 1) requireFit(d, r.prompt + r.output);
  return [price(batch), price(Math.max(1, limit))];
}
// [{name, held, atLimit}], best first at the memory batch: device-seconds before over after, at both batches.
export function rankLevers(d, r, batch) {
  check("rank_levers", { batch: [BATCH, batch] });
  const before = bothPrices({ d, r, batch });
  const free = before.map(({ seconds, decode }) => (decode ? seconds / decode : Infinity));
  const found = { "a prefill that takes no time": free };
  for (const [name, lever] of Object.entries(usualLevers(d, r))) {
    found[name] = unless(() => { // heads that do not divide, no room for one request
      const changed = lever({ d, r, batch });
      const share = d.devices / changed.d.devices;
      return bothPrices(changed).map(({ seconds }, i) => (before[i].seconds / seconds) * share);
    });
  }
  return Object.entries(found).filter(([, gains]) => gains).map(([name, [held, atLimit]]) => ({ name, held, atLimit }))
    .sort((a, b) => b.atLimit - a.atLimit || b.held - a.held || (a.name < b.name ? -1 : 1));
}

// ---- A server over time: requests join and leave a running batch at any step, and their caches share one memory
// Continuous batching with paged memory, event by event, as the library's simulate with prefill="first": an admitted
// prompt has a pass of its own while decoding waits. `requests`: {prompt, output, cached} that arrive at `arrivals`
// seconds, sorted. Times of each request, GPU seconds by phase, occupancy at the start of each event and at the end.
export function timeline(d, requests, arrivals, options = {}) {
  const { block = 16, watermark = 0.01, maxBatch = null, horizon = null } = options;
  const [all, { sizes }, capacity, [start]] = [requests.map(requestOf), d, Math.floor(d.memoryFree), arrivals];
  const [end, most, reserve] = [horizon ?? Infinity, maxBatch ?? Infinity, Math.ceil(watermark * capacity)];
  const [laws, stateBytes] = [new Map(), Math.ceil(total(sizes.kinds, (kind) => kind.stateBytes))];
  for (const kind of sizes.kinds.filter((one) => one.cacheBytes)) { // those that hold the same tokens share blocks
    const { bytes = 0, held } = laws.get(kind.law.fillsAt ?? kind) ?? kind.law;
    laws.set(kind.law.fillsAt ?? kind, { bytes: bytes + kind.cacheBytes, held });
  }
  const blocks = [...laws.values()].map(({ bytes, held }) => ({ bytes: Math.ceil(bytes * block), held }));
  const heldBytes = (tokens) =>
    stateBytes + total(blocks, ({ bytes, held }) => bytes * Math.ceil(held(tokens) / block));
  const several = "a queue before several devices is not modelled: take 'tensor', or policy.steady_state";
  if (sizes.replicas > 1) throw wrong("simulate", "layout", d.layout, "'tensor'", several);
  for (const one of new Set(requests)) { // what no server could take, and what does not fit in whole blocks
    requestCost(d, one);
    const held = one.prompt + one.output - 1;
    const words = `takes ${formatBytes(heldBytes(held))} in blocks for its ${commas(held)} tokens`;
    const there = `the cache has ${formatBytes(capacity)}; take a smaller block, shorten it or leave it out`;
    if (heldBytes(held) > capacity) refuse(`simulate: a request ${words}, but ${there}.`, "DoesNotFitError");
  }

  const secondsOf = (works) => total(works, (one) => underRoof(d, one));
  const [growing, states] = [true, false].map((grows) => sizes.kinds.filter((kind) => grows === kind.cacheBytes > 0));
  const stateSeconds = secondsOf(states.map((kind) => attentionWork(kind, 1, 0, 1)));
  const [sums, shared, least] = [[0], [], Math.min(...all.map(({ prompt }) => prompt))];
  function attentionUpTo(tokens) { // of one sequence, in all steps that find fewer cached, from the shortest prompt on
    for (let c = least + sums.length - 1; c < tokens; c += 1) {
      sums.push(sums.at(-1) + secondsOf(growing.flatMap((kind) => attentionOfSteps(kind, c, 1, 1))));
    }
    return sums[tokens - least];
  }
  const sharedOf = ({ linear, communication, overhead }) => linear.seconds + communication + overhead;
  const sharedSeconds = (sequences) => // of a step of all of them, but for what grows
    (shared[sequences] ??= sharedOf(passOf(d, sequences)) + sequences * stateSeconds);

  let [time, arrived, holding, finished, free, prefilling] = [start, 0, 0, 0, capacity, null];
  const seconds = { prefill: 0, recompute: 0, decode: 0, idle: 0 };
  const occupancy = { time: [], running: [], waiting: [] };
  const [firstToken, finish] = [0, 1].map(() => all.map(() => NaN));
  const [preemptions, tokens] = [all.map(() => 0), all.map((one) => one.prompt)]; // tokens: held, or to prefill
  const [queue, running] = [[], new Map()]; // running: steps that are left
  const stepsOf = (steps, of) => total([...running.keys()], (i) => of(tokens[i] + steps) - of(tokens[i]));
  const arrive = () => { for (; arrivals[arrived] <= time; arrived += 1) queue.push(arrived); };
  function advance(passed, phase) {
    const now = { time, running: holding, waiting: queue.length };
    for (const name of Object.keys(occupancy)) occupancy[name].push(now[name]);
    seconds[phase] += passed;
    time += passed;
  }
  function leave(i) {
    running.delete(i);
    [free, holding] = [free + heldBytes(tokens[i]), holding - 1];
  }
  // Request i decodes on, or has its last token.
  function goOn(i, left) {
    running.set(i, left);
    if (left) return;
    leave(i);
    [finish[i], finished] = [time, finished + 1];
  }
  // Memory for the first of the queue, all but a watermark; an empty server keeps none.
  function admit(i) {
    const needed = heldBytes(tokens[i]);
    if (holding >= most || needed > free - (holding ? reserve : 0)) return;
    [free, holding, prefilling] = [free - needed, holding + 1, queue.shift()];
  }
  // The request that was admitted last gives up its memory, and waits again, first of all: prompt and tokens so far.
  function preempt() {
    const i = [...running.keys()].at(-1);
    leave(i);
    queue.unshift(i);
    [tokens[i], preemptions[i]] = [tokens[i] + 1, preemptions[i] + 1]; // its last token is not yet in the cache
  }
  // A pass over a prompt: after it the request has one token more, and decodes if it wants others.
  function promptPass(i) {
    const [n, { cached, output, prompt }] = [tokens[i] - all[i].cached, all[i]];
    const linear = new Phase(d, [{ sizes, works: linearWork(sizes, n, 1), tokens: n, number: 1 }]);
    const attention = secondsOf(sizes.kinds.map((kind) => attentionWork(kind, n, cached, 1)));
    advance(attention + linear.seconds, preemptions[i] ? "recompute" : "prefill");
    prefilling = null;
    if (tokens[i] === prompt) firstToken[i] = time;
    goOn(i, output - (tokens[i] - prompt + 1));
  }
  // Steps up to the first event: a last token, a full cache, or a step that ends after `until`.
  function decode(until) {
    const newBytes = (steps) => stepsOf(steps, heldBytes);
    while (newBytes(1) > free) preempt();
    const secondsFor = (steps) => steps * sharedSeconds(running.size) + stepsOf(steps, attentionUpTo);
    let steps = Math.min(...running.values());
    if (time + secondsFor(steps) > until) steps = firstOf(0, steps, (some) => time + secondsFor(some) >= until);
    if (newBytes(steps) > free) steps = firstOf(1, steps, (some) => newBytes(some) > free) - 1;
    const taken = newBytes(steps);
    advance(secondsFor(steps), "decode");
    free -= taken;
    for (const i of running.keys()) tokens[i] += steps;
    for (const [i, left] of [...running]) goOn(i, left - steps);
  }
  while (finished < all.length && time < end) {
    arrive();
    if (queue.length) admit(queue[0]);
    const until = Math.min(arrivals[arrived] ?? Infinity, end);
    if (prefilling !== null) promptPass(prefilling);
    else if (holding) decode(!queue.length && holding < most ? until : end);
    else {
      advance(until - time, "idle");
      time = until; // a rounding may not put it before the arrival
    }
  }
  arrive();
  advance(0, "idle");
  const peakRunning = occupancy.running.reduce((a, b) => Math.max(a, b));
  return { firstToken, finish, preemptions, seconds, occupancy, peakRunning, start, end: time };
}

// ---------------------------------------------------------------------------------------------------------------------
// 2. Views: from a setting to numbers and a picture. Words and plots are data, explorer_views.py; here come values.
const BEYOND = "A number is too large or too small to compute or draw; choose another accelerator or other values.";
const MOST_SHOWN = 1e24; // of any unit
const FORMATS = {
  count: (value) => commas(Math.round(value)), seconds: formatSeconds, percent: formatPercent, bytes: formatBytes,
  flops: formatFlops, general, fixed: (value, places) => fixed(value, places, true), tokens: tokensLabel,
};
// A number as a format with its digits says: "count", "percent 2". Refused where there is none that can be read.
function printed(value, format) {
  if (!(Math.abs(value) < MOST_SHOWN)) refuse(BEYOND);
  const [name, digits] = format.split(" ");
  return FORMATS[name](value, digits && Number(digits));
}
const valueAt = (values, path) => path.split(".").reduce((from, name) => from?.[name], values);
// Words of the data with a view's values put in: {full.batch:count}, {share:percent 2}; a value that is words stays.
const filled = (said, values) => said.replace(/\{([\w.]+)(?::([\w ]+))?\}/g, (_, path, format) => {
  const value = valueAt(values, path);
  return typeof value === "number" ? printed(value, format) : value;
});
const lengths = ({ prompt, output, cached }) =>
  `${commas(prompt)}${cached ? ` (${commas(prompt - cached)} new)` : ""} → ${commas(output)}`;
const whose = (s) => `${s.model} on ${s.devices > 1 ? `${s.devices} × ` : ""}${s.accelerator}`;

// What a view shows of a setting: {said, legend, numbers: [[label, text]...], svg(width)}; Refused where it cannot.
export function shown(data, name, s) {
  const view = data.views[name];
  const d = deploymentOf(data, s);
  const r = requestOf(view.controls.includes("cached") ? s : { ...s, cached: 0 });
  if (r.output < view.least_output) refuse(view.too_short);
  const found = VIEWS[name](d, r, s);
  const values = { ...s, d, r, lengths: lengths(r), whose: whose(s), ...found };
  if (view.cases) values.case = filled(view.cases[found.case], values);
  const pairs = (both) => both.map(([look, words]) => [filled(look, values), filled(words, values)]);
  const said = filled(view.said, values);
  const drawn = (width) => view.plots?.map((one) => plotted(one, width, values))
    ?? view.bars?.map((one, i) => barred(one, 22 + 56 * i, width, values)) ?? found.draw(width);
  return {
    said, legend: [...pairs(view.legend), ...(found.legend ?? [])],
    numbers: [...(found.rows ?? []), ...pairs(view.numbers)],
    svg: (width) => picture(width, view.height ?? found.height, said, drawn(width)),
  };
}

// ---- Drawing, as strings
const inHtml = (words) => escaped(words).replaceAll("$", "<span>&#36;</span>"); // no mathematics, where a page has them
const escaped = (said) => String(said).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const px = (value) => (Number.isFinite(value) ? String(Math.round(10 * value) / 10) : refuse(BEYOND));
const at = (x, y) => `${px(x)} ${px(y)}`;
const text = (x, y, said, look = "") => `<text x="${px(x)}" y="${px(y)}" class="${look}">${escaped(said)}</text>`;
const path = (along, look) => `<path d="${along}" class="${look}"/>`;
const box = (x, y, width, height, look) =>
  `<rect x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${px(height)}" class="${look}"/>`;
const picture = (width, height, said, drawn) =>
  `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(said)}">${drawn.flat(9).join("")}</svg>`;

// The first of 1, 2, 5, 10, 20, 50 ... (or of others than 1, 2, 5) that is at least the value.
function roundUp(value, digits = [1, 2, 5, 10]) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * digits.find((digit) => digit * power >= value * (1 - 1e-12));
}
const series = (count, of) => Array.from({ length: count }, (_, i) => of(i));
const geometric = (low, high, count) => series(count, (i) => low * (high / low) ** (i / (count - 1)));
const wholes = (values) => [...new Set(values.map(Math.round))];
// An axis: how far along a value lies, as a share, and its ticks, `most` at most: decades where it is logarithmic.
function axisOf({ said, log, show = "tokens" }, low, high) {
  const scaled = log ? Math.log10 : (value) => value;
  const [first, last] = [scaled(low), scaled(high)];
  function ticks(most) {
    const [from, to] = log ? [Math.ceil(first - 1e-9), Math.floor(last + 1e-9)] : [first, last];
    const step = log ? Math.ceil((to - from + 1) / most) : roundUp((to - from) / most);
    return series(Math.floor((to - from) / step + 1e-9) + 1, (i) => (log ? 10 ** (from + i * step) : from + i * step));
  }
  const share = (value) => (scaled(value) - first) / (last - first);
  return { said: said && log ? `${said} (log scale)` : said, show: (tick) => printed(tick, show), ticks, share };
}

// What draws in a plot between its edges, by what it is told to draw: each makes a part of the picture.
function plot(x, y, { left = 56, right, top = 26, bottom }) {
  const across = (value) => left + (right - left) * x.share(value);
  const up = (value) => bottom - (bottom - top) * y.share(value);
  const within = (share) => share >= -1e-9 && share <= 1.001;
  const inside = ([a, b]) => within(x.share(a)) && within(y.share(b));
  const along = (points) => points.map(([a, b]) => at(across(a), up(b))).join("L");
  const on = {
    frame: () => [
      text(left - 46, top - 10, y.said, "quiet"),
      x.ticks(Math.max(2, Math.floor((right - left) / 62))).map((tick) =>
        on.upright(tick, { look: "grid" }) + text(across(tick), bottom + 17, x.show(tick), "quiet middle")),
      y.ticks(Math.max(2, Math.floor((bottom - top) / 26))).map((tick) =>
        path(`M${left} ${px(up(tick))}H${right}`, "grid") + text(left - 6, up(tick) + 4, y.show(tick), "quiet end")),
      text((left + right) / 2, bottom + 36, x.said, "quiet middle"),
    ],
    line(points, { look }) {
      const seen = points.filter(inside);
      return seen.length > 1 ? path(`M${along(seen)}`, `line ${look}`) : "";
    },
    lines: (several) => several.map(([points, look]) => on.line(points, { look })),
    // The area between two lists of points with the same places across.
    area: (low, high, { look }) =>
      high.length > 1 ? path(`M${along([...high, ...[...low].reverse()])}Z`, `area ${look}`) : "",
    upright: (value, { look }) => path(`M${px(across(value))} ${top}V${bottom}`, look),
    // An upright line where a value lies, with words beside it, so many rows below the top.
    mark(value, { said, row = 0 }) {
      if (x.share(value) < 0 || x.share(value) > 1) return "";
      const [side, anchor] = x.share(value) > 0.5 ? [-5, "end"] : [5, ""];
      const words = text(across(value) + side, top + 13 + 16 * row, said, `${anchor} halo`);
      return on.upright(value, { look: "boundary" }) + words;
    },
    // A limit: a line at a height, with words above its beginning, or its end.
    level(value, { said, look = "quiet" }) {
      if (!within(y.share(value))) return "";
      const words = text(look.includes("end") ? right - 4 : left + 6, up(value) - 5, said, look);
      return path(`M${at(left, up(value))}L${at(right, up(value))}`, "line limit") + words;
    },
    drop: (a, b, { look }) => path(`M${at(across(a), up(b))}V${bottom}`, look), // from a point to the axis
    dot: (a, b, { look = "here", size = 6 } = {}) =>
      inside([a, b]) ? `<circle cx="${px(across(a))}" cy="${px(up(b))}" r="${size}" class="${look}"/>` : "",
    dots: (points, { look }) =>
      path(points.filter(inside).map(([a, b]) => `M${at(across(a), up(b))}h0`).join(""), look),
    // Words below a line that goes from one point to another.
    slanted([a, b], [c, d], { said }) {
      const turn = (Math.atan2(up(d) - up(b), across(c) - across(a)) * 180) / Math.PI;
      const words = text(0, 16, said, "middle halo");
      return `<g transform="translate(${at(across(a), up(b))}) rotate(${px(turn)})">${words}</g>`;
    },
    // Words beside a point, so far right of it and below; `room` at least from both edges to the point.
    label(a, b, down, { said, look, beside = 0, room = 0 }) {
      const x = Math.min(right - room, Math.max(left + room, across(a)));
      return text(x + beside, up(b) + down, said, look);
    },
  };
  return on;
}
// A plot of the data with a view's values: what its marks draw of them, one over the other; nothing of what is null.
function plotted({ x, y, marks, ...edges }, width, values) {
  const valueOf = (of) => (typeof of === "string" ? valueAt(values, of) : of);
  const [across, up] = [x, y].map((axis) => axisOf(axis, valueOf(axis.from), valueOf(axis.to)));
  const on = plot(across, up, { right: width - 12, ...edges });
  return marks.map(({ draw, of = [], said = "", ...how }) => {
    const drawn = of.map(valueOf);
    return drawn.some((value) => value == null) ? "" : on[draw](...drawn, { said: filled(said, values), ...how });
  });
}

// A bar of the data: its parts side by side, each with its look, as shares of their sum.
function barred({ said, amount, parts, looks }, top, width, values) {
  const [numbers, room] = [parts.map((one) => valueAt(values, one)), width - 20];
  const sum = total(numbers, (part) => part);
  let x = 10;
  const drawn = numbers.map((part, i) => {
    const [from, wide] = [x, (room * part) / sum];
    x += wide;
    const share = text(from + wide / 2, top + 17, formatPercent(part / sum, 3), `middle on ${looks[i]}`);
    return box(from, top, wide, 24, `area ${looks[i]}`) + (wide > 54 ? share : "");
  });
  const [name, whole] = [filled(said, values), filled(amount, values)];
  return [text(10, top - 6, name, "bold"), text(width - 10, top - 6, whole, "quiet end"), ...drawn];
}

// ---- The views: from a deployment, a request and the setting to values by name, and what no plot of the data draws
export const VIEWS = {};
const NO_STEP = "no decode step";
const MS = 1e3; // in a second

// 02: where the time of a request goes, alone and among others
VIEWS.request = (d, r, { batch }) => {
  const [cost, alone, tokens] = [requestCost(d, r, batch), requestCost(d, r, 1), r.prompt + r.output];
  const { linear, attention, seconds } = alone.decode;
  const { computeSeconds: compute, memorySeconds: memory } = cost.decode.linear;
  const [here, full] = [steadyState(d, r, batch), steadyState(d, r)];
  return {
    cost, alone: { ...alone, linear, attention, waits: seconds - linear.seconds - attention.seconds }, here, full,
    each: cost.seconds / batch, tpot: r.output > 1 ? cost.tpot : NO_STEP,
    bound: !cost.decode.seconds ? NO_STEP : compute > memory ? "compute bound" : "memory bound",
    shares: { flops: alone.prefill.flops / alone.flops, seconds: alone.prefill.seconds / alone.seconds },
    decodeFlops: cost.decode.flops / cost.flops,
    needed: d.memoryNeeded(tokens, batch), largest: largestBatch(d, tokens),
  };
};

// 02: every request on one plane, up to these lengths. Prefill takes 5 % of the time where rho is 0.05 / 0.95.
const PLANE = { prompts: 10 ** 5.3, outputs: 1e5, rho: 0.05 / 0.95 };
// For prompts from left to right the output at which omega is 1: above it memory is full before the roof is reached.
function edgeOfOmega(d) {
  return geometric(1, PLANE.prompts, 30).map(Math.round).map((prompt) => {
    let [low, high] = [0, Math.log(PLANE.outputs)];
    for (let i = 0; i < 12; i += 1) {
      const between = (low + high) / 2;
      const above = omega(d, { prompt, output: Math.round(Math.exp(between)), cached: 0 }) > 1;
      [low, high] = above ? [low, between] : [between, high];
    }
    return [prompt, Math.exp(high)];
  });
}
VIEWS.plane = (d, r, { batch }) => {
  const [here, full] = [steadyState(d, r, batch), steadyState(d, r)];
  const [about, over] = [rho(d, r, batch), unless(() => omega(d, r))]; // without a cache no omega
  const { prefill, linear, attention } = here.parts;
  const edge = over === null ? null : edgeOfOmega(d);
  const slope = rho(d, { prompt: 1, output: 1, cached: 0 }, batch) / PLANE.rho; // output over prompt, along rho's line
  const [first, last] = [Math.max(1, 1 / slope), Math.min(PLANE.prompts, PLANE.outputs / slope)];
  const onRho = (prompt) => [prompt, prompt * slope];
  const start = first * (last / first) ** 0.17; // where its words begin
  return {
    here, full, rho: about, share: about / (1 + about), omega: over ?? "-", chi: chi(d, r), roof: roofBatch(d, r),
    exact: r.output > 1 ? prefill / (linear + attention) : NO_STEP,
    case: over === null ? "none" : over > 1 ? "memory" : "roof",
    edge, top: edge?.map(([prompt]) => [prompt, PLANE.outputs]),
    lineOfRho: first < last ? [onRho(first), onRho(last)] : null,
    wordsOnRho: first < last ? [onRho(start), onRho(2 * start)] : null,
    fresh: r.prompt - r.cached, below: r.output < 4 ? -11 : 21, // where there is room for words
  };
};

// 03: growth, along the answer
VIEWS.growth = (d, r, { batch, position }) => {
  const last = r.output - 1;
  const now = Math.min(position, last);
  const stepsAt = (places, together) => places.map((k) => ({ k, ...stepParts(d, r, k, batch, together) }));
  const places = wholes(series(33, (i) => 1 + ((last - 1) * i) / 32));
  const steady = stepsAt(places, false);
  const together = unless(() => stepsAt(places, true)); // their ends may not fit where their middles do
  const [here] = stepsAt([now], false);
  const passes = spanWhereCachePassesWeights(d, batch);
  const reading = (d.memoryAvailable / d.bandwidth) * MS;
  const upTo = (steps, parts) => steps.map((step) => [step.k, MS * total(parts, (part) => step[part])]);
  const edges = {
    ground: upTo(steady, []), layers: upTo(steady, ["linear", "other"]),
    neighbours: upTo(steady, ["linear", "other", "neighbours"]), whole: upTo(steady, ["seconds"]),
    together: together && upTo(together, ["seconds"]),
  };
  const longest = Math.max(...[...edges.whole, ...(edges.together ?? [])].map(([, ms]) => ms));
  return {
    here, now, token: now + 1, share: here.own / here.seconds, linear: here.linear + here.other,
    first: steady[0], final: steady.at(-1), reading, hereMs: MS * here.seconds,
    firstTogether: together?.[0].seconds ?? "-", finalTogether: together?.at(-1).seconds ?? "does not fit",
    traffic: answerTraffic(d, r, batch), soFar: answerTraffic(d, { ...r, output: now + 1 }, batch),
    passes: passes === null ? "never" : `${commas(passes)} tokens`,
    edges, later: mapped(edges, (points) => points?.filter(([k]) => k >= now)),
    top: roundUp(Math.max(1.05 * reading, longest), [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]),
  };
};

// 03: kinds of layer
VIEWS.kinds = (d, { prompt, output }, { batch }) => {
  const [tokens, most] = [prompt + output - 1, d.maxPositions ?? Infinity];
  const { kinds } = d.sizes;
  const read = (n) => total(kinds, (kind) => kind.cacheBytes * kind.law.read(n, 1) + kind.stateBytes);
  const along = (of) => geometric(1, 1e6, 61).map(Math.round).map((n) => [n, of(n)]);
  const lookOf = (i) => ["weights", "prefill", "own", "other"][i % 4];
  const names = kinds.map(({ layers, label }) => `${layers} × ${label}`);
  const here = d.sequenceBytes(tokens);
  const sizes = [1, 4096, 32_768, 131_072].map((n) => [n, n <= most ? d.sequenceBytes(n) : "beyond its positions"]);
  return {
    tokens, here, reads: read(tokens), held: Object.fromEntries(sizes), ofBatch: batch * here,
    legend: names.map((name, i) => [lookOf(i), name]),
    rows: cacheByKind(d, tokens).map(({ bytes }, i) =>
      [`${names[i]}, at ${commas(tokens)} tokens`, printed(bytes, "bytes 3")]),
    curves: kinds.map((kind, i) => [along((n) => kindBytes(kind, n)), lookOf(i)]),
    whole: along((n) => d.sequenceBytes(n)), reading: along(read),
  };
};

// 04: what a batch pays for, and a latency target
VIEWS.batch = (d, r, { batch, target }) => {
  const full = steadyState(d, r);
  const states = wholes(geometric(1, full.batch, 28)).map((some) => steadyState(d, r, some));
  const mixed = states.map((state) => [state.batch, steadyState(d, r, state.batch, true).tokensPerSecond]);
  const [here, alone] = [steadyState(d, r, batch), states[0]];
  const kept = target / MS >= alone.tpot ? atLatency(d, r, target / MS) : null;
  return {
    full, here, alone, roof: roofBatch(d, r), omega: unless(() => omega(d, r)) ?? "-",
    case: kept?.binds ?? "none", most: kept?.batch ?? "none", there: kept?.state.tokensPerSecond ?? "-",
    rates: states.map((state) => [state.batch, state.tokensPerSecond]), mixed,
    waits: states.map((state) => [state.batch, MS * state.tpot]),
    hereMs: MS * here.tpot, kept: kept && [kept.batch, MS * kept.state.tpot],
  };
};

// 04: a server in motion, from idle to overloaded. Gaps between arrivals: a mean of 1, exponential, always the same.
function gaps(count) {
  let seed = 1_234_567;
  return series(count, () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return -Math.log(seed / 2_147_483_647);
  });
}
VIEWS.timeline = (d, r, { batch, load }) => {
  const full = steadyState(d, r).batch;
  const most = Math.min(batch, full);
  const each = steadyState(d, r, most).secondsPerRequest; // at best one request is done in that time
  const [watched, rate, room] = [4 * Math.max(most, 12) * each, load / 100 / each, 6.5 * most];
  if (!Number.isFinite(watched) || !Number.isFinite(rate)) refuse(BEYOND);
  let clock = 0;
  const all = gaps(Math.ceil(1.3 * watched * rate) + 20).map((gap) => (clock += gap / rate));
  const arrivals = all.filter((time) => time < watched);
  if (arrivals.length < 2) refuse("Hardly a request arrives in the time that is watched; raise the load.");
  const run = timeline(d, arrivals.map(() => r), arrivals, { maxBatch: most, horizon: watched });
  const { time, running, waiting } = run.occupancy;
  const waits = arrivals.map((arrival, i) => [arrival, run.firstToken[i] - arrival]);
  const firsts = waits.filter(([, wait]) => !Number.isNaN(wait));
  function median(from, to) {
    const those = waits.filter(([arrival]) => arrival >= from && arrival < to);
    const sorted = those.map(([, wait]) => (Number.isNaN(wait) ? Infinity : wait)).sort((a, b) => a - b);
    const middle = sorted[Math.floor((sorted.length - 1) / 2)] ?? "no request arrived";
    return middle === Infinity ? "not within this time" : middle;
  }
  const later = (times) => (2 * r.output * times.filter((one) => one >= watched / 2).length) / watched; // once warm
  const keep = Math.ceil(time.length / 300); // as many as there are pixels to tell them apart
  const seen = time.map((now, i) => [now, 0, running[i], Math.min(room, running[i] + waiting[i])])
    .filter((_, i) => i % keep === 0);
  const steps = seen.flatMap((one, i) => (i ? [[one[0], ...seen[i - 1].slice(1)], one] : [one]));
  return {
    run, full, most, rate, possible: 1 / each, offered: later(arrivals), served: later(run.finish),
    left: waiting.at(-1), busy: 1 - run.seconds.idle / (run.end - run.start),
    early: median(0, watched / 3), late: median((2 * watched) / 3, watched),
    prompt: firsts.filter(([, wait]) => wait <= 1).length / arrivals.length,
    watched, room, firsts, levels: [1, 2, 3].map((level) => steps.map((one) => [one[0], one[level]])),
  };
};

// 05: what a faster prefill saves
VIEWS.prefill = (d, r, { batch, times }) => {
  const cost = requestCost(d, r, batch);
  const full = steadyState(d, r);
  const states = { alone: steadyState(d, r, 1), here: steadyState(d, r, batch), full };
  const shares = mapped(states, (state) => state.shares.prefill);
  const saved = (part, k) => part * (1 - 1 / k);
  return {
    cost, full, shares, clock: cost.ttft / cost.undisturbed, rho: rho(d, r, batch),
    saved: mapped(shares, (part) => saved(part, times)), even: breakEvenOutput(d, r.prompt, batch),
    curves: mapped(shares, (part) => geometric(1, 1000, 40).map((k) => [k, 100 * saved(part, k)])),
    ends: mapped(shares, (part) => 100 * saved(part, times)),
  };
};

// 06: which lever
const timesAsFast = (gain) => (gain === Infinity ? "∞" : printed(gain, "fixed 2")); // one output token is all prefill
VIEWS.levers = (d, r, { batch }) => {
  const ranked = rankLevers(d, r, batch);
  const [best] = ranked;
  const [left, top, row] = [10, 12, 46];
  const bottom = top + row * ranked.length;
  return {
    best, case: best.atLimit === Infinity ? "none" : "gain",
    rows: ranked.map(({ name, held, atLimit }) => [name, `${timesAsFast(held)} → ${timesAsFast(atLimit)}`]),
    height: bottom + 44,
    draw(width) {
      const x = axisOf({ said: "times as fast: GPU time before over after", log: true }, 0.5, 8);
      const across = (gain) => left + (width - 46 - left) * Math.min(1.05, Math.max(0, x.share(gain)));
      const bar = (gain, y, look) => {
        const [from, to] = [across(Math.min(1, gain)), across(Math.max(1, gain))];
        return box(from, y, Math.max(1.5, to - from), 9, `area ${look}`) +
          text(to + 4, y + 8.5, timesAsFast(gain), "tiny halo");
      };
      return [
        [0.5, 1, 2, 4, 8].map((tick) =>
          path(`M${px(across(tick))} ${top}V${bottom}`, tick === 1 ? "boundary" : "grid") +
          text(across(tick), bottom + 17, tick, "quiet middle")),
        ranked.map(({ name, held, atLimit }, i) => {
          const y = top + row * i + 14;
          const short = width < 520 ? name.split(/ \(|: /)[0] : name;
          return bar(held, y + 6, "other") + bar(atLimit, y + 18, "held") + text(left, y, short, "halo");
        }),
        text(width / 2, bottom + 36, x.said, "quiet middle"),
      ];
    },
  };
};

// 09: what an output token costs
VIEWS.price = (d, r, { batch, dollars }) => {
  const full = steadyState(d, r).batch;
  const worth = (some) => outputTokenInPromptTokens(d, r, some);
  const million = (some) => (priceOfRequest(d, r, some, dollars) * 1e6) / r.output;
  return {
    full, worth: { here: worth(batch), alone: worth(1), full: worth(full) },
    million: { here: million(batch), full: million(full) },
    each: requestCost(d, r, batch).tpot / batch,
    prices: wholes(geometric(1, full, 28)).map((some) => [some, worth(some)]),
  };
};

// ---------------------------------------------------------------------------------------------------------------------
// 3. The panel: controls, what they show, and what a reader takes away. Everything is made in `host`, a plain element.
const MENUS = ["model", "accelerator", "layout", "precision", "efficiency"];
export const settingOf = (data, name, start = {}) => ({ ...data.defaults, ...data.views[name].start, ...start });
const inFull = (value) => (Number.isInteger(value) ? commas(value) : String(value)); // any number of a control
const unitsOf = ({ unit, units }) => units ?? `${unit}s`;
const inWords = (range, value) => `${inFull(value)} ${value === 1 ? range.unit : unitsOf(range)}`;

// A scale from its least to its most value, as {share, value}: logarithmic, and from zero on log(1 + value).
function scaleOf({ least, below, quantum = 1, even, zero, ...range }, s) {
  const most = Math.max(below ? s[below] - 1 : range.most, least);
  const [to, back] = even ? [(v) => v, (v) => v] : zero ? [Math.log1p, Math.expm1] : [Math.log, Math.exp];
  const across = to(most) - to(least) || 1;
  const inside = (value) => Math.min(most, Math.max(least, value));
  const held = (value) => Number(inside(Math.round(value / quantum) * quantum).toPrecision(12));
  return {
    least, most, held,
    share: (value) => (to(inside(value)) - to(least)) / across,
    value: (share) => held(Number(back(to(least) + share * across).toPrecision(3))),
    // The next round value above or below: 12,800 goes to 13,000 and to 12,000.
    next(value, way) {
      const from = Math.max(value * (way < 0 ? 0.999 : 1), 1e-9);
      const step = Math.max(quantum, even ? roundUp(most / 100) : 10 ** (Math.floor(Math.log10(from)) - 1));
      const steps = value / step;
      return held(step * (way > 0 ? Math.floor(steps + 1 + 1e-9) : Math.ceil(steps - 1 - 1e-9)));
    },
  };
}

const numberIn = (said) => (said.trim() === "" ? NaN : Number(said));
// Whether each % begins a letter that was written so; "#100%" is an address, too.
const wellFormed = (address) => !/%(?![\da-f]{2})/i.test(address) && !/%[89a-f]/i.test(address);
// The setting in a page's address, for this view; {} where there is none, or where it is another's.
function fromAddress(name, start) {
  const hash = globalThis.location?.hash ?? "";
  const [view, query] = (wellFormed(hash) ? decodeURI(hash) : hash).split("?");
  const given = view === `#explore-${name}` ? [...new URLSearchParams(query)] : [];
  const known = given.filter(([key]) => Object.hasOwn(start, key))
    .map(([key, value]) => [key, typeof start[key] === "number" ? numberIn(value) : value]);
  return Object.fromEntries(known.filter(([, value]) => typeof value === "string" || Number.isFinite(value)));
}

// ---- What is shown of one setting, or of two side by side
const COLUMNS = ["", "this setting", "kept"];
// [label, its text in each column...], by the first of the columns of [label, text]; another may lack it.
function rowsOf([first, ...others]) {
  const texts = others.map((column) => new Map(column));
  return first.map(([label, text]) => [label, text, ...texts.map((column) => column.get(label) ?? "-")]);
}
function tableOf(columns) {
  const cell = (value) => `<td>${inHtml(value)}</td>`;
  const rows = rowsOf(columns).map(([label, ...values]) =>
    `<tr><th scope="row">${inHtml(label)}</th>${values.map(cell).join("")}</tr>`);
  const names = COLUMNS.map((name) => `<th scope="col">${name}</th>`).join("");
  const head = columns.length > 1 ? `<thead><tr>${names}</tr></thead>` : "";
  return `<table>${head}<tbody>${rows.join("")}</tbody></table>`;
}
function csvOf(columns) {
  const cell = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const head = COLUMNS.slice(0, columns.length + 1);
  return [head, ...rowsOf(columns)].map((row) => row.map(cell).join(",")).join("\r\n");
}
const legendOf = (legend) =>
  legend.map(([look, words]) => `<li><span class="swatch ${look}"></span>${escaped(words)}</li>`).join("");

// Picture and table of a setting as one string, for a page where nothing runs.
export function still(data, name, start = {}) {
  const { said, legend, numbers, svg } = shown(data, name, settingOf(data, name, start));
  const title = escaped(data.views[name].title);
  const drawn = `<div class="drawn"><ul class="legend">${legendOf(legend)}</ul>${svg(720)}</div>`;
  return `<p><strong>${title}.</strong> ${escaped(said)}</p>${drawn}${tableOf([numbers])}`;
}

// Single changes of a setting after which the view can be computed: [words, change], the nearest first.
function waysOut(data, name, s, deep = true) {
  const { ranges, views, ways } = data;
  const works = (change) => unless(() => shown(data, name, { ...s, ...change })) !== null;
  const found = [];
  for (const key of ["batch", "output", "prompt", "cached"].filter((one) => views[name].controls.includes(one))) {
    const { least, label } = ranges[key];
    if (s[key] <= least || !works({ [key]: least })) continue;
    const most = firstOf(least, s[key], (value) => !works({ [key]: value })) - 1;
    found.push([`${label} ${inFull(most)}`, { [key]: most }]);
  }
  const possible = ([, change]) =>
    Object.keys(change).every((key) => key in s) && Object.keys(change).some((key) => change[key] !== s[key]);
  for (const choices of [ways.devices[s.layout], ways.precision, ways.accelerator, ways.target]) {
    const first = choices?.find((way) => possible(way) && works(way[1]));
    if (first) found.push(first);
  }
  for (const [words, change] of deep ? ways.smaller : []) { // where no single change does: a smaller case, and then one
    if (found.length) break;
    if (works(change)) found.push([words, change]);
    for (const [and, more] of found.length ? [] : waysOut(data, name, { ...s, ...change }, false)) {
      found.push([`${words}, ${and}`, { ...change, ...more }]);
    }
  }
  return found;
}

// ---- The panel. Its HTML is data: data-key is the setting of a control, data-does what a button does, with data-of.
const buttonHtml = (words, does, of = "") => `<button type="button" data-does="${does}" data-of="${of}"
  data-lm-suppress-shortcuts="true">${escaped(words)}</button>`;
let panels = 0;

// The explorer `name` in `host`, from its start setting or `start`. Returns {settings, destroy}.
export function mount(host, data, name, start = {}) {
  const [view, id] = [data.views[name], `explore-${name}-${(panels += 1)}`];
  const ranged = [...view.controls, "devices"];
  const initial = settingOf(data, name, start);
  const linked = fromAddress(name, initial);
  let s = { ...initial, ...linked };
  let [found, kept, offers] = [null, null, []]; // what is shown, null where it is refused; {s, found} kept beside it
  let [later, playing, wide] = [0, 0, 0];

  const means = view.many ? "means" : "medians";
  host.innerHTML = data.panel.replaceAll("$ID", id).replaceAll("$TITLE", view.title).replaceAll("$MEANS", means);
  const root = host.firstElementChild;
  const [sentence, legend, pictures, ways, told, table] =
    ["said", "legend", "pictures", "ways", "told", "numbers"].map((look) => root.querySelector(`.${look}`));
  const [compare, player] = ["keep", "play"].map((does) => root.querySelector(`[data-does=${does}]`));
  const [keepWords, playWords] = [compare.textContent, player.textContent];
  if (!view.plays) player.remove();
  for (const range of root.querySelectorAll(".range")) if (!ranged.includes(range.dataset.of)) range.remove();
  const inputs = [...root.querySelectorAll("[data-key]")];
  const scale = (key) => scaleOf(data.ranges[key], s);
  const tell = (words) => (told.textContent = words);
  const sides = () => [{ s, found }, ...(kept ? [kept] : [])]; // this setting, and the one that is kept

  function set(change) {
    s = { ...s, ...change };
    for (const key of ranged) {
      const { least, most, held } = scale(key);
      if (s[key] < least || s[key] > most) s[key] = held(s[key]);
    }
    show();
  }
  // Every control shows the setting; a number that is being typed stays as it is typed.
  function follow() {
    for (const input of inputs) {
      const { type, dataset: { key } } = input;
      const typing = type === "number" && input === input.getRootNode().activeElement && Number(input.value) === s[key];
      if (type === "range") input.setAttribute("aria-valuetext", inWords(data.ranges[key], s[key]));
      if (!typing) input.value = type === "range" ? scale(key).share(s[key]) : s[key];
    }
  }
  function show() {
    follow();
    clearTimeout(later);
    ways.replaceChildren();
    try {
      found = shown(data, name, s);
      draw();
      sentence.textContent = found.said;
      legend.innerHTML = legendOf(found.legend);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      found = null;
      draw();
      sentence.textContent = `Not computed. ${error.message}`;
      later = setTimeout(offer, 30); // the sentence first
    }
    sentence.toggleAttribute("data-refused", !found);
    table.innerHTML = found ? tableOf(sides().map((side) => side.found.numbers)) : "";
  }
  function offer() {
    offers = waysOut(data, name, s);
    const choices = offers.map(([words], i) => buttonHtml(`Take ${words}`, "take", i));
    ways.innerHTML = `What would fit: ${choices.join("")}${buttonHtml("Back to the start", "reset")}`;
  }
  // The pictures as wide as there is room, with captions where there are two.
  function draw() {
    wide = pictures.clientWidth;
    const width = Math.round(Math.min(720, Math.max(300, wide || 720)));
    const captions = [COLUMNS[1], `${COLUMNS[2]}: ${kept?.found.said}`];
    pictures.innerHTML = sides().map((side, i) => {
      const caption = kept ? `<figcaption>${escaped(captions[i])}</figcaption>` : "";
      return side.found ? `<figure>${caption}${side.found.svg(width)}</figure>` : "";
    }).join("");
  }
  async function copy(words, what) {
    tell("");
    try {
      await navigator.clipboard.writeText(words);
      tell(`${what} copied.`);
    } catch {
      told.innerHTML = `${what}: <textarea readonly rows="3" aria-label="${what}">${escaped(words)}</textarea>`;
      told.lastChild.select();
    }
  }
  // [name, value] of each setting that this view has, as a table and an address say them.
  const settings = (of) => [...MENUS, "devices", ...view.controls].map((key) => [key, of[key]]);
  function stop() {
    cancelAnimationFrame(playing);
    clearTimeout(playing);
    playing = 0;
    sentence.setAttribute("aria-live", "polite");
    player.textContent = playWords;
  }
  // A frame of the play, `count` of them so far, since it `began` at a value `from`: 8 seconds, or 8 steps if `calm`.
  function playOn(calm, from, began, count) {
    const { most } = scale(view.plays);
    const share = calm ? count / 8 : Math.min(1, (performance.now() - began) / 8000);
    set({ [view.plays]: Math.round(from + share * (most - from)) });
    const next = () => playOn(calm, from, began, count + 1);
    if (share >= 1) stop();
    else playing = calm ? setTimeout(next, 1000) : requestAnimationFrame(next);
  }

  const actions = {
    take: (index) => set(offers[index][1]),
    preset: (word) => set(data.presets[word][view.many ? "mean" : "median"]),
    reset() {
      stop();
      set(initial);
    },
    keep() {
      kept = kept || !found ? null : { s, found };
      table.classList.toggle("two", Boolean(kept));
      compare.textContent = kept ? "Drop the kept setting" : keepWords;
      show();
    },
    csv() {
      const numbers = (side) => side.found?.numbers ?? [["not computed", sentence.textContent]];
      copy(csvOf(sides().map((side) => [...settings(side.s), ...numbers(side)])), "Numbers");
    },
    link() {
      const changed = settings(s).filter(([key, value]) => value !== settingOf(data, name)[key]);
      const page = globalThis.location?.href.split("#")[0] ?? "";
      copy(`${page}#explore-${name}?${new URLSearchParams(changed)}`, "Link");
    },
    play() {
      if (playing) return stop();
      player.textContent = "Stop";
      sentence.setAttribute("aria-live", "off"); // it changes with every frame
      const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches;
      const atEnd = s[view.plays] >= scale(view.plays).most;
      return playOn(calm, atEnd ? 1 : s[view.plays], performance.now(), 1);
    },
  };
  const listeners = {
    click({ target }) {
      const { does, of } = target.closest("button")?.dataset ?? {};
      if (does) actions[does](of);
    },
    input({ target }) {
      const { type, value, dataset: { key } } = target;
      if (type === "range") set({ [key]: scale(key).value(Number(value)) });
      const typed = type === "number" ? numberIn(value) : NaN; // while it is typed, only what needs no change
      if (!Number.isNaN(typed) && typed === scale(key).held(typed)) set({ [key]: typed });
    },
    change({ target }) {
      const { type, value, dataset: { key } } = target;
      if (type === "select-one") set({ [key]: value });
      if (type !== "number") return;
      const [typed, { held, least, most }, { label }] = [numberIn(value), scale(key), data.ranges[key]];
      const outside = typed < least || typed > most ? `${label} goes from ${inFull(least)} to ${inFull(most)}.` : "";
      tell(Number.isFinite(typed) ? outside : `${label} stays ${inFull(s[key])}: no number was typed.`);
      set({ [key]: Number.isFinite(typed) ? held(typed) : s[key] });
      target.value = s[key];
    },
    keydown(event) {
      const { type, dataset: { key } } = event.target;
      if (type !== "range" || event.ctrlKey || event.metaKey || event.altKey) return;
      const [value, { least, most, held, next }] = [s[key], scale(key)];
      const [up, down] = [() => next(value, 1), () => next(value, -1)];
      const keys = {
        ArrowRight: up, ArrowUp: up, ArrowLeft: down, ArrowDown: down, PageUp: () => held(2 * value || 1),
        PageDown: () => held(value / 2), Home: () => least, End: () => most,
      };
      if (!Object.hasOwn(keys, event.key)) return;
      event.preventDefault();
      set({ [key]: keys[event.key]() });
    },
  };
  for (const [event, listener] of Object.entries(listeners)) root.addEventListener(event, listener);
  set({});
  const watcher = new ResizeObserver(() => pictures.clientWidth !== wide && found && draw());
  watcher.observe(pictures);
  if (Object.keys(linked).length) root.scrollIntoView({ block: "nearest" });
  function destroy() {
    stop();
    clearTimeout(later);
    watcher.disconnect();
    host.replaceChildren();
  }
  return { settings: () => ({ ...s }), destroy };
}

export default { render: ({ model: m, el }) => mount(el, m.get("data"), m.get("view"), m.get("start")).destroy };
