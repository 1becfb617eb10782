// The editor of a bundle: keys are proposed and explained, problems underlined, Ctrl+S saves. Without this script the
// textarea does.
"use strict";
(() => {
  const PAUSE = 300; // milliseconds without a key before the text is checked
  const CM = CodeMirror;
  const form = document.getElementById("editor");
  const area = document.getElementById("text");
  const digest = form.elements.namedItem("digest");
  const state = document.getElementById("state");
  const changed = document.getElementById("changed");
  const { query, nonce } = form.dataset;
  const readOnly = "readOnly" in form.dataset;
  let saved = area.value;
  let known = { keys: {}, configs: {}, modules: [], triggers: [] };
  let checking = null;
  let timer = 0;
  let saving = false;

  async function ask(what, values = {}, signal) {
    const data = new FormData();
    for (const [name, value] of Object.entries({ form_token: document.documentElement.dataset.formToken, ...values })) data.set(name, value);
    const answer = await fetch(`${amplifier.root}/bundles/${what}${query}`, { method: "POST", body: data, signal, headers: { Accept: "application/json" } });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    return told;
  }
  function place(id, html) {
    const made = document.createElement("template");
    made.innerHTML = html;
    document.getElementById(id).replaceWith(made.content.firstElementChild ?? made.content);
    return document.getElementById(id);
  }
  const isDirty = () => text() !== saved;
  const text = () => view.state.doc.toString();
  const say = (failure) => amplifier.say(failure.message || "The server does not answer.", true);

  // The keys around a line, from the outermost: by indentation, as YAML has it.
  const LINE = /^(\s*(?:- +)*)(?:(["']?)([\w-]+)\2\s*:(?:\s+(.*))?)?/;
  function read(line) {
    const [, lead, , key, value] = LINE.exec(line);
    return { dash: lead.includes("-") ? lead.indexOf("-") : -1, column: lead.length, key, value: (value || "").trim() };
  }
  function inFront(document, number) {
    if (document.line(1).text.trim() !== "---") return /\.ya?ml$/.test(form.dataset.query);
    for (let each = 2; each < number; each += 1) if (document.line(each).text.trim() === "---") return false;
    return number > 1;
  }
  function around(document, number, column) {
    const own = read(document.line(number).text);
    let indent = own.dash >= 0 ? own.dash + 1 : column;
    let level = own.dash >= 0 ? own.column : column;
    const path = [];
    const modules = [own.dash < 0 || own.key !== "module" ? "" : own.value];
    for (let each = number - 1; each > 0 && indent > 0; each -= 1) {
      const line = document.line(each).text;
      if (!line.trim() || line.trim().startsWith("#")) continue;
      const found = read(line);
      if (!found.key) continue;
      if (found.column === level && ["module", "type"].includes(found.key)) modules[0] ||= found.value;
      if (found.column < indent) {
        path.unshift(found.key);
        modules.unshift(["module", "type"].includes(found.key) ? found.value : "");
        level = found.column;
        indent = found.dash >= 0 ? found.dash + 1 : found.column;
      } else if (found.dash >= 0 && found.dash < indent && found.column === level) indent = found.dash + 1;
    }
    return { path, modules };
  }
  function spell(path) {
    let at = "";
    for (const each of path) {
      const next = at ? `${at}.${each}` : each;
      at = next in known.keys ? next : `${at}.NAME`;
    }
    return at;
  }
  function moduleOf(name) {
    return known.configs[name] ?? known.configs[`trigger-${name.replaceAll("_", "-")}`] ?? {};
  }
  function below(path, modules) {
    if (path.at(-1) === "config") return moduleOf(modules.at(-2) ?? "");
    const start = path.length ? `${spell(path)}.` : "";
    const found = {};
    for (const [key, help] of Object.entries(known.keys)) {
      const rest = key.startsWith(start) ? key.slice(start.length) : "";
      if (rest && !rest.includes(".") && rest !== "NAME") found[rest] = help;
    }
    return found;
  }
  function describe(name, help) {
    const box = document.createElement("div");
    box.className = "key-help";
    const add = (kind, content) => {
      const made = document.createElement(kind);
      made.textContent = content;
      box.append(made);
    };
    add("b", `${name}${help.type ? `: ${help.type}` : ""}`);
    if (help.description) add("p", help.description);
    if (help.default !== null && help.default !== undefined) add("p", `default: ${JSON.stringify(help.default)}`);
    if (help.allowed?.length) add("p", `one of: ${help.allowed.map((each) => JSON.stringify(each)).join(", ")}`);
    return box;
  }
  function valuesOf(path, key, help) {
    if (key === "module" || key === "type") {
      if (path.at(-1) === "triggers") return key === "type" ? known.triggers.map((each) => each.replace(/^trigger-/, "")) : known.triggers;
      const kind = (path.at(-1) ?? "").replace(/s$/, "");
      const own = known.modules.filter((each) => each.startsWith(`${kind}-`) || (kind === "orchestrator" && each.startsWith("loop-")));
      return own.length ? own : known.modules;
    }
    if (help?.allowed?.length) return help.allowed.map((each) => JSON.stringify(each).replace(/^"([\w.-]+)"$/, "$1"));
    return /boolean/.test(help?.type ?? "") ? ["true", "false"] : [];
  }
  function propose(context) {
    const line = context.state.doc.lineAt(context.pos);
    if (!inFront(context.state.doc, line.number)) return null;
    const before = line.text.slice(0, context.pos - line.from);
    const typed = /[\w-]*$/.exec(before)[0];
    const from = context.pos - typed.length;
    const value = /^\s*(?:- +)*([\w-]+):\s+["']?[\w.-]*$/.exec(before);
    if (value) {
      const { path, modules } = around(context.state.doc, line.number, read(line.text).column);
      const options = valuesOf(path, value[1], below(path, modules)[value[1]]).map((label) => ({ label, type: "constant" }));
      return options.length ? { from, options, validFor: /^[\w.-]*$/ } : null;
    }
    if (!/^\s*(?:- +)*[\w-]*$/.test(before) || (!typed && !context.explicit)) return null;
    const { path, modules } = around(context.state.doc, line.number, before.length - typed.length);
    const options = Object.entries(below(path, modules)).map(([label, help]) => ({
      label, type: "property", detail: help.type || undefined, apply: `${label}: `, info: () => describe(label, help),
    }));
    return options.length ? { from, options, validFor: /^[\w-]*$/ } : null;
  }
  const explain = CM.hoverTooltip((shown, pos) => {
    const line = shown.state.doc.lineAt(pos);
    const { key, column } = read(line.text);
    const at = pos - line.from;
    if (!key || at < column || at > column + key.length || !inFront(shown.state.doc, line.number)) return null;
    const { path, modules } = around(shown.state.doc, line.number, column);
    const help = below(path, modules)[key];
    return help ? { pos: line.from + column, end: line.from + column + key.length, create: () => ({ dom: describe([...path, key].join("."), help) }) } : null;
  });

  function tell() {
    state.textContent = readOnly ? "for reading only" : isDirty() ? "not saved · Ctrl+S saves" : "saved";
  }
  function rangeOf(document, { line, column }) {
    const at = document.line(Math.max(1, Math.min(line, document.lines)));
    const from = Math.min(at.from + Math.max(0, column - 1), at.to);
    const word = /^[^\s,\]}#]+/.exec(at.text.slice(from - at.from));
    return { from, to: word ? from + word[0].length : at.to };
  }
  async function check() {
    checking?.abort();
    checking = new AbortController();
    const checked = text();
    try {
      const told = await ask("validate", { text: checked }, checking.signal);
      if (checked !== text()) return;
      const shown = told.problems.filter((each) => each.is_here).map((each) => ({
        ...rangeOf(view.state.doc, each), severity: each.severity, source: each.code, message: (each.path ? `${each.path}: ` : "") + each.message,
      }));
      view.dispatch(CM.setDiagnostics(view.state, shown));
      place("problems", told.html);
    } catch (failure) {
      if (failure.name !== "AbortError") say(failure);
    }
  }
  function checkSoon() {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  }
  async function compare() {
    const told = await ask("compare", { text: text() });
    if (!isDirty()) return take(told);
    place("difference", told.html);
    changed.hidden = !told.differs;
    changed.theirs = told;
    if (!told.differs) digest.value = told.digest;
  }
  const save = () => { if (!readOnly) form.requestSubmit(); return true; };

  const theme = CM.EditorView.theme({
    ".cm-scroller": { fontFamily: "var(--mono)", fontSize: "13px", lineHeight: "1.5" },
    ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--soft)", border: "none" },
    ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--chosen)" },
    ".cm-content": { caretColor: "var(--text)" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent) !important" },
    ".cm-tooltip, .cm-panels": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line-strong)" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--chosen)", color: "var(--text)" },
    ".key-help": { padding: "8px 12px", maxWidth: "420px" },
    ".key-help p": { margin: "4px 0 0" },
  });
  const { tags } = CM;
  const colours = CM.HighlightStyle.define([
    { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.heading], color: "var(--accent)" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
    { tag: [tags.number, tags.bool, tags.keyword, tags.atom], color: "var(--busy)" },
    { tag: [tags.comment, tags.meta, tags.processingInstruction], color: "var(--soft)" },
    { tag: [tags.link, tags.url], color: "var(--wait)" },
    { tag: tags.strong, fontWeight: "bold" },
    { tag: tags.emphasis, fontStyle: "italic" },
  ]);
  const markdown = new CM.LanguageSupport(CM.markdownLanguage);
  const isYaml = /\.ya?ml$/.test(query);
  const view = new CM.EditorView({
    state: CM.EditorState.create({
      doc: area.value,
      extensions: [
        CM.EditorView.cspNonce.of(nonce),
        CM.EditorView.contentAttributes.of({ "aria-labelledby": "text-label" }),
        CM.EditorState.readOnly.of(readOnly),
        CM.lineNumbers(), CM.highlightSpecialChars(), CM.history(), CM.foldGutter(), CM.drawSelection(), CM.indentOnInput(), CM.bracketMatching(),
        CM.closeBrackets(), CM.highlightActiveLine(), CM.highlightSelectionMatches(), CM.lintGutter(), CM.EditorView.lineWrapping,
        CM.syntaxHighlighting(colours), theme,
        isYaml ? CM.yaml() : CM.yamlFrontmatter({ content: markdown }),
        CM.autocompletion({ override: [propose] }), explain,
        CM.keymap.of([
          { key: "Mod-s", run: save, preventDefault: true },
          ...CM.closeBracketsKeymap, ...CM.completionKeymap, ...CM.defaultKeymap, ...CM.searchKeymap, ...CM.historyKeymap, ...CM.foldKeymap, ...CM.lintKeymap,
        ]),
        CM.EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          area.value = text();
          tell();
          checkSoon();
        }),
      ],
    }),
  });
  area.hidden = true;
  area.before(view.dom);
  function take({ text: theirs, digest: its }) {
    saved = theirs;
    digest.value = its;
    changed.hidden = true;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: theirs } });
    tell();
  }
  form.addEventListener("submit", () => { saving = true; });
  form.addEventListener("amplifier:done", ({ detail }) => {
    saving = false;
    if (!detail.ok) return compare().catch(say);
    saved = area.value;
    digest.value = detail.digest;
    changed.hidden = true;
    tell();
  });
  document.addEventListener("amplifier:changed", ({ detail }) => {
    if (detail?.id === "disk" && detail.dataset.digest !== digest.value && !saving) compare().catch(say);
  });
  document.addEventListener("click", ({ target }) => {
    const jump = target.closest("#problems [data-line]");
    if (!jump) return;
    const { from } = rangeOf(view.state.doc, { line: Number(jump.dataset.line), column: Number(jump.dataset.column) });
    view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
    view.focus();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s" && !event.defaultPrevented) {
      event.preventDefault();
      save();
    }
  });
  document.getElementById("keep").addEventListener("click", () => { digest.value = changed.theirs.digest; save(); });
  document.getElementById("take").addEventListener("click", () => take(changed.theirs));
  const simulate = document.getElementById("simulate");
  simulate.hidden = false;
  simulate.addEventListener("click", () => ask("simulate", { text: text() }).then((told) => place("plan", told.html).focus(), say));
  addEventListener("beforeunload", (event) => { if (isDirty()) event.preventDefault(); });
  ask("keys").then((told) => { known = told; form.dataset.keys = "known"; }, say);
  tell();
  check();
})();
