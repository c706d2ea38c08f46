"use strict";
(() => {
  const EVERY = 5000, LONGEST = 30000, PATIENCE = 10000;
  const REASONS = 10, MORE = 200, TABLES = 2000, PARTITIONS = 10, LONG = 120, OLD = 60;
  const byId = (id) => document.getElementById(id);
  const body = document.body, away = byId("away"), data = byId("data");

  // Texts of others are data: each becomes a text node or an attribute, and what a reader's eye or a terminal would obey is written out.
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
  const escaped = (text) => text.replace(HIDDEN, (char) => {
    const number = char.codePointAt(0), hex = number.toString(16);
    return number < 0x100 ? `\\x${hex.padStart(2, "0")}` : number < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
  const isNone = (value) => value === null || value === undefined || value === false;
  const filled = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) if (!isNone(value)) node.setAttribute(name, value === true ? "" : escaped(String(value)));
    for (const child of children.flat(Infinity)) if (!isNone(child)) node.append(child instanceof Node ? child : escaped(String(child)));
    return node;
  };
  const el = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  const lines = (text) => document.createTextNode(text.split("\n").map(escaped).join("\n"));

  // Whole numbers of more than 15 digits stay texts: a TSO is no exact number here.
  const NUMBERS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const parsed = (text) => JSON.parse(text.replace(NUMBERS, (found) => /^-?\d{16,}$/.test(found) ? `"${found}"` : found));

  const whole = (value) => BigInt(value).toLocaleString("en");
  const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
  const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
  const short = (value) => String(Number(value.toPrecision(3)));
  const span = (seconds) => {
    if (seconds === null) return "unknown";
    const forms = [[10, 1, 1, "s"], [120, 1, 0, "s"], [7200, 60, 0, "min"], [172800, 3600, 1, "h"], [Infinity, 86400, 1, "days"]];
    const [, unit, digits, name] = forms.find(([limit]) => seconds < limit);
    return `${(seconds / unit).toFixed(digits).replace(".0", "")} ${name}`;
  };
  const timed = (value) => value < 100 ? `${short(value)} s` : span(value);
  const rated = (value) => value >= 10 || Number.isInteger(value) ? whole(Math.round(value)) : short(value);
  const share = (value) => `${Math.round(100 * value)}%`;
  const clock = (at) => new Date(1000 * at).toISOString().slice(11, 16);
  const utc = (iso) => `${iso.slice(0, 10)} ${iso.slice(11, 19)}`;
  // A long name breaks behind a dot or an underscore, and in the middle of no word.
  const named = (text) => text.split(/(?<=[._/])/u).flatMap((part, at) => at ? [el("wbr"), part] : [part]);
  const moment = (iso) => iso ? el("time", { datetime: iso }, utc(iso)) : el("span", { class: "soft" }, "unknown");

  const soft = (...children) => el("p", { class: "soft" }, ...children);
  const badge = (word, tones) => el("span", { class: `badge ${tones[word] ?? "mute"}` }, word);
  const copyable = (command) => el("span", { class: "copied" }, el("code", {}, command), el("button", { type: "button", class: "copy" }, "Copy"));
  const section = (id, heading, note, ...children) => el("section", { id, "aria-labelledby": `${id}-h` },
    el("h2", { id: `${id}-h` }, heading, note && el("span", { class: "note" }, note)), ...children);
  const table = (caption, headings, rows, numbers = []) => el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, headings.map((name, at) => el("th", { scope: "col", class: numbers.includes(at) && "n" }, name)))),
      el("tbody", {}, rows)));
  const row = (key, heading, ...cells) => el("tr", { "data-key": key }, el("th", { scope: "row" }, heading), ...cells);
  const cell = (...children) => el("td", {}, ...children);
  const number = (value) => el("td", { class: "n" }, value);
  const time = (...children) => el("td", { class: "nowrap" }, ...children);

  // Commands of a sentence stand in backticks; names in quotes, and before or behind a dot, may be in backticks of their own.
  const COMMAND = /'[^']*'|`((?:'[^']*'|"[^"]*"|(?:`(?:[^`]|``)+`\.)+(?:[\p{L}\p{N}_]|`(?:[^`]|``)+`)|\.`(?:[^`]|``)+`|[^`'"])+)`/gu;
  const withCommands = (sentence) => {
    const shown = capital(sentence), found = [];
    let at = 0;
    for (const match of shown.matchAll(COMMAND)) {
      if (!match[1]) continue;
      found.push(shown.slice(at, match.index), copyable(match[1]));
      at = match.index + match[0].length;
    }
    return [...found, shown.slice(at) === "." ? "" : shown.slice(at)];
  };

  const asOf = (report) => {
    const ago = `${span(report.lag_seconds)} ago.`;
    return report.lag_seconds === null ? "." : report.resolved ? [" as of ", moment(report.resolved), ` UTC, ${ago}`] : `, ${ago}`;
  };
  const isStarting = (report, live) => report.holder === null && live.starting !== null;
  const word = (report, live) => isStarting(report, live) ? "starting" : report.verdict;
  const verdict = (report, live) => el("section", { id: "verdict", class: `verdict ${live.tones[word(report, live)]}`, "aria-labelledby": "verdict-h" },
    el("h2", { id: "verdict-h" }, el("span", { class: "sign", "aria-hidden": "true" }), capital(word(report, live))),
    el("p", { class: "sentence" }, el("span", { role: "status", "aria-live": "polite" }, capital(isStarting(report, live) ? live.starting : report.summary)), asOf(report)),
    !isStarting(report, live) && reasons(report.reasons),
    report.notes.length > 0 && el("ul", { class: "notes" }, report.notes.map((note) => el("li", {}, note))));
  const reasons = (found) => {
    const items = found.slice(0, MORE).map((reason, at) => el("li", { "data-key": `why-${reason.table || at}` }, el("p", {}, reason.because),
      reason.way_out && el("p", { class: "way" }, withCommands(reason.way_out))));
    const left = found.length - items.length, more = items.splice(REASONS);
    return [items.length > 0 && el("ul", { class: "reasons" }, items),
      more.length > 0 && el("details", { id: "more-why" }, el("summary", {}, counted(found.length - REASONS, "further reason")), el("ul", {}, more),
        left > 0 && el("p", {}, `${counted(left, "further reason")} are in /status.json.`))];
  };

  const banner = (live) => {
    const idle = live.idle_seconds === null ? "" : ` Nothing was applied for ${span(live.idle_seconds)}.`;
    const said = live.outage ? [el("strong", {}, "Waiting. "), live.outage, `${idle} The process tries again.`]
      : live.phase === "starting" ? "Spark starts, and the changefeed is taken; this takes some seconds."
        : live.phase === "stopping" && [el("strong", {}, "Stopping. "), "The process finishes what it began; then this page is gone."];
    return said && el("aside", { id: "banner", class: "banner", "aria-label": "What the process waits for" }, said);
  };

  const UNSEEN = "known to a running process alone";
  const backlog = (report, { backlog: now, idle_seconds: idle }) => {
    if (now !== null) return [whole(now), idle > OLD ? `messages, ${span(idle)} ago` : "messages to be read"];
    const [step] = report.steps;
    return isNone(step?.backlog) ? ["unknown", UNSEEN] : [whole(step.backlog), `messages that step ${whole(step.step)} left`];
  };
  const rate = ({ rate: value, rate_seconds: seconds }) => [value === null ? "unknown" : value < 100 ? value.toFixed(1) : whole(Math.round(value)),
    seconds === null ? UNSEEN : `over the last ${span(seconds)}`];
  const inStep = ({ tables }) => {
    const states = new Map();
    for (const { state } of tables) states.set(state, (states.get(state) ?? 0) + 1);
    const here = states.get("in step") ?? 0, others = [...states].filter(([state]) => state !== "in step").sort((one, other) => other[1] - one[1]);
    if (!tables.length) return ["unknown", "no table is known"];
    return [`${whole(here)} of ${whole(tables.length)}`, others.map(([state, count]) => `${whole(count)} ${state}`).join(", ") || "no other state"];
  };
  const figures = (report, live) => {
    const letters = report.dead_letter_count;
    const shown = {
      "Lag": [span(report.lag_seconds), `${report.resolved ? "behind the database" : "since the last sign of life"}; stale from ${span(report.max_lag_seconds)} on`],
      "Backlog": backlog(report, live),
      "Rows a second": rate(live),
      "Tables in step": inStep(report),
      "Dead letters": [live.is_behind && !letters ? "unknown" : whole(letters), letters === 1 ? "message was set aside" : "messages were set aside", letters && "bad"],
    };
    const items = Object.entries(shown).map(([name, [value, note, tone]]) => el("div", {}, el("dt", {}, name),
      el("dd", { class: value === "unknown" ? value : tone || null }, value), el("dd", { class: "soft" }, note)));
    return section("figures", "Key figures", "", el("dl", { class: "figures" }, items), report.explanation && el("p", { class: "why" }, report.explanation));
  };

  // Every place across is a share of the width, so that bars stretch with the page while letters keep their size.
  const HEIGHT = 190, TOP = 22, BASE = 166;
  const rect = (x, wide, y, height, kind) => svg("rect", { class: kind, x: `${x.toFixed(2)}%`, y: y.toFixed(1), width: `${wide.toFixed(2)}%`, height: height.toFixed(1) });
  const hit = (at, count) => rect(100 * at / count, 100 / count, TOP, BASE - TOP, "hit");
  const chart = (name, title, caption, marks, worded, ...drawn) => {
    const heights = marks.map((mark) => BASE - (BASE - TOP) * mark / marks.at(-1));
    const grid = heights.map((y) => svg("line", { x1: 0, x2: "100%", y1: y.toFixed(1), y2: y.toFixed(1), class: y < BASE ? "grid" : "base" }));
    const ticks = heights.map((y, at) => svg("text", { x: "100%", y: (y + 4).toFixed(1), class: "tick end" }, worded(marks[at])));
    const named = { role: "img", "aria-labelledby": `${name}-t`, "aria-describedby": `${name}-d` };
    return el("figure", {}, el("h3", {}, title), el("div", { class: "drawing" },
      svg("svg", { class: "axis", height: HEIGHT, "aria-hidden": "true" }, ticks),
      svg("svg", { class: `plot ${name}`, height: HEIGHT, ...named },
        svg("title", { id: `${name}-t` }, title), svg("desc", { id: `${name}-d` }, caption), grid, drawn)),
    el("figcaption", {}, caption));
  };
  // From 0 to the first round number that is no less than the highest, in two to four steps.
  const marked = (highest, step) => Array.from({ length: Math.ceil(highest / step) + 1 }, (_, at) => at * step);
  const ticks = (highest) => {
    if (highest <= 0) return [0, 1];
    for (let power = -3; ; power += 1) for (const one of [1, 2, 5]) if (highest <= 4 * one * 10 ** power) return marked(highest, one * 10 ** power);
  };
  const timeTicks = (highest) => {
    if (highest <= 120) return ticks(Math.max(highest, 1));
    const step = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200].find((one) => highest <= 4 * one);
    return step ? marked(highest, step) : ticks(highest / 86400).map((days) => 86400 * days);
  };
  const times = ({ bars, width }) => {
    const start = bars[0][0], long = width * bars.length, found = [];
    const every = [60, 120, 300, 600, 900, 1800, 3600, 7200].find((tick) => long / tick <= 6) ?? 7200;
    for (let at = start - start % every + every; at < start + long; at += every) {
      const x = 100 * (at - start) / long;
      if (x <= 4 || x >= 96) continue;
      found.push(svg("line", { x1: `${x.toFixed(2)}%`, x2: `${x.toFixed(2)}%`, y1: BASE, y2: BASE + 4, class: "base" }),
        svg("text", { x: `${x.toFixed(2)}%`, y: BASE + 18, class: "tick mid" }, clock(at)));
    }
    return found;
  };
  const bars = (name, title, caption, plot, part, marks, worded) => {
    const count = plot.bars.length;
    const drawn = plot.bars.map((bar, at) => {
      const value = bar[part], height = (BASE - TOP) * value / marks.at(-1);
      return value === null ? null : svg("g", {}, svg("title", {}, `${clock(bar[0])} UTC: ${worded(value)}`), hit(at, count),
        rect(100 * at / count, 100 / count, BASE - height, height, "bar"));
    });
    return chart(name, title, caption, marks, worded, drawn, times(plot));
  };
  const history = ({ lag_seconds: lag }, { plot }) => {
    if (!plot) return section("history", "The last hours", "", soft("There is no plot: the last hours are known to a running process alone, and from its start on."));
    const past = span(plot.seconds), gaps = plot.has_gaps ? " Where the plot is empty, nothing is known." : "";
    const late = plot.most_lag === null ? "No lag is known: the feed carries no resolved ts, or none was applied."
      : `The tables are ${span(lag)} behind; at most, they were ${span(plot.most_lag)} in the last ${past}.`;
    const moved = `${counted(plot.rows, "row")} were applied in the last ${past}; the fastest ${span(plot.width)} brought ${rated(plot.most_rate)} a second.`;
    return section("history", "The last hours", "",
      bars("lag", "Lag", late + gaps, plot, 1, timeTicks(plot.most_lag ?? 0), span),
      bars("rows", "Rows a second", moved, plot, 2, ticks(plot.most_rate), rated));
  };

  const STAGES = ["maintain", "plan", "read", "decode", "apply", "checkpoint"];
  const colour = (name) => STAGES.includes(name) ? STAGES.indexOf(name) : STAGES.length;
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const steps = (report) => {
    const known = report.steps.filter((step) => Object.keys(step.seconds).length), sum = (step) => total(Object.values(step.seconds));
    if (!known.length) return section("steps", "Where the time goes", "", soft("No step is known with its times."));
    const names = [...new Set(known.flatMap((step) => Object.keys(step.seconds)))].sort((one, other) => colour(one) - colour(other));
    const spent = total(known.map(sum)), count = known.length, longest = known.reduce((one, other) => sum(other) > sum(one) ? other : one);
    const caption = count === 1 ? `The last step took ${timed(spent)}.`
      : `The last ${count} steps took ${timed(spent)}; step ${longest.step} was the longest with ${timed(sum(longest))}.`;
    const shares = names.map((name) => el("li", { class: `s${colour(name)}` }, `${name} ${share(total(known.map((step) => step.seconds[name] ?? 0)) / (spent || 1))}`));
    const marks = ticks(sum(longest)), drawn = known.toReversed().map((step, at) => stack(step, at, Math.max(count, 12), marks.at(-1), names));
    const rows = known.map((step) => row(`step-${step.step}`, whole(step.step), time(moment(step.at)), number(whole(step.messages)), number(whole(step.rows)),
      names.map((name) => number(step.seconds[name]?.toFixed(3) ?? "?"))));
    const headings = ["Step", "Written (UTC)", "Messages", "Rows", ...names.map((name) => `${name}, s`)];
    return section("steps", "Where the time goes", "", el("ul", { class: "legend" }, shares),
      chart("stages", "Seconds of each step", caption, marks, timed, drawn),
      el("details", { id: "step-numbers" }, el("summary", {}, "The numbers of these steps"), table("The last steps", headings, rows, [...headings.keys()].slice(2))));
  };
  const stack = (step, at, count, top, names) => {
    const left = 100 * (at + 0.12) / count, wide = 76 / count, parts = [];
    let y = BASE;
    for (const name of names) {
      const height = (BASE - TOP) * (step.seconds[name] ?? 0) / top;
      if (height < 0.1) continue;
      y -= height;
      parts.push(rect(left, wide, y, height, `s${colour(name)}`));
    }
    const told = names.filter((name) => name in step.seconds).map((name) => `${name} ${timed(step.seconds[name])}`).join(", ");
    return svg("g", {}, svg("title", {}, `Step ${step.step}: ${counted(step.rows, "row")}; ${told}`), hit(at, count), parts,
      (at % 4 === 0 || count <= 8) && svg("text", { x: `${(left + wide / 2).toFixed(2)}%`, y: BASE + 18, class: "tick mid" }, whole(step.step)));
  };

  const byName = (one, other) => one < other ? -1 : Number(one > other);
  const tables = (report, { tones }) => {
    const found = report.tables.toSorted((one, other) => other.urgency - one.urgency || byName(one.table, other.table));
    if (!found.length) return section("tables", "Tables", "", soft("No table is known yet."));
    const left = found.length - TABLES;
    const rows = found.slice(0, TABLES).map((one) => {
      const isKnown = one.snapshot_id !== null;
      return row(one.iceberg, [named(one.table), one.iceberg !== one.table && [" ", el("span", { class: "soft under" }, named(one.iceberg))]],
        cell(badge(one.state, tones), one.caught_up !== null && ` ${share(one.caught_up)}`),
        number(isKnown && whole(one.rows)), number(isKnown && whole(one.files)), number(one.lag_seconds !== null && span(one.lag_seconds)), time(one.committed && moment(one.committed)));
    });
    return section("tables", "Tables", counted(found.length, "table"),
      el("p", { class: "filter js" }, el("label", { for: "filter" }, "Filter by name or state"),
        el("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", "aria-controls": "table-list" }), el("span", { id: "count", "data-own": true })),
      el("div", { id: "table-list", class: "long" },
        table("Tables, those first that are not in step", ["Table", "State", "Rows", "Files", "Lag", "Last commit (UTC)"], rows, [2, 3, 4])),
      left > 0 && soft(`${counted(left, "further table")} that are in step are left out; /status.json has all.`));
  };

  const dropped = ({ dropped: found }) => {
    if (isNone(found)) return section("dropped", "Dropped tables", "", soft("Which dropped tables are kept is not known: the catalog did not list its tables."));
    const rows = found.map((one) => row(one.iceberg, [named(one.table), one.iceberg !== one.table && [" ", el("span", { class: "soft under" }, named(one.iceberg))]],
      time(moment(one.dropped)), number(one.rows !== null && whole(one.rows)), number(one.files !== null && whole(one.files)), cell(withCommands(one.way_out))));
    return found.length > 0 && section("dropped", "Dropped tables", `${whole(found.length)} kept`,
      table("Tables that were dropped upstream and are kept", ["Table", "Dropped (UTC)", "Rows", "Files", "What becomes of it"], rows, [2, 3]));
  };

  const BEHIND = "What the last step recorded is being read.";
  const last = (shown, count, { is_behind: isBehind }) => (shown < count ? `the last ${shown} of ${whole(count)}` : whole(count))
    + (isBehind ? `; ${BEHIND.replace("W", "w").replace(".", "")}` : "");
  const statement = (sql) => {
    const flat = sql.split(/\s+/).filter(Boolean).join(" "), chars = [...flat];
    return chars.length <= LONG ? el("code", {}, flat) : el("details", {}, el("summary", {}, el("code", {}, `${chars.slice(0, LONG).join("")}…`)), el("pre", {}, el("code", {}, lines(sql))));
  };
  const ddl = (report, live) => {
    const found = report.schema_changes, count = report.schema_change_count;
    if (!found.length) return section("ddl", "DDL", "", soft(live.is_behind ? BEHIND : "No DDL has been decided on yet."));
    const rows = found.map((item, at) => el("tr", { "data-key": `ddl-${item.commit_ts}-${item.table}-${item.kind}-${count - at}` },
      time(moment(item.committed)), el("th", { scope: "row" }, named(item.table)), cell(badge(item.decision, live.tones)), cell(statement(item.sql), item.reason && soft(item.reason))));
    return section("ddl", "DDL", last(found.length, count, live), table("DDL, newest first", ["Committed (UTC)", "Table", "Decision", "Statement"], rows));
  };
  const letters = (report, live) => {
    const found = report.dead_letters;
    if (!found.length) return section("letters", "Dead letters", "", soft(live.is_behind ? BEHIND : "No message was set aside."));
    const rows = found.map((item) => row(`letter-${item.topic}-${item.partition}-${item.offset}`, named(`${item.topic}/${item.partition}`), number(whole(item.offset)), cell(item.error), time(moment(item.buried))));
    return section("letters", "Dead letters", last(found.length, report.dead_letter_count, live),
      table("Dead letters, newest first", ["Partition", "Offset", "Why", "Set aside (UTC)"], rows, [1]), el("p", { class: "way" }, withCommands(live.letters_way)));
  };

  const lease = (report) => {
    const holder = report.holder, facts = {
      "State": holder.released ? "Released: any applier may take it" : "Held",
      "Holder": holder.name,
      "Epoch": whole(holder.epoch),
      "Since": [moment(holder.since), " UTC"],
      "Last seen": [moment(holder.seen), ` UTC, ${span(holder.silent_seconds)} ago`],
      "Step": report.step === null ? "unknown" : whole(report.step),
      "Resolved ts": report.resolved_ts ?? "none",
    };
    return section("lease", "Lease", "", el("dl", {}, Object.entries(facts).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  };
  const partitions = (report) => {
    const found = report.partitions.toSorted((one, other) => byName(one.resolved ?? "", other.resolved ?? "")), count = found.length;
    if (!count) return section("partitions", "Partitions", "", soft("No partition is known yet."));
    const rows = found.slice(0, PARTITIONS).map((one) => row(`${one.topic}/${one.partition}`, named(`${one.topic}/${one.partition}`), number(whole(one.next_offset)), time(one.resolved ? moment(one.resolved) : "never")));
    return section("partitions", "Partitions", count <= PARTITIONS ? count : `the ${PARTITIONS} furthest behind of ${whole(count)}`,
      table("Partitions, those first that are furthest behind", ["Partition", "Next offset", "Resolved (UTC)"], rows, [1]));
  };
  const cut = (report) => {
    const heading = "Read all tables as of one moment", queries = { tabindex: 0, "aria-label": "Queries", role: "region" };
    if (!report.cut.length) return section("cut", heading, "", soft("There is no query: no table has a snapshot in the newest checkpoint."));
    return section("cut", heading, "",
      el("p", {}, "These queries of Spark SQL show every table as of ", report.resolved_ts === null ? "the newest checkpoint" : [`resolved ts ${report.resolved_ts}, `, moment(report.resolved), " UTC"], "."),
      el("div", { class: "copied" }, el("pre", queries, el("code", {}, lines(report.cut.join("\n")))), el("button", { type: "button", class: "copy", "aria-label": "Copy the queries" }, "Copy")));
  };

  const pageOf = (report, live) => ({
    top: [el("h1", {}, el("span", { class: "mark" }, "applier"), el("span", { class: "name" }, report.changefeed)),
      el("p", { class: "soft", id: "seen" }, live.started ? "Seen at " : "Written at ", moment(report.now), " UTC")],
    // Before the checkpoint is read, an empty list would say that there is nothing.
    main: [verdict(report, live), banner(live), report.holder && [figures(report, live), history(report, live), tables(report, live), dropped(report), steps(report), ddl(report, live),
      letters(report, live), el("div", { id: "pair", class: "pair" }, lease(report), partitions(report)), cut(report)]],
    foot: [el("p", {}, `applier ${live.version} · ${live.process} · `, live.started ? ["started ", moment(live.started), " UTC"]
      : ["written by ", el("code", {}, "applier status"), " from the catalog; it does not change"])],
  });

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
        old.insertBefore(child, at);
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

  const SIGNS = {
    good: ["#18794e", '<path d="M4.5 8.5l2.5 2.500 4.500-5.500" fill="none" stroke="#fff" stroke-width="2"/>'],
    bad: ["#b42318", '<path d="M8 3.500v5.500M8 11v2" stroke="#fff" stroke-width="2"/>'],
    wait: ["#8a5a00", '<path d="M3.500 8h2M7 8h2M10.500 8h2" stroke="#fff" stroke-width="2"/>'],
  };
  const show = (report, live) => {
    selected = getSelection().isCollapsed ? undefined : getSelection().getRangeAt(0);
    for (const [id, children] of Object.entries(pageOf(report, live))) bring(byId(id), filled(byId(id).cloneNode(), {}, children));
    const [ground, sign] = SIGNS[live.tones[word(report, live)]];
    const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="8" fill="${ground}"/>${sign}</svg>`;
    const href = `data:image/svg+xml,${encodeURIComponent(icon)}`;
    if (byId("icon").getAttribute("href") !== href) byId("icon").setAttribute("href", href);
    document.title = escaped(`${capital(word(report, live))} · ${report.changefeed} · applier`);
    filter();
  };
  const filter = () => {
    if (!byId("filter")) return;
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean), rows = [...document.querySelectorAll("#table-list tbody tr")];
    const text = ({ cells: [name, state] }) => `${name.textContent} ${state.textContent}`.toLowerCase();
    for (const one of rows) one.hidden = words.length > 0 && !words.every((word) => text(one).includes(word));
    byId("count").textContent = words.length ? `${whole(rows.filter((one) => !one.hidden).length)} of ${whole(rows.length)} shown` : "";
  };
  addEventListener("input", (event) => { if (event.target.id === "filter") filter(); });

  // Copy what is shown, which holds no hidden character; away from this machine a browser gives the clipboard to pages with TLS alone.
  addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      if (!document.execCommand("copy")) said = "Selected";
    }
    button.textContent = said;
    byId("said").textContent = `${said}.`;
    setTimeout(() => { button.textContent = "Copy"; byId("said").textContent = ""; }, 1500);
  });

  // The time where the reader is.
  addEventListener("pointerover", (event) => {
    const found = event.target.closest?.("time");
    if (found) found.title = new Date(found.dateTime).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  });

  if (data) {
    const { status, history: live } = parsed(data.textContent);
    show(status, live);
    return;
  }

  let timer, since, pause = EVERY, isAsking = false, known = "";
  const lose = (error) => {
    since ??= new Date();
    const why = error instanceof SyntaxError ? "something else answers at this address" : error.message;
    const seen = document.querySelector("#seen time")?.textContent, of = seen ? ` What you see is of ${seen} UTC.` : "";
    away.textContent = `Not connected since ${utc(since.toISOString())} UTC: ${why}.${of} The page tries again every ${pause / 1000} s.`;
    away.hidden = false;
    body.classList.add("is-away");
    if (!document.title.startsWith("Not connected")) document.title = `Not connected · ${document.title}`;
  };
  const get = async (name) => {
    // The address may hold a name and a password, which fetch refuses.
    const answer = await fetch(location.origin + location.pathname.replace(/\/?$/, `/${name}`), { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) })
      .catch(() => { throw new Error("the server does not answer"); });
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    return parsed(await answer.text());
  };
  const ask = async () => {
    if (isAsking) return;
    isAsking = true;
    clearTimeout(timer);
    try {
      const [report, live] = await Promise.all([get("status.json"), get("history.json")]);
      const which = `${live.build} ${report.changefeed}`;
      if (known && known !== which) return location.reload();
      known = which;
      show(report, live);
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
  ask();
})();
