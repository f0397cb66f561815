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
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
const minus = (x) => (x < 0 || Object.is(x, -0) ? "-" : "");
const exponent = (power) => `e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;

// round(|x| * 10 ** places), half to even and exact, as Python rounds: the digits of a whole number.
function scaledDigits(x, places) {
  let [whole, bits] = [Math.abs(x), 0n]; // |x| = whole / 2 ** bits
  for (; !Number.isInteger(whole); bits += 1n) whole *= 2;
  const over = BigInt(whole) * 10n ** BigInt(Math.max(places, 0));
  const under = 2n ** bits * 10n ** BigInt(Math.max(-places, 0));
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
  if (!Number.isFinite(x)) return repr(x);
  const digits = scaledDigits(x, places).padStart(places + 1, "0");
  const whole = digits.slice(0, digits.length - places);
  return minus(x) + (comma ? grouped(whole) : whole) + (places ? `.${digits.slice(-places)}` : "");
}
export function general(x, digits, comma = false) {
  if (!Number.isFinite(x)) return repr(x);
  const [found, power] = significantDigits(x, digits);
  const shorter = (text) => (text.includes(".") ? text.replace(/\.?0*$/, "") : text);
  if (power >= -4 && power < digits) return shorter(fixed(x, digits - 1 - power, comma));
  return minus(x) + shorter(`${found[0]}.${found.slice(1)}`) + exponent(power);
}
export const commas = (n) => minus(n) + grouped(String(BigInt(Math.abs(n))));

// What cannot be seen, escaped: names come from outside.
const printable = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (letter) => {
  const [code, hex] = [letter.codePointAt(0), letter.codePointAt(0).toString(16)];
  const long = code < 2 ** 16 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  return { 9: "\\t", 10: "\\n", 13: "\\r" }[code] ?? (code < 2 ** 8 ? `\\x${hex.padStart(2, "0")}` : long);
});
// repr(value): a whole number is an int up to 2**53, a BigInt always; what is to be a float comes from `asFloat`.
function repr(value) {
  if (typeof value === "string") {
    const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
    return quote + printable(value.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`)) + quote;
  }
  if (typeof value !== "number") return { true: "True", false: "False" }[value] ?? value?.said ?? String(value ?? "None");
  return Number.isInteger(value) && Math.abs(value) <= MOST_TOKENS ? String(value) : asFloat(value).said;
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
// With `digits` significant digits, an SI prefix and the unit: "15.01 GB".
const formatted = (unit) => (value, digits = 4) => {
  if (typeof value !== "number") throw wrong("format", "value", value, "a number that a float holds");
  const [first, power] = Number.isFinite(value) ? significantDigits(value, digits) : ["0", 0];
  const size = Number(`${first}e${power - digits + 1}`); // as it will be shown: 999,999 B is 1.000 MB
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
  constructor(message, kind = "InvalidInputError", more = {}) {
    super(printable(message));
    Object.assign(this, { name: "Refused", kind, ...more });
  }
}
const refuse = (message, kind) => { throw new Refused(message, kind); };
function wrong(owner, name, value, expected, remedy = "", kind = undefined) {
  const letters = [...repr(value)];
  const long = `${letters.slice(0, 60).join("")}... (${letters.length} characters)`;
  const shown = letters.length <= 80 ? letters.join("") : long;
  return new Refused(`${owner}: ${name} is ${shown}; expected ${expected}${remedy && "; "}${remedy}.`, kind);
}
// What `make` makes; null where it is refused, as one of `kinds` if there are some.
function unless(make, kinds = null) {
  try {
    return make();
  } catch (error) {
    if (error instanceof Refused && (kinds === null || kinds.includes(error.kind))) return null;
    throw error;
  }
}

const within = (least, most) => (value) => typeof value === "number" && least <= value && value <= most;
const whole = (least, most, expected) =>
  ({ expected, takes: (value) => within(least, most)(value) && Number.isInteger(value) });
const [LARGEST, SMALLEST] = [Number.MAX_VALUE, Number.MIN_VALUE];
const BATCH = whole(1, MOST_TOKENS, `a whole number from 1 to ${commas(MOST_TOKENS)}`);
const PAGE = whole(1, 2 ** 20, "a whole number from 1 to 1,048,576");
const COUNT = whole(1, LARGEST, "a whole number of at least 1");
const TOKENS = whole(1, MOST_TOKENS, "a whole number from 1 to 2**53, or an array of them");
const CACHED = whole(0, MOST_TOKENS, "a whole number from 0 to 2**53, or an array of them");
const PLACES = whole(1, MOST_TOKENS, "a whole number from 1 to 9.007199255e+15, or an array of them");
const FLAG = { expected: "True or False", takes: (value) => typeof value === "boolean" };
const FRACTION = { expected: "a fraction more than 0 and at most 1", takes: within(SMALLEST, 1) };
const DURATION = { expected: "a number of at least 0, or an array of them", takes: within(0, LARGEST) };
const TIMES = { expected: "a number above 0, or an array of them", takes: within(SMALLEST, Infinity) };
const rate = (unit) => ({ expected: `a finite number of ${unit}, more than zero`, takes: within(SMALLEST, LARGEST) });
const SECONDS = { expected: "a finite number of seconds, zero or more", takes: within(0, LARGEST) };
const choice = (words) => ({ expected: `one of ${words.join(", ")}`, takes: (value) => words.includes(value) });
const optional = (rule) =>
  ({ ...rule, expected: `${rule.expected}, or None`, takes: (value) => (value ?? null) === null || rule.takes(value) });
// Refused where a value, in the order given, does not follow its rule: {name: [rule, value]}.
function check(owner, values) {
  for (const [name, [rule, value]] of Object.entries(values)) {
    if (!rule.takes(value)) throw wrong(owner, name, value, rule.expected, "", rule.kind);
  }
}
// The first whole number above `low` and up to `high` for which `holds`, and for all above it, by halving.
function firstOf(low, high, holds) {
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (holds(middle)) high = middle;
    else low = middle;
  }
  return high;
}

// ---- Precision: a dtype for each part

const UNQUANTISED = ["fp32", "fp16", "bf16"];
const MULTIPLIED_IN = { fp8: "fp8", nvfp4: "fp4" };
const OTHER_16_BITS = { bf16: "fp16", fp16: "bf16" };
const KERNELS = ["blocks", "experts", "head", "attention"];
const PARTS = ["experts", "head", "embedding", "other", "cache", "index", "state", "dispatch"];
const bitsSaid = (dtype) => (/^[\d.]+(e[-+]?\d+)? bits$/.test(dtype) ? Number(dtype.slice(0, -5)) : NaN);
const text = { expected: "a text, such as 'bf16'", takes: (value) => typeof value === "string" && value !== "" };

