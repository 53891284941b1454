(() => {
  "use strict";
  const log = document.getElementById("log");
  const partial = document.getElementById("partial");
  const output = document.getElementById("output");
  const query = location.search || "?";
  const keptLetters = 4000000;
  let next = Number(log.dataset.next);
  let rev = log.dataset.rev;
  let letters = 0;

  const get = (part) => fetch(location.pathname + part, { cache: "no-store", credentials: "omit" });
  const atBottom = () => output.scrollTop + output.clientHeight >= output.scrollHeight - 40;
  const toBottom = () => { output.scrollTop = output.scrollHeight; };

  function show(live) {
    const stay = atBottom();
    if (live.text) {
      log.append(live.text);
      letters += live.text.length;
      while (letters > keptLetters && log.childNodes.length > 1) {
        letters -= log.firstChild.length;
        log.firstChild.remove();
      }
    }
    partial.textContent = live.partial;
    next = live.next;
    if (stay) toBottom();
  }

  async function draw(to) {
    const answer = await get("/facts" + query);
    if (!answer.ok) return;
    const drawn = document.createElement("template");
    drawn.innerHTML = await answer.text();
    for (const id of ["top", "rest"]) {
      const now = document.getElementById(id);
      const open = [...now.querySelectorAll("details")].map((each) => each.open);
      now.replaceChildren(...drawn.content.getElementById(id).childNodes);
      now.querySelectorAll("details").forEach((each, at) => { each.open = open[at] || false; });
    }
    rev = to;
  }

  async function turn() {
    let wait = 500;
    try {
      const answer = await get("/live" + query + "&offset=" + next);
      if (answer.ok) {
        const live = await answer.json();
        show(live);
        if (live.rev !== rev) await draw(live.rev);
        if (live.more) wait = 0;
        else if (live.ended) wait = live.over ? -1 : 2000;
      } else {
        wait = 5000;
      }
    } catch {
      wait = 3000;
    }
    if (wait >= 0) setTimeout(turn, wait);
  }
  toBottom();
  turn();
})();
