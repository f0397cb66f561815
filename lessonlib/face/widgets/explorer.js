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
  if (typeof value !== "number") throw wrong("format", "value", value, "a number that a float holds");
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
function wrong(owner, name, value, expected, remedy = "", kind = undefined) {
  const [said, letters] = [repr(value), [...repr(value)]];
  const shown = letters.length > 80 ? `${letters.slice(0, 60).join("")}... (${letters.length} characters)` : said;
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
const rule = (expected, takes, kind) => ({ expected, takes, kind });
const whole = (expected, least = 1, most = MOST_TOKENS) =>
  rule(expected, (value) => Number.isInteger(value) && least <= value && value <= most);
const optional = ({ expected, takes, kind }) =>
  rule(`${expected}, or None`, (value) => value == null || takes(value), kind);
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
const REACHED = rule("a fraction from 1e-09 to 1", within(1e-9, 1));
const DELAY = rule("a number of seconds from 0 to 1e+09", within(0, 1e9));
const BYTES_A_SECOND = rule("a number of byte/s from 1 to 1e+30", within(1, 1e30));
// Refused where a value, in the order given, does not follow its rule: {name: [rule, value]}.
function check(owner, values) {
  for (const [name, [{ expected, takes, kind }, value]] of Object.entries(values)) {
    if (!takes(value)) throw wrong(owner, name, value, expected, "", kind);
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

// ---- Precision: a dtype for each part

const UNQUANTISED = ["fp32", "fp16", "bf16"];
const MULTIPLIED_IN = { fp8: "fp8", nvfp4: "fp4" };
const OTHER_16_BITS = { bf16: "fp16", fp16: "bf16" };
const PARTS = ["experts", "head", "embedding", "other", "cache", "index", "state", "dispatch"];
const bitsSaid = (dtype) => (/^[\d.]+(e[-+]?\d+)? bits$/.test(dtype) ? Number(dtype.slice(0, -5)) : NaN);

// `parts`: dtypes by part, the keywords of the library's Precision; `bits`: of each dtype that has a name.
class Precision {
  constructor(parts, bits) {
    const { blocks = "bf16", compute = null } = parts;
    const isDtype = (value) => typeof value === "string" && (own(bits, value) || within(0.1, 64)(bitsSaid(value)));
    const words = `a dtype, one of ${Object.keys(bits).join(", ")}, or such as '4.25 bits'`;
    const dtype = rule(words, isDtype, "UnknownNameError");
    const name = rule("a text, such as 'bf16'", (value) => typeof value === "string" && value !== "");
    const others = Object.fromEntries(PARTS.map((part) => [part, [optional(dtype), parts[part]]]));
    check("Precision", { blocks: [dtype, blocks], ...others, compute: [optional(name), compute] });
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
    if (this.compute !== null || peaks[MULTIPLIED_IN[stored]]) return this.compute ?? MULTIPLIED_IN[stored];
    const plain = UNQUANTISED.includes(stored) ? stored : this.plain;
    return peaks[OTHER_16_BITS[plain]] && !peaks[plain] ? OTHER_16_BITS[plain] : plain;
  }
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
function collectivesOf(model, { sentBytes, dispatchedBytes }, devices, layout) {
  if (devices === 1) return [0, 0];
  const each = (2 * (devices - 1) * model.width * sentBytes) / devices;
  if (layout === "tensor") return [model.reduces, model.reduces * each];
  const bytes = total(model.experts, ({ layers, routed_width: width, experts, picked }) => {
    let none = 1; // the chance that a device, with experts / devices of them, holds none of those picked
    for (let i = 0; i < picked; i += 1) none *= Math.max(0, experts - experts / devices - i) / (experts - i);
    return layers * width * ((devices - 1) * (1 - none)) * (dispatchedBytes + sentBytes);
  });
  return [total(model.experts, ({ layers }) => 2 * layers), bytes];
}
// All layers of one kernel: FLOPs and bytes of one sequence.
function layerKind(kernel, precision, split) {
  const { layers, label, cache_part: part = "cache", fresh_pair_flops: fresh } = kernel;
  const [of, copies] = [(name) => kernel[name] ?? 0, layers * (kernel.copied_whole ? split : 1)];
  const cache = layers * of("cache_elements") * cacheCopies(kernel, split);
  const state = precision.stateBytes(kernel.state_dtype) * of("state_elements");
  return {
    part: `${layers} x ${label}`, label, layers, law: lawOf(kernel.law), pairFlops: copies * of("pair_flops"),
    freshPairFlops: copies * (fresh ?? of("pair_flops")), expandFlops: copies * of("expand_flops"),
    tokenFlops: copies * of("token_flops"), cacheBytes: cache * precision.bytesOf(part),
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
  const [collectives, collectiveBytes] = collectivesOf(model, precision, devices, layout);
  return {
    tokenFlops: 2 * (model.block_matmul_weights - picked + copied + routers), expertFlops: 2 * picked,
    logitFlops: 2 * weights.head, blockBytes: blocks + replicas * more, headBytes,
    replicas, collectives, collectiveBytes, kinds: model.kernels.map((kernel) => layerKind(kernel, precision, split)),
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
  const [tokenFlops, blockBytes] = [sizes.tokenFlops + 2 * projection, sizes.blockBytes + bytes];
  const residentBytes = sizes.residentBytes + bytes - (shared ? sizes.headBytes : 0);
  return { ...sizes, tokenFlops, blockBytes, residentBytes };
}

// ---- Work of passes, and its time under the roofline

const NOTHING = { weights: 0, cacheRead: 0, cacheWrite: 0, state: 0, times: 1 };
const work = (part, kernel, flops, more) => ({ part, kernel, flops, ...NOTHING, ...more });

// Dense linear layers, routed experts, LM head. `fullest`: tokens of the fullest device over their mean.
function linearWork(sizes, tokens, logits, times = 1, fullest = 1) {
  const streamed = total(sizes.experts, ({ bytes, logIdle }) => -bytes * Math.expm1(tokens * logIdle));
  const one = { weights: sizes.blockBytes, times };
  const dense = work("linear layers", "blocks", sizes.tokenFlops * tokens * fullest, one);
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

const SUMS = ["flops", "weights", "cacheRead", "cacheWrite", "state", "computeSeconds", "memorySeconds", "seconds"];
const DONE = new Set(["flops", "cacheRead", "cacheWrite", "state"]); // less where devices less full wait
const bytesOf = (one) => one.weights + one.cacheRead + one.cacheWrite + one.state;

// The seconds of a work under its roof, each time that it runs; they are put into it, too.
function underRoof({ peaks, bandwidth, efficiency }, one) {
  [one.computeSeconds, one.memorySeconds] = [one.flops / peaks[one.kernel], bytesOf(one) / bandwidth];
  const { computeSeconds: compute, memorySeconds: memory } = one;
  return (one.seconds = efficiency.overlap ? Math.max(compute, memory) : compute + memory);
}
// Works, each under its roof, or whole roofs, added up; `bound`: what binds, "both" where they differ.
class Roof {
  constructor(kernel = "") {
    Object.assign(this, { kernel, bounds: new Set() });
    for (const name of SUMS) this[name] = 0;
  }
  add(one, times = 1, done = 1) {
    for (const name of SUMS) this[name] += one[name] * (DONE.has(name) ? times * done : times);
    const bounds = one.bounds ?? [one.computeSeconds > one.memorySeconds ? "compute" : "memory"];
    if (one.seconds * times) for (const bound of bounds) this.bounds.add(bound);
  }
  get bytes() { return bytesOf(this); }
  get intensity() { return ratio(this.flops, this.bytes); }
  get bound() { return this.bounds.size > 1 ? "both" : ([...this.bounds][0] ?? "nothing"); }
}
// Passes on a deployment, one after another: bytes and FLOPs of all devices, seconds of the group; `roofs` by part.
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
  get roofs() {
    if (this.found) return this.found;
    this.found = {};
    for (const { works, done } of this.runs) {
      for (const one of works) {
        const roof = (this.found[one.part] ??= new Roof(one.kernel));
        roof.add(one, one.times, one.kernel === "experts" ? 1 : done);
      }
    }
    return this.found;
  }
  sum(of) {
    const found = new Roof();
    for (const roof of Object.values(this.roofs)) if (of(roof.kernel)) found.add(roof);
    return found;
  }
  get linear() { return this.sum((kernel) => kernel !== "attention"); }
  get attention() { return this.sum((kernel) => kernel === "attention"); }
  get flops() { return this.sum(() => true).flops; }
  get bytes() { return this.sum(() => true).bytes; }
}

// ---- Deployment: a model on devices, and what their memory holds

const EFFICIENCY = {
  mfu: REACHED, mbu: REACHED, overhead: DELAY, overlap: FLAG,
  all_reduce_latency: DELAY, all_to_all_latency: DELAY,
};
const GIVEN = { devices: 1, layout: "tensor", link: null, memoryFraction: 0.9, speculation: null };
const MOST_DEVICES = 1024; // of one group that a remedy may name

// As the library's Deployment. `given`: model, accelerator, precision, efficiency, and what of GIVEN differs.
class Deployment {
  constructor(given) {
    Object.assign(this, GIVEN, given, { given });
    const { model, accelerator, devices, layout, link, memoryFraction, precision, efficiency, speculation } = this;
    const [layouts, bandwidth] = [choice(Object.keys(LAYOUTS)), optional(BYTES_A_SECOND)];
    check("Deployment", { devices: [COUNT, devices], layout: [layouts, layout], link: [bandwidth, link] });
    check("Deployment", { memory_fraction: [FRACTION, memoryFraction] });
    const [name, { peaks }] = [repr(accelerator.name), accelerator];
    const unlinked = `has no link figure, so what ${BigInt(devices)} devices send cannot be timed`;
    this.collectiveLatency = efficiency[layout === "tensor" ? "all_reduce_latency" : "all_to_all_latency"];
    this.linkRate = link ?? accelerator.link;
    if (devices > 1 && this.linkRate === null) {
      refuse(`Deployment: ${name} ${unlinked}; give link= in byte/s one way, or take devices=1.`);
    }
    this.peaks = mapped({ blocks: 0, experts: 0, head: 0, attention: 0 }, (_, kernel) => {
      const dtype = precision.operand(kernel, peaks);
      const known = `it has ${Object.keys(peaks).join(", ")}. Choose one of these to compute in.`;
      const missing = () => refuse(`Accelerator ${name} has no ${dtype} peak; ${known}`, "UnknownNameError");
      return devices * efficiency.mfu * (own(peaks, dtype) ?? missing());
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
    const held = ({ kinds }) => total(kinds, (kind) => kindBytes(kind, tokens));
    return held(this.sizes) + (this.draftSizes ? held(this.draftSizes) : 0);
  }
  memoryNeeded(tokens, batch = 1) { return this.weightBytes + seats(this.sizes, batch) * this.sequenceBytes(tokens); }
  fits(tokens, batch = 1) { return this.memoryNeeded(tokens, batch) <= this.memoryAvailable; }
}
// The deployment of settings: names of the data's lists, or objects of the same form in their place.
export function deploymentOf(data, settings) {
  const { precision = "bf16", efficiency = "floor" } = settings;
  const find = (list, kind) => (typeof settings[kind] === "object" && settings[kind])
    || list.find((one) => one.name === settings[kind])
    || refuse(`Unknown ${kind} ${repr(settings[kind])}: expected one of the ${list.length} here.`, "UnknownNameError");
  const set = { model: find(data.models, "model"), accelerator: find(data.accelerators, "accelerator") };
  const parts = typeof precision === "object" && precision !== null ? precision : { blocks: precision };
  set.precision = new Precision(own(data.precisions, precision) ?? parts, data.bits);
  const { efficiencies, no_efficiencies: none = `Unknown efficiency ${repr(efficiency)}.` } = set.accelerator;
  const known = { ...data.efficiencies, ...efficiencies };
  const numbers = typeof efficiency === "object" ? efficiency : own(known, efficiency);
  set.efficiency = { ...data.efficiencies.floor, ...(numbers ?? refuse(none)) };
  check("Efficiency", mapped(EFFICIENCY, (one, name) => [one, set.efficiency[name]]));
  for (const name of Object.keys(GIVEN)) if (settings[name] !== undefined) set[name] = settings[name];
  return new Deployment(set);
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
const [FP8, INT4] = ["fp8", "int4"].map((dtype) => ({ blocks: dtype, experts: dtype }));
const SMALLER = [["an fp8 cache", { cache: "fp8" }], ["fp8 weights", FP8], ["int4 weights", INT4]];
SMALLER.push(["int4 weights and an fp8 cache", { ...INT4, cache: "fp8" }]);
// The smallest change of each kind that fits: batch, precision, devices.
function remedies(d, tokens, batch) {
  const [largest, stored] = [largestBatch(d, tokens), (parts) => d.with({ precision: d.precision.with(parts) })];
  const [dtypes] = SMALLER.find(([, parts]) => stored(parts).fits(tokens, batch)) ?? [];
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

// ---- Requests. d: a deployment, r: {prompt, output, cached}.

export function requestOf({ prompt, output, cached = 0 }) {
  check("Request", { prompt: [TOKENS, prompt], output: [TOKENS, output], cached: [CACHED, cached] });
  if (cached < prompt) return { prompt, output, cached };
  const most = "at least one prompt token must be computed, so expected at most prompt - 1";
  return refuse(`Request: cached is ${commas(cached)} but the prompt has ${commas(prompt)} tokens; ${most}.`);
}
const named = (what, run) => ({ ...run, works: run.works.map((one) => ({ ...one, part: `${what}: ${one.part}` })) });
// The prompts of a batch, in one pass, or one on each device with sequences of its own; a draft prefills them likewise.
function prefillPhase(d, prompt, cached, batch) {
  const [{ sizes, draftSizes }, n] = [d, prompt - cached];
  const drafting = (...of) => (draftSizes ? [named("drafting", equalPasses(draftSizes, n, cached, ...of))] : []);
  const passes = (...of) => [equalPasses(sizes, n, cached, ...of), ...drafting(...of)];
  if (sizes.replicas === 1) return new Phase(d, passes(batch, 1, 1));
  const [full, rest] = [Math.floor(batch / sizes.replicas), batch % sizes.replicas];
  const last = passes(Math.max(rest, 1), 1, Math.min(rest, 1));
  return new Phase(d, [...passes(sizes.replicas, 1, full), ...last]);
}
// The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them.
function decodePhase(d, prompt, output, batch) {
  const { sizes, speculation, draftSizes } = d;
  if (!speculation) return new Phase(d, [decodeSteps(sizes, prompt, output - 1, batch)]);
  const [{ draftTokens: drafts, acceptance }, context] = [speculation, prompt + (output - 2) / 2];
  const tokens = -Math.expm1((drafts + 1) * Math.log1p(acceptance - 1)) / (1 - acceptance); // of a round
  const rounds = (output - 1) / tokens;
  const verifying = named("verifying", equalPasses(sizes, drafts + 1, context, batch, drafts + 1, rounds));
  const drafting = named("drafting", equalPasses(draftSizes, 1, context, batch, 1, rounds * drafts));
  return new Phase(d, [verifying, drafting]);
}
// Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep: both clocks, both phases.
export function requestCost(d, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
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
    get bytes() { return prefill.bytes + decode.bytes; },
  };
}

// ---- A full server: requests that come and go

const middle = ({ prompt, output }) => prompt + Math.floor((output + 1) / 2); // tokens held in the middle of the answer

// How many identical requests are under way at a time when memory is full on average; 0 when not even one fits.
export const memoryBatch = (d, r) => largestBatch(d, middle(requestOf(r)));
function fullBatch(d, r) {
  const found = memoryBatch(d, r);
  if (!found) requireFit(d, r.prompt + r.output);
  return Math.max(1, found);
}
// `batch` identical requests in steady state, null: the memory batch. Seconds of the GPU clock.
export function steadyState(d, request, batch = null, mixed = false) {
  const { prompt, output, cached } = requestOf(request);
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
function mixedPass(d, request, batch) {
  const [{ prompt, output, cached }, { sizes, speculation }] = [requestOf(request), d];
  const [steps, n] = [output - 1, prompt - cached];
  if (!steps) refuse("mixed_pass: the request has one output token; it has no decode step to ride on.");
  if (speculation) refuse("mixed_pass: a mixed pass has one token a sequence; take no drafts.");
  const [begun, tokens] = [batch / steps, batch + (batch / steps) * n];
  const attention = sizes.kinds.map((kind) => attentionWork(kind, n, cached, 1, begun));
  const works = [...linearWork(sizes, tokens, batch + begun), ...attention];
  const together = new Phase(d, [{ sizes, works, tokens: tokens / sizes.replicas, number: 1 }]);
  return together.seconds + decodePhase(d, prompt, output, batch).attention.seconds / steps;
}
// The largest batch of identical requests whose TPOT is at most `tpot`: {batch, binds, state}.
export function atLatency(d, request, tpot = 0.03, mixed = false) {
  const { output } = requestOf(request);
  check("at_latency", { tpot: [rate("seconds a token"), tpot], mixed: [FLAG, mixed] });
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
export const ridgeTokens = (d) => ((d.peaks.blocks / d.bandwidth) * d.precision.bytesOf("blocks")) / 2;
// Block weights that one token uses over those that a decode step at `batch` reads.
function usedOverRead({ model: { experts, block_matmul_weights: used }, sizes }, batch = 1) {
  const distinct = experts.map((ffn, i) => -ffn.experts * Math.expm1(batch * sizes.experts[i].logIdle));
  const idle = experts.map((ffn, i) => ffn.layers * ffn.weights * (distinct[i] - ffn.picked));
  return used / (used + total(idle, (weights) => weights));
}
// About prefill time over decode time at `batch`: decode heavy is much below 1.
export function rho(d, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
  check("rho", { batch: [TOKENS, batch] });
  return ((prompt - cached) / output) * Math.min((batch * usedOverRead(d, batch)) / ridgeTokens(d), 1);
}
// Time to read caches over time to compute the linear layers at peak, whatever the batch and the memory.
export function chi(d, request) {
  const [{ prompt, output, cached }, { kinds, replicas }] = [requestOf(request), d.sizes];
  const each = total(kinds, (kind) => kind.cacheBytes * (kind.law.read(prompt + output / 2 - 1, 1) + 1));
  const computing = ((prompt - cached + output) * passOf(d, replicas).linear.computeSeconds) / replicas;
  return (output * each) / d.bandwidth / computing;
}
// The batch at which the linear layers of passes that mix prefill in turn compute bound.
export function roofBatch(d, request) {
  const { prompt, output, cached } = requestOf(request);
  return ridgeTokens(d) / usedOverRead(d, MOST_TOKENS) / (1 + (prompt - cached) / output);
}
// Roof batch over memory batch: above 1, memory is full before the linear layers are busy.
export function omega(d, request) {
  const [{ prompt, output }, none] = [requestOf(request), "keeps no growing cache, so omega says nothing about it"];
  if (d.memoryFree <= 0) requireFit(d, 1);
  if (!d.cacheBytesPerToken) refuse(`omega: ${d.model.name} ${none}.`);
  return (roofBatch(d, request) * d.sequenceBytes(prompt + output / 2)) / d.memoryFree;
}

// ---- The cache over an answer

// [{label, layers, bytes}] by kind of layer: what one sequence of `tokens` tokens holds.
export const cacheByKind = ({ sizes }, tokens) =>
  sizes.kinds.map((kind) => ({ label: kind.label, layers: kind.layers, bytes: kindBytes(kind, tokens) }));
// The step that emits output token `position` + 1: {linear, neighbours, own, other, seconds}.
export function stepParts(d, request, position, batch = 1, together = false) {
  const [{ prompt, output }, { sizes }] = [requestOf(request), d];
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
// Cache reads of all decode steps: as they are, as if the cache never grew, or had its final size all along.
export function answerTraffic(d, request, batch = 1) {
  const { prompt, output } = requestOf(request);
  check("answer_traffic", { batch: [BATCH, batch] });
  const triangle = requestCost(d, request, batch).decode.attention.cacheRead;
  const reads = (c) => total(d.sizes.kinds, (kind) => attentionWork(kind, 1, c, batch).cacheRead);
  const [flat, end] = [prompt, prompt + output - 2].map((c) => (output > 1 ? (output - 1) * reads(c) : 0));
  return { triangle, flat, end };
}

// ---- What a faster prefill buys, and what tokens cost

const DURATION = rule("a number of at least 0, or an array of them", within(0, LARGEST));
const TIMES = rule("a number above 0, or an array of them", within(SMALLEST, Infinity));
// Amdahl's law: time before over time after a prefill k times faster.
export function fasterPrefill(prefill, decode, k) {
  check("faster_prefill", { prefill_seconds: [DURATION, prefill], decode_seconds: [DURATION, decode], k: [TIMES, k] });
  const expected = "one time above 0, as decode_seconds is 0 too";
  if (!prefill && !decode) throw wrong("faster_prefill", "prefill_seconds", asFloat(0), expected);
  return (prefill + decode) / (prefill / k + decode);
}
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
  requestOf(request);
  check("output_token_in_prompt_tokens", { batch: [BATCH, batch], prompt: [BATCH, prompt] });
  return steadyState(d, request, batch).step / batch / (prefillPhase(d, prompt, 0, 1).seconds / prompt);
}
// Price of one request in steady state, in the currency of `hourly`, the price of a device for a busy hour.
export function priceOfRequest(d, request, batch, hourly) {
  requestOf(request);
  check("price_of_request", { batch: [BATCH, batch], price_per_hour: [rate("currency an hour"), hourly] });
  return (steadyState(d, request, batch).secondsPerRequest * d.devices * hourly) / 3600;
}

// ---- Levers: changes of a case, {d, r, batch}

const onDeployment = (change) => (one) => ({ ...one, d: one.d.with(change(one.d)) });
const onAccelerator = (change) => onDeployment(({ accelerator: old }) => ({ accelerator: { ...old, ...change(old) } }));
const onRequest = (change) => (one) => ({ ...one, r: { ...one.r, ...change(one.r) } });
const quantised = (parts) => onDeployment(({ precision }) => ({ precision: precision.with(parts) }));

// What one may do, in words to a change; not what is there already.
function usualLevers({ model, accelerator, precision, devices, speculation }, r) {
  const wide = Math.max(precision.bytesOf("blocks"), precision.bytesOf("experts")) > 1;
  const layouts = accelerator.link === null ? [] : model.experts.length ? ["tensor", "expert"] : ["tensor"];
  const spread = (layout) => onDeployment(() => ({ devices: 2 * devices, layout }));
  const found = {
    "twice the FLOP/s": onAccelerator(({ peaks }) => ({ peaks: mapped(peaks, (peak) => 2 * peak) })),
    "twice the bandwidth": onAccelerator(({ bandwidth }) => ({ bandwidth: 2 * bandwidth })),
    "twice the memory": onAccelerator(({ memory }) => ({ memory: 2 * memory })),
    "half the thought: answers half as long": onRequest(({ output }) => ({ output: Math.ceil(output / 2) })),
    "W8A8: weights and activations in fp8": wide && accelerator.peaks.fp8 && quantised(FP8),
    "4-bit weights (head stays)": wide && quantised(INT4),
    "fp8 cache": precision.bytesOf("cache") > 1 && quantised({ cache: "fp8" }),
    "half of each prompt in a prefix cache": !r.cached &&
      onRequest(({ prompt }) => ({ cached: Math.floor(prompt / 2) })),
    ...mapped(model.others, (numbers) => onDeployment(() => ({ model: { ...model, ...numbers } }))),
    ...mapped(speculation ? {} : model.drafts, ({ draft_tokens: draftTokens, acceptance, draft }) =>
      onDeployment(() => ({ speculation: { draftTokens, acceptance, draft } }))),
    ...Object.fromEntries(layouts.map((layout) => [`twice the devices, ${layout} parallel`, spread(layout)])),
  };
  return Object.fromEntries(Object.entries(found).filter(([, lever]) => lever));
}
// Prices of one request when many are always under way: at the batch of the case, and at its own memory batch.
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
function gains(start) {
  const refusals = ["DoesNotFitError", "InvalidInputError"]; // heads that do not divide, no room for one request
  const [before, { d, r }] = [bothPrices(start), start];
  const free = before.map((old) => (old.decode ? old.seconds / old.decode : Infinity));
  const found = { "a prefill that takes no time": free };
  for (const [name, lever] of Object.entries(usualLevers(d, r))) {
    const changed = unless(() => lever(start), refusals);
    const after = changed && unless(() => bothPrices(changed), refusals);
    if (!after) continue;
    const share = d.devices / changed.d.devices;
    found[name] = before.map((old, i) => (old.seconds / after[i].seconds) * share);
  }
  return found;
}
// [{name, held, atLimit}], best first at the memory batch.
export function rankLevers(d, request, batch) {
  const r = requestOf(request);
  check("rank_levers", { batch: [BATCH, batch] });
  return Object.entries(gains({ d, r, batch })).map(([name, [held, atLimit]]) => ({ name, held, atLimit }))
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
  const blockBytes = (tokens) => total(blocks, ({ bytes, held }) => bytes * Math.ceil(held(tokens) / block));
  const heldBytes = (tokens) => stateBytes + blockBytes(tokens);
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
  const [sums, shared, least] = [[0], new Map(), Math.min(...all.map(({ prompt }) => prompt))];
  function attentionUpTo(tokens) { // of one sequence, in all steps that find fewer cached, from the shortest prompt on
    for (let c = least + sums.length - 1; c < tokens; c += 1) {
      sums.push(sums.at(-1) + secondsOf(growing.flatMap((kind) => attentionOfSteps(kind, c, 1, 1))));
    }
    return sums[tokens - least];
  }
  function sharedSeconds(sequences) {
    const step = shared.get(sequences) ?? passOf(d, sequences);
    step.shared ??= step.linear.seconds + step.communication + step.overhead + sequences * stateSeconds;
    return shared.set(sequences, step).get(sequences).shared;
  }

  let [time, arrived, holding, finished, free, outputTokens, prefilling] = [start, 0, 0, 0, capacity, 0, null];
  const seconds = { prefill: 0, recompute: 0, decode: 0, idle: 0 };
  const occupancy = { time: [], running: [], waiting: [] };
  const [admitted, firstToken, finish] = [0, 1, 2].map(() => all.map(() => NaN));
  const [preemptions, tokens] = [all.map(() => 0), all.map((one) => one.prompt)]; // tokens: held, or to prefill
  const [queue, running] = [[], new Map()]; // running: steps that are left
  function stepsOf(steps, of) {
    let sum = 0;
    for (const i of running.keys()) sum += of(tokens[i] + steps) - of(tokens[i]);
    return sum;
  }
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
    if (!preemptions[i]) admitted[i] = time;
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
    [prefilling, outputTokens] = [null, outputTokens + 1];
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
    [free, outputTokens] = [free - taken, outputTokens + steps * running.size];
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
  const [ended, peakRunning] = [finished === all.length, occupancy.running.reduce((a, b) => Math.max(a, b))];
  return {
    arrivals, admitted, firstToken, finish, preemptions, seconds, occupancy, outputTokens, peakRunning,
    start, end: time, ended: ended ? "every request finished" : "the horizon was reached",
  };
}

// ---------------------------------------------------------------------------------------------------------------------
// 2. Views: from a setting to numbers and a picture, as strings. Each has the axes that its lesson needs.

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
  `<rect x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${px(height)}" class="${look}"/>`;
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
function panel({ left = 56, right, top = 26, bottom }, x, y) {
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
  // The area between two lists of points with the same places across.
  const area = (low, high, look) =>
    high.length > 1 ? path(`M${along([...high, ...[...low].reverse()])}Z`, `area ${look}`) : "";
  const upright = (at, look) => path(`M${px(across(at))} ${top}V${bottom}`, look);
  const mark = (at, said, row = 0) => {
    if (x.share(at) < 0 || x.share(at) > 1) return "";
    const [side, anchor] = x.share(at) > 0.5 ? [-5, "end"] : [5, ""];
    const words = text(across(at) + side, top + 13 + 16 * row, said, `${anchor} halo`);
    return upright(at, "boundary") + words;
  };
  const dot = (a, b, look = "here", size = 6) =>
    inside([a, b]) ? `<circle cx="${px(across(a))}" cy="${px(up(b))}" r="${size}" class="${look}"/>` : "";
  return { across, up, drawn, line, area, upright, mark, dot, inside, left, right, top, bottom };
}

function arrow({ prompt, output, cached }) {
  return `${commas(prompt)}${cached ? ` (${commas(prompt - cached)} new)` : ""} → ${commas(output)}`;
}
const whose = (s) => `${s.model} on ${s.devices > 1 ? `${s.devices} × ` : ""}${s.accelerator}`;

export const VIEWS = {};

// ---- 02: where the time of a request goes

const BARS = [
  ["prefill", "prefill"], ["weights", "decode: linear layers"], ["cache", "decode: attention"], ["other", "waits"],
];

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
  for (const [at, name] of [[batch, ""], [steadyState(d, r).batch, "full, "]]) {
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
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf(s)];
    const cost = requestCost(d, r, s.batch);
    const { linear } = cost.decode;
    const busy = linear.computeSeconds > linear.memorySeconds ? "compute" : "memory";
    const bars = sharesOf(d, r, s.batch);
    const full = steadyState(d, r);
    const says = ([, , parts]) => formatPercent(parts[0] / total(parts, (part) => part));
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
        ["full server: wait of a user", formatSeconds(full.wait)], ["time to first token", formatSeconds(cost.ttft)],
        ["time per output token, undisturbed", r.output > 1 ? formatSeconds(cost.tpot) : "no decode step"],
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
      const [y, sum] = [22 + 56 * i, total(parts, (part) => part)];
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
    const full = steadyState(d, r);
    const [about, over, reads] = [rho(d, r, s.batch), unless(() => omega(d, r)), chi(d, r)]; // without a cache no omega
    const { prefill, linear, attention } = state.parts;
    const [one, other] = ["memory is full", "the linear layers are busy"];
    const first = over > 1 ? `${one} before ${other}` : `${other} before ${one}`;
    const says = over === null ? "there is no omega, for no cache grows" : `omega ${general(over, 3)}: ${first}`;
    return {
      edge: over === null ? [] : edgeOfOmega(d),
      slope: rho(d, { prompt: 1, output: 1, cached: 0 }, s.batch) / RHO_OF_FIVE_PERCENT,
      batch: s.batch,
      dots: Object.values(data.presets).map(({ label, prompt, output, cached }) =>
        [label.split(", ").at(-1), prompt - cached, output, cached]),
      here: [r.prompt - r.cached, r.output],
      legend: [["boundary", "rho: prefill takes 5 %"], ["cache", "omega above 1: memory is full before the roof"]],
      said: `${arrow(r)} at batch ${commas(s.batch)}: rho ${general(about, 3)}, so prefill takes about ` +
        `${formatPercent(about / (1 + about), 2)}; ${says}`,
      numbers: [
        ["rho, the estimate", general(about, 3)],
        ["prefill / decode, exact", r.output > 1 ? general(prefill / (linear + attention), 3) : "no decode step"],
        ["prefill's share, exact", formatPercent(state.shares.prefill)],
        ["omega", over === null ? "-" : general(over, 3)],
        ["roof batch (estimate)", commas(Math.round(roofBatch(d, r)))], ["memory batch", commas(full.batch)],
        ["chi", general(reads, 3)],
        ["cache reads on a full server", formatPercent(full.shares.attention)],
      ],
    };
  },
  svg({ edge, slope, batch, dots, here, said }, width) {
    const x = axis("new prompt tokens", 1, PLANE.prompts, { log: true });
    const y = axis("output tokens", 1, PLANE.outputs, { log: true });
    const on = panel({ right: width - 12, bottom: 350 }, x, y);
    let drawn = on.area(edge, edge.map(([a]) => [a, PLANE.outputs]), "cache faint") + on.drawn;
    drawn += on.line(edge, "cache dashed");
    if (edge.length) drawn += text(on.left + 6, on.up(edge[0][1]) - 6, "omega = 1", "ink-cache");
    const [first, last] = [Math.max(1, 1 / slope), Math.min(PLANE.prompts, PLANE.outputs / slope)];
    if (first < last) {
      drawn += on.line([[first, first * slope], [last, last * slope]], "edge dashed");
      const at = first * (last / first) ** 0.17;
      const [x0, y0] = [on.across(at), on.up(at * slope)];
      const turn = (Math.atan2(on.up(2 * at * slope) - y0, on.across(2 * at) - x0) * 180) / Math.PI;
      const words = text(0, 16, `rho = 0.053 at batch ${commas(batch)}`, "middle halo");
      drawn += `<g transform="translate(${px(x0)} ${px(y0)}) rotate(${px(turn)})">${words}</g>`;
    }
    for (const [label, a, b, cached] of dots) {
      const [side, anchor] = cached ? [-9, "end"] : [9, ""];
      drawn += on.dot(a, b, "other-dot", 4) + text(on.across(a) + side, on.up(b) + 4, label, `quiet halo ${anchor}`);
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
    if (last < 2) refuse("The answer has fewer than two steps, so nothing grows; choose a longer output.");
    const at = (k, together) => ({ k, ...stepParts(d, r, k, s.batch, together) });
    const places = wholes(Array.from({ length: 33 }, (_, i) => 1 + ((last - 1) * i) / 32));
    const steady = places.map((k) => at(k, false));
    const together = unless(() => places.map((k) => at(k, true))); // their ends may not fit where their middles do
    const here = at(Math.min(s.position, last), false);
    const traffic = answerTraffic(d, r, s.batch);
    const passes = spanWhereCachePassesWeights(d, s.batch);
    const read = answerTraffic(d, { ...r, output: Math.min(s.position, last) + 1 }, s.batch).triangle;
    const whole = (d.memoryAvailable / d.bandwidth) * 1e3;
    const most = 1e3 * Math.max(...steady.map((p) => p.seconds), ...(together ?? []).map((p) => p.seconds));
    const ends = (steps) =>
      steps ? [steps[0], steps.at(-1)].map((p) => formatSeconds(p.seconds)) : ["-", "does not fit"];
    const [first, final] = ends(steady);
    const [firstTogether, finalTogether] = ends(together);
    return {
      steady, together, here, last, whole,
      top: roundUp(Math.max(1.05 * whole, most), FINE),
      legend: [["weights", "linear layers"], ["cache", "the neighbours' caches"], ["own", "its own cache"],
        ["boundary", "all started together"]],
      said: `${s.model}, batch ${commas(s.batch)}, token ${commas(here.k + 1)}: a step takes ` +
        `${formatSeconds(here.seconds)}, of which its own cache ${formatPercent(here.own / here.seconds, 2)}`,
      numbers: [
        ["first step, steady", first], ["last step, steady", final], ["first step, together", firstTogether],
        ["last step, together", finalTogether], ["this step: linear layers", formatSeconds(here.linear + here.other)],
        ["this step: the neighbours' caches", formatSeconds(here.neighbours)],
        ["this step: its own cache", formatSeconds(here.own)],
        ["cache of one token", formatBytes(d.cacheBytesPerToken)], ["cache read so far, the batch", formatBytes(read)],
        ["cache read over the answer", formatBytes(traffic.triangle)],
        ["if it had its final size", formatBytes(traffic.end)],
        ["cache passes weights at", passes === null ? "never" : `${commas(passes)} tokens`],
      ],
    };
  },
  svg({ steady, together, here, last, whole, top, said }, width) {
    const on = panel({ right: width - 12, bottom: 270 },
      axis("output tokens so far", 0, last + 1), axis("ms a step", 0, top));
    const sums = steady.map((p) => {
      const linear = 1e3 * (p.linear + p.other);
      const beside = linear + 1e3 * p.neighbours;
      return [[p.k, 0], [p.k, linear], [p.k, beside], [p.k, 1e3 * p.seconds]];
    });
    let drawn = on.drawn;
    ["weights", "cache", "own"].forEach((look, i) => {
      drawn += on.area(sums.map((sum) => sum[i]), sums.map((sum) => sum[i + 1]), look);
    });
    const later = sums.filter(([[k]]) => k >= here.k);
    if (later.length > 1) drawn += on.area(later.map((sum) => sum[0]), later.map((sum) => sum[3]), "veil");
    if (together) drawn += on.line(together.map((p) => [p.k, 1e3 * p.seconds]), "edge dashed");
    drawn += on.line([[0, whole], [last + 1, whole]], "limit");
    drawn += text(on.left + 6, on.up(whole) - 5, `all of memory read once: ${general(whole, 3)} ms`, "quiet");
    drawn += on.upright(here.k, "now") + on.dot(here.k, 1e3 * here.seconds);
    return picture(width, 314, said, drawn);
  },
};

// ---- 03: kinds of layer

const stepReads = ({ sizes }, tokens) =>
  total(sizes.kinds, (kind) => kind.cacheBytes * kind.law.read(tokens, 1) + kind.stateBytes);

VIEWS.kinds = {
  title: "What kinds of layer keep and read",
  controls: ["prompt", "output", "batch"],
  start: { model: "gpt-oss-20b", prompt: 128, output: 12_800, batch: 1 },
  compute(data, s) {
    const [d, { prompt, output }] = [deploymentOf(data, s), requestOf({ ...s, cached: 0 })];
    const tokens = prompt + output - 1;
    const places = geometric(1, 1e6, 61).map(Math.round);
    const [by, here, reads] = [cacheByKind(d, tokens), d.sequenceBytes(tokens), formatBytes(stepReads(d, tokens), 3)];
    const positions = d.maxPositions ?? Infinity;
    const size = (n) => (n <= positions ? formatBytes(d.sequenceBytes(n), 3) : "beyond its positions");
    const looks = ["weights", "prefill", "own", "other"];
    return {
      curves: d.sizes.kinds.map((kind, i) => [places.map((n) => [n, kindBytes(kind, n)]), looks[i % looks.length]]),
      held: places.map((n) => [n, d.sequenceBytes(n)]), read: places.map((n) => [n, stepReads(d, n)]), tokens, here,
      legend: [["held", "held, all layers"], ["cache", "read in a step"],
        ...by.map((kind, i) => [looks[i % looks.length], `${kind.layers} × ${kind.label}`])],
      said: `${s.model}: at ${commas(tokens)} tokens one sequence holds ${formatBytes(here, 3)}, ` +
        `and a step reads ${reads} of it`,
      numbers: [
        ...by.map(({ layers, label, bytes }) =>
          [`${layers} × ${label}, at ${commas(tokens)} tokens`, formatBytes(bytes, 3)]),
        ["held at 1 token", size(1)], ["held at 4,096 tokens", size(4096)], ["held at 32,768 tokens", size(32_768)],
        ["held at 131,072 tokens", size(131_072)],
        [`read in a step at ${commas(tokens)} tokens`, reads],
        ["held by the batch", formatBytes(s.batch * here, 3)],
        ["weights", formatBytes(d.weightBytes, 3)],
      ],
    };
  },
  svg({ curves, held, read, tokens, here, said }, width) {
    const show = (value) => formatBytes(value, 1);
    const on = panel({ left: 62, right: width - 12, bottom: 310 },
      axis("tokens of the sequence", 1, 1e6, { log: true }),
      axis("bytes of one sequence", 1e3, 1e12, { log: true, show }));
    let drawn = on.drawn;
    for (const [points, look] of curves) drawn += on.line(points, look);
    drawn += on.line(held, "held") + on.line(read, "cache dashed");
    drawn += on.mark(tokens, `${commas(tokens)} tokens`) + on.dot(tokens, here);
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
    if (r.output < 2) refuse("One output token has no time to the next one; choose a longer output.");
    const full = steadyState(d, r);
    const places = wholes(geometric(1, full.batch, 28));
    const states = places.map((b) => steadyState(d, r, b));
    const mixed = places.map((b) => [b, steadyState(d, r, b, true).tokensPerSecond]);
    const here = steadyState(d, r, s.batch);
    const least = states[0].tpot;
    const kept = s.target / 1e3 >= least ? atLatency(d, r, s.target / 1e3) : null;
    const [roof, over] = [roofBatch(d, r), unless(() => omega(d, r))];
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
        ["memory batch", commas(full.batch)], ["roof batch (estimate)", commas(Math.round(roof))],
        ["omega", over === null ? "-" : general(over, 3)],
        ["tokens/s at batch 1", fixed(states[0].tokensPerSecond, 1, true)],
        ["tokens/s at this batch", fixed(here.tokensPerSecond, 1, true)],
        ["tokens/s at the memory batch", fixed(full.tokensPerSecond, 1, true)],
        ["TPOT at batch 1", formatSeconds(least)], ["TPOT at this batch", formatSeconds(here.tpot)],
        ["TPOT at the memory batch", formatSeconds(full.tpot)],
        ["GPU seconds a request, memory batch", formatSeconds(full.secondsPerRequest)],
        ["largest batch within the target", kept === null ? "none" : commas(kept.batch)],
        ["tokens/s there", kept === null ? "-" : fixed(kept.state.tokensPerSecond, 1, true)],
      ],
    };
  },
  svg({ rates, mixed, roof, kept, here, target, memory, waits, said }, width) {
    const x = axis("", 1, 1e4, { log: true });
    const upper = panel({ right: width - 12, bottom: 196 }, x,
      axis("output tokens a second", 1, 1e5, { log: true }));
    const lower = panel({ right: width - 12, top: 246, bottom: 376 },
      { ...x, said: "batch size (log scale)" }, axis("ms a token", 1, 1e3, { log: true }));
    let drawn = upper.drawn + lower.drawn;
    drawn += upper.line(mixed, "prefill dashed") + upper.line(rates, "edge") + lower.line(waits, "edge");
    drawn += upper.mark(memory, `memory is full: ${commas(memory)}`, 9.4) + lower.mark(memory, "");
    drawn += upper.mark(roof, `roof of the linear layers: ${commas(Math.round(roof))}`, 8.3);
    drawn += lower.line([[1, target], [1e4, target]], "limit");
    drawn += text(lower.left + 6, lower.up(target) - 5, `target: ${general(target, 4)} ms`, "quiet");
    if (kept) {
      const down = `${px(lower.across(kept.batch))} ${px(lower.up(1e3 * kept.state.tpot))}`;
      drawn += path(`M${down}V${lower.bottom}`, "limit");
    }
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
  start: { prompt: 1268, output: 1527, batch: 24, load: 90 },
  many: true,
  compute(data, s) {
    const [d, r] = [deploymentOf(data, s), requestOf({ ...s, cached: 0 })];
    const full = steadyState(d, r).batch;
    const most = Math.min(s.batch, full);
    const each = steadyState(d, r, most).secondsPerRequest; // at best one request is done in that time
    const watched = 4 * Math.max(most, 12) * each;
    const rate = s.load / 100 / each;
    let clock = 0;
    const many = gaps(Math.ceil(1.3 * watched * rate) + 20).map((gap) => (clock += gap / rate));
    const arrivals = many.filter((at) => at < watched);
    if (arrivals.length < 2) refuse("Hardly a request arrives in the time that is watched; raise the load.");
    const run = timeline(d, arrivals.map(() => r), arrivals, { maxBatch: most, horizon: watched });
    const { time, running, waiting } = run.occupancy;
    const waits = arrivals.map((at, i) => [at, run.firstToken[i] - at]);
    const firsts = waits.filter(([, wait]) => !Number.isNaN(wait));
    const median = (from, to) => {
      const those = waits.filter(([at]) => at >= from && at < to);
      const sorted = those.map(([, wait]) => (Number.isNaN(wait) ? Infinity : wait)).sort((a, b) => a - b);
      return sorted[Math.floor((sorted.length - 1) / 2)] ?? null;
    };
    const words = (seconds) => seconds === null ? "no request arrived"
      : seconds === Infinity ? "not within this time" : formatSeconds(seconds, 3);
    const elapsed = run.end - run.start;
    const prompt = firsts.filter(([, wait]) => wait <= 1).length / arrivals.length;
    const later = (times) => (2 * r.output * times.filter((at) => at >= watched / 2).length) / watched; // once warm
    const [offered, served] = [later(arrivals), later(run.finish)];
    return {
      time, running, waiting, firsts, watched, most,
      legend: [["cache", "requests being served"], ["prefill", "requests that wait"], ["edge", "time to first token"]],
      said: `${arrow(r)}, ${general(rate, 3)} requests a second: ${commas(Math.round(offered))} tokens/s are asked ` +
        `for, ${commas(Math.round(served))} served; at the end ${commas(waiting.at(-1))} requests wait`,
      numbers: [
        ["requests a second that it can take", general(1 / each, 3)],
        ["requests a second that arrive", general(rate, 3)],
        ["tokens/s asked for, second half", fixed(offered, 1, true)],
        ["tokens/s served, second half", fixed(served, 1, true)],
        ["GPU busy", formatPercent(1 - run.seconds.idle / elapsed)],
        ["median time to first token, first third", words(median(0, watched / 3))],
        ["the same, last third", words(median((2 * watched) / 3, watched))],
        ["first token within 1 s", formatPercent(prompt)], ["waiting at the end", commas(waiting.at(-1))],
        ["served at a time, at most", commas(run.peakRunning)], ["memory batch", commas(full)],
      ],
    };
  },
  svg({ time, running, waiting, firsts, watched, most, said }, width) {
    const x = axis("", 0, watched);
    const upper = panel({ right: width - 12, bottom: 206 }, x, axis("requests", 0, 6.5 * most));
    const lower = panel({ right: width - 12, top: 256, bottom: 376 }, { ...x, said: "seconds" },
      axis("seconds to the first token", 0.01, 1000, { log: true, show: (value) => general(value, 3) }));
    const keep = Math.ceil(time.length / 300); // as many as there are pixels to tell them apart
    const inAll = (i) => Math.min(6.5 * most, running[i] + waiting[i]);
    const seen = time.map((at, i) => [at, running[i], inAll(i)]).filter((_, i) => i % keep === 0);
    const steps = seen.flatMap((one, i) => (i ? [[one[0], ...seen[i - 1].slice(1)], one] : [one]));
    const level = (i) => steps.map((one) => [one[0], i < 0 ? 0 : one[1 + i]]);
    const dots = firsts.filter(lower.inside).map(([at, wait]) => `M${px(lower.across(at))} ${px(lower.up(wait))}h0`);
    let drawn = upper.area(level(-1), level(0), "cache") + upper.area(level(0), level(1), "prefill");
    drawn += upper.drawn + lower.drawn + upper.line([[0, most], [watched, most]], "limit");
    drawn += text(upper.right - 4, upper.up(most) - 5, `at most ${commas(most)} at a time`, "end halo");
    return picture(width, 420, said, drawn + path(dots.join(""), "dots"));
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
    const full = steadyState(d, r);
    const [alone, here] = [1, s.batch].map((b) => steadyState(d, r, b));
    const share = (state) => state.shares.prefill;
    const saved = (part, k) => part * (1 - 1 / k);
    const clock = cost.ttft / cost.undisturbed;
    const parts = [["alone", share(alone), "edge"], [`batch ${commas(s.batch)}`, share(here), "prefill"],
      [`full, batch ${commas(full.batch)}`, share(full), "cache"]];
    return {
      curves: parts.map(([, part, look]) =>
        [look, geometric(1, 1000, 40).map((k) => [k, 100 * saved(part, k)]), 100 * saved(part, s.times)]),
      times: s.times,
      legend: parts.map(([name, , look]) => [look, name]),
      said: `${arrow(r)}: a prefill ${general(s.times, 4)} times as fast saves ` +
        `${formatPercent(saved(share(alone), s.times), 2)} alone, ` +
        `${formatPercent(saved(share(full), s.times), 2)} of a full server's GPU time`,
      numbers: [
        ["prefill share, GPU clock", formatPercent(share(here))],
        ["prefill share, request clock", formatPercent(clock)], ["prefill share, alone", formatPercent(share(alone))],
        ["prefill share, full server", formatPercent(share(full))],
        ["saved by this prefill, GPU", formatPercent(saved(share(here), s.times))],
        ["saved by this prefill, full server", formatPercent(saved(share(full), s.times))],
        ["rho, the estimate", general(rho(d, r, s.batch), 3)], ["time to first token", formatSeconds(cost.ttft)],
        ["under 5 % from this output on", `${commas(breakEvenOutput(d, r.prompt, s.batch))} tokens`],
      ],
    };
  },
  svg({ curves, times, said }, width) {
    const on = panel({ right: width - 12, bottom: 270 },
      axis("prefill this many times as fast", 1, 1000, { log: true }), axis("% of time saved", 0, 100));
    let drawn = on.drawn + on.upright(times, "now");
    for (const [look, points, at] of curves) drawn += on.line(points, look) + on.dot(times, at, "small", 4);
    return picture(width, 314, said, drawn);
  },
};

// ---- 06: which lever

const timesFaster = (gain) => (gain === Infinity ? "∞" : fixed(gain, 2, true)); // one output token is all prefill

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
      said: `${arrow(r)}, full server: most is gained by "${best.name}", ` +
        (best.atLimit === Infinity ? "for there is no decode step" : `${fixed(best.atLimit, 2)} times as fast`),
      numbers: ranked.map(({ name, held, atLimit }) => [name, `${timesFaster(held)} → ${timesFaster(atLimit)}`]),
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
        drawn += text(to + 4, y + 14.5 + 12 * j, timesFaster(gain), "tiny halo");
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
    if (r.output < 2) refuse("One output token comes from the prefill: there is no step to price.");
    const full = steadyState(d, r).batch;
    const worth = (b) => outputTokenInPromptTokens(d, r, b);
    const million = (b) => (priceOfRequest(d, r, b, s.dollars) * 1e6) / r.output;
    const here = worth(s.batch);
    const each = requestCost(d, r, s.batch).tpot / s.batch;
    return {
      prices: wholes(geometric(1, full, 28)).map((b) => [b, worth(b)]),
      full, here: [s.batch, here],
      legend: [["edge", "one output token, in prompt tokens"]],
      said: `${arrow(r)}, batch ${commas(s.batch)}: one output token costs as much GPU time as ` +
        `${fixed(here, 1, true)} prompt tokens`,
      numbers: [
        ["one output token, in prompt tokens", fixed(here, 1, true)], ["at batch 1", fixed(worth(1), 1, true)],
        ["at the memory batch", fixed(worth(full), 1, true)], ["memory batch", commas(full)],
        ["$ a million output, here", `$${fixed(million(s.batch), 2, true)}`],
        ["$ a million output, at the memory batch", `$${fixed(million(full), 2, true)}`],
        ["GPU time of one output token", formatSeconds(each)],
      ],
    };
  },
  svg({ prices, full, here, said }, width) {
    const on = panel({ right: width - 12, bottom: 290 },
      axis("batch size", 1, 1e4, { log: true }), axis("price, in prompt tokens", 1, 1e4, { log: true }));
    let drawn = on.drawn + on.line(prices, "edge") + on.mark(full, `memory is full: ${commas(full)}`) + on.dot(...here);
    drawn += on.line([[1, 1], [1e4, 1]], "limit") + text(on.right - 4, on.up(1) - 5, "a prompt token", "quiet end");
    return picture(width, 334, said, drawn);
  },
};

// ---------------------------------------------------------------------------------------------------------------------
// 3. The panel: controls, what they show, and what a reader takes away. Everything is made in `host`, a plain element.

const MENUS = ["model", "accelerator", "layout", "precision", "efficiency"];
const DEFAULTS = {
  model: "llama-3.1-8b", accelerator: "h100-sxm", devices: 1, layout: "tensor", precision: "bf16", efficiency: "floor",
  prompt: 1024, output: 128, cached: 0, batch: 1,
};
// `most` may ask the setting; `unit`: in words, of one; `quantum`: the finest step; `zero`: the scale begins at 0.
const RANGES = {
  prompt: { label: "prompt", unit: "token", least: 1, most: 131_072 },
  output: { label: "output", unit: "token", least: 1, most: 65_536 },
  cached: { label: "of it cached", unit: "token", least: 0, most: (s) => s.prompt - 1, zero: true },
  batch: { label: "batch", unit: "request", least: 1, most: 4096 },
  devices: { label: "devices", unit: "device", least: 1, most: 256 },
  position: { label: "output so far", unit: "token", least: 1, most: (s) => Math.max(1, s.output - 1), even: true },
  target: { label: "latency target", unit: "ms a token", units: "ms a token", least: 1, most: 1000, quantum: 0.1 },
  load: { label: "load", unit: "% of capacity", units: "% of capacity", least: 5, most: 200, even: true },
  times: { label: "prefill faster", unit: "time", least: 1, most: 1000, quantum: 0.1 },
  dollars: { label: "a GPU-hour", unit: "dollar", least: 0.1, most: 20, quantum: 0.01 },
};
export const settingOf = (name, start = {}) => ({ ...DEFAULTS, ...VIEWS[name].start, ...start });
const bound = (limit, s) => (typeof limit === "function" ? limit(s) : limit);

// A scale from its least to its most value, as {share, value}: logarithmic, and from zero on log(1 + value).
function scaleOf(range, s) {
  const [least, most, quantum] = [range.least, Math.max(bound(range.most, s), range.least), range.quantum ?? 1];
  const [to, back] = range.even ? [(v) => v, (v) => v] : range.zero ? [Math.log1p, Math.expm1] : [Math.log, Math.exp];
  const across = to(most) - to(least) || 1;
  const inside = (value) => Math.min(most, Math.max(least, value));
  const held = (value) => Number(inside(Math.round(value / quantum) * quantum).toPrecision(12));
  return {
    least, most, held,
    share: (value) => (to(inside(value)) - to(least)) / across,
    value: (share) => held(Number(back(to(least) + share * across).toPrecision(3))),
    // The next round value above or below: 12,800 goes to 13,000 and to 12,000.
    next: (value, way) => {
      const from = Math.max(value * (way < 0 ? 0.999 : 1), 1e-9);
      const step = Math.max(quantum, range.even ? roundUp(most / 100) : 10 ** (Math.floor(Math.log10(from)) - 1));
      const steps = value / step;
      return held(step * (way > 0 ? Math.floor(steps + 1 + 1e-9) : Math.ceil(steps - 1 - 1e-9)));
    },
  };
}

const unitsOf = ({ unit, units }) => units ?? `${unit}s`;
const inWords = (range, value) => `${inFull(value)} ${value === 1 ? range.unit : unitsOf(range)}`;

function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  const takesKeys = ["input", "select", "button"].includes(name); // which JupyterLab would take for its own commands
  if (takesKeys) made.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside);
  return made;
}

// Whether each % begins a letter that was written so; "#100%" is an address, too.
const wellFormed = (address) => !/%(?![\da-f]{2})/i.test(address) && !/%[89a-f]/i.test(address);
// The setting in a page's address, for this view; {} where there is none, or where it is another's.
function fromAddress(name, start) {
  const hash = globalThis.location?.hash ?? "";
  const [view, query] = (wellFormed(hash) ? decodeURI(hash) : hash).split("?");
  if (view !== `#explore-${name}` || !query) return {};
  const found = {};
  for (const [key, value] of new URLSearchParams(query)) {
    if (!Object.hasOwn(start, key)) continue;
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
  const names = ["", "this setting", "kept"].map((name) => `<th scope="col">${name}</th>`);
  const head = kept ? `<thead><tr>${names.join("")}</tr></thead>` : "";
  return `<table>${head}<tbody>${rows.join("")}</tbody></table>`;
}

// Picture and table of a setting as one string, for a page where nothing runs; `image`: where the picture is, drawn.
export function still(data, name, start = {}, image = "") {
  const view = VIEWS[name];
  const found = view.compute(data, settingOf(name, start));
  const drawn = image ? `<img src="${image}" alt="${escaped(`${view.title}. ${found.said}`)}" style="max-width:100%">`
    : `<div class="drawn"><ul class="legend">${legendOf(found.legend)}</ul>${view.svg(found, 720)}</div>`;
  return `<p><strong>${escaped(view.title)}.</strong> ${escaped(found.said)}</p>${drawn}${tableOf(found.numbers)}`;
}

// Single changes of a setting after which the view can be computed: [words, change], the nearest first.
function waysOut(data, view, s, deep = true) {
  const works = (change) => unless(() => view.compute(data, { ...s, ...change })) !== null;
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
  const how = group && group.devices > 1 ? `, ${LAYOUTS[group.layout]}` : "";
  if (group) found.push([inWords(RANGES.devices, group.devices) + how, group]);
  const precision = Object.keys(data.precisions).find((name) => name !== s.precision && works({ precision: name }));
  if (precision) found.push([`precision ${precision}`, { precision }]);
  const bySize = [...data.accelerators].sort((a, b) => a.memory - b.memory);
  const device = bySize.find(({ name }) => works({ accelerator: name }));
  if (device) found.push([device.label ?? device.name, { accelerator: device.name }]);
  if (s.target && works({ target: 1000 })) found.push(["latency target 1,000 ms", { target: 1000 }]);
  const { prompt, output, cached } = data.presets.chat; // where no single change does: a smaller case, and then one
  const smaller = [["batch 1", { batch: 1 }], ["batch 1, a chat request", { batch: 1, prompt, output, cached }]];
  for (const [words, change] of smaller) {
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
export function mount(host, data, name, start = {}) {
  const view = VIEWS[name];
  const id = `explore-${name}-${(panels += 1)}`;
  const initial = settingOf(name, start);
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
    for (const key of [...view.controls, "devices"]) {
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
    const caption = kept ? `<figcaption>kept: ${escaped(kept.found.said)}</figcaption>` : "";
    if (kept) beside.innerHTML = caption + view.svg(kept.found, width);
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
    const columns = ([label, value]) => (kept ? [label, value, others.get(label) ?? ""] : [label, value]);
    return csvOf([kept ? ["", "this setting", "kept"] : ["", "this setting"], ...rows.map(columns)]);
  }
  function address() {
    const changed = settingsOf(view, s).filter(([key, value]) => value !== settingOf(name)[key]);
    const page = globalThis.location?.href.split("#")[0] ?? "";
    return `${page}#explore-${name}?${new URLSearchParams(changed)}`;
  }
  function stop() {
    cancelAnimationFrame(playing);
    clearTimeout(playing);
    playing = 0;
    sentence.setAttribute("aria-live", "polite");
    if (player) player.textContent = "Play along the answer";
  }
  function play() {
    if (playing) return stop();
    const last = bound(RANGES[view.plays].most, s);
    const [stops, began] = [calm() ? 8 : 0, performance.now()];
    const from = s[view.plays] >= last ? 1 : s[view.plays];
    player.textContent = "Stop";
    sentence.setAttribute("aria-live", "off"); // it changes with every frame
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
    const words = `${range.label}, ${unitsOf(range)}`;
    const field = make("input", { type: "number", min: range.least, max: most, step: "any", "aria-label": words });
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
      const outside = value < least || value > end;
      if (!Number.isFinite(value)) told.textContent = `${range.label} stays ${inFull(s[key])}: no number was typed.`;
      else told.textContent = outside ? `${range.label} goes from ${inFull(least)} to ${inFull(end)}.` : "";
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
    const unit = make("span", { class: "unit" }, unitsOf(range));
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
  const presets = make("div", { class: "presets", role: "group", "aria-label": "Workloads to begin with" },
    view.many ? "Take the means of " : "Take the medians of ");
  for (const [word, preset] of Object.entries(data.presets)) {
    const { prompt, output, cached } = view.many ? preset.mean : preset;
    presets.append(button(word, () => set({ prompt, output, cached })));
  }
  const compare = button("Keep beside", keep);
  const player = view.plays ? button("Play along the answer", play) : null;
  const buttons = make("div", { class: "buttons" }, ...(player ? [player] : []), button("Reset", reset), compare,
    button("Copy numbers as CSV", () => copy(asCsv(), "Numbers")), button("Copy link", () => copy(address(), "Link")));
  const ranges = make("div", { class: "ranges" }, ...view.controls.map(rangeOf), rangeOf("devices"));
  const title = make("p", { class: "title" }, view.title);
  const more = { class: "lesson-explore", "aria-label": view.title };
  const shown = [sentence, legend, pictures, ways, buttons, told, table];
  const root = make("section", more, title, presets, ranges, menus, ...shown);
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
