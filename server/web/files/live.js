// Shows new lines of a job as they come, and loads the page anew when the job's state changes. Without it the page
// shows what there was.
"use strict";
const lines = document.getElementById("lines");
if (lines && lines.dataset.follow) {
  const source = new EventSource(lines.dataset.follow);
  let state = null;
  source.addEventListener("line", (e) => {
    const line = JSON.parse(e.data);
    const end = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    const span = document.createElement("span");
    span.className = line.err ? "err" : "";
    span.textContent = (line.rank >= 0 ? "[" + line.rank + "] " : "") + line.text + "\n";
    lines.append(span);
    while (lines.childElementCount > 2000) lines.firstElementChild.remove();
    if (end) lines.scrollTop = lines.scrollHeight;
  });
  source.addEventListener("state", (e) => {
    const now = JSON.parse(e.data).state;
    if (state !== null && state !== now) location.reload();
    state = now;
  });
  source.addEventListener("end", () => { source.close(); location.reload(); });
}