// `parts`: dtypes by part, the keywords of the library's Precision; `bits`: of each dtype that has a name.
export class Precision {
  constructor(parts, bits) {
    const expected = `a dtype, one of ${Object.keys(bits).join(", ")}, or such as '4.25 bits'`;
    const takes = (value) => typeof value === "string" && (value in bits || within(0.1, 64)(bitsSaid(value)));
    const dtype = { expected, takes, kind: "UnknownNameError" };
    const { blocks = "bf16", compute = null } = parts;
    const rules = Object.fromEntries(PARTS.map((part) => [part, [optional(dtype), parts[part]]]));
    check("Precision", { blocks: [dtype, blocks], ...rules, compute: [optional(text), compute] });
    const plain = UNQUANTISED.includes(blocks) ? blocks : "bf16";
    const usual = { experts: blocks, head: plain, embedding: plain, other: plain, cache: plain };
    Object.assign(this, { bits, blocks, compute });
    for (const part of PARTS) this[part] = parts[part] ?? usual[part] ?? null;
    this.plain = plain === blocks || this.other !== "fp16" ? plain : "fp16"; // what is not quantised, and operands
    this.computeBytes = compute === "fp4" ? 0.5 : this.bytes(compute ?? this.plain);
    this.sentBytes = this.plain === "fp32" ? 4 : 2;
    this.dispatchedBytes = this.dispatch === null ? this.sentBytes : this.bytes(this.dispatch);
  }
  with(parts) { return new Precision({ ...this, ...parts }, this.bits); }
  bytes(dtype) { return (this.bits[dtype] ?? bitsSaid(dtype)) / 8; }
  bytesOf(part) { return this.bytes(this[part] ?? this.cache); }
  stateBytes(stated) {
    return this.bytes(this.state || stated || (UNQUANTISED.includes(this.compute) ? this.compute : this.plain));
  }
  // The dtype that a kernel multiplies in, on a device with these peaks.
  operand(kernel, peaks) {
    const stored = kernel === "blocks" || kernel === "experts" ? this[kernel] : "";
    if (this.compute !== null || MULTIPLIED_IN[stored] in peaks) return this.compute ?? MULTIPLIED_IN[stored];
    const plain = UNQUANTISED.includes(stored) ? stored : this.plain;
    return OTHER_16_BITS[plain] in peaks && !(plain in peaks) ? OTHER_16_BITS[plain] : plain;
  }
}

// ---- Laws of mixers: what a token attends to, what a pass reads, what a sequence holds. c: cached, n: new tokens.

// How many of n tokens have a span below or at `limit`, as no more tokens are there.
const below = (limit, c, n) => Math.min(Math.max(Math.floor(limit - c), 0), n);
const allSpans = (c, n) => n * c + (n * (n + 1)) / 2;
function spansUpTo(limit, c, n) {
  if (c >= limit) return n * limit;
  const growing = below(limit, c, n);
  return growing * c + (growing * (growing + 1)) / 2 + (n - growing) * limit;
}
const cutAt = (limit) => (c, n) => [[c, below(limit, c, n)], [c + below(limit, c, n), n - below(limit, c, n)]];
const ALL = {
  spanSum: allSpans,
  read: (c) => c,
  readSum: (c, n, spans) => spans - n,
  held: (tokens) => tokens,
  stretches: (c, n) => [[c, n]],
  fillsAt: Infinity, // tokens up to which all are held and seen, and after which both stay the same; null: another law
  period: null,
};
const LAWS = {
  all: () => ALL,
  window: ({ window }) => ({
    spanSum: (c, n) => spansUpTo(window, c, n),
    read: (c) => Math.min(c, window - 1),
    held: (tokens) => Math.min(tokens, window),
    fillsAt: window,
  }),
  chunk({ chunk }) {
    function spanSum(c, n) {
      const [before, full, rest] = [c % chunk, Math.floor(((c % chunk) + n) / chunk), ((c % chunk) + n) % chunk];
      return full * ((chunk * (chunk + 1)) / 2) + (rest * (rest + 1)) / 2 - (before * (before + 1)) / 2;
    }
    return { spanSum, read: (c) => c % chunk, held: (tokens) => Math.min(tokens, chunk), period: chunk };
  },
  sparse: ({ top_k: most }) => ({
    spanSum: (c, n) => spansUpTo(most, c, n),
    read: (c, n) => Math.min(c, n * most),
    readSum: (c, n, spans) => spans - below(most, c, n),
    stretches: cutAt(most),
  }),
  blocks({ top_k: most, block }) {
    function unseen(tokens) {
      const [full, rest] = [Math.floor(tokens / block), tokens % block];
      const past = Math.max(full - most, 0);
      return (block * past * (past + 1)) / 2 + rest * Math.max(full + 1 - most, 0);
    }
    const spanSum = (c, n) => allSpans(c, n) - block * (unseen(c + n) - unseen(c));
    return { spanSum, read: (c, n) => Math.min(c, spanSum(c, n) - n), period: block };
  },
  entries({ rate: each, top_k: most }) {
    const limit = most ? each * most : Infinity;
    function spans(tokens) {
      const growing = Math.min(tokens, limit - 1);
      const full = Math.floor(growing / each);
      const sum = (each ** 2 * full * (full - 1)) / 2 + each * full * (growing - full * each + 1);
      return most ? sum + Math.max(tokens - limit + 1, 0) * limit : sum;
    }
    const spanSum = (c, n) => spans(c + n) - spans(c);
    const read = (c, n) => Math.min(c, Math.max(spanSum(c, n) - n, 0));
    const readSum = (c, n, sum) => sum - (n - below(each - 1, c, n));
    return { spanSum, read, readSum, held: (tokens) => each * Math.floor(tokens / each), stretches: cutAt(each - 1) };
  },
};
// `shared`: of layers that read the cache of another one, and hold nothing.
const lawOf = ({ kind, shared, ...numbers }) =>
  ({ ...ALL, fillsAt: null, ...LAWS[kind](numbers), ...(shared && { held: () => 0, fillsAt: null }) });

// ---- Sizes: a model in a precision on some devices

const LAYOUTS = { tensor: "tensor parallelism", expert: "data-parallel attention with expert parallelism" };

// Copies of what the heads of a mixer share, over a tensor-parallel group; Refused where heads do not divide.
function cacheCopies({ owner, heads = 0, kv_heads: kvHeads = 0, whole: all = false }, split) {
  const kv = `a number that divides its ${kvHeads} KV heads, or a multiple of them`;
  if (heads % split) throw wrong(owner, "devices", BigInt(split), `a number that divides its ${heads} heads`);
  if (kvHeads % split && split % kvHeads) throw wrong(owner, "devices", BigInt(split), kv);
  return all ? split : kvHeads ? Math.max(1, split / kvHeads) : 1;
}
const copiedWeights = ({ copies }, split) => total(copies, (copy) => (cacheCopies(copy, split) - 1) * copy.weights);

// Collectives of a pass, and the bytes that one device sends for one of its tokens.
function collectivesOf(model, precision, devices, layout) {
  const numbers = (2 * (devices - 1) * model.width) / devices;
  if (devices === 1) return [0, 0];
  if (layout === "tensor") return [model.reduces, model.reduces * numbers * precision.sentBytes];
  const bytes = total(model.experts, ({ layers, routed_width: width, experts, picked }) => {
    let none = 1; // the chance that a device, with experts / devices of them, holds none of those picked
    for (let i = 0; i < picked; i += 1) none *= Math.max(0, experts - experts / devices - i) / (experts - i);
    return layers * width * ((devices - 1) * (1 - none)) * (precision.dispatchedBytes + precision.sentBytes);
  });
  return [total(model.experts, ({ layers }) => 2 * layers), bytes];
}
// All layers of one kernel: FLOPs and bytes of one sequence.
function layerKind(kernel, precision, split) {
  const { layers, label } = kernel;
  const of = (name) => kernel[name] ?? 0;
  const copies = layers * (kernel.copied_whole ? split : 1);
  const cache = layers * of("cache_elements") * cacheCopies(kernel, split);
  const state = precision.stateBytes(kernel.state_dtype) * of("state_elements");
  return {
    part: `${layers} x ${label}`, label, layers, law: lawOf(kernel.law),
    pairFlops: copies * of("pair_flops"),
    freshPairFlops: copies * (kernel.fresh_pair_flops ?? of("pair_flops")),
    expandFlops: copies * of("expand_flops"),
    tokenFlops: copies * of("token_flops"),
    cacheBytes: cache * precision.bytesOf(kernel.cache_part ?? "cache"),
    stateBytes: layers * (state + precision.computeBytes * of("conv_elements")),
  };
}
const kindBytes = (kind, tokens) => kind.cacheBytes * kind.law.held(tokens) + kind.stateBytes;

