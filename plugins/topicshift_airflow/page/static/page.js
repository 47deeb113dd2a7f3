// The page refreshes itself, follows Airflow's colours, and gives orders by Airflow's own API. All text is set as text.
"use strict";
(() => {
  const root = document.documentElement;
  const airflow = root.dataset.airflow;
  const main = document.getElementById("main");

  // ------------------------------------------------------------------------------------------------ inside Airflow
  // Airflow shows the page in a frame of its own origin, which may not leave it: links to Airflow go through the frame's parent.
  const framed = () => {
    try { return window.parent !== window && window.parent.document ? window.parent : null; } catch { return null; }
  };
  const parent = framed();

  const theme = () => {
    let wanted = "";
    try {
      if (parent) wanted = parent.document.documentElement.classList.contains("dark") ? "dark" : "light";
      else wanted = localStorage.getItem("theme") || "";
    } catch { wanted = ""; }
    if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
    else delete root.dataset.theme;
  };
  theme();
  if (parent) new MutationObserver(theme).observe(parent.document.documentElement, { attributes: true });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || !parent || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const own = parent.document.createElement("a");
    own.href = link.getAttribute("href");
    parent.document.body.append(own);
    own.click();
    own.remove();
  });

  // ------------------------------------------------------------------------------------------------------- clocks
  const text = (seconds) => {
    if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const all = Math.floor(seconds), minutes = Math.floor(all / 60);
    if (minutes < 60) return `${minutes} min ${String(all % 60).padStart(2, "0")} s`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
  };
  let fetchedAt = performance.now();
  // Counted from the server's own clock: the browser's may be wrong.
  const tick = () => {
    const later = (performance.now() - fetchedAt) / 1000;
    for (const clock of main.querySelectorAll("[data-since]")) {
      const seconds = (Date.parse(clock.dataset.asof) - Date.parse(clock.dataset.since)) / 1000 + later;
      if (seconds >= 0) clock.textContent = text(seconds);
      const bar = clock.dataset.budget && clock.closest(".freeze")?.querySelector("progress");
      if (bar) bar.value = Math.min(1, seconds / Number(clock.dataset.budget));
    }
  };
  setInterval(tick, 500);

  // ------------------------------------------------------------------------------------------------------ refresh
  const every = () => 1000 * Number(main.querySelector("[data-every]")?.dataset.every || 10);
  const typed = (field) => !field.closest("dialog") && field.value !== field.defaultValue;
  const busy = () => document.hidden || main.querySelector("dialog[open]") || main.contains(document.activeElement?.closest("input, select")) || [...main.querySelectorAll("input")].some(typed);
  const stale = (why) => {
    const place = main.querySelector(".stale");
    if (!place) return;
    place.hidden = !why;
    place.textContent = why ? `Not refreshed since then: ${why}` : "";
  };
  let more = false;
  const refresh = async () => {
    if (busy() || more) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status === 401 ? "you are not logged in any more" : `the server answers ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!fresh) throw new Error("the answer is no such page");
      if (busy()) return;
      for (const open of main.querySelectorAll("details[data-key]")) {
        const same = fresh.querySelector(`details[data-key="${CSS.escape(open.dataset.key)}"]`);
        if (same) same.open = open.open;
      }
      const focused = document.activeElement?.dataset?.order;
      main.replaceChildren(...fresh.childNodes);
      if (focused) main.querySelector(`[data-order="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      fetchedAt = performance.now();
      tick();
      showLooks();
      showRun();
      showJob();
    } catch (error) {
      stale(error instanceof TypeError ? "the server does not answer" : error.message);
    }
  };
  const loop = async () => { await refresh(); setTimeout(loop, every()); };
  setTimeout(loop, every());

  // ------------------------------------------------------------------------------------------------------- orders
  const say = (place, ...lines) => {
    place.replaceChildren(...lines.map(([line, kind]) => {
      const p = document.createElement("p");
      p.textContent = line;
      if (kind) p.className = kind;
      return p;
    }));
  };
  const runLink = (place, dag, run, migration) => {
    const p = document.createElement("p"), link = document.createElement("a");
    if (BEGINS.test(dag) && document.getElementById("begun")) { // the page to begin from, beside the migrations
      const page = document.createElement("a");
      page.href = migration ? `migrations/${encodeURIComponent(migration)}` : `run?dag_id=${encodeURIComponent(dag)}&run_id=${encodeURIComponent(run)}`;
      page.textContent = "Its migration";
      p.append(page, " · ");
    }
    link.href = `${airflow}/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`;
    link.dataset.airflow = "";
    link.textContent = "Its run in Airflow";
    p.append(link);
    place.append(p);
  };
  const api = async (path, body) => {
    const asked = { headers: { "Content-Type": "application/json", Accept: "application/json" }, cache: "no-store" };
    if (body) Object.assign(asked, { method: "POST", body: JSON.stringify(body) });
    const answer = await fetch(`${airflow}/api/v2/${path}`, asked);
    if (answer.ok) return answer.json();
    let why = `Airflow answers ${answer.status}`;
    if (answer.status === 403) why = "Airflow does not let you do this";
    else if (answer.status !== 404) {
      const said = await answer.json().catch(() => ({}));
      if (typeof said.detail === "string") why = said.detail;
    }
    throw Object.assign(new Error(why), { status: answer.status });
  };
  const xcom = async (at, key, task = "give_order") => {
    try { return (await api(`${at}/taskInstances/${task}/xcomEntries/${key}`)).value; } catch { return null; }
  };
  const BEGINS = /^topic_migration/, OPENS = "plan.read_spec"; // the DAGs that migrate, and their first task
  const parsed = (value) => {
    if (typeof value !== "string") return value;
    try { return JSON.parse(value); } catch { return value; }
  };
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));

  const give = async (form, onlySay) => {
    const { dag, give: order, migration } = form.dataset, place = form.querySelector(".said");
    const buttons = [...form.querySelectorAll("button:not([data-close])")];
    const reason = form.elements.reason;
    if (!onlySay && reason.required && !reason.value.trim()) {
      say(place, ["Say why first, for whoever reads the audit trail. Nothing was done.", "bad-text"]);
      reason.focus();
      return;
    }
    const conf = { migration };
    if (dag === "topic_rollback") Object.assign(conf, { reason: reason.value, only_say: onlySay });
    if (dag === "topic_control") {
      Object.assign(conf, { order, reason: reason.value, only_say: onlySay });
      const until = form.elements.until?.value;
      if (until) conf.until = new Date(until).toISOString();
      if (form.elements.records) conf.records = form.elements.records.value;
    }
    for (const button of buttons) button.disabled = true;
    let done = false;
    try {
      say(place, ["Asking Airflow …"]);
      const run = (await api(`dags/${dag}/dagRuns`, { logical_date: null, conf })).dag_run_id;
      const at = `dags/${dag}/dagRuns/${encodeURIComponent(run)}`;
      if (dag === "topic_rollback" && !onlySay) {
        done = true;
        say(place, ["topic_rollback has begun. It looks at the cluster, then asks for exactly the rollback that holds."]);
        runLink(place, dag, run);
        return;
      }
      let state = "queued";
      for (let n = 0; !["success", "failed"].includes(state); n += 1) {
        await wait(n < 20 ? 500 : 2000);
        state = (await api(at)).state;
        say(place, [onlySay ? `The cluster is looked at: the run of ${dag} is ${state}.` : `The run of ${dag} is ${state}.`]);
        runLink(place, dag, run);
        if (n > 150) { say(place, [`The run is still ${state}. Look at it in Airflow.`, "bad-text"]); runLink(place, dag, run); return; }
      }
      const task = dag === "topic_rollback" ? "observe" : "give_order";
      const said = parsed((await xcom(at, "return_value", task)) ?? (await xcom(at, "said", task))) || {};
      const lines = (said.would || []).map((line) => [line]);
      if (lines.length) lines.unshift([onlySay ? "What would happen now, by what the cluster shows:" : state === "failed" ? "What was to be done:" : "What was ordered:"]);
      if (said.cannot) lines.push([`Refused: ${said.cannot}`, "bad-text"]);
      else if (state === "failed") lines.push(["It failed; the log of its task says why.", "bad-text"]);
      else if (onlySay) for (const button of buttons) delete button.dataset.refused;
      else {
        const happened = said.happened || [];
        if (happened.length) lines.push(["What has happened, by the audit trail:"], ...happened.map((line) => [line]));
        lines.push([`Done: ${said.outcome}`], ...(said.left || []).map((line) => [`Left to do by hand: ${line}`, "bad-text"]));
        done = true;
      }
      say(place, ...lines);
      runLink(place, dag, run);
    } catch (error) {
      say(place, [error instanceof TypeError ? "Airflow does not answer." : error.message, "bad-text"]);
    } finally {
      for (const button of buttons) button.disabled = done || "refused" in button.dataset;
      form.querySelector("[data-close]").textContent = done ? "Close" : "Do nothing";
    }
  };

  // Runs that this browser has had begun: how far each is, until a look's draft stands on the page, a migration has ended,
  // or why there is none.
  const LOOKS = "topicshift-looks";
  const kept = () => {
    try { return (JSON.parse(sessionStorage.getItem(LOOKS)) || []).map((one) => ({ dag: ASSESS, ...one })); } catch { return []; }
  };
  const keep = (looks) => { sessionStorage.setItem(LOOKS, JSON.stringify(looks)); showLooks(); };
  const showLooks = () => {
    for (const [id, wanted] of [["looks", (dag) => dag === ASSESS], ["begun", (dag) => dag !== ASSESS]]) {
      document.getElementById(id)?.replaceChildren(...kept().filter((one) => wanted(one.dag)).map(shownRun));
    }
  };
  const shownRun = (look) => {
    const part = document.createElement("div");
    part.className = "said";
    say(part, [look.line, look.bad ? "bad-text" : ""]);
    runLink(part, look.dag, look.run, look.migration);
    if (look.over) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.dismiss = look.run;
      button.textContent = "Dismiss";
      part.lastChild.append(" ", button);
    }
    return part;
  };
  const ASSESS = "topic_assessment";
  // A run that locked its topics owns a migration, whose page says more; one that was refused says why here.
  const began = async (one, at, state) => {
    const said = parsed(await xcom(at, "said", OPENS)) || {}, owned = parsed(await xcom(at, "migration", OPENS)) || {};
    const what = `The migration of ${one.topic}`, migration = owned.id;
    if (state === "success") return { line: `${what} is done.`, over: true, migration };
    if (state === "failed") return { line: migration ? `${what} has failed: its page says why.` : `${what} was refused: ${said.cannot || "the log of its tasks says why."}`, over: true, bad: true, migration };
    return { line: migration ? `${what} goes on: its page says how far it is.` : `${what}: its run is ${state}.`, migration };
  };
  const outcome = async (look, at, state) => {
    if (look.dag !== ASSESS) return began(look, at, state);
    const said = parsed(await xcom(at, "said", "check")) || {};
    if (!["success", "failed"].includes(state)) {
      const why = said.again ? `; the last try failed: ${said.cannot}` : "";
      return { line: `The look at ${look.topic} is ${state}${why} …` };
    }
    if (state === "success") return { line: `The look at ${look.topic} is done: its draft is below.`, over: true };
    const found = said.cannot ? null : parsed(await xcom(at, "return_value", "report"));
    if (found) {
      const why = (found.blocking || []).join(" ");
      return { line: `The look at ${look.topic} is done: its draft is below. A migration by it would be refused: ${why}`, over: true, bad: true };
    }
    const why = said.cannot || "the log of its tasks says why.";
    return { line: `The look at ${look.topic} failed: ${why} Mend that, then look again.`, over: true, bad: true };
  };
  const follow = async () => {
    for (const look of kept().filter((one) => !one.over)) {
      const at = `dags/${look.dag}/dagRuns/${encodeURIComponent(look.run)}`, name = look.dag === ASSESS ? "look at" : "migration of";
      let now;
      try {
        now = await outcome(look, at, (await api(at)).state);
      } catch (error) {
        const why = error instanceof TypeError ? "Airflow does not answer" : error.message;
        now = { line: `Whether the ${name} ${look.topic} goes on is not known: ${why}.`, bad: true, over: error.status === 404 };
      }
      keep(kept().map((one) => (one.run === look.run ? { dag: one.dag, topic: one.topic, run: one.run, ...now } : one)));
      if (now.over) refresh();
    }
    setTimeout(follow, 2000);
  };
  if (document.getElementById("looks")) { showLooks(); follow(); }

  // A run with the values of a draft, or of the fields that data-from names; what the form itself holds comes last.
  const valuesOf = (form) => {
    const conf = JSON.parse(form.dataset.conf);
    for (const pair of (form.dataset.from || "").split(" ").filter(Boolean)) {
      const [key, id] = pair.split("=");
      conf[key] = document.getElementById(id).value.trim();
    }
    if (form.elements.partitions) conf.partitions = form.elements.partitions.valueAsNumber;
    return conf;
  };
  const start = async (form) => {
    const dag = form.elements.dag?.value || form.dataset.start, place = form.querySelector(".said");
    const submit = form.querySelector("[type=submit]"), conf = valuesOf(form);
    const count = form.elements.partitions;
    if (count && !count.checkValidity()) {
      const most = Number(count.max).toLocaleString("en"), given = count.value === "" ? "This" : count.value;
      say(place, [`${given} is no count of partitions. Write a whole number from 1 to ${most}. Nothing was begun.`, "bad-text"]);
      count.setAttribute("aria-invalid", "true");
      count.focus();
      return;
    }
    count?.removeAttribute("aria-invalid");
    submit.disabled = true;
    let done = false;
    try {
      say(place, ["Asking Airflow …"]);
      const run = (await api(`dags/${dag}/dagRuns`, { logical_date: null, conf })).dag_run_id;
      done = true;
      const topic = conf.source || form.dataset.topic;
      const line = dag === ASSESS ? `The look at ${topic} begins …` : `The migration of ${topic} begins …`;
      keep([...kept().filter((one) => one.dag !== dag || one.topic !== topic), { dag, topic, run, line }]);
      for (const pair of (form.dataset.from || "").split(" ").filter(Boolean)) {
        const field = document.getElementById(pair.split("=")[1]);
        field.value = field.defaultValue; // so that the page refreshes itself again
      }
      const paused = await api(`dags/${dag}`).then((found) => found.is_paused, () => false);
      say(place, [`A run of ${dag} has begun.`], ...(paused ? [[`${dag} is paused, so the run waits: unpause it in Airflow.`, "bad-text"]] : []));
      runLink(place, dag, run);
    } catch (error) {
      say(place, [error instanceof TypeError ? "Airflow does not answer." : error.message, "bad-text"]);
    } finally {
      submit.disabled = done;
      form.querySelector("[data-close]").textContent = done ? "Close" : "Do nothing";
    }
  };

  // The tab of a run that owns no migration: why it was refused, or that it has not locked its topics yet.
  const showRun = async () => {
    const place = main.querySelector("[data-run]"), asked = new URLSearchParams(location.search);
    const dag = asked.get("dag_id") || "", run = asked.get("run_id") || "";
    if (!place || !BEGINS.test(dag)) return;
    const at = `dags/${encodeURIComponent(dag)}/dagRuns/${encodeURIComponent(run)}`;
    try {
      const { state } = await api(at), said = parsed(await xcom(at, "said", OPENS)) || {};
      if (said.cannot) say(place, [said.again && state !== "failed" ? `The last try to lock its topics failed: ${said.cannot}` : `It was refused: ${said.cannot}`, "bad-text"]);
      else if (state === "failed") say(place, ["It failed before it locked its topics; the log of its tasks says why.", "bad-text"]);
      else if (state !== "success") say(place, [`The run is ${state}, and has not locked its topics yet.`]);
    } catch { place.replaceChildren(); }
  };
  showRun();

  // How far the Spark job of this step is, by the last line that it has said.
  const showJob = async () => {
    const place = main.querySelector("[data-job]");
    if (!place) return;
    const { job, dag, run } = place.dataset;
    const said = await xcom(`dags/${encodeURIComponent(dag)}/dagRuns/${encodeURIComponent(run)}`, "progress", job);
    place.hidden = !said;
    place.textContent = said ? `Spark: ${parsed(said)}` : "";
  };
  showJob();

  const earlier = async (button) => {
    const { earlier: before, from } = button.dataset;
    const answer = await fetch(`${from}?before=${before}`, { cache: "no-store" });
    if (!answer.ok) return;
    more = true; // rows that a person has asked for are not taken away by the next refresh
    stale("earlier rows of the trail are shown. Load the page anew to follow the migration.");
    const rows = await answer.json(), body = button.closest("details").querySelector("tbody");
    for (const row of rows) {
      const line = body.insertRow();
      for (const value of [row.seq, row.at, row.actor, `${row.did} ${row.what}`]) line.insertCell().textContent = value;
    }
    const last = rows.at(-1);
    if (last && last.seq > 1) button.dataset.earlier = last.seq;
    else button.remove();
  };

  const open = (dialog) => {
    if (!dialog) return;
    const needed = document.getElementById(dialog.dataset.needs), missing = needed?.parentElement.parentElement.querySelector(".missing");
    if (missing) {
      missing.hidden = needed.value.trim() !== "";
      if (!missing.hidden) { needed.focus(); return; }
    }
    for (const echo of dialog.querySelectorAll("[data-echo]")) echo.textContent = document.getElementById(echo.dataset.echo).value.trim() || "a topic";
    dialog.showModal();
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.order) open(document.getElementById(button.dataset.order));
    else if ("close" in button.dataset) button.closest("dialog").close();
    else if (button.dataset.dismiss) keep(kept().filter((one) => one.run !== button.dataset.dismiss));
    else if ("look" in button.dataset) give(button.form, true);
    else if (button.dataset.earlier) earlier(button);
  });
  // However it was closed: what stood behind it is as old as its opening.
  document.addEventListener("close", () => { refresh(); }, true);
  document.addEventListener("input", (event) => {
    const place = event.target.closest("dialog")?.querySelector(".said"); // an error is of what was typed before
    if (place?.querySelector(".bad-text") && !event.target.form.querySelector("button:disabled")) place.replaceChildren();
    if (event.target.value.trim()) for (const missing of main.querySelectorAll(".missing")) missing.hidden = true;
  });
  document.addEventListener("submit", (event) => {
    const { give: order, start: dag } = event.target.dataset;
    if (!order && !dag) return;
    event.preventDefault();
    if (order) give(event.target, false);
    else start(event.target);
  });
})();
