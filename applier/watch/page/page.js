"use strict";
(() => {
  const EVERY = 5000, LONGEST = 30000, PATIENCE = 10000;
  const body = document.body, away = document.getElementById("away");
  document.documentElement.classList.add("scripted");

  // Copy what is shown, which holds no hidden character.
  const copied = (text) => navigator.clipboard && isSecureContext
    ? navigator.clipboard.writeText(text)
    : new Promise((done, failed) => {
      const field = document.createElement("textarea"), focused = document.activeElement;
      field.value = text;
      field.className = "unseen";
      body.append(field);
      field.select();
      const works = document.execCommand("copy");
      field.remove();
      focused?.focus();
      works ? done() : failed(new Error("copying is not allowed"));
    });

  addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    let word = "Copied";
    try {
      await copied(code.textContent);
    } catch {
      word = "Selected";
      getSelection().selectAllChildren(code);
    }
    button.textContent = word;
    document.getElementById("said").textContent = `${word}.`;
    setTimeout(() => { button.textContent = "Copy"; document.getElementById("said").textContent = ""; }, 1500);
  });

  // The time where the reader is.
  const local = (event) => {
    const time = event.target.closest?.("time");
    if (time) time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  };
  addEventListener("pointerover", local);

  const filter = () => {
    const field = document.getElementById("filter");
    if (!field) return;
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...document.querySelectorAll("#table-list tbody tr")];
    let shown = 0;
    for (const row of rows) {
      const text = words.length ? `${row.cells[0].innerText} ${row.cells[1].textContent}`.toLowerCase() : "";
      const hidden = !words.every((word) => text.includes(word));
      if (row.hidden !== hidden) row.hidden = hidden;
      shown += !hidden;
    }
    const said = words.length ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown` : "";
    const count = document.getElementById("count");
    if (count.textContent !== said) count.textContent = said;
  };
  addEventListener("input", (event) => { if (event.target.id === "filter") filter(); });
  filter();

  if (!("live" in body.dataset)) return;

  // Bring a part of the page to what it is now; what the reader opened, selected, focused or wrote stays.
  const KEPT = new Set(["open", "hidden", "title"]);
  const keyOf = (node) => node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key : undefined;
  // Asked for once: the browser lays the page out anew before it says what is selected.
  let selected;
  const isSelected = (node) => selected !== undefined && selected.intersectsNode(node);

  const bring = (old, now) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== now.data && !isSelected(old)) old.data = now.data;
      return;
    }
    if ("own" in old.dataset || old.isEqualNode(now)) return;
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value && !KEPT.has(name)) old.setAttribute(name, value);
    if (old.matches(".copy") && document.activeElement === old) return;
    const wanted = [...now.childNodes], keys = new Set(wanted.map(keyOf)), known = new Map();
    for (const child of [...old.childNodes]) {
      const key = keyOf(child);
      if (key && !keys.has(key)) child.remove();
      else if (key) known.set(key, child);
    }
    let at = old.firstChild;
    for (const child of wanted) {
      const key = keyOf(child);
      const found = key ? known.get(key) : at && !keyOf(at) && at.nodeName === child.nodeName ? at : undefined;
      if (!found) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      bring(found, child);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const clock = (date) => `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  let timer, since, pause = EVERY, isAsking = false;

  const show = (page) => {
    const same = ["build", "changefeed"].every((name) => page.body.dataset[name] === body.dataset[name]);
    if (!page.getElementById("main") || !("live" in page.body.dataset)) throw new Error("something else answers at this address");
    if (!same) return location.reload();
    selected = getSelection().isCollapsed ? undefined : getSelection().getRangeAt(0);
    for (const part of ["top", "main", "foot"]) bring(document.getElementById(part), page.getElementById(part));
    const icon = document.getElementById("icon"), href = page.getElementById("icon").getAttribute("href");
    if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
    document.title = page.title;
    filter();
  };

  const lose = (error) => {
    since ??= new Date();
    const seen = document.querySelector("#seen time").textContent;
    const why = error.name === "TimeoutError" || error instanceof TypeError ? "the server does not answer" : error.message;
    away.textContent = `Not connected since ${clock(since)}: ${why}. What you see is of ${seen} UTC. The page tries again every ${pause / 1000} s.`;
    away.hidden = false;
    body.classList.add("is-away");
    if (!document.title.startsWith("Not connected")) document.title = `Not connected · ${document.title}`;
  };

  const ask = async () => {
    if (isAsking) return;
    isAsking = true;
    clearTimeout(timer);
    try {
      // The address may hold a name and a password, which fetch refuses.
      const answer = await fetch(location.origin + location.pathname, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      pause = EVERY;
      since = undefined;
      away.hidden = true;
      body.classList.remove("is-away");
    } catch (error) {
      pause = Math.min(since ? pause * 2 : EVERY, LONGEST);
      lose(error);
    } finally {
      isAsking = false;
      if (!document.hidden) timer = setTimeout(ask, pause);
    }
  };

  document.addEventListener("visibilitychange", () => document.hidden ? clearTimeout(timer) : ask());
  addEventListener("online", ask);
  timer = setTimeout(ask, EVERY);
})();