function sizesOf(model, precision, devices, layout) {
  const [split, replicas] = layout === "tensor" ? [devices, 1] : [1, devices];
  const { weights, experts: ffns, again, head_bias: bias } = model;
  const [of, every] = [(part) => precision.bytesOf(part), (count) => total(ffns, (ffn) => ffn.layers * count(ffn))];
  const copied = total(model.mixers, (mixer) => mixer.layers * copiedWeights(mixer, split));
  const stored = total(model.mixers, (mixer) => mixer.stored * copiedWeights(mixer, split));
  const routers = (split - 1) * every((ffn) => ffn.router_weights);
  const other = weights.other - every((ffn) => ffn.experts * ffn.other_weights) - bias + routers;
  const blocks = replicas * ((weights.blocks + stored) * of("blocks") + other * of("other"));
  const more = (again[0] + copied - stored - model.idle_weights) * of("blocks") + again[1] * of("other");
  const headBytes = replicas * (weights.head * of("head") + bias * of("other"));
  const expertBytes = (ffn) => ffn.weights * of("experts") + ffn.other_weights * of("other");
  const resident = every((ffn) => replicas * Math.ceil(ffn.experts / replicas) * expertBytes(ffn));
  const picked = every((ffn) => ffn.picked * ffn.weights);
  const kinds = model.kernels.map((kernel) => layerKind(kernel, precision, split));
  const [collectives, collectiveBytes] = collectivesOf(model, precision, devices, layout);
  return {
    tokenFlops: 2 * (model.block_matmul_weights - picked + copied + routers),
    expertFlops: 2 * picked, logitFlops: 2 * weights.head,
    blockBytes: blocks + replicas * more, headBytes, kinds, replicas, collectives, collectiveBytes,
    experts: ffns.map((ffn) => ({
      bytes: ffn.experts * ffn.layers * expertBytes(ffn),
      logIdle: ffn.picked < ffn.experts ? Math.log1p(1 - ffn.picked / ffn.experts - 1) : -Infinity,
    })),
    residentBytes: blocks + headBytes + replicas * weights.embedding * of("embedding") + resident,
  };
}
// A draft head beside its target: what it shares lies in memory once, as the target's.
function draftSizesOf({ body, projection, shares_head: shared }, precision, devices, layout) {
  const sizes = sizesOf(body, precision, devices, layout);
  const bytes = sizes.replicas * projection * precision.bytesOf("blocks");
  const residentBytes = sizes.residentBytes + bytes - (shared ? sizes.headBytes : 0);
  return { ...sizes, tokenFlops: sizes.tokenFlops + 2 * projection, blockBytes: sizes.blockBytes + bytes, residentBytes };
}

// ---- Work of passes, and its time under the roofline

const NOTHING = { weights: 0, cacheRead: 0, cacheWrite: 0, state: 0, times: 1 };
const work = (part, kernel, flops, more) => ({ part, kernel, flops, ...NOTHING, ...more });

