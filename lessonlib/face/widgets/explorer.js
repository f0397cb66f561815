// The explorers of the lesson: the arithmetic of lessonlib, pictures of it, and the controls beneath them.
//
// One module, no dependency, no build step. Its first part is the library's arithmetic, formula by formula and sentence
// by sentence: tests/test_explorer_arithmetic.py holds every number to Python's and every refusal to its words. Names
// are the library's, SI units inside. What a model, a device and a dtype are comes as plain numbers: explorer_data.py.

// ---- Numbers and values as Python prints them

const MOST_TOKENS = 2 ** 53; // the largest count that a float64 holds exactly
const total = (items, of) => items.reduce((sum, item) => sum + of(item), 0);
const ratio = (over, under) => (under ? over / under : NaN);
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
  if (!x) return ["0".repeat(digits), 0];
  for (let power = Math.floor(Math.log10(Math.abs(x))) - 1; ; power += 1) {
    const found = scaledDigits(x, digits - 1 - power);
    if (found.length === digits) return [found, power];
  }
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
  const shorter = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (power >= -4 && power < digits) return shorter(fixed(x, digits - 1 - power, comma));
  return minus(x) + shorter(`${found[0]}.${found.slice(1)}`) + exponent(power);
}
export const commas = (n) => minus(n) + grouped(String(BigInt(Math.abs(n))));

// What cannot be seen, escaped: names come from outside.
const printable = (text) =>
  text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (letter) => {
    const [code, hex] = [letter.codePointAt(0), letter.codePointAt(0).toString(16)];
    const long = code < 2 ** 16 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
    return { 9: "\\t", 10: "\\n", 13: "\\r" }[code] ?? (code < 2 ** 8 ? `\\x${hex.padStart(2, "0")}` : long);
  });

