// What a page of the book does: it asks the questions, keeps what was answered in this browser, folds and unfolds
// results, starts the explorers, and says what a word means. Without it the page still reads.
(() => {
  "use strict";

  const SCHEMA = "lessonlib.progress/1"; // of the file that notebooks keep: face/exercises/progress.py
  const MOST_SLIPS = 100;
  const NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split(" ");
  const nothing = () => ({ tries: 0, right: false, first: false, hints: 0, looked: false, slips: [] });
  const isEntry = (entry) => Object.entries(nothing()).every(([name, of]) =>
    typeof entry?.[name] === typeof of && Array.isArray(entry[name]) === Array.isArray(of));
  const lesson = window.lesson ?? {};
  const data = window.lessonData ?? { exercises: {} };
  let memory = {}; // where the browser keeps nothing for this page

  function entries() {
    try {
      const found = JSON.parse(localStorage.getItem(SCHEMA));
      const kept = found?.schema === SCHEMA ? Object.entries(found.exercises ?? {}) : [];
      return Object.fromEntries(kept.filter(([, entry]) => isEntry(entry))); // another page may have written there
    } catch {
      return memory;
    }
  }

  function keep(found) {
    memory = found;
    try {
      localStorage.setItem(SCHEMA, asFile(found));
    } catch {
      // A browser that keeps nothing: the answers last as long as the page.
    }
  }

  const asFile = (found) => `${JSON.stringify({ schema: SCHEMA, exercises: found }, null, 1)}\n`;

  // The event of a form, kept as the notebooks keep it.
  function happened(key, event) {
    const found = entries();
    const entry = (found[key] ??= nothing());
    if (event.what === "guess") {
      if (event.right && !entry.tries) entry.first = true;
      if (!event.right && event.words && entry.slips.length < MOST_SLIPS) entry.slips.push(event.words);
      entry.tries += entry.right ? 0 : 1; // what is tried afterwards is play
      entry.right ||= event.right;
    } else if (event.what === "hint") {
      entry.hints = Math.max(entry.hints, event.number);
    } else if (event.what === "solution") {
      entry.looked ||= !entry.right;
    }
    keep(found);
    return entry;
  }

  // Where one stands in a notebook, in the words of `standing`; what is left is a list of keys.
  function standing(number) {
    const found = entries();
    const asked = Object.values(data.exercises).filter((exercise) => exercise.notebook === number);
    const entry = (exercise) => found[exercise.key] ?? nothing();
    const right = asked.filter((exercise) => entry(exercise).right);
    const helped = right.filter((exercise) => entry(exercise).hints > 0 || entry(exercise).looked).length;
    let words = `${number}: ${right.length} of ${asked.length} right`;
    if (helped) words += `, ${NUMBERS[helped] ?? helped} with help`;
    const quiz = asked.filter((exercise) => exercise.again);
    const answered = quiz.filter((exercise) => exercise.key in found);
    let score = "";
    if (answered.length) {
      const missed = answered.filter((exercise) => !entry(exercise).first || entry(exercise).looked);
      score = `Score: ${answered.length - missed.length} of ${quiz.length} at the first try`;
      const again = [...new Set(missed.map((exercise) => exercise.again))].sort();
      score += again.length ? `; read again: ${again.join(", ")}.` : ".";
    }
    const left = asked.filter((exercise) => !entry(exercise).right).map((exercise) => exercise.key);
    return { words, score, left: right.length ? left : [] };
  }

  function element(name, attributes, ...inside) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }

  // ---- questions, and the results under them

  const isAnswered = (exercise, entry) => entry.right || entry.looked || (exercise.predicted && entry.tries > 0);

  // The folded results that belong to a question: those between it and the next question or heading.
  function resultsOf(host) {
    const all = [...document.querySelectorAll(".lesson-ask, details.hide, section > h2, section > h3")];
    const found = [];
    for (const one of all.slice(all.indexOf(host) + 1)) {
      if (!one.matches("details")) break;
      if (one.querySelector(".cell_output")) found.push(one);
    }
    return found;
  }

  function ask(host) {
    const exercise = data.exercises[host.dataset.key];
    const kept = entries()[exercise.key] ?? nothing();
    const results = resultsOf(host);
    const unfold = () => results.forEach((result) => (result.open = true));
    host.replaceChildren();
    lesson.form(exercise, kept, host, (event) => {
      const entry = happened(exercise.key, event);
      if (isAnswered(exercise, entry)) unfold();
      document.querySelectorAll(".lesson-standing").forEach(stand);
    });
    if (isAnswered(exercise, kept)) unfold();
  }

  // ---- where one stands

  function stand(host) {
    const one = host.dataset.notebook;
    const numbers = one ? [one] : [...new Set(Object.values(data.exercises).map((exercise) => exercise.notebook))];
    const list = element("ul", {});
    for (const number of numbers) {
      const { words, score, left } = standing(number);
      const line = element("li", {}, words);
      left.forEach((key, i) => {
        const name = one ? element("a", { href: `#ask-${key}` }, key) : key;
        if (one) line.append(i ? ", " : ". Left: ", name);
      });
      line.append(".");
      if (score) line.append(` ${score}`);
      list.append(line);
    }
    const save = element("button", { type: "button" }, "Save my answers");
    const forget = element("button", { type: "button" }, "Forget my answers");
    const said = element("p", { role: "status" });
    save.addEventListener("click", () => {
      const address = URL.createObjectURL(new Blob([asFile(entries())], { type: "application/json" }));
      element("a", { href: address, download: "progress.json" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
      said.textContent = "Saved as progress.json, the file that the notebooks keep.";
    });
    forget.addEventListener("click", () => {
      if (!forget.dataset.sure) {
        forget.dataset.sure = "yes";
        forget.textContent = "Forget them for good";
        return;
      }
      keep({});
      document.querySelectorAll(".lesson-standing").forEach(stand);
      document.querySelectorAll(".lesson-ask").forEach(ask);
    });
    const about = element("p", {}, "What you answer is kept in this browser alone.");
    host.replaceChildren(list, about, element("div", { class: "lesson-buttons" }, save, forget), said);
  }

  // ---- explorers

  function explore(host) {
    const still = [...host.childNodes];
    host.replaceChildren();
    try {
      lesson.mount(host, data, host.dataset.view, JSON.parse(host.dataset.start));
      if (host.nextElementSibling?.matches(".lesson-explorer-note")) host.nextElementSibling.remove(); // it is live
    } catch (error) {
      host.replaceChildren(...still);
      console.error(error);
    }
  }

  // ---- what a word means

  function explainWords() {
    const box = element("div", { class: "lesson-tip-box", "aria-hidden": "true" }); // the link is described already
    let of = null;
    const hide = () => {
      box.remove();
      of = null;
    };
    const show = (link) => {
      of = link;
      box.textContent = document.getElementById(link.getAttribute("aria-describedby")).textContent;
      document.body.append(box);
      const at = link.getClientRects()[0];
      const left = Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8);
      const under = at.bottom + 4 + box.offsetHeight <= innerHeight;
      box.style.left = `${Math.max(8, left)}px`;
      box.style.top = `${under ? at.bottom + 4 : at.top - box.offsetHeight - 4}px`;
    };
    const leaves = () => setTimeout(() => box.matches(":hover") || of?.matches(":hover, :focus") || hide(), 120);
    for (const link of document.querySelectorAll(".lesson-term")) {
      link.addEventListener("mouseenter", () => show(link));
      link.addEventListener("focus", () => show(link));
      link.addEventListener("mouseleave", leaves);
      link.addEventListener("blur", leaves);
    }
    box.addEventListener("mouseleave", leaves);
    addEventListener("scroll", () => of && show(of), { passive: true });
    addEventListener("keydown", (event) => event.key === "Escape" && hide());
  }

  // ---- paper, on which nothing can be opened, and which is light

  function printWhole() {
    const root = document.documentElement;
    let undo = null;
    addEventListener("beforeprint", () => {
      if (undo) return;
      const closed = [...document.querySelectorAll("details.hide:not([open])")];
      const theme = root.dataset.theme;
      closed.forEach((one) => (one.open = true));
      root.dataset.theme = "light";
      undo = () => {
        closed.forEach((one) => (one.open = false));
        root.dataset.theme = theme;
      };
    });
    addEventListener("afterprint", () => {
      undo?.();
      undo = null;
    });
  }

  printWhole();
  document.documentElement.classList.add("lesson-live-page");
  if (location.protocol === "file:") document.querySelectorAll(".lesson-live").forEach((link) => link.remove());
  if (lesson.form) {
    document.querySelectorAll(".lesson-ask").forEach(ask);
    document.querySelectorAll(".lesson-standing").forEach(stand);
  }
  if (lesson.mount) document.querySelectorAll(".lesson-explorer").forEach(explore);
  explainWords();
})();