// Dense linear layers, routed experts, LM head. `fullest`: tokens of the fullest device over their mean.
function linearWork(sizes, tokens, logits, times = 1, fullest = 1) {
  const streamed = total(sizes.experts, ({ bytes, logIdle }) => -bytes * Math.expm1(tokens * logIdle));
  const dense = work("linear layers", "blocks", sizes.tokenFlops * tokens * fullest, { weights: sizes.blockBytes, times });
  const routed = work("routed experts", "experts", sizes.expertFlops * tokens, { weights: streamed, times });
  const head = work("LM head", "head", sizes.logitFlops * logits * fullest, { weights: sizes.headBytes, times });
  return sizes.experts.length ? [dense, routed, head] : [dense, head];
}
function pairWork(kind, read, pairs) {
  const expanded = kind.freshPairFlops * pairs + kind.expandFlops * read;
  return !kind.expandFlops ? kind.pairFlops * pairs : read > 0 ? Math.min(kind.pairFlops * pairs, expanded) : expanded;
}
// Attention, or the update of a constant state, of all layers of one kind: in one pass, and in decode steps together.
function attentionWork(kind, n, c, batch, times = 1) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * kind.stateBytes];
  if (!cache) return work(kind.part, "attention", batch * n * kind.tokenFlops, { state, times });
  const read = kind.law.read(c, n);
  const flops = batch * pairWork(kind, read, kind.law.spanSum(c, n));
  return work(kind.part, "attention", flops, { cacheRead: cache * read, cacheWrite: cache * n, times });
}
function attentionOfSteps(kind, prompt, steps, batch) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * steps * kind.stateBytes];
  if (!cache) return [work(kind.part, "attention", batch * steps * kind.tokenFlops, { state })];
  return kind.law.stretches(prompt, steps).map(([c, n]) => {
    const spans = kind.law.spanSum(c, n);
    const moved = { cacheRead: cache * kind.law.readSum(c, n, spans), cacheWrite: cache * n };
    return work(kind.part, "attention", batch * kind.pairFlops * spans, moved);
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

const BYTES = ["weights", "cacheRead", "cacheWrite", "state"];
const SUMS = ["flops", ...BYTES, "computeSeconds", "memorySeconds", "seconds"];
const bytesOf = (one) => one.weights + one.cacheRead + one.cacheWrite + one.state;

// A work under its roof, as often as it runs. `done`: less than 1 where devices less full wait for the fullest.
function underRoof({ peaks, bandwidth, efficiency }, one, done = 1) {
  const [computeSeconds, memorySeconds] = [one.flops / peaks[one.kernel], bytesOf(one) / bandwidth];
  const seconds = efficiency.overlap ? Math.max(computeSeconds, memorySeconds) : computeSeconds + memorySeconds;
  const share = one.kernel === "experts" ? 1 : done;
  const shared = { flops: one.flops * share, cacheRead: one.cacheRead * share, cacheWrite: one.cacheWrite * share };
  const once = { weights: one.weights, ...shared, state: one.state * share, computeSeconds, memorySeconds, seconds };
  const bounds = seconds * one.times ? [computeSeconds > memorySeconds ? "compute" : "memory"] : [];
  return { ...mapped(once, (value) => value * one.times), kernel: one.kernel, bounds };
}
// Works of one part, or roofs of several, added up; `bound`: what binds, "both" where they differ.
function roofOf(phase, part, kernel, all) {
  const sums = Object.fromEntries(SUMS.map((name) => [name, total(all, (one) => one[name])]));
  const bounds = [...new Set(all.flatMap((one) => one.bounds))];
  const bound = bounds.length > 1 ? "both" : (bounds[0] ?? "nothing");
  return { phase, part, kernel, ...sums, bytes: bytesOf(sums), intensity: ratio(sums.flops, bytesOf(sums)), bounds, bound };
}
// Passes on a deployment, one after another: bytes and FLOPs of all devices, seconds of the group; `roofs` by part.
function phaseOf(deployment, runs, name = "pass") {
  const { efficiency, linkRate: link, collectiveLatency: latency } = deployment;
  let [busy, communication, passes] = [0, 0, 0];
  const parts = {};
  for (const { sizes, works, tokens, number, done } of runs) {
    for (const one of works) {
      const timed = underRoof(deployment, one, done);
      busy += timed.seconds;
      (parts[one.part] ??= []).push(timed);
    }
    const waits = number * (sizes.collectives * latency);
    if (sizes.collectives && link !== null) communication += tokens * (sizes.collectiveBytes / link) + waits;
    passes += number;
  }
  const roofs = mapped(parts, (all, part) => roofOf(name, part, all[0].kernel, all));
  const isAttention = ({ kernel }) => kernel === "attention";
  const attention = roofOf(name, "attention", "attention", Object.values(roofs).filter(isAttention));
  const linear = roofOf(name, "linear layers", "blocks", Object.values(roofs).filter((roof) => !isAttention(roof)));
  const overhead = passes * efficiency.overhead;
  const seconds = busy + communication + overhead;
  const both = { flops: linear.flops + attention.flops, bytes: linear.bytes + attention.bytes };
  return { name, passes, roofs, linear, attention, ...both, communication, overhead, seconds };
}

// ---- Deployment: a model on devices, and what their memory holds

const EFFICIENCY = {
  mfu: FRACTION, mbu: FRACTION, overhead: SECONDS, overlap: FLAG, all_reduce_latency: SECONDS, all_to_all_latency: SECONDS,
};
const GIVEN = { devices: 1, layout: "tensor", link: null, memoryFraction: 0.9, prefillChunk: null, speculation: null };
const MOST_DEVICES = 1024; // of one group that a remedy may name

// As the library's Deployment. `given`: model, accelerator, precision, efficiency, and what of GIVEN differs.
export class Deployment {
  constructor(given) {
    Object.assign(this, GIVEN, given, { given });
    const { model, accelerator, devices, layout, link, memoryFraction, precision, efficiency, speculation } = this;
    check("Deployment", {
      devices: [COUNT, devices], layout: [choice(Object.keys(LAYOUTS)), layout], link: [optional(rate("byte/s")), link],
      memory_fraction: [FRACTION, memoryFraction], prefill_chunk: [optional(COUNT), this.prefillChunk],
    });
    this.collectiveLatency = efficiency[layout === "tensor" ? "all_reduce_latency" : "all_to_all_latency"];
    this.linkRate = link ?? accelerator.link;
    const [name, remedy] = [repr(accelerator.name), "give link= in byte/s one way, or take devices=1"];
    const unlinked = `so what ${BigInt(devices)} devices send cannot be timed; ${remedy}`;
    if (devices > 1 && this.linkRate === null) refuse(`Deployment: ${name} has no link figure, ${unlinked}.`);
    this.dtypes = Object.fromEntries(KERNELS.map((kernel) => [kernel, precision.operand(kernel, accelerator.peaks)]));
    this.peaks = mapped(this.dtypes, (dtype) => {
      const known = `it has ${Object.keys(accelerator.peaks).join(", ")}. Choose one of these to compute in.`;
      const missing = () => refuse(`Accelerator ${name} has no ${dtype} peak; ${known}`, "UnknownNameError");
      return devices * efficiency.mfu * (accelerator.peaks[dtype] ?? missing());
    });
    if (model.unknown) refuse(model.unknown);
    this.sizes = sizesOf(model, precision, devices, layout);
    this.draftSizes = speculation && draftSizesOf(speculation.draft, precision, devices, layout);
    this.weightBytes = this.sizes.residentBytes + (this.draftSizes?.residentBytes ?? 0);
    this.memoryAvailable = memoryFraction * devices * accelerator.memory;
    this.memoryFree = this.memoryAvailable - this.weightBytes;
    this.maxPositions = model.max_positions; // a draft head has its target's
    this.bandwidth = devices * efficiency.mbu * accelerator.bandwidth;
    this.cacheBytesPerToken = total(this.sizes.kinds, (kind) => kind.cacheBytes);
  }
  with(changes) { return new Deployment({ ...this.given, ...changes }); }
  sequenceBytes(tokens) {
    return total([this.sizes, ...(this.draftSizes ? [this.draftSizes] : [])], ({ kinds }) =>
      total(kinds, (kind) => kindBytes(kind, tokens)));
  }
  memoryNeeded(tokens, batch = 1) { return this.weightBytes + seats(this.sizes, batch) * this.sequenceBytes(tokens); }
  fits(tokens, batch = 1) { return this.memoryNeeded(tokens, batch) <= this.memoryAvailable; }
}

// The deployment of settings: names of the data's lists, or objects of the same form in their place.
export function deploymentOf(data, settings) {
  const { precision = "bf16", efficiency = "floor" } = settings;
  const find = (list, kind) => {
    const name = settings[kind];
    const found = typeof name === "object" && name !== null ? name : list.find((one) => one.name === name);
    const words = `Unknown ${kind} ${repr(name)}: expected one of the ${list.length} here.`;
    return found ?? refuse(words, "UnknownNameError");
  };
  const set = { model: find(data.models, "model"), accelerator: find(data.accelerators, "accelerator") };
  const parts = typeof precision === "object" && precision !== null ? precision : { blocks: precision };
  set.precision = new Precision(data.precisions[precision] ?? parts, data.bits);
  const { efficiencies, no_efficiencies: none = `Unknown efficiency ${repr(efficiency)}.` } = set.accelerator;
  const known = { ...data.efficiencies, ...efficiencies }[efficiency];
  const numbers = typeof efficiency === "string" ? (known ?? refuse(none)) : efficiency;
  set.efficiency = { ...data.efficiencies.floor, ...numbers };
  check("Efficiency", mapped(EFFICIENCY, (rule, name) => [rule, set.efficiency[name]]));
  for (const name of Object.keys(GIVEN)) if (settings[name] !== undefined) set[name] = settings[name];
  return new Deployment(set);
}

// The largest batch of sequences that hold `tokens` tokens each; 0 when not even one fits.
export function largestBatch(deployment, tokens) {
  check("largest_batch", { tokens: [COUNT, tokens] });
  if (deployment.memoryFree <= 0) return 0;
  const each = deployment.sequenceBytes(tokens);
  if (!each) refuse(`largest_batch: ${deployment.model.name} keeps neither cache nor state; any batch fits.`);
  let batch = Math.floor(Math.min(deployment.memoryFree / each, MOST_TOKENS));
  while (batch < MOST_TOKENS && deployment.fits(tokens, batch + 1)) batch += 1;
  while (batch && batch < MOST_TOKENS && !deployment.fits(tokens, batch)) batch -= 1;
  return batch;
}
// Refused, with the smallest changes that fit, unless `batch` sequences of `tokens` tokens fit.
export function requireFit(deployment, tokens, batch = 1) {
  check("require_fit", { tokens: [COUNT, tokens], batch: [COUNT, batch] });
  if (deployment.fits(tokens, batch)) return;
  const { model, accelerator, devices, layout, weightBytes, memoryFraction, memoryAvailable: available } = deployment;
  const [needed, found] = [deployment.memoryNeeded(tokens, batch), remedies(deployment, tokens, batch)];
  const nothing = deployment.linkRate === null ? "no dtype does, and there is no link figure to join more devices"
    : `no dtype and no number of these devices up to ${commas(MOST_DEVICES)} does`;
  const on = `${BigInt(devices)} x ${accelerator.name}${devices === 1 ? "" : ` (${LAYOUTS[layout]})`}`;
  const parts = `(weights ${formatBytes(weightBytes)}, cache ${formatBytes(needed - weightBytes)})`;
  const there = `available are ${formatBytes(available)} (${fixed(100 * memoryFraction, 0)}% of the memory)`;
  const words = `${model.name} with ${commas(batch)} x ${commas(tokens)} tokens on ${on} needs ${formatBytes(needed)} ` +
    `${parts}; ${there}. What would fit: ${found.join("; or ") || nothing}.`;
  throw new Refused(words, "DoesNotFitError", { needed, available, remedies: found });
}
const SMALLER = {
  "an fp8 cache": { cache: "fp8" },
  "fp8 weights": { blocks: "fp8", experts: "fp8" },
  "int4 weights": { blocks: "int4", experts: "int4" },
  "int4 weights and an fp8 cache": { blocks: "int4", experts: "int4", cache: "fp8" },
};
// The smallest change of each kind that fits: batch, precision, devices.
function remedies(deployment, tokens, batch) {
  const largest = largestBatch(deployment, tokens);
  const stored = (parts) => deployment.with({ precision: deployment.precision.with(parts) });
  const dtypes = Object.keys(SMALLER).find((words) => stored(SMALLER[words]).fits(tokens, batch));
  const found = [...(largest ? [`batch=${BigInt(largest)}`] : []), ...(dtypes ? [dtypes] : [])];
  return deployment.linkRate === null ? found : [...found, ...moreDevices(deployment, tokens, batch, !found.length)];
}
// The fewest devices that hold the batch; failing that, if `alone`, the fewest that hold a smaller one.
function moreDevices(deployment, tokens, batch, alone) {
  const each = deployment.memoryFraction * deployment.accelerator.memory;
  const least = Math.min(Math.ceil(deployment.memoryNeeded(tokens, batch) / each), MOST_DEVICES + 1);
  const fewest = deployment.layout === "tensor" ? least : 0; // there more devices never need fewer bytes
  let second = [];
  for (let devices = deployment.devices + 1; devices <= MOST_DEVICES; devices += 1) {
    if (devices < fewest && (second.length || batch === 1 || !alone)) continue;
    const more = unless(() => deployment.with({ devices })); // heads may not divide over so many
    if (more?.fits(tokens, batch)) return [`devices=${devices}`];
    const largest = more && alone && !second.length && batch > 1 ? largestBatch(more, tokens) : 0;
    if (largest) second = [`devices=${devices} with batch=${BigInt(largest)}`];
  }
  return second;
}

// ---- Requests

// {prompt, output, cached}, checked.
export function requestOf({ prompt, output, cached = 0 }) {
  check("Request", { prompt: [TOKENS, prompt], output: [TOKENS, output], cached: [CACHED, cached] });
  const most = "at least one prompt token must be computed, so expected at most prompt - 1";
  const words = () => `cached is ${commas(cached)} but the prompt has ${commas(prompt)} tokens; ${most}`;
  return cached < prompt ? { prompt, output, cached } : refuse(`Request: ${words()}.`);
}
const named = (what, run) => ({ ...run, works: run.works.map((one) => ({ ...one, part: `${what}: ${one.part}` })) });
// `times` passes of `batch` prompts, or of their chunks, the last one first; a draft prefills them likewise.
function promptPasses({ prefillChunk: size, sizes: own, draftSizes }, n, c, batch, times) {
  const inner = size === null ? 0 : Math.floor((n - 1) / size);
  const of = (sizes) => Array.from({ length: inner + 1 }, (_, i) => (i
    ? equalPasses(sizes, size, c + (i - 1) * size, batch, 0, times)
    : equalPasses(sizes, n - inner * size, c + inner * size, batch, 1, times)));
  return [...of(own), ...(draftSizes ? of(draftSizes).map((run) => named("drafting", run)) : [])];
}
function prefillPhase(deployment, prompt, cached, batch) {
  const [{ replicas }, n] = [deployment.sizes, prompt - cached];
  if (replicas === 1) return phaseOf(deployment, promptPasses(deployment, n, cached, batch, 1), "prefill");
  const [full, rest] = [Math.floor(batch / replicas), batch % replicas]; // passes with one prompt on each device
  const last = promptPasses(deployment, n, cached, Math.max(rest, 1), Math.min(rest, 1));
  return phaseOf(deployment, [...promptPasses(deployment, n, cached, replicas, full), ...last], "prefill");
}
function tokensPerRound({ draftTokens, acceptance }) {
  const idle = 1 - acceptance;
  if (!(0 < idle && idle < 1)) return 1 + draftTokens * (idle === 0);
  return -Math.expm1((draftTokens + 1) * Math.log1p(-idle)) / idle;
}
// The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them.
function decodePhase(deployment, prompt, output, batch) {
  const { sizes, speculation, draftSizes } = deployment;
  if (!speculation) return phaseOf(deployment, [decodeSteps(sizes, prompt, output - 1, batch)], "decode");
  const [drafts, rounds] = [speculation.draftTokens, (output - 1) / tokensPerRound(speculation)];
  const context = prompt + (output - 2) / 2;
  const verifying = named("verifying", equalPasses(sizes, drafts + 1, context, batch, drafts + 1, rounds));
  const drafting = named("drafting", equalPasses(draftSizes, 1, context, batch, 1, rounds * drafts));
  return phaseOf(deployment, [verifying, drafting], "decode");
}
function requireChunks(owner, { prefillChunk }, n) {
  const words = "the prompt needs more than 100,000 prefill chunks; take a larger prefill_chunk";
  if (prefillChunk !== null && n / prefillChunk > 100_000) refuse(`${owner}: ${words}.`);
}
// Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep: both clocks, both phases.
export function requestCost(deployment, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
  check("request_cost", { batch: [TOKENS, batch] });
  const [limit, tokens] = [deployment.maxPositions, prompt + output];
  const most = () => `${deployment.model.name} has ${commas(limit)} positions; shorten one of them`;
  const both = `prompt ${commas(prompt)} + output ${commas(output)} is ${commas(tokens)} tokens`;
  if (limit !== null && tokens > limit) refuse(`Request: ${both}, but ${most()}.`);
  requireFit(deployment, tokens, batch);
  requireChunks("request_cost", deployment, prompt - cached);
  const [prefill, decode] = [prefillPhase(deployment, prompt, cached, batch), decodePhase(deployment, prompt, output, batch)];
  const ttft = batch === 1 ? prefill.seconds : prefillPhase(deployment, prompt, cached, 1).seconds;
  const seconds = prefill.seconds + decode.seconds;
  return {
    deployment, request, batch, prefill, decode, ttft, seconds,
    undisturbed: ttft + decode.seconds, tpot: ratio(decode.seconds, output - 1), decodeShare: decode.seconds / seconds,
    flops: prefill.flops + decode.flops, bytes: prefill.bytes + decode.bytes,
    roofs: [...Object.values(prefill.roofs), ...Object.values(decode.roofs)],
  };
}

// ---- A full server: requests that come and go

const pages = ({ prompt, output }, page) => Math.ceil((prompt + Math.floor((output + 1) / 2)) / page) * page;

// How many identical requests are under way at a time when memory is full on average; 0 when not even one fits.
export function memoryBatch(deployment, request, page = 1) {
  check("memory_batch", { page: [PAGE, page] });
  return largestBatch(deployment, pages(requestOf(request), page));
}
function fullBatch(deployment, request, page) {
  const found = memoryBatch(deployment, request, page);
  if (!found) requireFit(deployment, request.prompt + request.output);
  return Math.max(1, found);
}
// `batch` identical requests in steady state, null: the memory batch. Seconds of the GPU clock.
export function steadyState(deployment, request, batch = null, mixed = false, page = 1) {
  const { prompt, output, cached } = requestOf(request);
  check("steady_state", { batch: [optional(BATCH), batch], mixed: [FLAG, mixed], page: [PAGE, page] });
  const alone = requestCost(deployment, request);
  if (batch === null) batch = fullBatch(deployment, request, page);
  else if (batch > 1) requireFit(deployment, pages(request, page), batch);
  const decode = decodePhase(deployment, prompt, output, batch);
  const attention = decode.attention.seconds / batch;
  const linear = decode.seconds / batch - attention;
  const [prompts, steps] = [Math.min(batch, deployment.sizes.replicas), output - 1];
  const ttft = (prompts > 1 ? prefillPhase(deployment, prompt, cached, prompts) : alone.prefill).seconds;
  const riding = () => (mixedPass(deployment, request, batch) * steps) / batch - linear - attention;
  const parts = { prefill: mixed ? Math.max(0, riding()) : ttft / prompts, linear, attention };
  const secondsPerRequest = parts.prefill + linear + attention;
  const wait = batch * secondsPerRequest;
  return {
    request, batch, mixed, ttft, parts, wait, secondsPerRequest,
    shares: mapped(parts, (seconds) => seconds / secondsPerRequest), tokensPerSecond: output / secondsPerRequest,
    tpot: ratio(wait - (mixed ? 0 : ttft), steps), step: ratio(batch * (linear + attention), steps),
  };
}
// Seconds of one pass that carries `batch` decode tokens and the prompt tokens that arrive meanwhile.
export function mixedPass(deployment, request, batch) {
  const { prompt, output, cached } = requestOf(request);
  const [{ sizes }, steps, n] = [deployment, output - 1, prompt - cached];
  if (!steps) refuse("mixed_pass: the request has one output token; it has no decode step to ride on.");
  if (deployment.speculation) refuse("mixed_pass: a mixed pass has one token a sequence; take no drafts.");
  const begun = batch / steps;
  const tokens = batch + begun * n;
  const works = linearWork(sizes, tokens, batch + begun);
  works.push(...sizes.kinds.map((kind) => attentionWork(kind, n, cached, 1, begun)));
  const together = phaseOf(deployment, [{ sizes, works, tokens: tokens / sizes.replicas, number: 1 }]);
  return together.seconds + decodePhase(deployment, prompt, output, batch).attention.seconds / steps;
}
// The largest batch of identical requests whose TPOT is at most `tpot`: {batch, binds, state}.
export function atLatency(deployment, request, tpot = 0.03, mixed = false, page = 1) {
  const { output } = requestOf(request);
  check("at_latency", { tpot: [rate("seconds a token"), tpot], mixed: [FLAG, mixed], page: [PAGE, page] });
  if (output < 2) throw wrong("at_latency", "output", output, "2 or more", "one output token has no TPOT");
  const stateOf = (batch) => steadyState(deployment, request, batch, mixed, page);
  const [full, one] = [stateOf(fullBatch(deployment, request, page)), stateOf(1)];
  if (full.tpot <= tpot) return { batch: full.batch, binds: "memory", state: full };
  const least = `at least ${general(one.tpot, 4)} s, the TPOT of one request at a time on this deployment`;
  const remedy = "take a longer target, a faster deployment or a smaller model";
  if (one.tpot > tpot) throw wrong("at_latency", "tpot", asFloat(tpot), least, remedy);
  const batch = firstOf(1, full.batch, (some) => stateOf(some).tpot > tpot) - 1;
  return { batch, binds: "target", state: stateOf(batch) };
}

// ---- Estimates, in one line each

const passOf = (deployment, batch) => phaseOf(deployment, [equalPasses(deployment.sizes, 1, 0, batch, 1)]);

// Tokens in one pass at which the linear layers turn from memory bound to compute bound.
export const ridgeTokens = ({ peaks, bandwidth, precision }) =>
  ((peaks.blocks / bandwidth) * precision.bytesOf("blocks")) / 2;
// Block weights that one token uses over those that a decode step at `batch` reads.
export function usedOverRead({ model, sizes }, batch = 1) {
  const distinct = (ffn, i) => -ffn.experts * Math.expm1(batch * sizes.experts[i].logIdle);
  const idle = model.experts.map((ffn, i) => ffn.layers * ffn.weights * (distinct(ffn, i) - ffn.picked));
  return model.block_matmul_weights / (model.block_matmul_weights + total(idle, (weights) => weights));
}
// About prefill time over decode time at `batch`: decode heavy is much below 1.
export function rho(deployment, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
  check("rho", { batch: [TOKENS, batch] });
  const shared = (batch * usedOverRead(deployment, batch)) / ridgeTokens(deployment);
  return ((prompt - cached) / output) * Math.min(shared, 1);
}
// Time to read caches over time to compute the linear layers at peak, whatever the batch and the memory.
export function chi(deployment, request) {
  const { prompt, output, cached } = requestOf(request);
  const [span, { kinds, replicas }] = [prompt + output / 2, deployment.sizes];
  const each = total(kinds, (kind) => kind.cacheBytes * (kind.law.read(span - 1, 1) + 1));
  const computing = ((prompt - cached + output) * passOf(deployment, replicas).linear.computeSeconds) / replicas;
  return (output * each) / deployment.bandwidth / computing;
}
// The batch at which the linear layers of passes that mix prefill in turn compute bound.
export function roofBatch(deployment, request) {
  const { prompt, output, cached } = requestOf(request);
  return ridgeTokens(deployment) / usedOverRead(deployment, MOST_TOKENS) / (1 + (prompt - cached) / output);
}
// Roof batch over memory batch: above 1, memory is full before the linear layers are busy.
export function omega(deployment, request) {
  const [{ prompt, output }, name] = [requestOf(request), deployment.model.name];
  if (deployment.memoryFree <= 0) requireFit(deployment, 1);
  const none = `omega: ${name} keeps no growing cache, so omega says nothing about it.`;
  if (!deployment.cacheBytesPerToken) refuse(none);
  return (roofBatch(deployment, request) * deployment.sequenceBytes(prompt + output / 2)) / deployment.memoryFree;
}

// ---- The cache over an answer

// [{label, layers, bytes}] by kind of layer: what one sequence of `tokens` tokens holds.
export const cacheByKind = ({ sizes }, tokens) =>
  sizes.kinds.map((kind) => ({ label: kind.label, layers: kind.layers, bytes: kindBytes(kind, tokens) }));

// The step that emits output token `position` + 1: {linear, neighbours, own, other, seconds}.
export function stepParts(deployment, request, position, batch = 1, together = false) {
  const { prompt, output } = requestOf(request);
  check("step_parts", { position: [PLACES, position], batch: [BATCH, batch], together: [FLAG, together] });
  requestCost(deployment, request);
  requireFit(deployment, prompt + (together ? output : Math.floor((output + 1) / 2)), batch);
  const [steps, said] = [output - 1, { said: `np.float64(${asFloat(position).said})` }];
  const expected = `whole numbers from 1 to ${commas(steps)}, its steps`;
  if (position > steps) throw wrong("step_parts", "position", said, expected);
  const secondsOf = (run) => phaseOf(deployment, [run]).attention.seconds;
  const own = secondsOf(equalPasses(deployment.sizes, 1, prompt + position - 1, 1, 1));
  const neighbour = together ? own : secondsOf(decodeSteps(deployment.sizes, prompt, steps, 1)) / steps;
  const shared = passOf(deployment, batch);
  const [linear, other] = [shared.linear.seconds, shared.communication + shared.overhead];
  const neighbours = (Math.ceil(batch / deployment.sizes.replicas) - 1) * neighbour;
  return { linear, neighbours, own, other, seconds: linear + neighbours + own + other };
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
// Cache reads of all decode steps: as they are, as if the cache never grew, or had its final size all along.
export function answerTraffic(deployment, request, batch = 1) {
  const { prompt, output } = requestOf(request);
  check("answer_traffic", { batch: [BATCH, batch] });
  const triangle = requestCost(deployment, request, batch).decode.attention.cacheRead;
  const reads = (c) => total(deployment.sizes.kinds, (kind) => attentionWork(kind, 1, c, batch).cacheRead);
  const [flat, end] = [prompt, prompt + output - 2].map((c) => (output > 1 ? (output - 1) * reads(c) : 0));
  return { triangle, flat, end };
}

// ---- What a faster prefill buys, and what tokens cost

// Amdahl's law: time before over time after a prefill k times faster.
export function fasterPrefill(prefill, decode, k) {
  check("faster_prefill", { prefill_seconds: [DURATION, prefill], decode_seconds: [DURATION, decode], k: [TIMES, k] });
  const found = (prefill + decode) / (prefill / k + decode);
  const expected = "one time above 0, as decode_seconds is 0 too";
  if (Number.isNaN(found)) throw wrong("faster_prefill", "prefill_seconds", asFloat(0), expected);
  return found;
}
// The least output at which prefill is under `share` of the GPU clock.
export function breakEvenOutput(deployment, prompt, batch = 1, share = 0.05) {
  check("break_even_output", { prompt: [PLACES, prompt], batch: [BATCH, batch], share: [FRACTION, share] });
  requireChunks("break_even_output", deployment, prompt);
  const allowed = (prefillPhase(deployment, prompt, 0, batch).seconds * (1 - share)) / share;
  const isEnough = (output) => decodePhase(deployment, prompt, output, batch).seconds > allowed;
  const none = `break_even_output: no output up to 2**53 tokens brings prefill under ${general(share, 6)}.`;
  let high = 2;
  for (; !isEnough(high); high *= 2) if (high > MOST_TOKENS) refuse(none);
  return firstOf(1, high, isEnough);
}
// GPU seconds of an output token at `batch` over those of a prompt token in a prefill of `prompt` tokens alone.
export function outputTokenInPromptTokens(deployment, request, batch, prompt = 1024) {
  requestOf(request);
  check("output_token_in_prompt_tokens", { batch: [BATCH, batch], prompt: [BATCH, prompt] });
  const { step } = steadyState(deployment, request, batch);
  requireChunks("output_token_in_prompt_tokens", deployment, prompt);
  return step / batch / (prefillPhase(deployment, prompt, 0, 1).seconds / prompt);
}
// Price of one request in steady state, in the currency of `pricePerHour`, that of a device for a busy hour.
export function priceOfRequest(deployment, request, batch, pricePerHour) {
  requestOf(request);
  check("price_of_request", { batch: [BATCH, batch], price_per_hour: [rate("currency an hour"), pricePerHour] });
  return (steadyState(deployment, request, batch).secondsPerRequest * deployment.devices * pricePerHour) / 3600;
}

// ---- Levers

const HALF_CACHED = "half of each prompt in a prefix cache";
const onDeployment = (change) => (one) => ({ ...one, deployment: one.deployment.with(change(one.deployment)) });
const onAccelerator = (change) => onDeployment(({ accelerator: old }) => ({ accelerator: { ...old, ...change(old) } }));
const onRequest = (change) => (one) => ({ ...one, request: { ...one.request, ...change(one.request) } });
const quantised = (parts) => onDeployment(({ precision }) => ({ precision: precision.with(parts) }));

// What one may do, in words to a change of {deployment, request, batch}; not what is there already.
export function usualLevers(deployment, request) {
  const { model, accelerator, precision, devices } = deployment;
  const wide = Math.max(precision.bytesOf("blocks"), precision.bytesOf("experts")) > 1;
  const halfOf = ({ prompt }) => ({ cached: Math.min(Math.floor(0.5 * prompt), prompt - 1) });
  const found = {
    "twice the FLOP/s": onAccelerator(({ peaks }) => ({ peaks: mapped(peaks, (peak) => 2 * peak) })),
    "twice the bandwidth": onAccelerator(({ bandwidth }) => ({ bandwidth: 2 * bandwidth })),
    "twice the memory": onAccelerator(({ memory }) => ({ memory: 2 * memory })),
    "half the thought: answers half as long": onRequest(({ output }) => ({ output: Math.ceil(0.5 * output) })),
    "W8A8: weights and activations in fp8": wide && "fp8" in accelerator.peaks && quantised({ blocks: "fp8", experts: "fp8" }),
    "4-bit weights (head stays)": wide && quantised({ blocks: "int4", experts: "int4" }),
    "fp8 cache": precision.bytesOf("cache") > 1 && quantised({ cache: "fp8" }),
    [HALF_CACHED]: !request.cached && onRequest(halfOf),
    ...mapped(model.others, (numbers) => onDeployment(() => ({ model: { ...model, ...numbers } }))),
    ...mapped(model.drafts, ({ draft_tokens: draftTokens, ...drafting }) =>
      !deployment.speculation && onDeployment(() => ({ speculation: { draftTokens, ...drafting } }))),
  };
  for (const layout of accelerator.link === null ? [] : model.experts.length ? ["tensor", "expert"] : ["tensor"]) {
    found[`twice the devices, ${layout} parallel`] = onDeployment(() => ({ devices: 2 * devices, layout }));
  }
  return Object.fromEntries(Object.entries(found).filter(([, lever]) => lever));
}
// GPU seconds of one request when `batch` of them are always under way; whether they fit is not asked.
function price(deployment, { prompt, output, cached }, batch) {
  const words = "price: the deployment has a prefill_chunk; take one without: prompts are taken whole.";
  if (deployment.prefillChunk !== null) refuse(words);
  const prompts = Math.min(batch, deployment.sizes.replicas);
  const decode = decodePhase(deployment, prompt, output, batch).seconds / batch;
  return { seconds: prefillPhase(deployment, prompt, cached, prompts).seconds / prompts + decode, decode };
}
// The two prices of a case: at its batch, and at its own memory batch.
function bothPrices({ deployment, request, batch }) {
  const [held, each] = [price(deployment, request, batch), deployment.sequenceBytes(pages(request, 1))];
  if (!each) refuse(`memory_batch: ${deployment.model.name} keeps neither cache nor state; any number fits`);
  const limit = Math.floor(Math.min(deployment.memoryFree / each, MOST_TOKENS));
  if (limit < 1) requireFit(deployment, request.prompt + request.output);
  return [held, limit === batch ? held : price(deployment, request, Math.max(1, limit))];
}
function gains(start, reloadRates) {
  const before = bothPrices(start);
  const found = { "a prefill that takes no time": before.map(({ seconds, decode }) => (decode ? seconds / decode : Infinity)) };
  for (const [name, lever] of Object.entries(usualLevers(start.deployment, start.request))) {
    const refusals = ["DoesNotFitError", "InvalidInputError"]; // heads that do not divide, no room for one request
    const changed = unless(() => lever(start), refusals);
    const after = changed && unless(() => bothPrices(changed), refusals);
    if (!after) continue;
    const share = start.deployment.devices / changed.deployment.devices;
    found[name] = before.map((old, i) => (old.seconds / after[i].seconds) * share);
    for (const [link, bytes] of name === HALF_CACHED ? Object.entries(reloadRates) : []) {
      const { cached } = changed.request;
      const wait = cached ? start.deployment.sequenceBytes(cached) / bytes : 0;
      found[`${HALF_CACHED}, reloaded over ${link}`] = before.map((old, i) => old.seconds / (after[i].seconds + wait));
    }
  }
  return found;
}
// [{name, held, atLimit, typical, holds}], best first at the memory batch. `typical`: an efficiency to rank them at again.
export function rankLevers(deployment, request, batch, typical = null, reloadRates = {}) {
  check("rank_levers", { batch: [BATCH, batch] });
  const start = { deployment, request: requestOf(request), batch };
  const order = (of) => Object.keys(of).sort((one, other) =>
    of[other][1] - of[one][1] || of[other][0] - of[one][0] || (one < other ? -1 : 1));
  const found = gains(start, reloadRates);
  const again = typical && gains({ ...start, deployment: deployment.with({ efficiency: typical }) }, reloadRates);
  const second = typical && order(again);
  return order(found).map((name, place) => {
    const [held, atLimit] = found[name];
    return { name, held, atLimit, typical: typical && again[name][1], holds: typical && second[place] === name };
  });
}

// ---- A server over time: requests join and leave a running batch at any step, and their caches share one memory

const SERVING = { block: 16, watermark: 0.01, maxBatch: null, horizon: null };

// What `simulate` refuses of its options, and of requests that do not fit even alone.
function requireServable(deployment, requests, start, { block, watermark, maxBatch, horizon }, heldBytes) {
  check("simulate", {
    block: [whole(1, 65_536, "a whole number from 1 to 65,536"), block],
    watermark: [{ expected: "a fraction from 0 to 1", takes: within(0, 1) }, watermark],
    max_batch: [optional(COUNT), maxBatch], horizon: [optional(SECONDS), horizon],
  });
  const { sizes, layout, maxPositions: limit, model } = deployment;
  const several = "a queue before several devices is not modelled: take 'tensor', or policy.steady_state";
  if (sizes.replicas > 1) throw wrong("simulate", "layout", layout, "'tensor'", several);
  if (deployment.speculation) refuse("simulate: a step here emits one token; take a deployment without drafts.");
  const after = `it after the first arrival, ${asFloat(start).said.replace(/^\d+/, grouped)} s`;
  if (horizon !== null && horizon <= start) throw wrong("simulate", "horizon", asFloat(horizon), after);
  const held = requests.map(({ prompt, output }) => prompt + output - 1);
  const [long, capacity] = [held.findIndex((tokens) => limit !== null && tokens >= limit), Math.floor(deployment.memoryFree)];
  if (long >= 0) {
    const { prompt, output } = requests[long];
    const both = `prompt ${commas(prompt)} + output ${commas(output)} = ${commas(held[long] + 1)} tokens`;
    const most = `${model.name} has ${commas(limit)} positions; shorten it or leave it out`;
    refuse(`simulate: request ${long} has ${both}, but ${most}.`);
  }
  const large = held.findIndex((tokens) => heldBytes(tokens) > capacity);
  if (large < 0) return;
  try {
    requireFit(deployment, held[large]);
  } catch (error) {
    refuse(`simulate: request ${large} by itself: ${error.message}`, error.kind);
  }
  const taken = `takes ${formatBytes(heldBytes(held[large]))} in blocks for its ${commas(held[large])} tokens`;
  const there = `the cache has ${formatBytes(capacity)}; take a smaller block, shorten it or leave it out`;
  refuse(`simulate: request ${large} ${taken}, but ${there}.`, "DoesNotFitError");
}

// Continuous batching with paged memory, event by event, as the library's simulate with prefill="first": an admitted
// prompt has a pass of its own while decoding waits. `requests`: {prompt, output, cached} that arrive at `arrivals`
// seconds, sorted. Times of each request, GPU seconds by phase, occupancy at the start of each event and at the end.
export function timeline(deployment, requests, arrivals, options = {}) {
  const [set, all, { sizes, prefillChunk }] = [{ ...SERVING, ...options }, requests.map(requestOf), deployment];
  const [start, end, most] = [arrivals[0], set.horizon ?? Infinity, set.maxBatch ?? Infinity];
  const laws = new Map();
  for (const kind of sizes.kinds.filter((one) => one.cacheBytes)) {
    const law = kind.law.fillsAt ?? kind;
    laws.set(law, [...(laws.get(law) ?? []), kind]);
  }
  const blocks = [...laws.values()].map((kinds) => {
    const bytes = Math.ceil(total(kinds, (kind) => kind.cacheBytes) * set.block);
    return (tokens) => bytes * Math.ceil(kinds[0].law.held(tokens) / set.block);
  });
  const stateBytes = Math.ceil(total(sizes.kinds, (kind) => kind.stateBytes));
  const heldBytes = (tokens) => stateBytes + total(blocks, (held) => held(tokens));
  requireServable(deployment, all, start, set, heldBytes);
  const capacity = Math.floor(deployment.memoryFree);
  const reserve = Math.ceil(set.watermark * capacity);

  const secondsOf = (works) => total(works, (one) => underRoof(deployment, one).seconds);
  const [growing, states] = [true, false].map((grows) => sizes.kinds.filter((kind) => grows === kind.cacheBytes > 0));
  const stateSeconds = secondsOf(states.map((kind) => attentionWork(kind, 1, 0, 1)));
  const sums = [0]; // [tokens]: seconds of one sequence's attention in all steps that find fewer tokens cached
  function attentionUpTo(tokens) {
    for (let c = sums.length - 1; c < tokens; c += 1) {
      sums.push(sums[c] + secondsOf(growing.flatMap((kind) => attentionOfSteps(kind, c, 1, 1))));
    }
    return sums[tokens];
  }
  const shared = new Map();
  function sharedSeconds(sequences) {
    const step = shared.get(sequences) ?? passOf(deployment, sequences);
    shared.set(sequences, step);
    return step.linear.seconds + step.communication + step.overhead + sequences * stateSeconds;
  }

  let [time, arrived, holding, finished, free, outputTokens, recomputedTokens] = [start, 0, 0, 0, capacity, 0, 0];
  let [requestSeconds, peakRunning, peakCacheBytes, events] = [0, 0, 0, 0];
  const seconds = { prefill: 0, recompute: 0, decode: 0, idle: 0 };
  const occupancy = { time: [], running: [], waiting: [], cacheBytes: [] };
  const [admitted, firstToken, finish] = [0, 1, 2].map(() => all.map(() => NaN));
  const [preemptions, tokens] = [all.map(() => 0), all.map((one) => one.prompt)]; // tokens: held, or to prefill
  const [queue, prefilling, running] = [[], new Map(), new Map()]; // tokens prefilled so far; steps that are left
  const nextArrival = () => arrivals[arrived] ?? Infinity;
  const stepsOf = (steps, of) => total([...running.keys()], (i) => of(tokens[i] + steps) - of(tokens[i]));
  function take(bytes) {
    free -= bytes;
    peakCacheBytes = Math.max(peakCacheBytes, capacity - free);
  }
  function arrive() {
    for (; nextArrival() <= time; arrived += 1) {
      requestSeconds += time - arrivals[arrived];
      queue.push(arrived);
    }
  }
  // Memory for the first of the queue, all but a watermark; an empty server keeps none.
  function admit() {
    const needed = heldBytes(tokens[queue[0]]);
    if (prefilling.size || holding >= most || needed > free - (holding ? reserve : 0)) return;
    const i = queue.shift();
    take(needed);
    prefilling.set(i, all[i].cached);
    if (!preemptions[i]) admitted[i] = time;
    holding += 1;
    peakRunning = Math.max(peakRunning, holding);
  }
  function leave(i) {
    prefilling.delete(i);
    running.delete(i);
    free += heldBytes(tokens[i]);
    holding -= 1;
  }
  function last(i) {
    leave(i);
    finish[i] = time;
    finished += 1;
  }
  // The request that was admitted last gives up its memory, and waits again, first of all: prompt and tokens so far.
  function preempt() {
    const i = [...running.keys()].at(-1);
    leave(i);
    tokens[i] += 1; // the last one is not yet in the cache
    queue.unshift(i);
    preemptions[i] += 1;
  }
  function advance(passed, phase) {
    const now = { time, running: holding, waiting: queue.length, cacheBytes: capacity - free };
    for (const name of Object.keys(occupancy)) occupancy[name].push(now[name]);
    requestSeconds += (holding + queue.length) * passed;
    seconds[phase] += passed;
    time += passed;
  }
  // A pass over a prompt, or a chunk of it; after the last one the request has a token more, and decodes if it wants others.
  function promptPass() {
    const [[i, cached]] = prefilling;
    const [n, isLast] = [Math.min(prefillChunk ?? Infinity, tokens[i] - cached), tokens[i] - cached <= (prefillChunk ?? Infinity)];
    const linear = phaseOf(deployment, [{ sizes, works: linearWork(sizes, n, Number(isLast)), tokens: n, number: 1 }]);
    const passed = secondsOf(sizes.kinds.map((kind) => attentionWork(kind, n, cached, 1))) + linear.seconds;
    recomputedTokens += preemptions[i] ? n : 0;
    advance(passed, preemptions[i] ? "recompute" : "prefill");
    prefilling.set(i, cached + n);
    if (!isLast) return;
    prefilling.delete(i);
    const emitted = tokens[i] - all[i].prompt + 1;
    outputTokens += 1;
    if (emitted === 1) firstToken[i] = time;
    running.set(i, all[i].output - emitted);
    if (emitted === all[i].output) last(i);
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
    take(taken);
    outputTokens += steps * running.size;
    for (const [i, left] of [...running]) {
      tokens[i] += steps;
      running.set(i, left - steps);
      if (left === steps) last(i);
    }
  }
  for (; finished < all.length && time < end; events += 1) {
    arrive();
    if (queue.length) admit();
    const until = Math.min(nextArrival(), end);
    if (prefilling.size) promptPass();
    else if (holding) decode(!queue.length && holding < most ? until : end);
    else {
      advance(until - time, "idle");
      time = until; // a rounding may not put it before the arrival
    }
  }
  arrive();
  advance(0, "idle");
  return {
    arrivals, admitted, firstToken, finish, preemptions, seconds, occupancy, start, end: time, events, outputTokens,
    recomputedTokens, requestSeconds, peakRunning, peakCacheBytes, cacheBytesAvailable: capacity,
    ended: finished === all.length ? "every request finished" : "the horizon was reached",
  };
}