// repr(value): a whole number is an int up to 2**53, a BigInt always; what is to be a float comes from `asFloat`.
function repr(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") {
    const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
    return quote + printable(value.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`)) + quote;
  }
  if (typeof value !== "number") return value.said ?? String(value);
  return Number.isInteger(value) && Math.abs(value) <= MOST_TOKENS ? String(value) : floatRepr(value);
}
function floatRepr(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : `${minus(value)}inf`;
  const [mantissa, power] = value.toExponential().split("e");
  if (value && (power < -4 || power >= 16)) return mantissa + exponent(Number(power));
  const plain = minus(value) + Math.abs(value).toFixed(Math.max(1, mantissa.replace(/\D/g, "").length - 1 - power));
  return plain;
}
const asFloat = (value) => ({ said: floatRepr(value) });

const PREFIXES = { B: [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] };
PREFIXES.FLOP = PREFIXES.B;
PREFIXES.s = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
function significant(value, digits) {
  if (!value || !Number.isFinite(value)) return value ? repr(value) : "0";
  return fixed(value, Math.max(0, digits - 1 - significantDigits(value, digits)[1]), true);
}

// `value` with `digits` significant digits, an SI prefix and the unit: "15.01 GB".
function formatQuantity(value, unit, digits) {
  if (typeof value !== "number") throw wrong("format", "value", value, "a number that a float holds");
  if (Number.isNaN(value)) return "undefined";
  const [first, power] = Number.isFinite(value) ? significantDigits(value, digits) : ["0", 0];
  const size = Number(`${first}e${power - digits + 1}`); // as it will be shown: 999,999 B is 1.000 MB
  const [factor, prefix] = PREFIXES[unit].find(([least]) => size >= least) ?? [1, ""];
  return `${significant(value / factor, digits)} ${prefix}${unit}`;
}
export const formatBytes = (value, digits = 4) => formatQuantity(value, "B", digits);
export const formatFlops = (value, digits = 4) => formatQuantity(value, "FLOP", digits);
export const formatSeconds = (value, digits = 4) => formatQuantity(value, "s", digits);
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
function wrong(owner, name, value, expected, remedy = "", kind = "InvalidInputError") {
  const letters = [...repr(value)];
  const shown = letters.length <= 80 ? letters.join("") : `${letters.slice(0, 60).join("")}... (${letters.length} characters)`;
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

const LARGEST = Number.MAX_VALUE;
const within = (least, most) => (value) => typeof value === "number" && least <= value && value <= most;
const wholeWithin = (least, most) => (value) => within(least, most)(value) && Number.isInteger(value);
const count = (least = 1, most = null) => ({
  expected: `a whole number ${most ? `from ${commas(least)} to ${commas(most)}` : `of at least ${commas(least)}`}`,
  takes: wholeWithin(least, most ?? LARGEST),
});
const rate = (unit, zero = false) => ({
  expected: `a finite number of ${unit}, ${zero ? "zero or more" : "more than zero"}`,
  takes: within(zero ? 0 : Number.MIN_VALUE, LARGEST),
});
const tokensFrom = (least) => ({
  expected: `a whole number from ${least} to 2**53, or an array of them`,
  takes: wholeWithin(least, MOST_TOKENS),
});
const choice = (words) => ({ expected: `one of ${words.join(", ")}`, takes: (value) => words.includes(value) });
const optional = (rule) => ({
  ...rule,
  expected: `${rule.expected}, or None`,
  takes: (value) => value === null || value === undefined || rule.takes(value),
});
const BATCH = count(1, MOST_TOKENS);
const PAGE = count(1, 2 ** 20);
const FLAG = { expected: "True or False", takes: (value) => typeof value === "boolean" };
const FRACTION = { expected: "a fraction more than 0 and at most 1", takes: within(Number.MIN_VALUE, 1) };
const TOKENS = { ...BATCH, expected: "a whole number from 1 to 9.007199255e+15, or an array of them" };
const AT_LEAST_ZERO = { expected: "a number of at least 0, or an array of them", takes: within(0, LARGEST) };
const ABOVE_ZERO = { expected: "a number above 0, or an array of them", takes: within(Number.MIN_VALUE, Infinity) };
function check(rule, owner, name, value) {
  if (!rule.takes(value)) throw wrong(owner, name, value, rule.expected, "", rule.kind);
  return value;
}

// ---- Precision: a dtype for each part

const UNQUANTISED = ["fp32", "fp16", "bf16"];
const MULTIPLIED_IN = { fp8: "fp8", nvfp4: "fp4" };
const OTHER_16_BITS = { bf16: "fp16", fp16: "bf16" };
const KERNELS = ["blocks", "experts", "head", "attention"];
const PARTS = ["experts", "head", "embedding", "other", "cache", "index", "state", "dispatch"];
const bitsSaid = (dtype) => (/^[\d.]+(e[-+]?\d+)? bits$/.test(dtype) ? Number(dtype.slice(0, -5)) : NaN);

// `parts`: dtypes by part, the keywords of the library's Precision; `bits`: of each dtype that has a name.
export class Precision {
  constructor(parts, bits) {
    const dtype = {
      expected: `a dtype, one of ${Object.keys(bits).join(", ")}, or such as '4.25 bits'`,
      takes: (value) => typeof value === "string" && (value in bits || within(0.1, 64)(bitsSaid(value))),
      kind: "UnknownNameError",
    };
    const text = { expected: "a text, such as 'bf16'", takes: (value) => typeof value === "string" && value !== "" };
    this.bits = bits;
    this.blocks = check(dtype, "Precision", "blocks", parts.blocks === undefined ? "bf16" : parts.blocks);
    for (const part of PARTS) this[part] = check(optional(dtype), "Precision", part, parts[part]) ?? null;
    this.compute = check(optional(text), "Precision", "compute", parts.compute) ?? null;
    this.experts ??= this.blocks;
    const plain = UNQUANTISED.includes(this.blocks) ? this.blocks : "bf16";
    for (const part of ["head", "embedding", "other", "cache"]) this[part] ??= plain;
    this.plain = plain === this.blocks || this.other !== "fp16" ? plain : "fp16"; // what is not quantised, and operands
    this.computeBytes = this.compute === "fp4" ? 0.5 : this.bytes(this.compute ?? this.plain);
    this.sentBytes = this.plain === "fp32" ? 4 : 2;
    this.dispatchedBytes = this.dispatch === null ? this.sentBytes : this.bytes(this.dispatch);
  }
  with(parts) {
    return new Precision({ ...this, ...parts }, this.bits);
  }
  bytes(dtype) {
    return (this.bits[dtype] ?? bitsSaid(dtype)) / 8;
  }
  bytesOf(part) {
    return this.bytes(this[part] ?? this.cache);
  }
  stateBytes(stated) {
    return this.bytes(this.state || stated || (UNQUANTISED.includes(this.compute) ? this.compute : this.plain));
  }
  // The dtype that a kernel multiplies in, on a device with these peaks.
  operand(kernel, peaks) {
    if (this.compute !== null) return this.compute;
    const stored = kernel === "blocks" || kernel === "experts" ? this[kernel] : "";
    if (MULTIPLIED_IN[stored] in peaks) return MULTIPLIED_IN[stored];
    const plain = UNQUANTISED.includes(stored) ? stored : this.plain;
    return OTHER_16_BITS[plain] in peaks && !(plain in peaks) ? OTHER_16_BITS[plain] : plain;
  }
}

// ---- Laws of mixers: what a token attends to, what a pass reads, what a sequence holds

// How many of `steps` tokens after `cached` ones have a span below or at `limit`, as no more tokens are there.
const below = (limit, cached, steps) => Math.min(Math.max(Math.floor(limit - cached), 0), steps);
const allSpans = (cached, fresh) => fresh * cached + (fresh * (fresh + 1)) / 2;
function spansUpTo(limit, cached, fresh) {
  if (cached >= limit) return fresh * limit;
  const growing = below(limit, cached, fresh);
  return growing * cached + (growing * (growing + 1)) / 2 + (fresh - growing) * limit;
}
const cutAt = (limit) => (cached, steps) => {
  const first = below(limit, cached, steps);
  return [[cached, first], [cached + first, steps - first]];
};

const ALL = {
  spanSum: allSpans,
  read: (cached) => cached,
  readSum: (cached, steps, spans) => spans - steps,
  held: (tokens) => tokens,
  stretches: (cached, steps) => [[cached, steps]],
  fillsAt: Infinity, // tokens up to which all are held and seen, and after which both stay the same; null: another law
  period: null,
};
const OWN = { ...ALL, fillsAt: null };
const LAWS = {
  all: () => ALL,
  window: ({ window }) => ({
    ...ALL,
    spanSum: (cached, fresh) => spansUpTo(window, cached, fresh),
    read: (cached) => Math.min(cached, window - 1),
    held: (tokens) => Math.min(tokens, window),
    fillsAt: window,
  }),
  chunk: ({ chunk }) => ({
    ...OWN,
    spanSum(cached, fresh) {
      const before = cached % chunk;
      const [whole, rest] = [Math.floor((before + fresh) / chunk), (before + fresh) % chunk];
      return whole * ((chunk * (chunk + 1)) / 2) + (rest * (rest + 1)) / 2 - (before * (before + 1)) / 2;
    },
    read: (cached) => cached % chunk,
    held: (tokens) => Math.min(tokens, chunk),
    period: chunk,
  }),
  sparse: ({ top_k: most }) => ({
    ...OWN,
    spanSum: (cached, fresh) => spansUpTo(most, cached, fresh),
    read: (cached, fresh) => Math.min(cached, fresh * most),
    readSum: (cached, steps, spans) => spans - below(most, cached, steps),
    stretches: cutAt(most),
  }),
  blocks({ top_k: most, block }) {
    function unseen(tokens) {
      const [whole, rest] = [Math.floor(tokens / block), tokens % block];
      const past = Math.max(whole - most, 0);
      return (block * past * (past + 1)) / 2 + rest * Math.max(whole + 1 - most, 0);
    }
    const spanSum = (cached, fresh) => allSpans(cached, fresh) - block * (unseen(cached + fresh) - unseen(cached));
    return { ...OWN, spanSum, read: (cached, fresh) => Math.min(cached, spanSum(cached, fresh) - fresh), period: block };
  },
  entries({ rate: each, top_k: most }) {
    const limit = most ? each * most : Infinity;
    function spans(tokens) {
      const growing = Math.min(tokens, limit - 1);
      const whole = Math.floor(growing / each);
      const sum = (each ** 2 * whole * (whole - 1)) / 2 + each * whole * (growing - whole * each + 1);
      return most ? sum + Math.max(tokens - limit + 1, 0) * limit : sum;
    }
    const spanSum = (cached, fresh) => spans(cached + fresh) - spans(cached);
    return {
      ...OWN,
      spanSum,
      read: (cached, fresh) => Math.min(cached, Math.max(spanSum(cached, fresh) - fresh, 0)),
      readSum: (cached, steps, sum) => sum - (steps - below(each - 1, cached, steps)),
      held: (tokens) => each * Math.floor(tokens / each),
      stretches: cutAt(each - 1),
    };
  },
};
// Of layers that share another one's cache: they hold nothing.
const lawOf = ({ kind, shared, ...numbers }) => ({ ...LAWS[kind](numbers), ...(shared && { held: () => 0, fillsAt: null }) });

// ---- Sizes: a model in a precision on some devices

const LAYOUTS = { tensor: "tensor parallelism", expert: "data-parallel attention with expert parallelism" };

// Copies of what the heads of a mixer share, over a tensor-parallel group; Refused where heads do not divide.
function cacheCopies({ owner, heads = 0, kv_heads: kvHeads = 0, whole = false }, split) {
  const devices = BigInt(split);
  if (heads % split) throw wrong(owner, "devices", devices, `a number that divides its ${heads} heads`);
  if (kvHeads % split && split % kvHeads) {
    throw wrong(owner, "devices", devices, `a number that divides its ${kvHeads} KV heads, or a multiple of them`);
  }
  return whole ? split : kvHeads ? Math.max(1, split / kvHeads) : 1;
}
const copiedWeights = ({ copies }, split) => total(copies, (copy) => (cacheCopies(copy, split) - 1) * copy.weights);

function collectives(model, precision, devices, layout) {
  if (devices === 1) return { number: 0, bytes: 0 };
  if (layout === "tensor") {
    const numbers = ((model.reduces * 2 * (devices - 1)) / devices) * model.width;
    return { number: model.reduces, bytes: numbers * precision.sentBytes };
  }
  let [number, bytes] = [0, 0];
  for (const { layers, routed_width: width, experts, picked } of model.experts) {
    let none = 1; // the chance that a device, with experts / devices of them, holds none of those picked
    for (let i = 0; i < picked; i += 1) none *= Math.max(0, experts - experts / devices - i) / (experts - i);
    number += 2 * layers;
    bytes += layers * width * ((devices - 1) * (1 - none)) * (precision.dispatchedBytes + precision.sentBytes);
  }
  return { number, bytes };
}

// All layers of one kernel: FLOPs and bytes of one sequence.
function layerKind(kernel, precision, split) {
  const { layers, label } = kernel;
  const of = (name) => kernel[name] ?? 0;
  const copies = layers * (kernel.copied_whole ? split : 1);
  const state = precision.stateBytes(kernel.state_dtype) * of("state_elements");
  const cache = layers * of("cache_elements") * cacheCopies(kernel, split);
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
const sequenceBytes = (sizes, tokens) => total(sizes.kinds, (kind) => kindBytes(kind, tokens));

function sizesOf(model, precision, devices, layout) {
  const [split, replicas] = layout === "tensor" ? [devices, 1] : [1, devices];
  const of = (part) => precision.bytesOf(part);
  const { weights, experts: ffns, again, head_bias: bias } = model;
  const copied = total(model.mixers, (mixer) => mixer.layers * copiedWeights(mixer, split));
  const stored = total(model.mixers, (mixer) => mixer.stored * copiedWeights(mixer, split));
  const routers = (split - 1) * total(ffns, (ffn) => ffn.layers * ffn.router_weights);
  const other = weights.other - total(ffns, (ffn) => ffn.layers * ffn.experts * ffn.other_weights) - bias + routers;
  const block = replicas * ((weights.blocks + stored) * of("blocks") + other * of("other"));
  const more = (again[0] + copied - stored - model.idle_weights) * of("blocks") + again[1] * of("other");
  const headBytes = replicas * (weights.head * of("head") + bias * of("other"));
  let [picked, resident] = [0, 0];
  const experts = ffns.map((ffn) => {
    const each = ffn.layers * (ffn.weights * of("experts") + ffn.other_weights * of("other"));
    const idle = 1 - ffn.picked / ffn.experts;
    picked += ffn.layers * ffn.picked * ffn.weights;
    resident += replicas * Math.ceil(ffn.experts / replicas) * each;
    return { bytes: ffn.experts * each, logIdle: idle ? Math.log1p(idle - 1) : -Infinity };
  });
  const kinds = model.kernels.map((kernel) => layerKind(kernel, precision, split));
  const sent = collectives(model, precision, devices, layout);
  return {
    tokenFlops: 2 * (model.block_matmul_weights - picked + copied + routers),
    expertFlops: 2 * picked, logitFlops: 2 * weights.head,
    blockBytes: block + replicas * more, headBytes, experts, kinds, replicas,
    residentBytes: block + headBytes + replicas * weights.embedding * of("embedding") + resident,
    collectives: sent.number, collectiveBytes: sent.bytes,
  };
}

// A draft head beside its target: what it shares lies in memory once, as the target's.
function draftSizesOf(draft, precision, devices, layout) {
  const sizes = sizesOf(draft.body, precision, devices, layout);
  const projection = sizes.replicas * draft.projection * precision.bytesOf("blocks");
  const residentBytes = sizes.residentBytes + projection - (draft.shares_head ? sizes.headBytes : 0);
  const tokenFlops = sizes.tokenFlops + 2 * draft.projection;
  return { ...sizes, tokenFlops, blockBytes: sizes.blockBytes + projection, residentBytes };
}

// ---- Work of passes, and its time under the roofline

const NOTHING = { weights: 0, cacheRead: 0, cacheWrite: 0, state: 0, times: 1 };
const work = (part, kernel, flops, more) => ({ part, kernel, flops, ...NOTHING, ...more });

// Dense linear layers, routed experts, LM head. `fullest`: tokens of the fullest device over their mean.
function linearWork(sizes, tokens, logits, times = 1, fullest = 1) {
  const one = { weights: sizes.blockBytes, times };
  const found = [work("linear layers", "blocks", sizes.tokenFlops * tokens * fullest, one)];
  if (sizes.experts.length) {
    const weights = total(sizes.experts, ({ bytes, logIdle }) => -bytes * Math.expm1(tokens * logIdle));
    found.push(work("routed experts", "experts", sizes.expertFlops * tokens, { weights, times }));
  }
  const head = { weights: sizes.headBytes, times };
  return [...found, work("LM head", "head", sizes.logitFlops * logits * fullest, head)];
}
function pairWork(kind, read, pairs) {
  if (!kind.expandFlops) return kind.pairFlops * pairs;
  const expanded = kind.freshPairFlops * pairs + kind.expandFlops * read;
  return read > 0 ? Math.min(kind.pairFlops * pairs, expanded) : expanded;
}
// Attention, or the update of a constant state, of all layers of one kind: in one pass, and in decode steps together.
function attentionWork(kind, fresh, cached, batch, times = 1) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * kind.stateBytes];
  if (!cache) return work(kind.part, "attention", batch * fresh * kind.tokenFlops, { state, times });
  const read = kind.law.read(cached, fresh);
  const flops = batch * pairWork(kind, read, kind.law.spanSum(cached, fresh));
  return work(kind.part, "attention", flops, { cacheRead: cache * read, cacheWrite: cache * fresh, times });
}
function attentionOfSteps(kind, prompt, steps, batch) {
  const [cache, state] = [batch * kind.cacheBytes, 2 * batch * steps * kind.stateBytes];
  if (!cache) return [work(kind.part, "attention", batch * steps * kind.tokenFlops, { state })];
  return kind.law.stretches(prompt, steps).map(([first, number]) => {
    const spans = kind.law.spanSum(first, number);
    const cacheRead = cache * kind.law.readSum(first, number, spans);
    return work(kind.part, "attention", batch * kind.pairFlops * spans, { cacheRead, cacheWrite: cache * number });
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
function equalPasses(sizes, fresh, cached, batch, logits, number = 1) {
  const full = seats(sizes, batch);
  const attention = sizes.kinds.map((kind) => attentionWork(kind, fresh, cached, full, number));
  return passesOf(sizes, attention, batch, batch * fresh, batch * logits, number);
}
function decodeSteps(sizes, prompt, number, batch) {
  const full = seats(sizes, batch);
  const attention = sizes.kinds.flatMap((kind) => attentionOfSteps(kind, prompt, number, full));
  return passesOf(sizes, attention, batch, batch, batch, number);
}

const SUMS = ["flops", "weights", "cacheRead", "cacheWrite", "state", "computeSeconds", "memorySeconds", "seconds"];
const DONE = ["flops", "cacheRead", "cacheWrite", "state"]; // less where devices less full wait

// Works of one part, each under the roofline, added up; `bounds`: what binds them.
class Roof {
  constructor(phase, part, kernel) {
    Object.assign(this, { phase, part, kernel, bounds: new Set() }, Object.fromEntries(SUMS.map((name) => [name, 0])));
  }
  add(sums, bounds) {
    for (const name of SUMS) this[name] += sums[name];
    bounds.forEach((bound) => this.bounds.add(bound));
  }
  get bytes() {
    return this.weights + this.cacheRead + this.cacheWrite + this.state;
  }
  get intensity() {
    return ratio(this.flops, this.bytes);
  }
  get bound() {
    return this.bounds.size > 1 ? "both" : ([...this.bounds][0] ?? "nothing");
  }
}

// Passes on a deployment, one after another: bytes and FLOPs of all devices, seconds of the group.
export class Phase {
  constructor({ peaks, bandwidth, efficiency, linkRate, collectiveLatency }, runs, name = "pass") {
    let [busy, communication, passes] = [0, 0, 0];
    for (const { sizes, works, tokens, number } of runs) {
      for (const one of works) {
        const compute = (one.computeSeconds = one.flops / peaks[one.kernel]);
        const memory = (one.memorySeconds = (one.weights + one.cacheRead + one.cacheWrite + one.state) / bandwidth);
        one.seconds = efficiency.overlap ? Math.max(compute, memory) : compute + memory;
        busy += one.times * one.seconds;
      }
      if (sizes.collectives && linkRate !== null) {
        communication += tokens * (sizes.collectiveBytes / linkRate) + number * (sizes.collectives * collectiveLatency);
      }
      passes += number;
    }
    const overhead = passes * efficiency.overhead;
    Object.assign(this, { name, runs, passes, communication, overhead, seconds: busy + communication + overhead });
  }
  // The parts by name, each under its roof.
  get roofs() {
    if (this.known) return this.known;
    this.known = {};
    for (const { works, done } of this.runs) {
      for (const one of works) {
        const share = (name) => one.times * (one.kernel !== "experts" && DONE.includes(name) ? done : 1);
        const sums = Object.fromEntries(SUMS.map((name) => [name, one[name] * share(name)]));
        const bounds = sums.seconds ? [one.computeSeconds > one.memorySeconds ? "compute" : "memory"] : [];
        (this.known[one.part] ??= new Roof(this.name, one.part, one.kernel)).add(sums, bounds);
      }
    }
    return this.known;
  }
  part(linear) {
    const found = new Roof(this.name, ...(linear ? ["linear layers", "blocks"] : ["attention", "attention"]));
    const inside = Object.values(this.roofs).filter((roof) => (roof.kernel === "attention") !== linear);
    inside.forEach((roof) => found.add(roof, roof.bounds));
    return found;
  }
  get linear() {
    return this.part(true);
  }
  get attention() {
    return this.part(false);
  }
  sum(name) {
    return total(Object.values(this.roofs), (roof) => roof[name]);
  }
  get flops() {
    return this.sum("flops");
  }
  get bytes() {
    return this.sum("bytes");
  }
  get cacheRead() {
    return this.sum("cacheRead");
  }
}

// ---- Deployment: a model on devices, and what their memory holds

const EFFICIENCY = {
  mfu: FRACTION, mbu: FRACTION, overhead: rate("seconds", true), overlap: FLAG,
  all_reduce_latency: rate("seconds", true), all_to_all_latency: rate("seconds", true),
};
const GIVEN = { devices: 1, layout: "tensor", link: null, memoryFraction: 0.9, prefillChunk: null, speculation: null };
const MOST_DEVICES = 1024; // of one group that a remedy may name

// As the library's Deployment. `given`: model, accelerator, precision, efficiency, and what of GIVEN differs.
export class Deployment {
  constructor(given) {
    Object.assign(this, GIVEN, given, { given });
    const { model, accelerator, devices, layout, precision, efficiency, speculation } = this;
    check(count(), "Deployment", "devices", devices);
    check(choice(Object.keys(LAYOUTS)), "Deployment", "layout", layout);
    check(optional(rate("byte/s")), "Deployment", "link", this.link);
    check(FRACTION, "Deployment", "memory_fraction", this.memoryFraction);
    check(optional(count()), "Deployment", "prefill_chunk", this.prefillChunk);
    this.collectiveLatency = efficiency[layout === "tensor" ? "all_reduce_latency" : "all_to_all_latency"];
    this.linkRate = this.link ?? accelerator.link;
    if (devices > 1 && this.linkRate === null) {
      const words = `has no link figure, so what ${BigInt(devices)} devices send cannot be timed`;
      const remedy = "give link= in byte/s one way, or take devices=1";
      throw new Refused(`Deployment: ${repr(accelerator.name)} ${words}; ${remedy}.`);
    }
    this.dtypes = Object.fromEntries(KERNELS.map((kernel) => [kernel, precision.operand(kernel, accelerator.peaks)]));
    this.peaks = {};
    for (const [kernel, dtype] of Object.entries(this.dtypes)) {
      this.peaks[kernel] = devices * efficiency.mfu * accelerator.peaks[dtype];
      if (dtype in accelerator.peaks) continue;
      const known = `it has ${Object.keys(accelerator.peaks).join(", ")}. Choose one of these to compute in.`;
      throw new Refused(`Accelerator ${repr(accelerator.name)} has no ${dtype} peak; ${known}`, "UnknownNameError");
    }
    if (model.unknown) throw new Refused(model.unknown);
    const on = [precision, devices, layout];
    this.sizes = sizesOf(model, ...on);
    this.draftSizes = speculation?.draft ? draftSizesOf(speculation.draft, ...on) : null;
    this.weightBytes = this.sizes.residentBytes + (this.draftSizes?.residentBytes ?? 0);
    this.memoryAvailable = this.memoryFraction * devices * accelerator.memory;
    this.memoryFree = this.memoryAvailable - this.weightBytes;
    this.maxPositions = model.max_positions; // a draft head has its target's
    this.bandwidth = devices * efficiency.mbu * accelerator.bandwidth;
    this.cacheBytesPerToken = total(this.sizes.kinds, (kind) => kind.cacheBytes);
  }
  with(changes) {
    return new Deployment({ ...this.given, ...changes });
  }
  sequenceBytes(tokens) {
    return sequenceBytes(this.sizes, tokens) + (this.draftSizes ? sequenceBytes(this.draftSizes, tokens) : 0);
  }
  memoryNeeded(tokens, batch = 1) {
    return this.weightBytes + seats(this.sizes, batch) * this.sequenceBytes(tokens);
  }
  fits(tokens, batch = 1) {
    return this.memoryNeeded(tokens, batch) <= this.memoryAvailable;
  }
}

// The deployment of settings: names of the data's lists, or objects of the same form in their place.
export function deploymentOf(data, settings) {
  const find = (list, kind) => {
    const name = settings[kind];
    const found = typeof name === "object" && name !== null ? name : list.find((one) => one.name === name);
    if (found) return found;
    throw new Refused(`Unknown ${kind} ${repr(name)}: expected one of the ${list.length} here.`, "UnknownNameError");
  };
  const [model, accelerator] = [find(data.models, "model"), find(data.accelerators, "accelerator")];
  const { precision = "bf16", efficiency = "floor" } = settings;
  const parts = typeof precision === "object" && precision !== null ? precision : { blocks: precision };
  const known = { ...data.efficiencies, ...accelerator.efficiencies };
  const numbers = typeof efficiency === "string" ? known[efficiency] : efficiency;
  if (!numbers) throw new Refused(accelerator.no_efficiencies ?? `Unknown efficiency ${repr(efficiency)}.`);
  const set = { model, accelerator, precision: new Precision(data.precisions[precision] ?? parts, data.bits) };
  set.efficiency = { ...data.efficiencies.floor, ...numbers };
  for (const [name, rule] of Object.entries(EFFICIENCY)) check(rule, "Efficiency", name, set.efficiency[name]);
  for (const name of Object.keys(GIVEN)) if (settings[name] !== undefined) set[name] = settings[name];
  return new Deployment(set);
}

// The largest batch of sequences that hold `tokens` tokens each; 0 when not even one fits.
export function largestBatch(deployment, tokens) {
  check(count(), "largest_batch", "tokens", tokens);
  if (deployment.memoryFree <= 0) return 0;
  const each = deployment.sequenceBytes(tokens);
  if (!each) throw new Refused(`largest_batch: ${deployment.model.name} keeps neither cache nor state; any batch fits.`);
  let batch = Math.floor(Math.min(deployment.memoryFree / each, MOST_TOKENS));
  if (batch === MOST_TOKENS) return batch;
  while (deployment.fits(tokens, batch + 1)) batch += 1;
  while (batch && !deployment.fits(tokens, batch)) batch -= 1;
  return batch;
}

// Refused, with the smallest changes that fit, unless `batch` sequences of `tokens` tokens fit.
export function requireFit(deployment, tokens, batch = 1) {
  check(count(), "require_fit", "tokens", tokens);
  check(count(), "require_fit", "batch", batch);
  if (deployment.fits(tokens, batch)) return;
  const { model, accelerator, devices, layout, weightBytes, memoryFraction, memoryAvailable: available } = deployment;
  const [needed, found] = [deployment.memoryNeeded(tokens, batch), remedies(deployment, tokens, batch)];
  let nothing = `no dtype and no number of these devices up to ${commas(MOST_DEVICES)} does`;
  if (deployment.linkRate === null) nothing = "no dtype does, and there is no link figure to join more devices";
  const words =
    `${model.name} with ${commas(batch)} x ${commas(tokens)} tokens on ${BigInt(devices)} x ${accelerator.name}` +
    `${devices === 1 ? "" : ` (${LAYOUTS[layout]})`} needs ${formatBytes(needed)} (weights ${formatBytes(weightBytes)}, ` +
    `cache ${formatBytes(needed - weightBytes)}); available are ${formatBytes(available)} ` +
    `(${fixed(100 * memoryFraction, 0)}% of the memory). What would fit: ${found.join("; or ") || nothing}.`;
  throw new Refused(words, "DoesNotFitError", { needed, available, remedies: found });
}
const SMALLER = [
  [{ cache: "fp8" }, "an fp8 cache"],
  [{ blocks: "fp8", experts: "fp8" }, "fp8 weights"],
  [{ blocks: "int4", experts: "int4" }, "int4 weights"],
  [{ blocks: "int4", experts: "int4", cache: "fp8" }, "int4 weights and an fp8 cache"],
];
// The smallest change of each kind that fits: batch, precision, devices.
function remedies(deployment, tokens, batch) {
  const largest = largestBatch(deployment, tokens);
  const found = largest ? [`batch=${BigInt(largest)}`] : [];
  const stored = (parts) => deployment.with({ precision: deployment.precision.with(parts) });
  const smaller = SMALLER.find(([parts]) => stored(parts).fits(tokens, batch));
  if (smaller) found.push(smaller[1]);
  return deployment.linkRate === null ? found : [...found, ...moreDevices(deployment, tokens, batch, !found.length)];
}
// The fewest devices that hold the batch; failing that, if `alone`, the fewest that hold a smaller one.
function moreDevices(deployment, tokens, batch, alone) {
  const [each, needed] = [deployment.memoryFraction * deployment.accelerator.memory, deployment.memoryNeeded(tokens, batch)];
  let [fewest, second] = [deployment.devices, []];
  if (deployment.layout === "tensor") fewest = needed <= each * MOST_DEVICES ? Math.ceil(needed / each) : MOST_DEVICES + 1;
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
  check(tokensFrom(1), "Request", "prompt", prompt);
  check(tokensFrom(1), "Request", "output", output);
  check(tokensFrom(0), "Request", "cached", cached);
  if (cached < prompt) return { prompt, output, cached };
  const most = "at least one prompt token must be computed, so expected at most prompt - 1";
  throw new Refused(`Request: cached is ${commas(cached)} but the prompt has ${commas(prompt)} tokens; ${most}.`);
}

const named = (what, run) => ({ ...run, works: run.works.map((one) => ({ ...one, part: `${what}: ${one.part}` })) });
// `times` passes of `batch` prompts, or of their chunks, the last one first; a draft prefills them likewise.
function promptPasses({ prefillChunk, sizes: own, draftSizes }, fresh, cached, batch, times) {
  function of(sizes) {
    const [size, inner] = prefillChunk === null ? [0, 0] : [prefillChunk, Math.floor((fresh - 1) / prefillChunk)];
    const found = [equalPasses(sizes, fresh - inner * size, cached + inner * size, batch, 1, times)];
    for (let i = 0; i < inner; i += 1) found.push(equalPasses(sizes, size, cached + i * size, batch, 0, times));
    return found;
  }
  return [...of(own), ...(draftSizes ? of(draftSizes).map((run) => named("drafting", run)) : [])];
}
function prefillPhase(deployment, prompt, cached, batch) {
  const [{ replicas }, fresh] = [deployment.sizes, prompt - cached];
  if (replicas === 1) return new Phase(deployment, promptPasses(deployment, fresh, cached, batch, 1), "prefill");
  const full = Math.floor(batch / replicas); // passes with one prompt on each device
  const rest = batch - full * replicas;
  const last = promptPasses(deployment, fresh, cached, Math.max(rest, 1), Math.min(rest, 1));
  return new Phase(deployment, [...promptPasses(deployment, fresh, cached, replicas, full), ...last], "prefill");
}
function tokensPerRound({ draftTokens, acceptance }) {
  const idle = 1 - acceptance;
  if (!(0 < idle && idle < 1)) return 1 + draftTokens * (idle === 0);
  return -Math.expm1((draftTokens + 1) * Math.log1p(-idle)) / idle;
}
// The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them.
function decodePhase(deployment, prompt, output, batch) {
  const { sizes, speculation, draftSizes } = deployment;
  if (!speculation) return new Phase(deployment, [decodeSteps(sizes, prompt, output - 1, batch)], "decode");
  const drafts = speculation.draftTokens;
  const [rounds, context] = [(output - 1) / tokensPerRound(speculation), prompt + (output - 2) / 2];
  const runs = [named("verifying", equalPasses(sizes, drafts + 1, context, batch, drafts + 1, rounds))];
  if (draftSizes) runs.push(named("drafting", equalPasses(draftSizes, 1, context, batch, 1, rounds * drafts)));
  return new Phase(deployment, runs, "decode");
}

const MOST_CHUNKS = 100_000;
function requireChunks(owner, { prefillChunk }, fresh) {
  if (prefillChunk === null || fresh / prefillChunk <= MOST_CHUNKS) return;
  const words = `the prompt needs more than ${commas(MOST_CHUNKS)} prefill chunks; take a larger prefill_chunk`;
  throw new Refused(`${owner}: ${words}.`);
}

// Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep: both clocks, both phases.
export function requestCost(deployment, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
  check(tokensFrom(1), "request_cost", "batch", batch);
  const { maxPositions: limit, model } = deployment;
  if (limit !== null && prompt + output > limit) {
    const [sum, most] = [`is ${commas(prompt + output)} tokens`, `${model.name} has ${commas(limit)} positions`];
    const both = `prompt ${commas(prompt)} + output ${commas(output)}`;
    throw new Refused(`Request: ${both} ${sum}, but ${most}; shorten one of them.`);
  }
  requireFit(deployment, prompt + output, batch);
  requireChunks("request_cost", deployment, prompt - cached);
  const prefill = prefillPhase(deployment, prompt, cached, batch);
  const decode = decodePhase(deployment, prompt, output, batch);
  const ttft = batch === 1 ? prefill.seconds : prefillPhase(deployment, prompt, cached, 1).seconds;
  const seconds = prefill.seconds + decode.seconds;
  return {
    deployment, request, batch, prefill, decode, ttft, seconds,
    undisturbed: ttft + decode.seconds,
    tpot: ratio(decode.seconds, output - 1),
    decodeShare: decode.seconds / seconds,
    flops: prefill.flops + decode.flops,
    bytes: prefill.bytes + decode.bytes,
    roofs: [...Object.values(prefill.roofs), ...Object.values(decode.roofs)],
  };
}

// ---- A full server: requests that come and go

const pages = ({ prompt, output }, page) => Math.ceil((prompt + Math.floor((output + 1) / 2)) / page) * page;

// How many identical requests are under way at a time when memory is full on average; 0 when not even one fits.
export function memoryBatch(deployment, request, page = 1) {
  return largestBatch(deployment, pages(requestOf(request), check(PAGE, "memory_batch", "page", page)));
}
function fullBatch(deployment, request, page = 1) {
  const found = memoryBatch(deployment, request, page);
  if (!found) requireFit(deployment, request.prompt + request.output);
  return Math.max(1, found);
}

// `batch` identical requests in steady state, null: the memory batch. Seconds of the GPU clock.
export function steadyState(deployment, request, batch = null, mixed = false, page = 1) {
  const { prompt, output, cached } = requestOf(request);
  check(optional(BATCH), "steady_state", "batch", batch);
  check(FLAG, "steady_state", "mixed", mixed);
  check(PAGE, "steady_state", "page", page);
  const alone = requestCost(deployment, request);
  if (batch === null) batch = fullBatch(deployment, request, page);
  else if (batch > 1) requireFit(deployment, pages(request, page), batch);
  const decode = decodePhase(deployment, prompt, output, batch);
  const attention = decode.attention.seconds / batch;
  const linear = decode.seconds / batch - attention;
  const [prompts, steps] = [Math.min(batch, deployment.sizes.replicas), output - 1];
  const ttft = (prompts > 1 ? prefillPhase(deployment, prompt, cached, prompts) : alone.prefill).seconds;
  const parts = { prefill: ttft / prompts, linear, attention };
  if (mixed) {
    const riding = (mixedPass(deployment, request, batch) * steps) / batch;
    parts.prefill = Math.max(0, riding - linear - attention);
  }
  const secondsPerRequest = total(Object.values(parts), (seconds) => seconds);
  const wait = batch * secondsPerRequest;
  const shares = Object.fromEntries(Object.entries(parts).map(([part, seconds]) => [part, seconds / secondsPerRequest]));
  return {
    request, batch, mixed, ttft, parts, shares, wait, secondsPerRequest,
    tpot: ratio(wait - (mixed ? 0 : ttft), steps),
    tokensPerSecond: output / secondsPerRequest,
    step: ratio(batch * (linear + attention), steps),
  };
}

// Seconds of one pass that carries `batch` decode tokens and the prompt tokens that arrive meanwhile.
export function mixedPass(deployment, request, batch) {
  const { prompt, output, cached } = requestOf(request);
  const [{ sizes }, steps] = [deployment, output - 1];
  if (!steps) throw new Refused("mixed_pass: the request has one output token; it has no decode step to ride on.");
  if (deployment.speculation) throw new Refused("mixed_pass: a mixed pass has one token a sequence; take no drafts.");
  const [begun, fresh] = [batch / steps, prompt - cached];
  const tokens = batch + begun * fresh;
  const attention = sizes.kinds.map((kind) => attentionWork(kind, fresh, cached, 1, begun));
  const works = [...linearWork(sizes, tokens, batch + begun), ...attention];
  const together = new Phase(deployment, [{ sizes, works, tokens: tokens / sizes.replicas, number: 1, done: 1 }]);
  return together.seconds + decodePhase(deployment, prompt, output, batch).attention.seconds / steps;
}

// The largest batch of identical requests whose TPOT is at most `tpot`: {batch, binds, state}.
export function atLatency(deployment, request, tpot = 0.03, mixed = false, page = 1) {
  const { output } = requestOf(request);
  check(rate("seconds a token"), "at_latency", "tpot", tpot);
  check(FLAG, "at_latency", "mixed", mixed);
  check(PAGE, "at_latency", "page", page);
  if (output < 2) throw wrong("at_latency", "output", output, "2 or more", "one output token has no TPOT");
  const stateOf = (batch) => steadyState(deployment, request, batch, mixed, page);
  const full = stateOf(fullBatch(deployment, request, page));
  if (full.tpot <= tpot) return { batch: full.batch, binds: "memory", state: full };
  let [low, high, state] = [1, full.batch, stateOf(1)];
  if (state.tpot > tpot) {
    const least = `at least ${general(state.tpot, 4)} s, the TPOT of one request at a time on this deployment`;
    const remedy = "take a longer target, a faster deployment or a smaller model";
    throw wrong("at_latency", "tpot", asFloat(tpot), least, remedy);
  }
  while (high - low > 1) {
    const middle = stateOf(Math.floor((low + high) / 2));
    if (middle.tpot <= tpot) [low, state] = [middle.batch, middle];
    else high = middle.batch;
  }
  return { batch: low, binds: "target", state };
}

// ---- Estimates, in one line each

const passOf = (deployment, batch) => new Phase(deployment, [equalPasses(deployment.sizes, 1, 0, batch, 1)]);

// Tokens in one pass at which the linear layers turn from memory bound to compute bound.
export const ridgeTokens = (deployment) =>
  ((deployment.peaks.blocks / deployment.bandwidth) * deployment.precision.bytesOf("blocks")) / 2;

// Block weights that one token uses over those that a decode step at `batch` reads.
export function usedOverRead({ model, sizes }, batch = 1) {
  let idle = 0;
  model.experts.forEach((ffn, i) => {
    const distinct = -ffn.experts * Math.expm1(batch * sizes.experts[i].logIdle);
    idle += ffn.layers * ffn.weights * (distinct - ffn.picked);
  });
  return model.block_matmul_weights / (model.block_matmul_weights + idle);
}
// About prefill time over decode time at `batch`: decode heavy is much below 1.
export function rho(deployment, request, batch = 1) {
  const { prompt, output, cached } = requestOf(request);
  const used = check(tokensFrom(1), "rho", "batch", batch) * usedOverRead(deployment, batch);
  return ((prompt - cached) / output) * Math.min(used / ridgeTokens(deployment), 1);
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
  const { prompt, output } = requestOf(request);
  if (deployment.memoryFree <= 0) requireFit(deployment, 1);
  if (!deployment.cacheBytesPerToken) {
    throw new Refused(`omega: ${deployment.model.name} keeps no growing cache, so omega says nothing about it.`);
  }
  return (roofBatch(deployment, request) * deployment.sequenceBytes(prompt + output / 2)) / deployment.memoryFree;
}

// ---- The cache over an answer

// [{label, layers, bytes}] by kind of layer: what one sequence of `tokens` tokens holds.
export const cacheByKind = ({ sizes }, tokens) =>
  sizes.kinds.map((kind) => ({ label: kind.label, layers: kind.layers, bytes: kindBytes(kind, tokens) }));

// The step that emits output token `position` + 1: {linear, neighbours, own, other, seconds}.
export function stepParts(deployment, request, position, batch = 1, together = false) {
  const { prompt, output } = requestOf(request);
  check(TOKENS, "step_parts", "position", position);
  check(BATCH, "step_parts", "batch", batch);
  check(FLAG, "step_parts", "together", together);
  requestCost(deployment, request);
  requireFit(deployment, prompt + (together ? output : Math.floor((output + 1) / 2)), batch);
  if (position > output - 1) {
    const said = { said: `np.float64(${floatRepr(position)})` };
    throw wrong("step_parts", "position", said, `whole numbers from 1 to ${commas(output - 1)}, its steps`);
  }
  const secondsOf = (run) => new Phase(deployment, [run]).attention.seconds;
  const own = secondsOf(equalPasses(deployment.sizes, 1, prompt + position - 1, 1, 1));
  const mean = () => secondsOf(decodeSteps(deployment.sizes, prompt, output - 1, 1)) / (output - 1);
  const shared = passOf(deployment, batch);
  const [linear, other] = [shared.linear.seconds, shared.communication + shared.overhead];
  const neighbours = (Math.ceil(batch / deployment.sizes.replicas) - 1) * (together ? own : mean());
  return { linear, neighbours, own, other, seconds: linear + neighbours + own + other };
}

const gcd = (one, other) => (other ? gcd(other, one % other) : one);
// The first span at which a step moves more bytes of cache and state than of weights; null when it never does.
export function spanWhereCachePassesWeights({ sizes }, batch = 1) {
  check(BATCH, "span_where_cache_passes_weights", "batch", batch);
  const weights = total(linearWork(sizes, batch, batch), (one) => one.weights);
  const bytes = (one) => one.cacheRead + one.cacheWrite + one.state;
  const above = (span) => total(sizes.kinds, (kind) => bytes(attentionWork(kind, 1, span - 1, batch))) > weights;
  function firstAbove(low, high, unit = 1) {
    while (high - low > unit) {
      const middle = Math.floor((low + Math.floor((high - low) / 2)) / unit) * unit;
      if (above(middle)) high = middle;
      else low = middle;
    }
    return high;
  }
  const periods = [...new Set(sizes.kinds.map((kind) => kind.law.period).filter(Boolean))];
  const anew = periods.reduce((one, other) => (one * other) / gcd(one, other), 1);
  const last = Math.floor(MOST_TOKENS / anew) * anew;
  if (!above(last)) return null;
  const end = firstAbove(0, last, anew);
  const peaks = [end];
  for (const period of periods) for (let at = end - anew + period; at < end; at += period) peaks.push(at);
  const peak = Math.min(...peaks.filter(above));
  return firstAbove(Math.max(end - anew, ...peaks.filter((at) => at < peak)), peak);
}

// Cache reads of all decode steps: as they are, as if the cache never grew, or had its final size all along.
export function answerTraffic(deployment, request, batch = 1) {
  const { prompt, output } = requestOf(request);
  check(BATCH, "answer_traffic", "batch", batch);
  const { decode } = requestCost(deployment, request, batch);
  const reads = (context) => total(deployment.sizes.kinds, (kind) => attentionWork(kind, 1, context, batch).cacheRead);
  const [flat, end] = [prompt, prompt + output - 2].map((context) => (output > 1 ? (output - 1) * reads(context) : 0));
  return { triangle: decode.cacheRead, flat, end };
}

// ---- What a faster prefill buys, and what tokens cost

// Amdahl's law: time before over time after a prefill k times faster.
export function fasterPrefill(prefillSeconds, decodeSeconds, k) {
  check(AT_LEAST_ZERO, "faster_prefill", "prefill_seconds", prefillSeconds);
  check(AT_LEAST_ZERO, "faster_prefill", "decode_seconds", decodeSeconds);
  check(ABOVE_ZERO, "faster_prefill", "k", k);
  const found = (prefillSeconds + decodeSeconds) / (prefillSeconds / k + decodeSeconds);
  if (!Number.isNaN(found)) return found;
  throw wrong("faster_prefill", "prefill_seconds", asFloat(0), "one time above 0, as decode_seconds is 0 too");
}
// The least output at which prefill is under `share` of the GPU clock.
export function breakEvenOutput(deployment, prompt, batch = 1, share = 0.05) {
  check(TOKENS, "break_even_output", "prompt", prompt);
  check(BATCH, "break_even_output", "batch", batch);
  check(FRACTION, "break_even_output", "share", share);
  requireChunks("break_even_output", deployment, prompt);
  const allowed = (prefillPhase(deployment, prompt, 0, batch).seconds * (1 - share)) / share;
  const shortOf = (output) => decodePhase(deployment, prompt, output, batch).seconds <= allowed;
  let [low, high] = [1, 2];
  for (; shortOf(high); high *= 2) {
    const words = `break_even_output: no output up to 2**53 tokens brings prefill under ${general(share, 6)}.`;
    if (high > MOST_TOKENS) throw new Refused(words);
  }
  for (let i = 0; i < 60; i += 1) {
    const middle = Math.floor((low + high) / 2);
    if (shortOf(middle)) low = middle;
    else high = middle;
  }
  return high;
}
// GPU seconds of an output token at `batch` over those of a prompt token in a prefill of `prompt` tokens alone.
export function outputTokenInPromptTokens(deployment, request, batch, prompt = 1024) {
  requestOf(request);
  check(BATCH, "output_token_in_prompt_tokens", "batch", batch);
  check(BATCH, "output_token_in_prompt_tokens", "prompt", prompt);
  const { step } = steadyState(deployment, request, batch);
  requireChunks("output_token_in_prompt_tokens", deployment, prompt);
  return step / batch / (prefillPhase(deployment, prompt, 0, 1).seconds / prompt);
}
// Price of one request in steady state, in the currency of `pricePerHour`, that of a device for a busy hour.
export function priceOfRequest(deployment, request, batch, pricePerHour) {
  requestOf(request);
  check(BATCH, "price_of_request", "batch", batch);
  check(rate("currency an hour"), "price_of_request", "price_per_hour", pricePerHour);
  return (steadyState(deployment, request, batch).secondsPerRequest * deployment.devices * pricePerHour) / 3600;
}

// ---- Levers

const HALF_CACHED = "half of each prompt in a prefix cache";
const onDeployment = (change) => (one) => ({ ...one, deployment: one.deployment.with(change(one.deployment)) });
const onAccelerator = (change) =>
  onDeployment(({ accelerator }) => ({ accelerator: { ...accelerator, ...change(accelerator) } }));
const onRequest = (change) => (one) => ({ ...one, request: { ...one.request, ...change(one.request) } });
const quantised = (parts) => onDeployment(({ precision }) => ({ precision: precision.with(parts) }));
const doubled = (peaks) => Object.fromEntries(Object.entries(peaks).map(([dtype, peak]) => [dtype, 2 * peak]));

// What one may do, in words to a change of {deployment, request, batch}; not what is there already.
export function usualLevers(deployment, request) {
  const { model, accelerator, precision, devices } = deployment;
  const found = {
    "twice the FLOP/s": onAccelerator(({ peaks }) => ({ peaks: doubled(peaks) })),
    "twice the bandwidth": onAccelerator(({ bandwidth }) => ({ bandwidth: 2 * bandwidth })),
    "twice the memory": onAccelerator(({ memory }) => ({ memory: 2 * memory })),
    "half the thought: answers half as long": onRequest(({ output }) => ({ output: Math.ceil(0.5 * output) })),
  };
  const wide = Math.max(precision.bytesOf("blocks"), precision.bytesOf("experts")) > 1;
  const eight = quantised({ blocks: "fp8", experts: "fp8" });
  const halfOf = ({ prompt }) => ({ cached: Math.min(Math.floor(0.5 * prompt), prompt - 1) });
  if (wide && "fp8" in accelerator.peaks) found["W8A8: weights and activations in fp8"] = eight;
  if (wide) found["4-bit weights (head stays)"] = quantised({ blocks: "int4", experts: "int4" });
  if (precision.bytesOf("cache") > 1) found["fp8 cache"] = quantised({ cache: "fp8" });
  if (!request.cached) found[HALF_CACHED] = onRequest(halfOf);
  for (const [name, numbers] of Object.entries(model.others)) {
    found[name] = onDeployment(() => ({ model: { ...model, ...numbers } }));
  }
  for (const [name, { draft_tokens: draftTokens, ...drafting }] of Object.entries(model.drafts)) {
    if (!deployment.speculation) found[name] = onDeployment(() => ({ speculation: { draftTokens, ...drafting } }));
  }
  for (const layout of accelerator.link === null ? [] : model.experts.length ? ["tensor", "expert"] : ["tensor"]) {
    found[`twice the devices, ${layout} parallel`] = onDeployment(() => ({ devices: 2 * devices, layout }));
  }
  return found;
}

// GPU seconds of one request when `batch` of them are always under way; whether they fit is not asked.
function price(deployment, { prompt, output, cached }, batch) {
  const words = "price: the deployment has a prefill_chunk; take one without: prompts are taken whole.";
  if (deployment.prefillChunk !== null) throw new Refused(words);
  const prompts = Math.min(batch, deployment.sizes.replicas);
  const decode = decodePhase(deployment, prompt, output, batch).seconds / batch;
  return { seconds: prefillPhase(deployment, prompt, cached, prompts).seconds / prompts + decode, decode };
}
// The two prices of a case: at its batch, and at its own memory batch.
function bothPrices({ deployment, request, batch }) {
  const [held, each] = [price(deployment, request, batch), deployment.sequenceBytes(pages(request, 1))];
  const words = `memory_batch: ${deployment.model.name} keeps neither cache nor state; any number fits`;
  if (!each) throw new Refused(words);
  const limit = Math.floor(Math.min(deployment.memoryFree / each, MOST_TOKENS));
  if (limit < 1) requireFit(deployment, request.prompt + request.output);
  return [held, limit === batch ? held : price(deployment, request, Math.max(1, limit))];
}
function gains(start, reloadRates) {
  const before = bothPrices(start);
  const refusals = ["DoesNotFitError", "InvalidInputError"]; // heads that do not divide, no room for one request
  const free = before.map((cost) => (cost.decode ? cost.seconds / cost.decode : Infinity));
  const found = { "a prefill that takes no time": free };
  for (const [name, lever] of Object.entries(usualLevers(start.deployment, start.request))) {
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
  const start = { deployment, request: requestOf(request), batch: check(BATCH, "rank_levers", "batch", batch) };
  const order = (of) => {
    const better = (one, other) => of[other][1] - of[one][1] || of[other][0] - of[one][0] || (one < other ? -1 : 1);
    return Object.keys(of).sort(better);
  };
  const found = gains(start, reloadRates);
  const again = typical && gains({ ...start, deployment: deployment.with({ efficiency: typical }) }, reloadRates);
  const second = typical && order(again);
  return order(found).map((name, place) => {
    const [held, atLimit] = found[name];
    return { name, held, atLimit, typical: typical && again[name][1], holds: typical && second[place] === name };
  });
}

// ---- A server over time: requests join and leave a running batch at any step, and their caches share one memory

const SERVING = { prefill: "first", block: 16, watermark: 0.01, maxBatch: null, tokenBudget: null, horizon: null, mostEvents: 5e6 };
const SERVING_RULES = [
  ["prefill", "prefill", choice(["first", "joint", "chunked"])],
  ["block", "block", count(1, 65_536)],
  ["watermark", "watermark", { expected: "a fraction from 0 to 1", takes: within(0, 1) }],
  ["max_batch", "maxBatch", optional(count())],
  ["token_budget", "tokenBudget", optional(count())],
  ["horizon", "horizon", optional(rate("seconds", true))],
  ["most_events", "mostEvents", count()],
];

// What `simulate` refuses of options that do not go together, and of requests that do not fit even alone.
function requireServable(deployment, requests, start, set, capacity, heldBytes) {
  for (const [said, name, rule] of SERVING_RULES) check(rule, "simulate", said, set[name]);
  const { sizes, layout, prefillChunk, maxPositions: limit, model } = deployment;
  const refuse = (name, value, expected, remedy) => { throw wrong("simulate", name, value, expected, remedy); };
  const alone = "a queue before several devices is not modelled: take 'tensor', or policy.steady_state";
  const whole = "joint prefill takes whole prompts: take a deployment with prefill_chunk=None";
  if (sizes.replicas > 1) refuse("layout", layout, "'tensor'", alone);
  if (deployment.speculation) throw new Refused("simulate: a step here emits one token; take a deployment without drafts.");
  if (set.prefill === "joint" && prefillChunk !== null) refuse("prefill", "joint", "first or chunked", whole);
  const budget = set.tokenBudget;
  if (budget !== null && set.prefill !== "chunked") refuse("token_budget", budget, "None", "only prefill='chunked' has one");
  const first = floatRepr(start).replace(/^\d+/, grouped);
  const late = set.horizon !== null && set.horizon <= start;
  if (late) refuse("horizon", asFloat(set.horizon), `it after the first arrival, ${first} s`, "");
  const held = requests.map(({ prompt, output }) => prompt + output - 1);
  const long = limit === null ? -1 : held.findIndex((tokens) => tokens >= limit);
  if (long >= 0) {
    const { prompt, output } = requests[long];
    const words = `request ${long} has prompt ${commas(prompt)} + output ${commas(output)} = ${commas(held[long] + 1)} tokens`;
    const most = `${model.name} has ${commas(limit)} positions`;
    throw new Refused(`simulate: ${words}, but ${most}; shorten it or leave it out.`);
  }
  const large = held.findIndex((tokens) => heldBytes(tokens) > capacity);
  if (large < 0) return;
  try {
    requireFit(deployment, held[large]);
  } catch (error) {
    throw new Refused(`simulate: request ${large} by itself: ${error.message}`, error.kind);
  }
  const words = `takes ${formatBytes(heldBytes(held[large]))} in blocks for its ${commas(held[large])} tokens`;
  const most = `the cache has ${formatBytes(capacity)}; take a smaller block, shorten it or leave it out`;
  throw new Refused(`simulate: request ${large} ${words}, but ${most}.`, "DoesNotFitError");
}

// Kinds of layer by what they hold and see: those with the same blocks of memory together, as the simulator has them.
function layersByLaw(kinds) {
  const laws = new Map();
  for (const kind of kinds.filter((one) => one.cacheBytes)) {
    const key = kind.law.fillsAt ?? kind;
    laws.set(key, [...(laws.get(key) ?? []), kind]);
  }
  return [...laws.values()];
}

// Continuous batching with paged memory, event by event, as the library's simulate: requests {prompt, output, cached}
// that arrive at `arrivals` seconds, sorted. Gives times of each request, GPU seconds by phase, and the occupancy at the
// start of each event and at the end.
export function timeline(deployment, requests, arrivals, options = {}) {
  const [set, all, { sizes, prefillChunk }] = [{ ...SERVING, ...options }, requests.map(requestOf), deployment];
  const [start, end, most] = [arrivals[0], set.horizon ?? Infinity, set.maxBatch ?? Infinity];
  const budget = set.tokenBudget ?? prefillChunk ?? 2048;
  const capacity = Math.floor(deployment.memoryFree);
  const reserve = Math.ceil(set.watermark * capacity);
  const laws = layersByLaw(sizes.kinds).map((kinds) => {
    const blockBytes = Math.ceil(total(kinds, (kind) => kind.cacheBytes) * set.block);
    return (tokens) => blockBytes * Math.ceil(kinds[0].law.held(tokens) / set.block);
  });
  const stateBytes = Math.ceil(total(sizes.kinds, (kind) => kind.stateBytes));
  const heldBytes = (tokens) => stateBytes + total(laws, (held) => held(tokens));
  requireServable(deployment, all, start, set, capacity, heldBytes);

  // Seconds of attention of one sequence in all decode steps that find fewer than `tokens` tokens cached: grown as asked.
  const secondsOf = (works, tokens = 0, number = 0) =>
    new Phase(deployment, [{ sizes, works, tokens, number, done: 1 }]).seconds;
  const [growing, states] = [true, false].map((cached) => sizes.kinds.filter((kind) => Boolean(kind.cacheBytes) === cached));
  const stateSeconds = secondsOf(states.map((kind) => attentionWork(kind, 1, 0, 1)));
  const sums = [0];
  function attentionUpTo(tokens) {
    for (let at = sums.length - 1; at < tokens; at += 1) {
      sums.push(sums[at] + secondsOf(growing.flatMap((kind) => attentionOfSteps(kind, at, 1, 1))));
    }
    return sums[tokens];
  }
  const known = new Map();
  function sharedSeconds(sequences) {
    if (!known.has(sequences)) {
      const pass = passOf(deployment, sequences);
      known.set(sequences, pass.linear.seconds + pass.communication + pass.overhead + sequences * stateSeconds);
    }
    return known.get(sequences);
  }

  let [time, arrived, holding, finished, free, outputTokens, recomputedTokens] = [start, 0, 0, 0, capacity, 0, 0];
  let [requestSeconds, peakRunning, peakCacheBytes, events] = [0, 0, 0, 0];
  const seconds = { prefill: 0, recompute: 0, decode: 0, mixed: 0, idle: 0 };
  const occupancy = { time: [], running: [], waiting: [], cacheBytes: [] };
  const [admitted, firstToken, finish] = [0, 1, 2].map(() => all.map(() => NaN));
  const [preemptions, tokens] = [all.map(() => 0), all.map((one) => one.prompt)]; // tokens: held, or to prefill
  const [queue, prefilling, running] = [[], new Map(), new Map()]; // tokens prefilled so far; steps that are left
  const nextArrival = () => arrivals[arrived] ?? Infinity;
  const stepsOf = (steps, of) => total([...running.keys()], (i) => of(tokens[i] + steps) - of(tokens[i]));
  const newBytes = (steps) => stepsOf(steps, heldBytes);
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
  function admit(room) {
    for (; queue.length && room > 0 && holding < most; room -= 1) {
      const needed = heldBytes(tokens[queue[0]]);
      if (needed > free - (holding ? reserve : 0)) break;
      take(needed);
      const i = queue.shift();
      prefilling.set(i, all[i].cached);
      if (!preemptions[i]) admitted[i] = time;
      holding += 1;
    }
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
  // The prefill of request i is done: it has one token more, and decodes if it wants others.
  function join(i) {
    const emitted = tokens[i] - all[i].prompt + 1;
    outputTokens += 1;
    if (emitted === 1) firstToken[i] = time;
    if (emitted === all[i].output) last(i);
    else {
      prefilling.delete(i);
      running.set(i, all[i].output - emitted);
    }
  }
  // The request that was admitted last gives up its memory, and waits again, first of all.
  function preempt() {
    const decodes = !prefilling.size; // then its last token is not yet in the cache
    const i = [...(decodes ? running : prefilling).keys()].at(-1);
    leave(i);
    tokens[i] += decodes;
    queue.unshift(i);
    preemptions[i] += 1;
  }
  function advance(passed, phase, again = 0) {
    const now = { time, running: holding, waiting: queue.length, cacheBytes: capacity - free };
    for (const name of Object.keys(occupancy)) occupancy[name].push(now[name]);
    requestSeconds += (holding + queue.length) * passed;
    seconds[phase] += passed - again;
    seconds.recompute += again;
    time += passed;
  }
  function stepsDone(steps) {
    outputTokens += steps * running.size;
    for (const [i, left] of [...running]) {
      tokens[i] += steps;
      running.set(i, left - steps);
      if (left === steps) last(i);
    }
  }
  // One pass of `decoding` tokens, one a sequence, and prompt tokens up to `room` in all.
  function promptPass(room, decoding) {
    const done = [];
    let [fresh, again, passed] = [0, 0, 0];
    for (const [i, cached] of prefilling) {
      const taken = Math.min(room - decoding - fresh, tokens[i] - cached);
      if (!taken) break;
      passed += secondsOf(sizes.kinds.map((kind) => attentionWork(kind, taken, cached, 1)));
      fresh += taken;
      again += preemptions[i] ? taken : 0;
      prefilling.set(i, cached + taken);
      if (cached + taken === tokens[i]) done.push(i);
    }
    passed += secondsOf(linearWork(sizes, fresh + decoding, done.length + decoding), fresh + decoding, 1);
    recomputedTokens += again;
    if (decoding) {
      passed += stepsOf(1, attentionUpTo) + decoding * stateSeconds;
      const taken = newBytes(1);
      advance(passed, "mixed");
      take(taken);
      stepsDone(1);
    } else advance(passed, "prefill", passed * (again / fresh));
    done.forEach(join);
  }
  // The most steps up to `high` for which `holds`, which it does for one of them and for fewer than for which it does.
  function mostSteps(high, holds) {
    let [low, above] = [1, high + 1];
    while (above - low > 1) {
      const middle = Math.floor((low + above) / 2);
      if (holds(middle)) low = middle;
      else above = middle;
    }
    return low;
  }
  // Steps up to the first event: a last token, a full cache, or a step that ends after `until`.
  function decode(until) {
    const secondsFor = (steps) => steps * sharedSeconds(running.size) + stepsOf(steps, attentionUpTo);
    let steps = Math.min(...running.values());
    if (time + secondsFor(steps) > until) {
      steps = Math.min(steps, mostSteps(steps, (some) => time + secondsFor(some - 1) < until));
    }
    if (newBytes(steps) > free) steps = mostSteps(steps, (some) => newBytes(some) <= free);
    const taken = newBytes(steps);
    advance(secondsFor(steps), "decode");
    take(taken);
    stepsDone(steps);
  }

  for (; finished < all.length && time < end && events < set.mostEvents; events += 1) {
    arrive();
    if (queue.length) admit(set.prefill === "first" ? 1 - prefilling.size : Infinity);
    if (!holding) {
      const until = Math.min(nextArrival(), end);
      advance(until - time, "idle");
      time = until; // a rounding may not put it before the arrival
    } else if (prefilling.size && set.prefill !== "chunked") promptPass(prefillChunk ?? Infinity, 0);
    else {
      while (newBytes(1) > free) preempt();
      if (prefilling.size && running.size < budget) promptPass(budget, running.size);
      else decode(!queue.length && holding < most ? Math.min(nextArrival(), end) : end);
    }
  }
  arrive();
  advance(0, "idle");
  const cut = time >= end ? "the horizon was reached" : `most_events = ${commas(set.mostEvents)} was reached`;
  const ended = finished === all.length ? "every request finished" : cut;
  return {
    arrivals, admitted, firstToken, finish, preemptions, seconds, occupancy, start, end: time, ended, events, outputTokens,
    recomputedTokens, requestSeconds, peakRunning, peakCacheBytes, cacheBytesAvailable: capacity,
  };
}
