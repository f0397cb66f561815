// What explorer.js answers to the cases of tests/explorer_cases.py: values by name, or why it refuses.

const PHASE = ["seconds", "flops", "communication", "overhead", "passes"];
const SUMS = ["flops", "weights", "cacheRead", "cacheWrite", "state", "computeSeconds", "memorySeconds", "seconds", "bytes"];

// Numbers that JSON does not have, as words.
export const decoded = (text) => JSON.parse(text, (_, value) => ({ "#nan": NaN, "#inf": Infinity, "#-inf": -Infinity })[value] ?? value);
export const encoded = (value) =>
  JSON.stringify(value, (_, one) => (typeof one !== "number" || Number.isFinite(one) ? one : `#${one > 0 ? "inf" : one < 0 ? "-inf" : "nan"}`));

const pick = (from, names) => Object.fromEntries(names.map((name) => [name, from[name]]));

const phase = (one) => ({ ...pick(one, PHASE), linear: pick(one.linear, SUMS), attention: pick(one.attention, SUMS) });

function cost(X, deployment, request, batch) {
  const found = X.requestCost(deployment, request, batch);
  const names = ["ttft", "seconds", "undisturbed", "tpot", "decodeShare", "flops"];
  return { ...pick(found, names), prefill: phase(found.prefill), decode: phase(found.decode) };
}

function state(found) {
  return pick(found, ["batch", "ttft", "parts", "shares", "wait", "secondsPerRequest", "tpot", "tokensPerSecond", "step"]);
}

const QUESTIONS = {
  cost: (X, d, r, one) => cost(X, d, r, one.batch),
  memory: (X, d, r) => ({
    weights: d.weightBytes, available: d.memoryAvailable, token: d.cacheBytesPerToken,
    sequence: d.sequenceBytes(r.prompt + r.output), batch: X.memoryBatch(d, r), largest: X.largestBatch(d, r.prompt + r.output),
    kinds: X.cacheByKind(d, r.prompt),
  }),
  fits: (X, d, r, one) => X.requireFit(d, r.prompt + r.output, one.batch) ?? "fits",
  steady: (X, d, r, one) => state(X.steadyState(d, r, one.batch, one.mixed)),
  full: (X, d, r, one) => state(X.steadyState(d, r, null, one.mixed)),
  latency: (X, d, r, one) => {
    const found = X.atLatency(d, r, one.tpot, one.mixed);
    return { batch: found.batch, binds: found.binds, state: state(found.state) };
  },
  step: (X, d, r, one) => X.stepParts(d, r, one.position, one.batch, one.together),
  traffic: (X, d, r, one) => X.answerTraffic(d, r, one.batch),
  span: (X, d, r, one) => X.spanWhereCachePassesWeights(d, one.batch),
  estimates: (X, d, r, one) => ({ rho: X.rho(d, r, one.batch), chi: X.chi(d, r), roof: X.roofBatch(d, r), ridge: X.ridgeTokens(d) }),
  omega: (X, d, r) => X.omega(d, r),
  even: (X, d, r, one) => X.breakEvenOutput(d, r.prompt, one.batch, one.share),
  tokens: (X, d, r, one) => X.outputTokenInPromptTokens(d, r, one.batch, one.prefill),
  price: (X, d, r, one) => X.priceOfRequest(d, r, one.batch, one.dollars),
  levers: (X, d, r, one) =>
    Object.fromEntries(X.rankLevers(d, r, one.batch).map(({ name, ...gains }) => [name, gains])),
};

function attempt(X, answer) {
  try {
    return answer();
  } catch (error) {
    if (!(error instanceof X.Refused)) throw error;
    return { refused: error.kind, words: error.message };
  }
}

function answer(X, data, one) {
  let [deployment, request] = [null, null];
  const refused = attempt(X, () => {
    deployment = X.deploymentOf(data, one);
    request = X.requestOf(one);
    return null;
  });
  if (refused) return { made: refused };
  const found = {};
  for (const name of one.asked) {
    found[name] = attempt(X, () => QUESTIONS[name](X, deployment, request, one));
    if (found[name]?.refused && !one.thorough) break;
  }
  return found;
}

function served(X, data, { requests, arrivals, options, ...settings }) {
  const found = attempt(X, () => X.timeline(X.deploymentOf(data, settings), requests, arrivals, options));
  if (found.refused) return found;
  const names = ["firstToken", "finish", "preemptions", "end", "seconds"];
  return { ...pick(found, names), mostRunning: found.peakRunning, mostWaiting: Math.max(...found.occupancy.waiting) };
}

const FORMATS = {
  bytes: (X, value, digits) => X.formatBytes(value, digits),
  flops: (X, value, digits) => X.formatFlops(value, digits),
  seconds: (X, value, digits) => X.formatSeconds(value, digits),
  percent: (X, value, digits) => X.formatPercent(value, digits),
  tokens: (X, value) => X.tokensLabel(value),
  general: (X, value, digits) => X.general(value, digits),
  grouped: (X, value, digits) => X.general(value, digits, true),
  fixed: (X, value, digits) => X.fixed(value, digits),
  commas: (X, value, digits) => X.fixed(value, digits, true),
};

// All answers to what the tests ask: `kind` is "cases", "views", "stills", "served" or "formats".
export function answers(X, { kind, data, asked }) {
  if (kind === "cases") return asked.map((one) => answer(X, data, one));
  if (kind === "views") {
    const numbers = ({ view, setting }) => X.shown(data, view, X.settingOf(data, view, setting)).numbers;
    return asked.map((one) => attempt(X, () => numbers(one)));
  }
  if (kind === "stills") return asked.map(({ view, setting }) => attempt(X, () => X.still(data, view, setting)));
  if (kind === "served") return asked.map((one) => served(X, data, one));
  return asked.map(([format, value, digits]) => FORMATS[format](X, value, digits));
}
