// The form of one exercise: its question, a field or buttons, Check, Hint and Solution.
//
// It judges a guess by what the library exported of the exercise, and says nothing in words of its own but the names of
// its buttons. `form` is for any page; `default` is what anywidget calls in a notebook.

const SLIP_TOLERANCE = 0.01; // as in face/exercises/exercises.py: a slip is named only where it gives the guess
const ROUNDED = 0.55; // of the guess's last digit

// The number that was typed: "12,800", "1.5e3", "97 %" or "60 s"; null for anything else.
export function numberOf(typed, unit) {
  let text = typed.trim();
  if (unit && text.toLowerCase().endsWith(unit.toLowerCase())) text = text.slice(0, -unit.length).trim();
  if (/^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(text)) text = text.replaceAll(",", "");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

const within = (guess, value, tolerance) => Math.abs(guess - value) <= tolerance * Math.abs(value);

// Whether the guess is the value rounded, to two digits or more.
function roundsTo(value, guess) {
  const [mantissa, power] = guess.toExponential().split("e");
  const places = mantissa.replace(/[-.]/g, "").length;
  return places > 1 && Math.abs(guess - value) <= ROUNDED * 10 ** (Number(power) - places + 1);
}

// {right, words}: the verdict on a guess, a number or a letter, as the library's `judge` gives it; right is null for none.
export function judge(exercise, guess) {
  const says = exercise.says;
  if (exercise.kind === "choice") {
    if (!Object.hasOwn(exercise.options, guess ?? "")) return { right: null, words: says.none };
    return { right: guess === exercise.right, words: says[guess] };
  }
  if (guess === null) return { right: null, words: says["no number"] };
  if (within(guess, exercise.value, exercise.tolerance)) return { right: true, words: says.right };
  let slip = null;
  let least = Infinity;
  for (const [value, words] of exercise.slips) {
    const off = Math.abs(guess - value) / Math.abs(value);
    if (off < least) [least, slip] = [off, [value, words]];
  }
  if (slip && within(guess, slip[0], Math.min(exercise.tolerance, SLIP_TOLERANCE)))
    return { right: false, words: says.slip + slip[1] + says["after slip"] };
  if (roundsTo(exercise.value, guess)) return { right: true, words: says.right };
  return { right: false, words: says[guess > exercise.value ? "high" : "low"] };
}

// "15 %" and "60 s" stay on one line.
const whole = (words) => words.replace(/(\d) (?=(?:%|ms|s|GB|TB)(?![A-Za-z]))/g, "$1\u00a0");

function element(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside);
  return made;
}

// The form in `host`. `kept`: what was answered before, as the progress file has it; `tell(event)`: what was done now.
export function form(exercise, kept, host, tell) {
  const id = `ask-${exercise.key}-${Math.random().toString(36).slice(2, 8)}`;
  const said = element("div", { class: "ask-said", role: "status", "aria-live": "polite" });
  const button = (name, does) => {
    const made = element("button", { type: "button", class: "ask-button" }, name);
    made.addEventListener("click", does);
    return made;
  };
  let field;
  let guessed;
  if (exercise.kind === "choice") {
    field = element("div", { class: "ask-options" });
    for (const [letter, words] of Object.entries(exercise.options)) {
      const radio = element("input", { type: "radio", name: id, value: letter, id: `${id}-${letter}` });
      field.append(element("label", { class: "ask-option", for: radio.id }, radio, " ", element("b", {}, letter), ` ${whole(words)}`));
    }
    guessed = () => field.querySelector("input:checked")?.value ?? null;
  } else {
    const input = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", id, class: "ask-number" });
    const label = element("label", { for: id }, "Your answer");
    field = element("div", { class: "ask-field" }, label, input, element("span", {}, exercise.unit));
    guessed = () => (input.value.trim() === "" ? undefined : numberOf(input.value, exercise.unit));
  }

  let hints = 0;
  const say = (words, kind) => {
    said.textContent = whole(words);
    said.dataset.kind = kind;
  };
  const check = () => {
    const guess = guessed();
    if (guess === undefined) return say(exercise.says.none, "none");
    const { right, words } = judge(exercise, guess);
    say(words, right === null ? "none" : right ? "right" : "wrong");
    if (right !== null) tell({ what: "guess", guess, right, words });
  };
  const hint = () => {
    if (!exercise.hints.length) return;
    const number = (hints % exercise.hints.length) + 1;
    hints += 1;
    say(`Hint ${number} of ${exercise.hints.length}: ${exercise.hints[number - 1]}`, "hint");
    tell({ what: "hint", number });
  };
  const solution = () => {
    say(exercise.solution, "hint");
    tell({ what: "solution" });
  };
  const buttons = element("div", { class: "ask-buttons" }, button("Check", check));
  if (exercise.hints.length) buttons.append(button("Hint", hint));
  buttons.append(button("Solution", solution));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      check();
    }
    event.stopPropagation(); // a notebook takes keys for its own commands
  });
  if (kept?.right) say(`Answered before, with ${kept.tries === 1 ? "one try" : `${kept.tries} tries`}.`, "none");
  const legend = element("legend", {}, whole(exercise.question));
  host.append(element("fieldset", { class: "ask", "data-key": exercise.key }, legend, field, buttons, said));
}

export default {
  render({ model, el }) {
    let count = 0;
    form(model.get("exercise"), model.get("kept"), el, (event) => {
      count += 1;
      model.set("event", { ...event, count }); // counted, so that the same guess twice is two events
      model.save_changes();
    });
  },
};
